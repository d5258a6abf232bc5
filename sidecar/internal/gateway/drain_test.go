package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// TestDrain: whatever comes after it is told that the sidecar stops, and its connection is closed. What runs goes on.
func TestDrain(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, []*provider{{id: "a", answer: func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-goOn
		fine(w, r)
	}}}, nil)
	runs := make(chan answer, 1)
	go func() { runs <- r.chat(hello) }()
	<-asked
	r.g.Drain()
	for _, route := range []string{"POST /v1/chat/completions", "POST /v1/messages", "POST /v1/embeddings", "GET /v1/models", "GET /nowhere"} {
		method, path, _ := strings.Cut(route, " ")
		a := r.send(method, path, hello)
		if a.status != 503 || !strings.Contains(a.body, `code":"shutting_down"`) || !a.closed || a.number("retry-after") != 1 ||
			a.header.Get("x-should-retry") != "true" || a.header.Get("x-request-id") == "" {
			t.Errorf("%s: %+v", route, a)
		}
	}
	close(goOn)
	if a := <-runs; a.status != 200 {
		t.Errorf("the running request: %+v", a)
	}
}
