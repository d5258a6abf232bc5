package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrSpecs says that a set of specs cannot be defined.
var ErrSpecs = errors.New("resources cannot be defined")

// CheckDefine says whether Define would take specs and fair at that index. It changes nothing.
func (l *Ledger) CheckDefine(index uint64, specs []Spec, fair Fairness) error {
	if _, err := newFairness(fair); err != nil {
		return err
	}
	_, _, err := l.prepare(index, specs)
	return err
}

// Define makes the whole set of resources what specs say: new ones are created, with ids index<<12 | ordinal in the
// order of (scope, owner, kind); known ones keep their id and what is out on them, and take the new limits; missing
// ones are deleted with all their counters and children. index is the Raft index of the change. Several changes may
// share one: their ordinals go on. fair is how pools are divided from now on. On an error, which wraps ErrSpecs,
// nothing changed.
func (l *Ledger) Define(index uint64, specs []Spec, fair Fairness) error {
	newFair, err := newFairness(fair)
	if err != nil {
		return err
	}
	sorted, next, err := l.prepare(index, specs)
	if err != nil {
		return err
	}
	l.Enter(index)
	l.setFairness(newFair)
	old, i := l.byName, 0
	byName := make([]*resource, 0, len(sorted))
	for k := range sorted {
		spec := &sorted[k]
		for i < len(old) && compareSpec(old[i].spec, spec) < 0 {
			l.remove(old[i])
			i++
		}
		if i < len(old) && compareSpec(old[i].spec, spec) == 0 {
			l.update(old[i], *spec)
			byName = append(byName, old[i])
			i++
			continue
		}
		byName = append(byName, l.create(next, *spec))
		l.lastID = next
		next++
	}
	for ; i < len(old); i++ {
		l.remove(old[i])
	}
	l.byName = byName
	return nil
}

// prepare returns specs checked, filled in and sorted, and the id of the first new one.
func (l *Ledger) prepare(index uint64, specs []Spec) (sorted []Spec, next uint64, err error) {
	if index == 0 || index > indexMax {
		return nil, 0, fmt.Errorf("%w: index %d is out of range", ErrSpecs, index)
	}
	if len(specs) > resourcesMax {
		return nil, 0, fmt.Errorf("%w: %d of them, at most %d", ErrSpecs, len(specs), resourcesMax)
	}
	sorted = slices.Clone(specs)
	for i := range sorted {
		if err := sorted[i].normalise(); err != nil {
			return nil, 0, err
		}
	}
	slices.SortFunc(sorted, func(a, b Spec) int { return compareName(&a, &b) })
	fresh, at := uint64(0), 0
	for i := range sorted {
		if i > 0 && compareName(&sorted[i-1], &sorted[i]) == 0 {
			return nil, 0, fmt.Errorf("%w: %s is there twice", ErrSpecs, sorted[i].name())
		}
		for at < len(l.byName) && compareSpec(l.byName[at].spec, &sorted[i]) < 0 {
			at++
		}
		if at == len(l.byName) || compareSpec(l.byName[at].spec, &sorted[i]) != 0 {
			fresh++
		}
	}
	// Ids are never given twice, also not within one index.
	next = max(index*ordinalsMax, l.lastID+1)
	if fresh > 0 && next+fresh > (index+1)*ordinalsMax {
		return nil, 0, fmt.Errorf("%w: %d new ones in one change, at most %d: apply them in parts", ErrSpecs, fresh,
			(index+1)*ordinalsMax-min(next, (index+1)*ordinalsMax))
	}
	return sorted, next, nil
}

// normalise checks s and fills in what is left out. It does not change what s shares with its copies.
func (s *Spec) normalise() error {
	fault := func(what string) error { return fmt.Errorf("%w: %s: %s", ErrSpecs, s.name(), what) }
	most, budget := int64(bucketMax), s.budget()
	switch {
	case budget:
		most = totalMax
	case s.Each == EachClaimant:
		most = poolMax
	}
	switch {
	case s.Kind < Requests || s.Kind > Calls:
		return fault("unknown kind")
	case s.Each > EachClaimant:
		return fault("it is neither whole nor one for each name nor a pool")
	case s.Each == EachClaimant && budget:
		return fault("a budget cannot be a pool")
	case s.Kind == Calls && s.Each != EachName:
		return fault("calls are counted for each run only")
	case budget && s.Each == EachName && !s.Hard:
		return fault("the budget of a run is hard")
	case s.KeepMS < 0 || s.KeepMS > durationMax:
		return fault("how long a run is kept is out of range")
	case len(s.Scope) > nameMax || len(s.Owner) > nameMax || len(s.Timezone) > nameMax:
		return fault("a name is too long")
	case s.Limit < 0 || s.Limit > most:
		return fault("limit is out of range")
	case s.Burst < 0 || s.Burst > most:
		return fault("burst is out of range")
	case s.Weight < 0 || s.Weight > weightMax:
		return fault("weight is out of range")
	case len(s.AlertPermille) > alertsMax:
		return fault("too many alerts")
	}
	for _, a := range s.AlertPermille {
		if a <= 0 || a > permilleMax {
			return fault("an alert is out of range")
		}
	}
	if what := s.badRates(); what != "" {
		return fault(what)
	}
	if budget {
		s.Burst = 0
	} else if s.Burst == 0 {
		s.Burst = max(s.Limit, 1)
	}
	switch {
	case !budget || s.Each != EachName:
		s.KeepMS = 0
	default:
		s.AlertPermille = nil
		if s.KeepMS == 0 {
			s.KeepMS = runKeepMS
		}
	}
	s.Weight = max(s.Weight, 1)
	s.Rates = slices.Clone(s.Rates)
	slices.SortFunc(s.Rates, func(a, b Rate) int { return cmp.Compare(a.Period, b.Period) })
	s.AlertPermille = slices.Clone(s.AlertPermille)
	slices.Sort(s.AlertPermille)
	s.AlertPermille = slices.Compact(s.AlertPermille)
	return nil
}

// badRates says what is wrong with the currency; nothing if it is empty.
func (s *Spec) badRates() string {
	switch {
	case len(s.Currency) > nameMax:
		return "a name is too long"
	case s.Currency == "" && len(s.Rates) == 0:
		return ""
	case s.Kind != Money:
		return "only money has a currency"
	case s.Currency == "":
		return "it has rates, but no currency"
	case len(s.Rates) == 0:
		return "there is no rate of " + s.Currency
	case len(s.Rates) > ratesMax:
		return "too many rates"
	}
	for _, r := range s.Rates {
		if r.Period > periodMax || r.PerUSDNano <= 0 || r.PerUSDNano > rateMax {
			return "a rate is out of range"
		}
	}
	if doubles(slices.Clone(s.Rates), func(a, b Rate) int { return cmp.Compare(a.Period, b.Period) }) {
		return "a month has two rates"
	}
	return ""
}

func (s *Spec) name() string { return fmt.Sprintf("%s/%s/%d", s.Scope, s.Owner, s.Kind) }

func compareName(a, b *Spec) int {
	if c := cmp.Compare(a.Scope, b.Scope); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Owner, b.Owner); c != 0 {
		return c
	}
	return cmp.Compare(a.Kind, b.Kind)
}

// compareSpec tells resources apart: what becomes one for each name, or whole, is another one.
func compareSpec(a, b *Spec) int {
	if c := compareName(a, b); c != 0 {
		return c
	}
	return cmp.Compare(a.Each, b.Each)
}

func (s *Spec) equal(o *Spec) bool {
	return s.Limit == o.Limit && s.Burst == o.Burst && s.Hard == o.Hard && s.Timezone == o.Timezone &&
		s.Weight == o.Weight && slices.Equal(s.AlertPermille, o.AlertPermille) && s.KeepMS == o.KeepMS &&
		s.Currency == o.Currency && slices.Equal(s.Rates, o.Rates)
}

func (s *Spec) clone() Spec {
	out := *s
	out.AlertPermille, out.Rates = slices.Clone(s.AlertPermille), slices.Clone(s.Rates)
	return out
}

// create makes a resource: a bucket is full, unless its limit is 0; a budget opens at once if its zone is known.
func (l *Ledger) create(id uint64, spec Spec) *resource {
	r := newResource(id, spec)
	l.resources[id] = r
	l.touchResource(r)
	switch {
	case !r.budget():
		r.pools = []*pool{{res: r}}
		if !r.template() || r.shared() {
			l.fill(r)
		}
	case !r.template():
		l.openKnown(r)
	}
	return r
}

// newResource returns a resource that is known to nobody yet, without pools.
func newResource(id uint64, spec Spec) *resource {
	r := &resource{id: id, spec: &spec, money: spec.budget(), each: spec.Each}
	r.alarm = alarm{id: id, r: r, at: -1}
	return r
}

func (s *Spec) budget() bool { return s.Kind == Money || s.Kind == Calls }

// update changes limits in place. Leases that are out stay; a lowered limit is met as they come back. Children follow.
func (l *Ledger) update(r *resource, spec Spec) {
	if r.spec.equal(&spec) {
		return
	}
	was := *r.spec
	l.touchResource(r)
	if !r.budget() {
		l.updateBuckets(r, spec)
		return
	}
	*r.spec = spec // of the children too
	raised := was.Hard && !spec.Hard
	if n := len(r.pools); n > 0 && !r.pools[n-1].closed {
		l.updateCap(r.pools[n-1], &was, raised)
	}
	for _, run := range r.kids {
		l.updateCap(run.pools[0], &was, raised)
	}
	if was.KeepMS != spec.KeepMS {
		l.rescheduleTemplate(r)
	}
	if !r.template() && (zone(was.Timezone) != zone(spec.Timezone) || len(r.pools) == 0) {
		l.openKnown(r)
	}
}

func (l *Ledger) updateBuckets(r *resource, spec Spec) {
	was := *r.spec
	buckets := []*resource{r}
	if r.template() && !r.shared() {
		buckets = r.kids // it has no level itself
	}
	for _, b := range buckets {
		l.refill(b)
	}
	*r.spec = spec // of the children too
	for _, b := range buckets {
		b.level = min(b.level, max(0, b.room()))
		l.touchResource(b)
	}
	if spec.Limit > was.Limit || spec.Burst > was.Burst {
		l.wake(r.pools[0])
		for _, kid := range r.kids {
			l.wake(kid.pools[0])
		}
	}
}

// updateCap makes the cap what the new spec says, by the rate that the period opened with.
func (l *Ledger) updateCap(p *pool, was *Spec, raised bool) {
	spec, before := p.res.spec, p.cap
	if spec.Currency != was.Currency {
		month := p.period
		if month == 0 {
			month = l.month(spec)
		}
		p.rate = spec.rate(month)
	}
	l.setCap(p, spec.cap(p.rate))
	l.alert(p)
	if raised || p.cap > before {
		l.wake(p)
	}
}

// setFairness changes how pools are divided from the next time on.
func (l *Ledger) setFairness(f fairness) {
	l.fair = f
	for _, r := range l.byName {
		if r.shared() {
			for _, kid := range r.kids {
				kid.rank(&l.fair)
			}
		}
	}
}

// remove deletes a resource. Its id is never used again, so late reports on it are answered as gone.
func (l *Ledger) remove(r *resource) {
	for len(r.kids) > 0 {
		l.removeChild(r.kids[len(r.kids)-1])
	}
	for _, p := range r.pools {
		l.dropPool(p)
	}
	delete(l.resources, r.id)
	l.touchResource(r)
}
