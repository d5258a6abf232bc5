package sim

import (
	"fmt"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// This file is about what is one for each name: runs and their budgets, and pools with the teams that draw on them.

// checkRuns: no run has more settled than was spent on it.
func (q *quotad) checkRuns() {
	q.runs(func(res *truth, p *ledger.BudgetPeriodState) {
		m := res.month(0)
		q.w.mustf(p.Settled <= m.settled, checkNotDoubled, "run %q of %s: %d, in truth %d", res.name, res.spec.Owner, p.Settled, m.settled)
	})
}

// runs walks the runs that quotad keeps.
func (q *quotad) runs(each func(res *truth, p *ledger.BudgetPeriodState)) {
	for _, r := range q.l.Resources() {
		if r.Spec.Each != ledger.EachName || !capped(r.Spec.Kind) {
			continue
		}
		for _, kid := range q.l.Children(r.ID) {
			each(q.w.witness.need(r.ID, kid.Name), &kid.Periods[0])
		}
	}
}

// judgeRuns: what was spent on a run is settled to the unit, unless somebody died on it without a journal; then it is
// settled or in suspense. (In suspense may also be what was granted to somebody who died before the answer came.)
func (w *world) judgeRuns() {
	doubtful := map[*truth]bool{} // looked up, never walked
	for _, a := range w.witness.accounts {
		if a.fate == living && !a.cloned || a.fate == killedKept && a.isFiled && !a.cloned {
			continue
		}
		for _, b := range a.named {
			doubtful[b.truth] = true
		}
	}
	w.quotad.checkRuns()
	w.quotad.runs(func(res *truth, p *ledger.BudgetPeriodState) {
		m := res.month(0)
		if doubtful[res] {
			w.mustf(m.spent <= p.Settled+p.Suspense+m.unbookedMost, checkSuspense, "run %q of %s: spent %d: %+v",
				res.name, res.spec.Owner, m.spent, p)
			return
		}
		w.mustf(p.Settled == m.settled && p.Outstanding == 0, checkSettledExact,
			"run %q of %s: %+v; in truth %d", res.name, res.spec.Owner, p, m.settled)
	})
}

// parts is what each team should get of the pool when all want more than that: of its class by weight; of the pool each
// class its reserve, and what is over interactive and standard by reserve.
func (w *world) parts() []int64 {
	weights, left := map[string]int64{}, w.plan.pool
	for _, t := range w.plan.teams {
		weights[t.class] += t.weight
	}
	part := map[string]int64{}
	for _, c := range classes {
		if weights[c] > 0 {
			part[c] = w.plan.pool * reserves[c] / 1000
			left -= part[c]
		}
	}
	eager := int64(0)
	for _, c := range classes[:2] {
		if weights[c] > 0 {
			eager += reserves[c]
		}
	}
	for _, c := range classes {
		switch {
		case weights[c] == 0:
		case c == "batch" && eager == 0:
			part[c] += left
		case c != "batch":
			part[c] += left * reserves[c] / eager
		}
	}
	out := make([]int64, len(w.plan.teams))
	for i, t := range w.plan.teams {
		out[i] = part[t.class] * t.weight / weights[t.class]
	}
	return out
}

// wishesLeast is how many wishes make a part that means something.
const wishesLeast = 20

// judgePool: in saturation the pool is used, each team has its part, and who wants less than that has all it wants.
func (w *world) judgePool(from, to time.Duration) {
	got := int64(0)
	for i := range w.plan.teams {
		got += int64(w.plan.teams[i].got)
	}
	said := ""
	for i, part := range w.parts() {
		t := &w.plan.teams[i]
		said += fmt.Sprintf(" %s/%s weight %d: %d of %d, part %d;", t.class, t.name, t.weight, t.got, t.wished,
			part*(to-from).Milliseconds()/60_000)
	}
	w.measure(utilisation, got*1000/max(1, w.plan.pool*(to-from).Milliseconds()/60_000), "%s", said)
	for i, part := range w.parts() {
		t := &w.plan.teams[i]
		part = max(1, part*(to-from).Milliseconds()/60_000)
		switch {
		case i == 0 && w.plan.modest && t.wished < wishesLeast: // too few to be a part of anything
		case i == 0 && w.plan.modest:
			w.measure(modestPart, int64(t.got)*1000/int64(max(1, t.wished)), "%s", said)
		case t.class == "batch":
			w.measure(batchFloor, int64(t.got)*1000/part, "%s", said)
		default:
			w.measure(teamPart, int64(t.got)*1000/part, "%s", said)
		}
	}
}

// provider is the deployment behind the pool. It has the limit of which the pool is nine tenths, and counts others too.
type provider struct {
	outside int64 // requests a minute of others
	used    int64 // of the last minute, units x 60,000, as a bucket that leaks
	at      time.Duration
	served  int
	refused int
}

// providerPart is what the provider's limit is of the pool's, in ninths.
const providerPart = 10

// left is what the provider says is left after one more request.
func (v *provider) left(now time.Duration, pool int64) int64 {
	limit := pool * providerPart / 9
	ms := (now - v.at).Milliseconds()
	v.at += time.Duration(ms) * time.Millisecond
	v.used = min(max(0, v.used+(v.outside-limit)*ms), limit*60_000)
	if v.used+60_000 > limit*60_000 {
		v.refused++
		return 0
	}
	v.served++
	v.used += 60_000
	return limit - v.used/60_000
}

// hearProvider is the end of a request: its headers say what is left.
func (p *process) hearProvider() {
	w := p.s.w
	left := w.provider.left(w.now, w.plan.pool)
	p.run(func() {
		if p.config == nil {
			return
		}
		if res := p.config.byName[name("deployment", "d", ledger.Requests)]; res != nil {
			p.m.ProviderLeft(p.s.clock(), res.Id, left)
		}
	})
}
