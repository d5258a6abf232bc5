package system

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBurst is TestTokenLimitOverThreeSidecars on the virtual clock, with callers that are as many at each sidecar, or
// nearly all at one: in 15 s nearly all of the bucket and its refill is admitted, wherever the callers are.
func TestBurst(t *testing.T) {
	for name, callers := range map[string][3]int{"even": {300, 300, 300}, "uneven": {150, 50, 600}} {
		t.Run(name, func(t *testing.T) {
			config := strings.Replace(org(provider, "{ monthly: 100000 }", fmt.Sprintf("{ tpm: %d }", burstLimit)),
				"chat: { targets:", "chat: { reserve: cap, targets:", 1)
			inWorld(t, 1, 3, config, func(t *testing.T, w *world) {
				body := say(burstBody, fmt.Sprintf(`,"max_tokens":%d`, burstCap))
				began := time.Now()
				var load sync.WaitGroup
				var mu sync.Mutex
				late := int64(0)
				for i, m := range w.cars {
					for range callers[i] {
						load.Go(func() {
							for time.Since(began) < burstTime {
								a := w.chat(m, body)
								switch {
								case a.status == 200:
									mu.Lock()
									if time.Since(began) > burstTime {
										late++
									}
									mu.Unlock()
									return
								case a.code() != "key_tokens_per_minute":
									t.Errorf("%d %s %v", a.status, a.body, a.err)
									return
								}
								w.pass(200 * time.Millisecond)
							}
						})
					}
				}
				load.Wait()
				u := w.witnessed()
				admitted := u.input + u.output + late*(burstCap-burstUsed)
				offered := int64(burstLimit * (1 + burstTime.Minutes()))
				t.Logf("admitted at %v: %d of %d, %.1f%%", burstTime, admitted, offered, 100*float64(admitted)/float64(offered))
				if admitted < offered*97/100 || admitted > offered*105/100 {
					t.Errorf("admitted %d of %d", admitted, offered)
				}
				w.agree()
			})
		})
	}
}

// TestEqualDemandIsServedEqually: whoever comes first to a limit that is too small for all keeps no more than its part.
func TestEqualDemandIsServedEqually(t *testing.T) {
	const limit = 1200 // a minute
	inWorld(t, 1, 3, org(provider, "{ monthly: 100000 }", fmt.Sprintf("{ rpm: %d }", limit)), func(t *testing.T, w *world) {
		start := time.Now()
		end := start.Add(2 * time.Minute)
		var served [3]int
		var mu sync.Mutex
		var load sync.WaitGroup
		for i, m := range w.cars {
			for range 20 {
				load.Go(func() {
					w.pass(time.Duration(i) * 5 * time.Second)
					for time.Now().Before(end) {
						a := w.chat(m, say("tokens=5", ""))
						if a.status == 200 && time.Since(start) > 30*time.Second {
							mu.Lock()
							served[i]++
							mu.Unlock()
						}
						w.pass(100 * time.Millisecond)
					}
				})
			}
		}
		load.Wait()
		sum, squares := 0, 0
		for _, n := range served {
			sum, squares = sum+n, squares+n*n
		}
		jain := float64(sum*sum) / float64(3*squares)
		t.Logf("served %v in 90 s at %d a minute: Jain's index %.4f", served, limit, jain)
		if jain < 0.98 || sum < limit*3/2*95/100 || sum > limit*3/2*105/100 {
			t.Errorf("served %v: unequal, or not the limit", served)
		}
	})
}
