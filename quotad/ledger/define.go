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
	l.fair = newFair
	old, i := l.byName, 0
	byName := make([]*resource, 0, len(sorted))
	for k := range sorted {
		spec := &sorted[k]
		for i < len(old) && compareName(&old[i].spec, spec) < 0 {
			l.remove(old[i])
			i++
		}
		if i < len(old) && compareName(&old[i].spec, spec) == 0 {
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
		for at < len(l.byName) && compareName(&l.byName[at].spec, &sorted[i]) < 0 {
			at++
		}
		if at == len(l.byName) || compareName(&l.byName[at].spec, &sorted[i]) != 0 {
			fresh++
		}
	}
	// Ids are never given twice, also not within one index.
	next = max(index*ordinalsMax, l.lastID+1)
	if fresh > 0 && next+fresh > (index+1)*ordinalsMax {
		return nil, 0, fmt.Errorf("%w: %d new ones at index %d, more than fit", ErrSpecs, fresh, index)
	}
	return sorted, next, nil
}

// normalise checks s and fills in what is left out. It does not change what s shares with its copies.
func (s *Spec) normalise() error {
	fault := func(what string) error { return fmt.Errorf("%w: %s: %s", ErrSpecs, s.name(), what) }
	most := int64(bucketMax)
	if s.Kind == Money {
		most = totalMax
	}
	switch {
	case s.Kind < Requests || s.Kind > Money:
		return fault("unknown kind")
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
	if s.Kind == Money {
		s.Burst = 0
	} else if s.Burst == 0 {
		s.Burst = max(s.Limit, 1)
	}
	s.Weight = max(s.Weight, 1)
	s.AlertPermille = slices.Clone(s.AlertPermille)
	slices.Sort(s.AlertPermille)
	s.AlertPermille = slices.Compact(s.AlertPermille)
	return nil
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

func (s *Spec) equal(o *Spec) bool {
	return s.Limit == o.Limit && s.Burst == o.Burst && s.Hard == o.Hard && s.Timezone == o.Timezone &&
		s.Weight == o.Weight && slices.Equal(s.AlertPermille, o.AlertPermille)
}

// create makes a resource: a bucket is full, unless its limit is 0; a budget opens at once if its zone is known.
func (l *Ledger) create(id uint64, spec Spec) *resource {
	r := &resource{id: id, spec: spec}
	l.resources[id] = r
	l.touchResource(r)
	if r.money() {
		l.openKnown(r)
		return r
	}
	r.pools = []*pool{{res: r}}
	r.levelAt = l.now
	if spec.Limit > 0 {
		r.level = spec.Burst * perUnit
	}
	return r
}

// update changes limits in place. Leases that are out stay; a lowered limit is met as they come back.
func (l *Ledger) update(r *resource, spec Spec) {
	if r.spec.equal(&spec) {
		return
	}
	was := r.spec
	if !r.money() {
		l.refill(r)
		r.spec = spec
		room := max(0, spec.Burst-min(r.pools[0].idle, 2*bucketMax)) * perUnit
		r.level = min(r.level, room)
		if spec.Limit > was.Limit || spec.Burst > was.Burst {
			l.wake(r.pools[0])
		}
		l.touchResource(r)
		return
	}
	r.spec = spec
	l.touchResource(r)
	if n := len(r.pools); n > 0 && !r.pools[n-1].closed {
		p := r.pools[n-1]
		l.setCap(p, spec.Limit)
		l.alert(p)
		if spec.Limit > was.Limit || was.Hard && !spec.Hard {
			l.wake(p)
		}
	}
	if zone(was.Timezone) != zone(spec.Timezone) || len(r.pools) == 0 {
		l.openKnown(r)
	}
}

// remove deletes a resource. Its id is never used again, so late reports on it are answered as gone.
func (l *Ledger) remove(r *resource) {
	for _, p := range r.pools {
		l.dropPool(p)
	}
	delete(l.resources, r.id)
	l.touchResource(r)
}
