package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// This file is what must hold at the end, when everything has healed and is quiet.

func (w *world) judge() {
	if w.broken != nil {
		return
	}
	w.note("", "judge")
	w.judgeQuiet()
	w.truths(func(res *truth) {
		if !capped(res.spec.Kind) {
			w.tally.checks[checkWindow]++
			w.must(res.judgeWindows(windowSlack))
			w.measureWindows(res)
		}
	})
	w.judgeSettled()
	w.measure(settlesWrong, 0, "") // or judgeSettled has broken the world
}

// judgeBudgets looks at what was spent of every budget. It comes before there is money for everything.
func (w *world) judgeBudgets() {
	w.truths(func(res *truth) {
		for _, m := range res.months {
			w.judgeSpend(res, m)
			w.measureBudget(res, m)
		}
	})
}

// truths walks all resources, and what there is of them for each name.
func (w *world) truths(each func(res *truth)) {
	for _, res := range w.witness.resources {
		each(res)
		for _, kid := range res.kids {
			each(kid)
		}
	}
}

// judgeQuiet: a living sidecar without callers keeps nothing, and knows that quotad knows.
func (w *world) judgeQuiet() {
	for _, s := range w.sidecars {
		if s.retired {
			continue
		}
		if s.p == nil {
			w.must(fmt.Errorf("%s did not come back", s.name))
			continue
		}
		w.mustf(len(s.disk.finals) == 0, checkQuiet, "%s has %d predecessors to file", s.name, len(s.disk.finals))
		for _, c := range s.p.m.Stats(s.clock()).Counters {
			w.mustf(c.Balance == 0 && c.Held == 0, checkQuiet, "%s: %+v", s.name, c)
		}
		if s.p.books.cloned {
			continue // its twin may have been granted what it does not know of
		}
		for _, c := range w.quotad.l.Counters(s.p.m.Incarnation()) {
			out := c.Granted - c.Spent - c.Returned - c.Forfeited
			w.mustf(out == 0, checkQuiet, "%s: %d is out in quotad's eyes: %+v", s.name, out, c)
		}
	}
}

// judgeSpend: a hard budget is passed by no more than overruns that quotad could not know of.
func (w *world) judgeSpend(res *truth, m *month) {
	if !res.spec.Hard {
		return
	}
	c := checkSpend
	if m.short {
		c = checkSpendFull
	}
	w.mustf(m.spent <= max(0, m.capMost)+m.unbookedMost, c, "%s/%s in %d: spent %d of %d, overruns in flight at most %d",
		res.spec.Scope, res.spec.Owner, m.period, m.spent, m.capMost, m.unbookedMost)
}

// windowSlack is a twentieth.
const windowSlack = 50

// judgeWindows: in every window of w seconds at most burst + limit x w / 60 is admitted, and slack in a thousand. What
// was used beyond its reservation is paid by the next windows.
func (r *truth) judgeWindows(slack int64) error {
	// With refilled(t) being what refills until t, the largest rise of admitted(t) - refilled(t) x (1 + slack) is the
	// worst window. Units are 1/perUnit of the resource's.
	const perUnit = 60_000 * 1000
	slack += 1000
	admitted, least := int64(0), int64(0) // nothing is admitted or refilled at the beginning
	refilled, at, start := int64(0), time.Duration(0), time.Duration(0)
	flows := slices.SortedStableFunc(slices.Values(r.flows), func(a, b flow) int { return cmp.Compare(a.at, b.at) })
	for _, f := range flows {
		if f.cloned {
			continue
		}
		refilled += r.refill(at, f.at)
		at = f.at
		if now := admitted*perUnit - refilled*slack; now < least {
			least, start = now, f.at
		}
		admitted += f.amount
		if f.debt {
			continue // the bucket owes it, and the next admissions wait for it
		}
		if over := admitted*perUnit - refilled*slack - least - r.top().burstMost*slack*60_000; over > 0 {
			return fmt.Errorf("%s: %s/%s, kind %d: from %.3f to %.3f s, %d above (limit %d, burst %d)",
				checkNames[checkWindow], r.spec.Scope, r.spec.Owner, r.spec.Kind, start.Seconds(), f.at.Seconds(),
				over/perUnit+1, r.limitMost(f.at), r.top().burstMost)
		}
	}
	return nil
}

// refill is units x 60,000 that refill between two moments, at the largest limit in force anywhere.
func (r *truth) refill(from, to time.Duration) int64 {
	sum := int64(0)
	for at := from; at < to; {
		next := to
		for _, l := range r.top().limits {
			for _, change := range [2]time.Duration{l.at, l.at + lowered} {
				if change > at && change < next {
					next = change
				}
			}
		}
		sum += r.limitMost(at) * (next - at).Microseconds() / 1000
		at = next
	}
	return sum
}

// judgeSettled: no settle was lost or counted twice, and what no journal proved is in suspense.
func (w *world) judgeSettled() {
	for _, a := range w.witness.accounts {
		if a.shadow {
			continue
		}
		w.witness.observe(a.incarnation)
		for _, b := range a.balances {
			if _, kept := w.quotad.month(b.truth.id, "", b.period); kept && !b.gone && !a.cloned {
				w.judgeBalance(a, b)
			}
		}
	}
	w.judgeRuns()
	for _, r := range w.quotad.l.Resources() {
		for _, p := range r.Periods {
			m := w.witness.byID[r.ID].month(p.Period)
			w.mustf(p.Settled == m.settledAt, checkSettledExact, "%s/%s in %d: %d, of all incarnations %d",
				r.Spec.Scope, r.Spec.Owner, p.Period, p.Settled, m.settledAt)
		}
	}
}

func (w *world) judgeBalance(a *account, b *balance) {
	what := fmt.Sprintf("incarnation %d of %s (fate %d), %s/%s in %d: %+v",
		a.incarnation, a.sidecar.name, a.fate, b.truth.spec.Scope, b.truth.spec.Owner, b.period, *b)
	f := a.fate
	if f == killedKept && !a.isFiled && a.sidecar.retired {
		f = lost // nobody came to read it
	}
	switch f {
	case living:
		w.mustf(b.settled == b.spent, checkSettledExact, "%s", what)
	case killedKept:
		w.mustf(b.settled == b.spent+b.atDeath, checkSettledByJournal, "%s", what)
	default:
		w.mustf(b.settled <= max(b.spent+b.held, b.claimed), checkNotDoubled, "%s", what)
		w.mustf(b.granted-b.returned-b.settled == b.suspense, checkSuspense, "%s", what)
		w.mustf(b.consumed <= b.settled+b.suspense+b.over, checkSuspense, "%s", what)
	}
}

// judgeSaturation: of the scarcest bucket of the first team at least 95% was used, and everybody had a part.
func (w *world) judgeSaturation(from, to time.Duration) {
	if w.broken != nil {
		return
	}
	if w.plan.pool > 0 {
		w.judgePool(from, to)
		return
	}
	best, scarcest := int64(0), (*truth)(nil)
	for _, res := range w.witness.resources {
		if res.deleted || res.spec.Scope != "team" || capped(res.spec.Kind) || res.spec.Owner != w.plan.teams[0].name {
			continue
		}
		used := int64(0)
		for _, f := range res.flows {
			if f.at > from {
				used += f.amount
			}
		}
		if permille := used * 1000 / max(1, res.spec.Limit*(to-from).Milliseconds()/60_000); permille >= best {
			best, scarcest = permille, res
		}
	}
	if scarcest == nil {
		return
	}
	view, _ := w.quotad.l.Resource(scarcest.id)
	w.measure(utilisation, best, "%+v", view)
	parts := map[string]int64{}
	for _, f := range scarcest.flows {
		if f.at > from {
			parts[f.owner] += f.amount
		}
	}
	if w.plan.modest {
		w.measureModest()
		return
	}
	if w.plan.patient {
		w.measureParts(parts)
	}
	w.judgeParts()
}

// judgeParts: every sidecar has half of an equal part of the requests that were granted, or more.
//
// When all want more than there is, the next request that fits is as good as drawn by lot, and how many a sidecar has is
// like a Poisson number: of 50 in the mean somebody has less than 25 once in a thousand worlds, and nobody did anything
// wrong. Half of a hundred is five standard deviations away, once in millions. So long the judged time is; where fewer were
// granted all the same, five standard deviations are allowed too. Sizes are not weighed: they are the callers' luck.
func (w *world) judgeParts() {
	sum, n := int64(0), int64(0)
	for _, s := range w.sidecars {
		if s.p != nil {
			sum, n = sum+int64(s.got), n+1
		}
	}
	for _, s := range w.sidecars {
		if s.p == nil {
			continue
		}
		got := int64(s.got)
		short := sum - got*n // of an equal part, n times
		w.mustf(2*short <= sum || short*short <= 25*n*sum, checkStarved, "%s had %d of %d requests, one of %d", s.name, got, sum, n)
	}
}
