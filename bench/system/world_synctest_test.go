package system

import (
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// TestWorld: the main job through both sidecars, exact to the nano-dollar.
func TestWorld(t *testing.T) {
	org := org(provider, "{ monthly: 100 }", "{ rpm: 60000, tpm: 5000000 }")
	inWorld(t, 1, 2, org, func(t *testing.T, w *world) {
		for i, car := range w.cars {
			a := w.chat(car, say("tokens=7 first=2s", ""))
			if a.status != 200 || !strings.Contains(a.body, fakeprovider.Text(7, false)) {
				t.Fatalf("json: %d %s %v", a.status, a.body, a.err)
			}
			a = w.chat(car, say("tokens=5 first=3s gap=1s", `,"stream":true`))
			ev, err := events(strings.NewReader(a.body))
			if a.status != 200 || err != nil || len(ev) < 6 || ev[len(ev)-1] != "[DONE]" {
				t.Fatalf("stream: %d %v %v", a.status, ev, err)
			}
			if got := w.witnessed(); got.requests != int64(2*i+2) || got.output != int64(12*i+12) {
				t.Fatalf("the witness saw %+v", got)
			}
		}
		w.agree()
	})
}
