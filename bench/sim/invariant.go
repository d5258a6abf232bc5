package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// This file is what must hold after every event.

// lowered is how long a lowered limit takes to be in force everywhere: a sidecar that is cut off uses its old share
// until its standby ends.
const lowered = standbyFor + 2*standbyLate

// inspect looks at what the present event has touched.
func (w *world) inspect() {
	if len(w.dirty) == 0 {
		return
	}
	for _, p := range w.dirty {
		p.dirty = false
		if !p.dead {
			p.inspect()
		}
	}
	w.dirty = w.dirty[:0]
	w.checkShares()
}

// inspect compares the machine's totals with the witness's, and takes down its shares.
func (p *process) inspect() {
	w := p.s.w
	stats := p.m.Stats(p.s.clock())
	w.tally.checks[checkBooks]++
	for _, b := range p.books.balances {
		if b.gone {
			continue
		}
		c := find(&stats, b.truth.id, b.period)
		if c != nil && c.Spent == b.spent && c.Held == b.held || c == nil && b.spent == 0 && b.held == 0 {
			continue
		}
		// What quotad has dropped the sidecar drops, and may begin anew.
		b.gone = b.truth.deleted || b.period != 0 && b.period < w.quotad.open
		if !b.gone {
			w.must(fmt.Errorf("%s: %s, resource %d, period %d: %+v; in truth spent %d, held %d",
				checkNames[checkBooks], p.s.name, b.truth.id, b.period, c, b.spent, b.held))
		}
	}
	p.shares, p.sharesTill = p.m.Shares(p.s.clock())
}

func find(s *lease.Stats, resource uint64, period uint32) *lease.CounterStats {
	for i := range s.Counters {
		if c := &s.Counters[i]; c.Resource == resource && c.Period == period {
			return c
		}
	}
	return nil
}

// checkShares: the shares that may be used anywhere sum to the limit at most.
func (w *world) checkShares() {
	for _, res := range w.witness.resources {
		if capped(res.spec.Kind) {
			continue
		}
		sum, holders := int64(0), 0
		for _, s := range w.sidecars {
			if s.p == nil || s.p.books.cloned || s.clock() >= s.p.sharesTill {
				continue
			}
			for _, sh := range s.p.shares {
				if sh.Resource == res.id {
					sum += sh.PerMinute
					holders++
				}
			}
		}
		if holders < 2 {
			continue
		}
		most := res.limitMost(w.now)
		w.mustf(sum <= most, checkShares, "resource %d: %d of %d at %d sidecars", res.id, sum, most, holders)
	}
}

// limitMost is the largest limit that may still be in force somewhere.
func (r *truth) limitMost(now time.Duration) int64 {
	most, limits := int64(0), r.top().limits
	for i, l := range limits {
		if i+1 == len(limits) || limits[i+1].at+lowered > now {
			most = max(most, l.perMinute)
		}
	}
	return most
}

// checkAdmission looks at a request that was just admitted: from balances that stand, and from leases that quotad
// has not given to others.
func (p *process) checkAdmission(r *request) {
	w := p.s.w
	stats := p.m.Stats(p.s.clock())
	fromLease := false
	for i, b := range r.entries {
		if b == nil {
			continue
		}
		money := capped(b.truth.spec.Kind)
		fromLease = fromLease || !money
		if money && !b.truth.spec.Hard || b.truth.spec.Each != ledger.Whole {
			continue
		}
		c := find(&stats, b.truth.id, b.period)
		w.mustf(c != nil && c.Balance >= 0, checkBalance, "%s, resource %d, period %d, need %d: %+v",
			p.s.name, b.truth.id, b.period, r.needs[i].Amount, c)
	}
	if !fromLease || r.books.cloned || r.books.saidDead {
		return
	}
	q := w.quotad
	m, ok := q.l.MemberState(r.books.incarnation)
	w.mustf(ok && !m.Lapsed && (!q.up || q.stamp() < m.LapseAtMS), checkLease, "%s at ledger time %d: %+v",
		p.s.name, q.stamp(), m)
}

// inspect checks the ledger after every entry.
func (q *quotad) inspect() {
	w := q.w
	w.tally.checks[checkLedger]++
	w.must(q.l.Check())
	q.checkLapsed()
	if q.index%64 == 0 {
		q.checkRuns()
	}
	for _, r := range q.l.Resources() {
		res := w.witness.byID[r.ID]
		for _, p := range r.Periods {
			w.tally.checks[checkConserved]++
			if p.Settled+p.Outstanding+p.Suspense+p.Free != p.Cap+p.Credits {
				w.must(fmt.Errorf("%s: resource %d: %+v", checkNames[checkConserved], r.ID, p))
			}
			m := res.month(p.Period)
			if p.Suspense < m.suspense {
				m.loosened = w.now
			}
			m.suspense = p.Suspense
			w.mustf(p.Settled <= m.settled, checkNotDoubled, "resource %d, period %d: %d, in truth %d",
				r.ID, p.Period, p.Settled, m.settled)
		}
	}
}

// checkLapsed: when quotad gives a silent sidecar's bucket leases to others, the sidecar has stopped using them.
func (q *quotad) checkLapsed() {
	for _, s := range q.w.sidecars {
		p := s.p
		if p == nil || p.books.cloned || p.books.saidDead {
			continue
		}
		m, ok := q.l.MemberState(p.books.incarnation)
		if ok && m.Lapsed && !p.lapsed {
			usable := p.m.Stats(s.clock()).UsableFor
			q.w.mustf(usable == 0, checkLapsed, "%s lapses, and may use its leases for %v", s.name, usable)
		}
		p.lapsed = ok && m.Lapsed
	}
}

// checkCovered: what an incarnation has truly spent of a budget was granted to it, but for overruns; so it is not free.
func (t *witness) checkCovered(a *account, b *balance) {
	if !capped(b.truth.spec.Kind) || b.truth.of != nil || a.cloned || b.gone || b.truth.deleted {
		return
	}
	t.w.mustf(b.consumed <= b.granted-b.returned+b.over, checkCovered,
		"incarnation %d of %s, resource %d, period %d: %+v", a.incarnation, a.sidecar.name, b.truth.id, b.period, *b)
}

// checkExhausted: when quotad says that a budget is spent, it is.
func (t *witness) checkExhausted(ask *ledger.Ask, res *ledger.AskResult) {
	for _, n := range ask.Needs {
		if n.Resource != res.Resource {
			continue
		}
		m := t.need(n.Resource, n.Name).month(n.Period)
		there, _ := t.w.quotad.month(n.Resource, n.Name, n.Period)
		m.short = true
		if m.cap > 0 && !m.capChanged {
			t.w.measure(firstExhausted, (m.settled+there.Suspense+n.Amount)*1000/m.cap, "resource %d", n.Resource)
		}
		t.w.mustf(m.settled+there.Suspense+n.Amount >= m.cap*99/100, checkExhausted,
			"need %d of resource %d, settled %d of %d: %+v", n.Amount, n.Resource, m.settled, m.cap, there)
	}
}

// checkExhaustedHere: the same of what a caller was told. The sidecar may repeat for a moment what quotad said before
// the cap went up.
func (t *witness) checkExhaustedHere(request *request, v lease.Verdict) {
	p := request.p
	res := t.byID[v.Resource]
	for _, n := range request.needs {
		if n.Resource == v.Resource {
			res = t.need(n.Resource, n.Name)
		}
	}
	period := uint32(0)
	for _, r := range p.config.resources {
		if r.Id == v.Resource {
			period = r.Period
		}
	}
	m := res.month(period)
	if res.top().deleted || p.books.cloned || res.of == nil && period != t.w.quotad.open || t.w.now-m.loosened < 10*time.Second {
		return
	}
	there, _ := t.w.quotad.month(v.Resource, res.name, period)
	t.w.mustf(m.settled+there.Suspense+v.Needed >= m.cap*99/100, checkExhaustedHere,
		"%s, need %d of resource %d, settled %d of %d: %+v", p.s.name, v.Needed, v.Resource, m.settled, m.cap, there)
}

// month is quotad's view of a budget in a period; false when it keeps it no longer.
func (q *quotad) month(resource uint64, name string, period uint32) (ledger.BudgetPeriodState, bool) {
	r, _ := q.l.Resource(resource)
	for _, kid := range q.l.Children(resource) {
		if kid.Name == name {
			r = kid
		}
	}
	for _, p := range r.Periods {
		if p.Period == period {
			return p, true
		}
	}
	return ledger.BudgetPeriodState{}, false
}

// checkWhole: a granted ask is held at once, and one that is refused costs nothing.
func (t *witness) checkWhole(was []ledger.CounterState, in *ledger.Renew, rep *ledger.RenewReply) {
	if len(in.Asks) == 0 || rep.Refusal != ledger.RefusedNot || rep.Fenced || in.Seq <= t.byNumber[in.Incarnation].applied {
		return
	}
	for _, c := range t.w.quotad.l.Counters(in.Incarnation) {
		held, of, name := int64(0), c.Resource, ""
		if r, _ := t.w.quotad.l.Resource(c.Resource); r.Of != 0 {
			of, name = r.Of, r.Name
		} else if r.Spec.Each != ledger.Whole {
			continue // it has the shares, and nothing is drawn on it
		}
		for _, w := range was {
			if w.Resource == c.Resource && w.Period == c.Period {
				held = w.Held
			}
		}
		for _, r := range in.Counters {
			if r.Resource == c.Resource && r.Period == c.Period {
				held = r.Held
			}
		}
		for i := range in.Asks {
			for _, n := range in.Asks[i].Needs {
				if rep.Asks[i].Granted && n.Resource == of && n.Name == name && n.Period == c.Period {
					held += n.Amount
				}
			}
		}
		t.w.mustf(c.Held == held, checkWhole, "incarnation %d, renew %d, resource %d: held %d, by its asks %d",
			in.Incarnation, in.Seq, c.Resource, c.Held, held)
	}
}

// checkWoken: who was refused what the present entry has made more of is told.
func (t *witness) checkWoken(woken []uint64) {
	for _, a := range t.accounts {
		if slices.Contains(woken, a.incarnation) {
			a.waits = nil
			continue
		}
		for _, l := range t.loosened {
			if a.shadow || !slices.Contains(a.waits, l) {
				continue
			}
			m, ok := t.w.quotad.l.MemberState(a.incarnation)
			t.w.mustf(!ok || m.Lapsed || m.Fenced || m.Left, checkWoken, "incarnation %d waits for resource %d, period %d",
				a.incarnation, l.resource, l.period)
		}
	}
	t.loosened = t.loosened[:0]
}

// checkDefined: what is in force is what the registry says.
func (q *quotad) checkDefined() {
	byName := map[string]ledger.Spec{}
	for _, r := range q.l.Resources() {
		byName[name(r.Spec.Scope, r.Spec.Owner, r.Spec.Kind)] = r.Spec
	}
	q.w.mustf(len(byName) == len(q.specs), checkDefined, "%d resources of %d", len(byName), len(q.specs))
	for _, s := range q.specs {
		is := byName[name(s.Scope, s.Owner, s.Kind)]
		q.w.mustf(is.Limit == s.Limit && is.Hard == s.Hard && (s.Burst == 0 || is.Burst == s.Burst), checkDefined,
			"%+v, defined as %+v", is, s)
	}
}
