package sim

import (
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// The scenarios broke earlier drafts of the protocol. Each is a calm world with one course of events; the invariants
// and promises are those of every world.

// runPlan plays a few seeds of a plan and hands over each world at its end.
func runPlan(t *testing.T, p plan, also func(w *world)) {
	t.Helper()
	for seed := range uint64(2) {
		w := newWorld(seed+1, p, nil)
		w.run()
		if w.broken != nil {
			t.Fatalf("seed %d: %v", seed+1, w.broken)
		}
		if also != nil {
			also(w)
		}
	}
}

// every lets something happen again and again while there are faults.
func (w *world) every(d time.Duration, do func()) {
	w.after(d, func() {
		if w.faulty {
			do()
			w.every(d, do)
		}
	})
}

// atLeast requires that something has happened so often.
func atLeast(t *testing.T, w *world, f fault, n int) {
	t.Helper()
	if got := w.tally.faults[f]; got < n {
		t.Errorf("%s: %d times, want at least %d", faultNames[f], got, n)
	}
}

func TestCrashLoopOfStreams(t *testing.T) {
	p := calm(3, 1)
	p.lasts = [2]time.Duration{3 * time.Second, 8 * time.Second}
	p.addBudget("org", "o", 60_000_000, true)
	p.script = func(w *world) {
		w.every(2500*time.Millisecond, func() {
			if s := w.sidecars[0]; s.p != nil {
				s.kill(killedKept, 200*time.Millisecond)
				w.tally.faults[killKept]++
			}
		})
	}
	runPlan(t, p, func(w *world) { atLeast(t, w, killKept, 20) })
}

// TestTwelveOnASmallBucket: twelve that renew full leases, and then all use them at once with what is in the bucket.
func TestTwelveOnASmallBucket(t *testing.T) {
	p := calm(12, 1)
	p.specs[0].Limit, p.specs[0].Burst = 3000, 300
	p.specs[1].Limit, p.specs[1].Burst = 30_000_000, 3_000_000
	p.script = func(w *world) {
		w.every(time.Second, func() {
			for _, s := range w.sidecars {
				s.habit = steady // three quarters of the limit
			}
		})
		w.every(9*time.Second, func() {
			for _, s := range w.sidecars {
				for range 40 {
					s.call()
				}
			}
		})
	}
	runPlan(t, p, func(w *world) {
		if w.witness.refusals[lease.Throttled] < 100 {
			t.Errorf("throttled %d", w.witness.refusals[lease.Throttled])
		}
	})
}

func TestLongCutHeals(t *testing.T) {
	p := calm(4, 2)
	p.duration = 200 * time.Second
	p.hungry = true
	p.script = func(w *world) {
		w.after(20*time.Second, func() {
			w.sidecars[0].link.cut = [2]bool{true, true}
			w.sidecars[0].p.breakWithin(3 * time.Second)
			w.after(140*time.Second, func() { w.sidecars[0].link.cut = [2]bool{} })
		})
	}
	runPlan(t, p, func(w *world) {
		if w.sidecars[0].p.m.Stats(w.sidecars[0].clock()).TrickleAdmissions == 0 {
			t.Error("nothing came from the standing share")
		}
	})
}

func TestCutBeforeItsShareShrank(t *testing.T) {
	p := calm(1, 1)
	p.hungry = true
	p.script = func(w *world) {
		w.after(20*time.Second, func() {
			w.sidecars[0].link.cut[down] = true
			for range 6 {
				w.join()
			}
			w.after(90*time.Second, func() { w.sidecars[0].link.cut = [2]bool{} })
		})
	}
	runPlan(t, p, nil)
}

func TestTwelveReplacedWithoutGoodbye(t *testing.T) {
	p := calm(12, 1)
	p.hungry = true
	p.script = func(w *world) {
		w.every(30*time.Second, func() {
			for _, s := range w.sidecars {
				if s.p != nil {
					s.kill(lost, w.upTo(2*time.Second))
				}
			}
		})
	}
	runPlan(t, p, nil)
}

func TestDiskRolledBackThirtyTimes(t *testing.T) {
	p := calm(3, 1)
	p.duration = 190 * time.Second
	p.addBudget("org", "o", 100_000_000, true)
	n := 0
	p.script = func(w *world) {
		w.every(6*time.Second, func() {
			s := w.sidecars[0]
			if s.p == nil {
				return
			}
			if s.rollsBack() {
				n++
			}
		})
	}
	runPlan(t, p, func(*world) {
		if n < 25 {
			t.Errorf("rolled back %d times", n)
		}
		n = 0
	})
}

func TestTeamDeletedAndCreatedAgain(t *testing.T) {
	p := calm(4, 2)
	p.lateMille = 100 // renews about the deleted one come late
	p.script = func(w *world) { w.every(9*time.Second, func() { w.inject(teamRecreated) }) }
	runPlan(t, p, func(w *world) { atLeast(t, w, teamRecreated, 5) })
}

func TestSixTermsWithWrongClocks(t *testing.T) {
	p := calm(4, 1)
	p.driftMillionths = 50_000
	p.script = func(w *world) {
		w.every(15*time.Second, func() {
			w.inject(leaderChange)
			w.after(3*time.Second, func() {
				w.quotad.wallOff = 24 * time.Hour
				w.tally.faults[clockStep]++
			})
		})
		w.after(70*time.Second, func() { w.inject(monthTurn) })
	}
	runPlan(t, p, func(w *world) {
		atLeast(t, w, leaderChange, 6)
		atLeast(t, w, monthTurn, 1)
	})
}

func TestRenewSentAgainAcrossAFailover(t *testing.T) {
	p := calm(4, 1)
	p.repeatMille, p.overrunMille = 200, 200
	p.addBudget("org", "o", 80_000_000, true)
	p.script = func(w *world) {
		w.every(5*time.Second, func() {
			w.inject([]fault{repliesLost, entriesLost}[w.rng.IntN(2)])
		})
	}
	runPlan(t, p, func(w *world) {
		atLeast(t, w, repliesLost, 3)
		atLeast(t, w, entriesLost, 3)
	})
}

func TestCallersGoneWhileTheirAskIsUnderWay(t *testing.T) {
	p := calm(3, 1)
	p.goneMille = 900
	p.addBudget("key", "team-0", 40_000_000, true)
	runPlan(t, p, func(w *world) { atLeast(t, w, callerLeft, 20) })
}

// TestFailoverRefusesNobody: a leader change alone makes nobody be refused for want of a leader.
func TestFailoverRefusesNobody(t *testing.T) {
	p := calm(4, 2)
	p.script = func(w *world) {
		w.every(12*time.Second, func() {
			if w.quotad.up {
				w.quotad.lose(w.between(300*time.Millisecond, 700*time.Millisecond), false, false)
			}
		})
	}
	runPlan(t, p, func(w *world) {
		if n := w.witness.refusals[lease.Unavailable]; n > 0 {
			t.Errorf("%d requests were refused as unavailable", n)
		}
	})
}

func TestMinutesWithoutQuotad(t *testing.T) {
	p := calm(4, 2)
	p.duration = 300 * time.Second
	p.driftMillionths = 50_000
	p.hungry = true
	p.script = func(w *world) {
		w.after(30*time.Second, func() { w.quotad.lose(200*time.Second, false, true) })
	}
	runPlan(t, p, nil)
}

// TestSmallerNeedIsNotExhausted: what is said of a request is not said of a smaller one, which may fit once others
// settle.
func TestSmallerNeedIsNotExhausted(t *testing.T) {
	p := calm(3, 1)
	p.addBudget("key", "team-0", 5_000_000, true)
	runPlan(t, p, nil)
}

// TestTwinThatFellBehindIsFenced: a process whose twin has sent a later renew waits for an answer to its own, and must be
// told to start over, or else it never gets another lease.
func TestTwinThatFellBehindIsFenced(t *testing.T) {
	p := calm(3, 1)
	p.script = func(w *world) {
		w.every(20*time.Second, func() {
			if s := w.sidecars[0]; s.p != nil && s.twin == nil {
				w.clone(s)
			}
		})
	}
	runPlan(t, p, nil)
}

// TestSpendPastASoftBudgetIsFiled: what a journal says of a budget that quotad has no counter of.
func TestSpendPastASoftBudgetIsFiled(t *testing.T) {
	p := calm(2, 0)
	p.addTeam("team-0", 900, 180_000, lease.Open)
	p.addBudget("team", "team-0", 1_000_000, false)
	p.script = func(w *world) {
		s := w.sidecars[0]
		w.after(10*time.Second, func() { w.inject(monthTurn) })
		w.after(40*time.Second, func() { s.kill(killedKept, 100*time.Millisecond) })
		w.after(40*time.Second+500*time.Millisecond, func() {
			// The new process is told of the resources and has its predecessor's shares, and that is all.
			s.link.cut = [2]bool{true, true}
			s.p.breakWithin(100 * time.Millisecond)
		})
		w.after(60*time.Second, func() {
			if s.p != nil {
				s.kill(killedKept, 100*time.Millisecond)
			}
			s.link.cut = [2]bool{}
		})
	}
	runPlan(t, p, nil)
}

// TestSharesEndInTimeOnASlowClock: the leader's clock may be fast at the same time.
func TestSharesEndInTimeOnASlowClock(t *testing.T) {
	p := calm(3, 1)
	p.ledger = ledger.Config{} // an hour of standby, as in production
	p.duration = 3700 * time.Second
	p.specs[1].Burst = p.specs[1].Limit // an hour's trickle beside a small full bucket is another matter
	p.script = func(w *world) {
		s := w.sidecars[0]
		s.rate = 999_500 // half a thousandth slow
		s.booted = 0
		w.after(20*time.Second, func() {
			s.link.cut = [2]bool{true, true}
			s.p.breakWithin(time.Second)
		})
	}
	runPlan(t, p, nil)
}

// rollsBack kills the running process, puts its disk back to an older state, and says whether there was one.
func (s *sidecar) rollsBack() bool {
	books := s.p.books
	s.kill(rolledBack, 100*time.Millisecond)
	return books.fate == rolledBack
}

// TestDiskRolledBackWhileCutOff: quotad has applied no renew since the old state, so that only the mark tells.
func TestDiskRolledBackWhileCutOff(t *testing.T) {
	n := 0
	p := calm(3, 1)
	p.marked = true
	p.addBudget("org", "o", 400_000_000, true)
	p.script = func(w *world) {
		s := w.sidecars[0]
		w.every(40*time.Second, func() {
			s.link.cut = [2]bool{true, true}
			s.p.breakWithin(time.Second)
			w.after(9*time.Second, func() {
				if s.rollsBack() {
					n++
				}
				s.link.cut = [2]bool{}
			})
		})
	}
	runPlan(t, p, func(*world) {
		if n == 0 {
			t.Error("never rolled back")
		}
		n = 0
	})
}

func TestSharesOfARolledBackDisk(t *testing.T) {
	done := false
	p := calm(1, 1)
	p.script = func(w *world) {
		s := w.sidecars[0]
		for i := range 6 {
			w.after(time.Duration(5+i)*time.Second, func() { w.join() })
		}
		w.after(20*time.Second, func() {
			w.quotad.lose(60*time.Second, false, false)
			s.disk.copies = s.disk.copies[:5]
			done = s.rollsBack()
		})
	}
	runPlan(t, p, func(*world) {
		if !done {
			t.Error("not rolled back")
		}
		done = false
	})
}

// TestWhoWantsLessThanItsPartGetsIt: in saturation all of a bucket may go by asks, in the order in which they come; who
// comes again when it is told to has what it wants nevertheless.
func TestWhoWantsLessThanItsPartGetsIt(t *testing.T) {
	p := calm(5, 1)
	p.modest = true
	runPlan(t, p, nil)
}

// TestRefundsBesideAFullBucket: while a large reservation runs the bucket fills again. What it then gives back is not usable
// beside the full bucket, or a short window would admit more than the burst.
func TestRefundsBesideAFullBucket(t *testing.T) {
	p := calm(2, 1)
	p.refundsLate = true
	p.script = func(w *world) {
		w.every(10*time.Second, func() {
			for _, s := range w.sidecars {
				s.habit = huge
			}
		})
	}
	runPlan(t, p, nil)
}

// TestAnswerThatComesAfterItsCallerHasGone: what an ask was granted comes back unused, after others have drawn what the
// bucket refilled meanwhile. All of it together is the bucket once, not twice.
func TestAnswerThatComesAfterItsCallerHasGone(t *testing.T) {
	granted := 0
	p := calm(2, 1)
	p.duration = 200 * time.Second
	p.script = func(w *world) {
		draw := func(s *sidecar, permille int64) {
			r := s.p.large(0, permille)
			r.ended = func() { granted++ }
			s.p.submit(r)
		}
		w.load.on = false
		late, other := w.sidecars[0], w.sidecars[1]
		w.every(40*time.Second, func() {
			late.link.cut[down] = true
			draw(late, 900) // granted, and its caller has gone before it hears of it
			w.after(6500*time.Millisecond, func() { draw(other, 900) })
			w.after(7*time.Second, func() { late.link.cut[down] = false })
			w.after(8200*time.Millisecond, func() { draw(late, 700) })
		})
	}
	runPlan(t, p, func(*world) {
		if granted < 4 {
			t.Errorf("%d requests were granted, want one a round or more", granted)
		}
		granted = 0
	})
}

// TestEstimatesThatAreAlwaysTooLow: every request costs up to half more than it was taken for. Where callers reserve all
// that it may cost as soon as that could weigh, a budget is used up and not passed, but for a trifle.
func TestEstimatesThatAreAlwaysTooLow(t *testing.T) {
	p := calm(7, 1)
	p.duration = 200 * time.Second
	p.hungry, p.careful, p.overrunMille = true, true, 1000
	p.addBudget("key", "team-0", 300_000_000, true)
	p.script = func(w *world) { w.after(150*time.Second, func() { w.inject(monthTurn) }) }
	runPlan(t, p, func(w *world) {
		for _, res := range w.witness.resources {
			if res.spec.Scope != "key" {
				continue
			}
			m := res.months[0]
			if m.spent < m.cap*99/100 || m.spent > m.cap*1001/1000 || m.unbookedMost == 0 {
				t.Errorf("spent %d of %d, overruns in flight at most %d", m.spent, m.cap, m.unbookedMost)
			}
		}
	})
}

// TestWhoIsStarvedIsSeen: half of an equal part is asked of a hundred requests, and no more than chance allows of a few.
func TestWhoIsStarvedIsSeen(t *testing.T) {
	for _, tt := range []struct {
		got     [3]int
		starved bool
	}{
		{[3]int{100, 150, 50}, false},
		{[3]int{100, 151, 49}, true},
		{[3]int{500, 760, 240}, true},
		{[3]int{22, 36, 2}, false},
		{[3]int{40, 50, 0}, true},
	} {
		w := newWorld(1, calm(3, 1), nil)
		for i, s := range w.sidecars {
			s.got = tt.got[i]
		}
		w.judgeParts()
		if (w.broken != nil) != tt.starved {
			t.Errorf("%v: %v", tt.got, w.broken)
		}
	}
}
