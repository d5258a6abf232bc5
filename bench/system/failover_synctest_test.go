package system

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// leader is the node that leads.
func (w *world) leader() (m *member) {
	w.t.Helper()
	w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
		resp, err := c.Status(ctx, connect.NewRequest(&adminv1.StatusRequest{}))
		if err != nil {
			return err
		}
		for _, n := range w.nodes {
			if n.name == resp.Msg.LeaderId {
				m = n
				return nil
			}
		}
		return connect.NewError(connect.CodeUnavailable, nil)
	})
	return m
}

// askingOrg lets so little money lie on lease that of requests of askingBody, which use all they reserve, most must ask.
func askingOrg() string {
	return strings.Replace(org(provider, "{ monthly: 8 }", "{ rpm: 600000 }"), "  chat: {", "  chat: { reserve: cap,", 1)
}

var askingBody = say("tokens=1000 first=50ms", `,"max_tokens":1000`)

// TestRollingRestart: all nodes are stopped and started again, one after the other, under load. Nobody is refused and
// nothing is counted twice.
func TestRollingRestart(t *testing.T) {
	for name, nodes := range map[string]int{"three nodes": 3, "one node": 1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nodes, 2, askingOrg(), func(t *testing.T, w *world) {
				stop := make(chan struct{})
				var load sync.WaitGroup
				for _, m := range w.cars {
					load.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
							}
							if a := w.chat(m, askingBody); a.status != 200 {
								t.Errorf("at %v: %d %s %v", time.Now(), a.status, a.body, a.err)
							}
							w.pass(50 * time.Millisecond)
						}
					})
				}
				for range 2 {
					for _, m := range w.nodes {
						w.pass(5 * time.Second)
						m.stop()
						w.pass(time.Second)
						w.startNode(m)
					}
				}
				w.pass(5 * time.Second)
				close(stop)
				load.Wait()
				w.agree()
			})
		})
	}
}

// TestLeaderLost: while a leader is replaced, requests that need quotad wait and are served; nobody is refused.
func TestLeaderLost(t *testing.T) {
	for name, lose := range map[string]func(*world, *member){
		"cut off": func(w *world, m *member) {
			for _, other := range append(append([]*member{}, w.nodes...), w.cars...) {
				if other != m {
					w.net.Cut(m.ip, other.ip)
				}
			}
		},
		"cut off from its peers": func(w *world, m *member) {
			for _, other := range w.nodes {
				if other != m {
					w.net.Cut(m.ip, other.ip)
				}
			}
		},
		"stopped": func(_ *world, m *member) { m.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, 2, askingOrg(), func(t *testing.T, w *world) {
				var mu sync.Mutex
				counts := map[string]int{}
				var slowest time.Duration
				end := time.Now().Add(30 * time.Second)
				var load sync.WaitGroup
				for _, m := range w.cars {
					load.Go(func() {
						for time.Now().Before(end) {
							began := time.Now()
							a := w.chat(m, askingBody)
							mu.Lock()
							for k, n := range tally([]answer{a}) {
								counts[k] += n
							}
							slowest = max(slowest, time.Since(began))
							mu.Unlock()
							w.pass(50 * time.Millisecond)
						}
					})
				}
				w.pass(5 * time.Second)
				old := w.leader()
				lose(w, old)
				w.pass(10 * time.Second)
				w.net.Heal()
				load.Wait()
				t.Logf("%v, the slowest took %v", counts, slowest)
				if len(counts) != 1 || counts["200"] == 0 {
					t.Errorf("answers %v: nobody may be refused because of it", counts)
				}
				asked := w.metric(w.cars[0], `sluice_admissions_total{from="ask"}`) + w.metric(w.cars[1], `sluice_admissions_total{from="ask"}`)
				waited := slowest > 200*time.Millisecond || name != "cut off" // otherwise it takes less
				if w.leader() == old || int(asked) < counts["200"]/3 || !waited {
					t.Errorf("the test is about nothing: %.0f of %v asked, the slowest took %v", asked, counts, slowest)
				}
				w.agree()
			})
		})
	}
}
