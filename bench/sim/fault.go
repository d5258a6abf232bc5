package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

const (
	sidecarsMost = 12
)

// planFaults injects a fault now and then for as long as there are faults.
func (w *world) planFaults() {
	if len(w.plan.mix) == 0 {
		return
	}
	w.after(w.mean(w.plan.faultMean), func() {
		if !w.faulty {
			return
		}
		f := w.plan.mix[w.rng.IntN(len(w.plan.mix))]
		if w.inject(f) {
			w.note("", "fault: "+faultNames[f])
		}
		w.planFaults()
	})
}

// inject makes something go wrong. False: not at this moment.
func (w *world) inject(f fault) bool {
	s := w.sidecars[w.rng.IntN(len(w.sidecars))]
	if f < leaderChange && f != newcomer && (s.p == nil || s.p.leaving || s.twin != nil) {
		return false
	}
	q := w.quotad
	counted := true // here; else where it happens
	switch f {
	case cutUp:
		return w.cut(s, f, up)
	case cutDown:
		return w.cut(s, f, down)
	case cutBoth:
		return w.cut(s, f, up, down)
	case pause:
		s.p.pauseEnd = w.now + w.between(200*time.Millisecond, 15*time.Second)
	case killKept:
		s.kill(killedKept, w.away())
	case killLost:
		s.kill(lost, w.away())
	case powerCut:
		s.kill(poweredOff, w.away())
	case killRolledBack:
		books := s.p.books
		s.kill(rolledBack, w.away())
		if books.fate != rolledBack {
			f = killKept // there was no old enough copy
		}
	case clone:
		w.clone(s)
	case cleanLeave:
		s.leave(w.living() > 2 && w.chance(300))
	case newcomer:
		if len(w.sidecars) >= sidecarsMost {
			return false
		}
		w.join()
	case saidDead:
		w.sayDead(s)
	case leaderChange, entriesLost, repliesLost, leaderLoaded, outage:
		if !q.up || q.atPropose != nil {
			return false
		}
		counted = f == leaderChange || f == outage
		w.loseLeader(f)
	case clockStep:
		q.wallOff = w.between(-48*time.Hour, 48*time.Hour)
	case monthTurn:
		if q.turn > 0 {
			return false
		}
		q.turn, counted = w.now+w.between(time.Second, 20*time.Second), false
	case outsider:
		if w.plan.pool == 0 {
			return false
		}
		w.provider.outside = w.rng.Int64N(2 * w.plan.pool)
	case lateAnswer:
		return w.answerLate(s)
	default:
		return w.reconfigure(f)
	}
	if counted {
		w.tally.faults[f]++
	}
	return true
}

func (w *world) away() time.Duration {
	if w.chance(200) {
		return w.between(5*time.Second, 30*time.Second)
	}
	return w.between(100*time.Millisecond, 3*time.Second)
}

// cut cuts a link for a while. The sidecar takes some time to notice.
func (w *world) cut(s *sidecar, f fault, ways ...direction) bool {
	if !s.link.whole() {
		return false
	}
	w.tally.faults[f]++
	for _, d := range ways {
		s.link.cut[d] = true
	}
	for _, p := range s.processes() {
		p.breakWithin(4 * time.Second)
	}
	lasts := w.between(500*time.Millisecond, 30*time.Second)
	if w.chance(100) {
		lasts = w.between(30*time.Second, 140*time.Second)
	}
	w.after(lasts, func() { s.link.mend(w.now) })
	return true
}

// answerLate has a sidecar ask for most of a bucket and hear of it when its caller has gone. Meanwhile another draws what
// has refilled; then the first asks for most of what came back.
func (w *world) answerLate(s *sidecar) bool {
	other, team := w.sidecars[w.rng.IntN(len(w.sidecars))], w.rng.IntN(len(w.plan.teams))
	if s == other || s.p == nil || !s.link.whole() {
		return false
	}
	w.tally.faults[lateAnswer]++
	draw := func(s *sidecar, permille int64) {
		if p := s.p; p != nil && p.config != nil {
			p.run(func() {
				if r := p.large(team, permille); len(r.needs) > 0 {
					p.submit(r)
				}
			})
		}
	}
	s.link.cut[down] = true
	draw(s, 900)
	w.after(6500*time.Millisecond, func() { draw(other, 900) })
	w.after(7*time.Second, func() { s.link.mend(w.now) })
	w.after(8200*time.Millisecond, func() { draw(s, 700) })
	return true
}

// loseLeader takes quotad's leader away: now, or at the next proposal so that the proposal is in flight.
func (w *world) loseLeader(f fault) {
	q := w.quotad
	gap := w.between(300*time.Millisecond, 2*time.Second)
	switch f {
	case outage:
		gap = w.between(3*time.Second, 40*time.Second)
		if w.chance(100) {
			gap = w.between(60*time.Second, 100*time.Second)
		}
		q.lose(gap, w.chance(500), false)
	case leaderChange:
		q.lose(gap, w.chance(500), false)
	case leaderLoaded:
		q.lose(gap, false, true)
	default:
		q.atPropose = func() { q.lose(gap, f == repliesLost, false) }
	}
}

// clone starts two processes with one incarnation, as a copied virtual machine does. One of them ends after a while.
func (w *world) clone(s *sidecar) {
	s.kill(lost, time.Hour)
	s.start()
	s.twin = s.begin(s.p.m.Incarnation())
	s.twin.connectSoon()
	twin := s.twin
	w.after(w.between(10*time.Second, 40*time.Second), func() {
		if s.twin == twin {
			twin.die()
			s.twin = nil
		}
	})
}

// sayDead kills a process for good, and an operator says so.
func (w *world) sayDead(s *sidecar) {
	books := s.p.books
	s.kill(lost, w.away())
	books.saidDead = true
	w.after(w.between(100*time.Millisecond, 5*time.Second), func() {
		q := w.quotad
		q.submit(q.term, entry{apply: func() {
			q.l.Fence(books.incarnation)
			w.witness.observe(books.incarnation)
		}})
	})
}

// reconfigure changes what quotad's registry says.
func (w *world) reconfigure(f fault) bool {
	q := w.quotad
	if !q.up {
		return false
	}
	owner := w.plan.teams[w.rng.IntN(len(w.plan.teams))].name
	factor := 500 + w.rng.Int64N(1000) // in thousandths
	switch f {
	case limitChange, capChange:
		q.change(func(specs []ledger.Spec) ([]ledger.Spec, bool) {
			for i := range specs {
				s := &specs[i]
				if s.Owner == owner && (s.Kind == ledger.Money) == (f == capChange) && s.Limit < plenty/2 {
					s.Limit = max(1, s.Limit*factor/1000)
				}
			}
			w.tally.faults[f]++
			return specs, true
		})
	case credit, debit:
		q.submit(q.term, entry{apply: func() { w.credit(owner, f, factor) }})
	case teamRecreated:
		var removed []ledger.Spec
		q.change(func(specs []ledger.Spec) ([]ledger.Spec, bool) {
			kept := slices.DeleteFunc(specs, func(s ledger.Spec) bool {
				if s.Owner != owner {
					return false
				}
				removed = append(removed, s)
				return true
			})
			w.recreate(f, &removed)
			return kept, true
		})
	default:
		panic(fmt.Sprintf("BUG: fault %d", f))
	}
	return true
}

// recreate brings a deleted team back, however often the leader loses that.
func (w *world) recreate(f fault, removed *[]ledger.Spec) {
	w.after(w.between(50*time.Millisecond, 4*time.Second), func() {
		w.quotad.change(func(specs []ledger.Spec) ([]ledger.Spec, bool) {
			if len(*removed) == 0 {
				return specs, false
			}
			w.tally.faults[f]++
			specs = append(specs, *removed...)
			*removed = nil
			return specs, true
		})
		if len(*removed) > 0 {
			w.recreate(f, removed)
		}
	})
}

// credit gives a part of its cap to an owner's budget, or takes it.
func (w *world) credit(owner string, f fault, factor int64) {
	q := w.quotad
	for _, r := range q.l.Resources() {
		open, ok := r.Open()
		if !ok || r.Spec.Owner != owner {
			continue
		}
		amount := r.Spec.Limit / 4000 * factor
		if f == debit {
			amount = -amount
		}
		id := fmt.Sprint("credit-", w.now)
		for range 2 { // the second is a repetition
			q.l.Credit(r.ID, open.Period, ledger.Credit{ID: id, Amount: amount})
		}
		w.tally.faults[f]++
		q.w.witness.learn(q.l)
		return
	}
}
