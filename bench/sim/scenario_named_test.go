package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// These scenarios are of what is one for each name: users, runs, pools.

// TestProviderHasOtherCallers: when others use half of a provider's limit, its word keeps ours to the rest: it refuses few.
func TestProviderHasOtherCallers(t *testing.T) {
	p := calm(3, 0)
	p.hungry = true
	for i := range 2 {
		p.addTeam(fmt.Sprint("team-", i), 3000, 3000*500, lease.Share)
	}
	p.addPool(600)
	p.script = func(w *world) {
		w.provider.outside, w.provider.used = 333, 600*60_000
		w.after(40*time.Second, func() { w.provider.served, w.provider.refused = 0, 0 })
		w.after(99*time.Second, func() {
			served, refused := w.provider.served, w.provider.refused
			if served < 250 || refused*20 > served {
				t.Errorf("the provider served %d and refused %d", served, refused)
			}
		})
	}
	runPlan(t, p, nil)
}

// TestEvictedRunThenItsLateRenew: a sidecar is cut off with money of runs that quotad drops meanwhile, at the end of their
// lifetime. What it says of them later meets nothing, and it lets go of them.
func TestEvictedRunThenItsLateRenew(t *testing.T) {
	p := calm(3, 1)
	p.hungry, p.duration = true, 160*time.Second
	p.addRuns("team-0", 40_000_000, 4000, 15*time.Second)
	late := 0
	p.script = func(w *world) {
		w.after(20*time.Second, func() {
			s := w.sidecars[0]
			s.link.cut = [2]bool{true, true}
			s.p.breakWithin(time.Second)
			w.after(120*time.Second, func() {
				if s.p == nil {
					return
				}
				for _, c := range s.p.m.Final(true).Counters {
					if _, kept := w.quotad.l.Resource(c.Resource); !kept {
						late++
					}
				}
				s.link.mend(w.now)
			})
		})
	}
	runPlan(t, p, func(w *world) {
		if late < 2 {
			t.Errorf("the sidecar came back with %d runs that were dropped", late)
		}
		for _, c := range w.sidecars[0].p.m.Final(true).Counters {
			if _, kept := w.quotad.l.Resource(c.Resource); !kept {
				t.Errorf("it still knows one: %v", c)
			}
		}
		late = 0
	})
}

// TestRunThatEndsInOverruns: two requests reserve nearly all that a run has, and cost more. What the first cost beyond is
// booked when the second has taken the rest; so both stand above the cap, though the second is admitted after the booking.
func TestRunThatEndsInOverruns(t *testing.T) {
	p := calm(2, 1)
	p.addRuns("team-0", 1_000_000, 400, runsKept)
	p.script = func(w *world) {
		draw := func(s *sidecar, need, use int64) {
			id := s.p.config.byName[name("run", "team-0", ledger.Money)].Id
			s.p.submit(&request{
				p: s.p, books: s.p.books, since: w.now, over: use - need, lasts: time.Second,
				needs: []lease.Need{{Resource: id, Amount: need, Name: "r"}}, uses: []lease.Need{{Resource: id, Amount: use}},
			})
		}
		early, late := w.sidecars[0], w.sidecars[1]
		w.after(10*time.Second, func() { draw(early, 500_000, 600_000) })
		w.after(10500*time.Millisecond, func() {
			late.link.cut[down] = true
			draw(late, 480_000, 580_000) // granted, and it hears of it once the other is booked
		})
		w.after(11500*time.Millisecond, func() {
			early.p.m.Wake() // it renews
			early.p.poll()
		})
		w.after(11700*time.Millisecond, func() { late.link.mend(w.now) })
	}
	runPlan(t, p, func(w *world) {
		for _, res := range w.witness.resources {
			if res.spec.Scope != "run" || res.spec.Kind != ledger.Money {
				continue
			}
			m := w.witness.need(res.id, "r").month(0)
			if m.spent != 1_180_000 || m.unbookedMost != 180_000 {
				t.Errorf("spent %d of %d, overruns in flight at most %d", m.spent, m.cap, m.unbookedMost)
			}
		}
	})
}

// TestMoreUsersThanFit: with more end users than quotad keeps, or a sidecar, further ones share. No user gets more than its
// own limit.
func TestMoreUsersThanFit(t *testing.T) {
	p := calm(3, 0)
	p.addTeam("team-0", 9000, 9000*300, lease.Share)
	p.addBudget("team", "team-0", plenty, true)
	p.addUsers("team-0", 9000)
	p.hungry, p.users = true, 50_000
	w := newWorld(1, p, nil)
	most := 0
	for w.now < 60*time.Second && w.broken == nil {
		w.playFor(time.Second)
		for _, r := range w.quotad.l.Resources() {
			most = max(most, r.Children)
		}
	}
	for _, res := range w.witness.resources {
		for _, kid := range res.kids {
			w.must(kid.judgeWindows(windowSlack))
		}
	}
	if w.broken != nil || most < 4000 || most > 4097 {
		t.Errorf("quotad kept %d users; %v", most, w.broken)
	}
}
