package system

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// TestFaults: cuts, restarts of nodes and of sidecars, in any order, for five minutes under load. Whatever happens, the
// limits hold all the time, and when all are back the books agree with the provider to the token.
//
// A seed fixes what happens and what is sent. It does not fix how goroutines run, so a seed that failed may pass.
func TestFaults(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("SLUICE_SYSTEM") != "" {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { withFaults(t, seed) })
	}
}

func withFaults(t *testing.T, seed uint64) {
	const limit, cars = 120, 3
	org := org(provider, "{ monthly: 0.3 }", fmt.Sprintf("{ rpm: %d }", limit))
	inWorld(t, 3, cars, org, func(t *testing.T, w *world) {
		end := time.Now().Add(5 * time.Minute)
		var got admissions
		var busy sync.WaitGroup
		for i := range 2 * cars {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			busy.Go(func() {
				for time.Now().Before(end) {
					more := fmt.Sprintf(`,"max_tokens":%d`, 100+rng.IntN(900))
					if rng.IntN(2) == 0 {
						more += `,"stream":true`
					}
					a := w.chat(w.cars[i%cars], say(fmt.Sprintf("tokens=%d first=%dms gap=20ms", 1+rng.IntN(100), rng.IntN(1000)), more))
					switch {
					case a.status == 200 && a.err == nil:
						got.add()
					case a.err != nil, limited(a), a.code() == "budget_reserved", a.code() == "budget_exhausted", a.code() == "shutting_down":
					default:
						t.Errorf("at %v: %d %s %v", time.Now(), a.status, a.body, a.err)
					}
					w.pass(time.Duration(rng.IntN(500)) * time.Millisecond)
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, 1000))
		for time.Now().Before(end) {
			w.pass(time.Duration(1+rng.IntN(20)) * time.Second)
			node, car := w.nodes[rng.IntN(len(w.nodes))], w.cars[rng.IntN(cars)]
			switch rng.IntN(5) {
			case 0:
				w.cutOff(car)
			case 1:
				for _, other := range append(append([]*member{}, w.nodes...), w.cars...) {
					if other != node {
						w.net.Cut(node.ip, other.ip)
					}
				}
			case 2:
				w.net.Heal()
			case 3:
				node.stop()
				w.pass(time.Duration(rng.IntN(5)) * time.Second)
				w.startNode(node)
			case 4:
				car.stop()
				w.pass(time.Duration(rng.IntN(5)) * time.Second)
				w.startCar(car)
			}
		}
		w.net.Heal()
		busy.Wait()
		for _, m := range w.cars {
			w.connected(m)
		}
		for _, window := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
			if n, most := got.worst(window), int(limit+limit*window.Minutes())*105/100; n > most {
				t.Errorf("%d answered within %v, want %d at most", n, window, most)
			}
		}
		if spent := w.witnessed().cost; spent > 300_000_000 {
			t.Errorf("spent %d of 300,000,000 nano-dollars", spent)
		}
		w.agree()
		t.Logf("%d answered, the provider had %+v", len(got.at), w.witnessed())
	})
}
