package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// askWait is how long a request waits for quotad in all, and network what messages take beside that.
const (
	askWait = 2500 * time.Millisecond
	network = 100 * time.Millisecond
)

// twoRented is an organisation whose alias has two deployments with limits, one after the other. Of its soft budget
// nothing lies on lease before the first request, which quotad is asked for; without it the key's mode lets it pass.
func twoRented() string {
	yaml := org(provider, "{ monthly: 100, hard: false }", "{}, outage: open")
	yaml = strings.Replace(yaml, "price: chat }\n", `price: chat, limits: { rpm: 600 } }
  - { id: second, provider: openai, base_url: "`+provider+`", model: m2, credential: main, price: chat, limits: { rpm: 600 } }
`, 1)
	return strings.Replace(yaml, "{ deployment: main }", "{ deployment: main }, { deployment: second, priority: 2 }", 1)
}

// TestWaitsOnceForQuotad: quotad is gone. A request that asks it at admission and for two deployments with limits waits
// for it once, wherever that is.
func TestWaitsOnceForQuotad(t *testing.T) {
	for name, funded := range map[string]bool{"at admission": false, "at the first deployment": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 1, twoRented(), func(t *testing.T, w *world) {
				short := func(deployment string) float64 {
					return max(0, w.metric(w.cars[0], fmt.Sprintf("sluice_pool_short_total{deployment=%q}", deployment)))
				}
				if funded { // its class is another claimant at the provider, of which nothing is known here
					if a := w.chat(w.cars[0], say("tokens=1", "")); a.status != 200 {
						t.Fatalf("%d %s", a.status, a.body)
					}
				}
				w.nodes[0].stop()
				began := time.Now()
				a := w.call(w.cars[0], appKey, say("tokens=1", ""), "x-gw-priority", "batch")
				if took := time.Since(began); took < askWait || took > askWait+network {
					t.Errorf("refused after %v, want %v", took, askWait)
				}
				if a.status != 503 || a.code() != "quota_unavailable" || retryAfter(a) <= 0 {
					t.Errorf("%d %s", a.status, a.body)
				}
				if first, second := short("main"), short("second"); first != 1 || second != 1 {
					t.Errorf("the deployments were asked for %v and %v times, want once each", first, second)
				}
			})
		})
	}
}

// TestWaitingIsNoDeadline: what a provider takes to fail is not taken from the time that its request may wait for quotad.
func TestWaitingIsNoDeadline(t *testing.T) {
	const failing, away = 4 * time.Second, time.Second
	inWorld(t, 1, 1, twoRented(), func(t *testing.T, w *world) {
		settings := map[string]fakeprovider.Settings{"m1": {"status": "503", "first": failing.String()}}
		if err := w.fake.Apply(fakeprovider.Control{ModelSettings: &settings}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(failing-network, func() { w.cutOff(w.cars...) })
		time.AfterFunc(failing+away, w.net.Heal)
		began := time.Now()
		a := w.chat(w.cars[0], say("tokens=1", ""))
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if took := time.Since(began); took < failing+away {
			t.Errorf("served after %v: quotad was not waited for", took)
		}
		if models := w.fake.Witness(0).Models; models["m2"].Completed != 1 {
			t.Errorf("the second deployment did not serve it: %+v", models)
		}
		w.agree()
	})
}
