package gateway

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

const allMoney = 1_000_000_000_000

// TestWhoLeavesPays: a caller that hangs up while the provider works has had its prompt read. The team pays for it,
// whoever pays for failed attempts, or a budget would not bind callers that hang up in time.
func TestWhoLeavesPays(t *testing.T) {
	for name, body := range map[string]string{"json": hello, "stream": with(`"stream":true`)} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			r := newRig(t, []*provider{{id: "a", answer: func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
			}}}, all(limited(100, 100_000, 50_000, allMoney), pooled(0, plenty)))
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-asked
				leave()
			}()
			req, err := http.NewRequestWithContext(ctx, "POST", r.url+"/v1/chat/completions", strings.NewReader(body))
			r.must(err)
			req.Header.Set("Authorization", "Bearer "+r.key)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Fatal("answered")
			}
			for r.g.Lease.Stats().OpenHolds > 0 {
				runtime.Gosched() // the settle comes after the caller has gone
			}
			ev := r.attempts()
			if len(ev) != 1 {
				t.Fatalf("%d events", len(ev))
			}
			cost := ev[0].Get("cost_nano").Int()
			if cost <= 0 || ev[0].Get("status").Str != "cancelled" || ev[0].Get("platform_pays").Bool() || ev[0].Get("billed").Bool() {
				t.Errorf("event %s", ev[0].Raw)
			}
			if left, _, _, _ := r.g.Lease.Remaining(teamMoney); left != allMoney-cost {
				t.Errorf("%d of the budget is gone, the event says %d", allMoney-left, cost)
			}
			if got := r.used(0, "standard/red"); got[0] != 1 || got[2] != 100 {
				t.Errorf("of the provider's limits %v were counted: it had the request, with its cap", got)
			}
			r.settled()
		})
	}
}

// TestWastedRowsComeWithTheSettle: what the team pays for a failed attempt is a part of the reservation until the
// request settles. A row before that would count twice if the process were killed in between.
func TestWastedRowsComeWithTheSettle(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	slow := func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-goOn
		fine(w, r)
	}
	r := newRig(t, []*provider{{id: "silent", answer: hangUp}, {id: "b", answer: slow}}, func(s *quotav1.Snapshot) {
		limited(100, 100_000, 50_000, allMoney)(s)
		s.Keys[0].PaysFailedAttempts = true
	})
	done := make(chan answer, 1)
	go func() { done <- r.chat(hello) }()
	<-asked
	if ev := r.attempts(); len(ev) != 0 {
		t.Errorf("recorded before the settle: %v", ev)
	}
	close(goOn)
	if a := <-done; a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	ev := r.attempts()
	if len(ev) != 2 || ev[0].Get("attempt").Int() != 1 || ev[1].Get("attempt").Int() != 2 {
		t.Fatalf("events %v", ev)
	}
	cost := ev[0].Get("cost_nano").Int() + ev[1].Get("cost_nano").Int()
	if left, _, _, _ := r.g.Lease.Remaining(teamMoney); left != allMoney-cost {
		t.Errorf("%d of the budget is gone, the events say %d", allMoney-left, cost)
	}
}

// TestLostEvent: the row names the team whose money it is, also when its key is no longer configured, and the longest
// names fit into a note.
func TestLostEvent(t *testing.T) {
	name := func(c string) string { return strings.Repeat(c, 64) }
	f := &flow{
		who: &exchange.Principal{Key: name("k"), Team: name("t")}, alias: &exchange.Alias{Name: name("a")}, began: time.Now(),
		reserved: reservation{input: 1 << 40, output: 1 << 40, cost: 1 << 60},
	}
	f.req.ID = name("r")
	note := f.note()
	if len(note) == 0 || len(note) > lease.MaxNoteBytes {
		t.Fatalf("the note has %d bytes", len(note))
	}
	e, err := LostEvent(nil, note)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{e.GetRequestId(), e.GetKey(), e.GetAlias(), e.GetTeam()}
	if want := []string{name("r")[:requestIDKept], name("k"), name("a"), name("t")}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if e.GetCostNano() != 1<<60 || e.GetTokens().GetInput() != 1<<40 || e.GetAtMs() != f.began.UnixMilli() {
		t.Errorf("%v", e)
	}
	for n := range note {
		if _, err := LostEvent(nil, note[:n]); err == nil {
			t.Errorf("%d bytes of %d pass for a note", n, len(note))
		}
	}
}

func TestEveryResponseHasADate(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, nil)
	for path, a := range map[string]answer{
		"an answer": r.chat(hello), "a refusal": r.chat("{"), "a list": r.send("GET", "/v1/models", ""), "no route": r.send("GET", "/x", ""),
	} {
		if at, err := http.ParseTime(a.header.Get("Date")); err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("%s: date %q", path, a.header.Get("Date"))
		}
	}
}
