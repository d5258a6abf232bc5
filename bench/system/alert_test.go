package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// hook is a team's webhook. It refuses each alert the first time.
type hook struct {
	mu      sync.Mutex
	refused map[string]bool
	taken   []map[string]any
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n map[string]any
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil || r.Header.Get("Idempotency-Key") != n["id"] {
		http.Error(w, "no alert", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if id := r.Header.Get("Idempotency-Key"); !h.refused[id] {
		h.refused[id] = true
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	h.taken = append(h.taken, n)
}

// told is the thresholds the webhook took.
func (h *hook) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, n := range h.taken {
		out = append(out, fmt.Sprint(n["threshold_permille"]))
	}
	return strings.Join(out, " ")
}

// TestAlerts: each threshold of a budget is told once, whatever the webhook and the leader do.
func TestAlerts(t *testing.T) {
	h := &hook{refused: map[string]bool{}}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	s := start(t, 1, 1, func(base string) string {
		return strings.Replace(org(base, "{ monthly: 0.01, hard: false, alert_at: [0.5, 1.0, 10] }", "{ rpm: 600000 }"),
			"teams:\n  t: {", "teams:\n  t: { alerts: { webhook: "+srv.URL+"/secret-path },", 1)
	})
	spend := func() { // a little more than half of the budget
		t.Helper()
		if a := s.chat(s.sidecars[0], say("tokens=510", `,"max_tokens":520`)); a.status != http.StatusOK {
			t.Fatalf("got %d %s", a.status, a.body)
		}
	}
	spend()
	// A leader that dies between the webhook's answer and its own note tells it again, with the same key.
	nothingLeft := func() bool {
		b, err := get("http://" + s.nodes[0].admin + "/metrics")
		return err == nil && strings.Contains(b, "\nsluice_alerts_pending 0\n")
	}
	s.eventually("half is told, and that is noted", func() bool { return h.told() == "500" && nothingLeft() })
	s.nodes[0].Kill()
	s.nodes[0].process = run(t, s.nodes[0].id, "quotad", s.nodes[0].args...)
	spend()
	s.eventually("all is told, and half not again", func() bool { return h.told() == "500 1000" })
	first := h.taken[0]
	if first["owner"] != "t" || first["team"] != "t" || first["cap_nano"] != "10000000" || first["hard"] != false ||
		!strings.Contains(first["text"].(string), "50% reached") {
		t.Errorf("got %v", first)
	}
	s.eventually("nothing is left to tell", nothingLeft)
}
