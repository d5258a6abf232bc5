package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrRecords says that records do not make a ledger.
var ErrRecords = errors.New("ledger records do not fit together")

// Load replaces the whole state by that of records, in any order. The ledger then behaves as the one did that the
// records are of, but for who waits to be woken. Nothing is touched by it. On an error, which wraps ErrRecords, the
// ledger is empty.
func (l *Ledger) Load(now int64, periods []Period, fair Fairness, rs []ResourceState, cs []CounterState, ms []MemberState) error {
	fresh := New(l.cfg)
	fresh.rules = l.rules
	*l = *fresh
	if err := fresh.load(now, periods, fair, rs, cs, ms); err != nil {
		return err
	}
	if err := fresh.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRecords, err)
	}
	*l = *fresh
	return nil
}

func (l *Ledger) load(now int64, periods []Period, fair Fairness, rs []ResourceState, cs []CounterState, ms []MemberState) error {
	if now < 0 || now > stampMax {
		return fmt.Errorf("%w: time %d", ErrRecords, now)
	}
	var err error
	if l.fair, err = newFairness(fair); err != nil {
		return fmt.Errorf("%w: %w", ErrRecords, err)
	}
	l.now = now
	l.zones = slices.Clone(periods)
	slices.SortFunc(l.zones, func(a, b Period) int { return cmp.Compare(a.Timezone, b.Timezone) })
	for i := range l.zones {
		if i > 0 && l.zones[i].Timezone == l.zones[i-1].Timezone {
			return fmt.Errorf("%w: time zone %q is there twice", ErrRecords, l.zones[i].Timezone)
		}
	}
	for i := range rs {
		if rs[i].Of == 0 {
			if err := l.loadResource(&rs[i]); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(l.byName, func(a, b *resource) int { return compareName(a.spec, b.spec) })
	for i, r := range l.byName {
		if i > 0 && compareName(l.byName[i-1].spec, r.spec) == 0 {
			return fmt.Errorf("%w: resource %s is there twice", ErrRecords, r.spec.name())
		}
	}
	if err := l.loadChildren(rs); err != nil {
		return err
	}
	for i := range ms {
		if err := l.loadMember(&ms[i]); err != nil {
			return err
		}
	}
	slices.SortFunc(l.order, func(a, b *member) int { return cmp.Compare(a.incarnation, b.incarnation) })
	for i := range cs {
		if err := l.loadCounter(&cs[i]); err != nil {
			return err
		}
	}
	return l.loadDone()
}

func (l *Ledger) loadResource(s *ResourceState) error {
	r := newResource(s.ID, Spec{
		Scope: s.Scope, Owner: s.Owner, Kind: s.Kind, Each: s.Each, Limit: s.Limit, Burst: s.Burst, Hard: s.Hard,
		Timezone: s.Timezone, AlertPermille: s.AlertPermille, Weight: s.Weight, KeepMS: s.KeepMS, Currency: s.Currency,
		Rates: s.Rates,
	})
	if err := r.spec.normalise(); err != nil {
		return fmt.Errorf("%w: resource %d: %w", ErrRecords, s.ID, err)
	}
	if err := l.loadLevel(r, s); err != nil {
		return err
	}
	if !r.budget() {
		r.pools = []*pool{{res: r}}
	}
	for i := range s.Periods {
		p := &s.Periods[i]
		if !r.budget() || r.template() || i > 0 && p.Period <= s.Periods[i-1].Period || i >= periodsMax {
			return fmt.Errorf("%w: resource %d: period %d", ErrRecords, s.ID, p.Period)
		}
		r.pools = append(r.pools, loadPool(r, p))
	}
	l.byName = append(l.byName, r)
	return nil
}

// loadLevel takes in what all resources have.
func (l *Ledger) loadLevel(r *resource, s *ResourceState) error {
	if _, double := l.resources[s.ID]; double || s.ID == 0 {
		return fmt.Errorf("%w: resource %d: id is 0 or there twice", ErrRecords, s.ID)
	}
	r.level, r.levelAt, r.used, r.withheld = s.Level60k, s.LevelAtMS, s.UsedAtMS, s.Withheld60k
	if r.withheld < 0 || r.withheld > 2*bucketMax*perUnit {
		return fmt.Errorf("%w: resource %d: %d withheld", ErrRecords, s.ID, r.withheld)
	}
	if most := r.spec.Burst * perUnit; r.level > most || r.level < -most-debtMinutes*bucketMax*perUnit || r.levelAt > l.now {
		return fmt.Errorf("%w: resource %d: level %d at %d", ErrRecords, s.ID, r.level, r.levelAt)
	}
	if r.used < 0 || r.used > l.now {
		return fmt.Errorf("%w: resource %d: used at %d", ErrRecords, s.ID, r.used)
	}
	if aside := s.SetAside60k; aside != 0 && (!r.claimant() || aside > accountMax || aside < -accountMax) {
		return fmt.Errorf("%w: resource %d: %d set aside", ErrRecords, s.ID, aside)
	}
	l.resources[r.id] = r
	l.lastID = max(l.lastID, r.id)
	return nil
}

func loadPool(r *resource, p *BudgetPeriodState) *pool {
	return &pool{
		res: r, period: p.Period, endsMS: p.EndsMS, cap: p.Cap, credits: p.Credits, settled: p.Settled, free: p.Free,
		alerted: slices.Clone(p.AlertedPermille), told: slices.Clone(p.ToldPermille), closed: p.Closed,
		creditIDs: slices.Clone(p.CreditIDs), given: slices.Clone(p.Given), rate: p.PerUSDNano, learned: p.Learned, raised: p.Raised,
	}
}

// loadChild is loadResource for a child, whose template is loaded.
func (l *Ledger) loadChild(s *ResourceState) error {
	t, ok := l.resources[s.Of]
	if !ok || !t.template() {
		return fmt.Errorf("%w: resource %d: its template %d is missing", ErrRecords, s.ID, s.Of)
	}
	kid := newChild(t, s.ID, s.Name)
	if err := l.loadLevel(kid, s); err != nil {
		return err
	}
	switch {
	case t.budget() != (len(s.Periods) == 1):
		return fmt.Errorf("%w: resource %d: %d periods", ErrRecords, s.ID, len(s.Periods))
	case t.budget() && s.Periods[0].Period != 0:
		return fmt.Errorf("%w: resource %d: period %d", ErrRecords, s.ID, s.Periods[0].Period)
	case t.budget():
		kid.pools[0] = loadPool(kid, &s.Periods[0])
	case kid.claimant():
		kid.rank(&l.fair)
		kid.credit(s.SetAside60k)
	}
	t.kids = append(t.kids, kid)
	l.adopt(kid)
	return nil
}

// loadChildren takes in the children, and puts them in order.
func (l *Ledger) loadChildren(rs []ResourceState) error {
	for i := range rs {
		if rs[i].Of != 0 {
			if err := l.loadChild(&rs[i]); err != nil {
				return err
			}
		}
	}
	for _, t := range l.byName {
		slices.SortFunc(t.kids, func(a, b *resource) int { return cmp.Compare(a.name, b.name) })
		for i, kid := range t.kids {
			if i > 0 && t.kids[i-1].name == kid.name {
				return fmt.Errorf("%w: child %q of resource %d is there twice", ErrRecords, kid.name, t.id)
			}
		}
	}
	return nil
}

func (l *Ledger) loadMember(s *MemberState) error {
	if _, double := l.members[s.Incarnation]; double || s.Incarnation == 0 {
		return fmt.Errorf("%w: process %d is 0 or there twice", ErrRecords, s.Incarnation)
	}
	m := newMember(s.Incarnation, s.Identity)
	m.seq, m.asks, m.lapseAt, m.standbyAt, m.joined = s.Seq, slices.Clone(s.Asks), s.LapseAtMS, s.StandbyAtMS, s.JoinedMS
	m.lapsed, m.ended = s.Lapsed, s.Lapsed && s.StandbyAtMS <= l.now
	m.fenced, m.left, m.shareVersion, m.shareAcked, m.epoch = s.Fenced, s.Left, s.ShareVersion, s.ShareAcked, s.Epoch
	l.members[m.incarnation] = m
	l.order = append(l.order, m)
	return nil
}

func (l *Ledger) loadCounter(s *CounterState) error {
	m, p := l.members[s.Incarnation], l.pool(s.Resource, s.Period)
	if m == nil || p == nil {
		return fmt.Errorf("%w: counter of process %d on resource %d, period %d: one of them is missing",
			ErrRecords, s.Incarnation, s.Resource, s.Period)
	}
	c := newCounter(m, p)
	c.granted, c.spent, c.returned, c.forfeited = s.Granted, s.Spent, s.Returned, s.Forfeited
	c.held, c.demand, c.suspense, c.asked, c.shares = s.Held, s.Demand, s.Suspense, s.Asked, slices.Clone(s.Shares)
	m.counters = append(m.counters, c)
	p.counters = append(p.counters, c)
	return nil
}

// loadDone sorts what was loaded, sums it up and finds what is due.
func (l *Ledger) loadDone() error {
	for _, m := range l.order {
		slices.SortFunc(m.counters, func(a, b *counter) int {
			return compareKey(a.p.res.id, a.p.period, b.p.res.id, b.p.period)
		})
		for i, c := range m.counters {
			if i > 0 && m.counters[i-1].p == c.p {
				return fmt.Errorf("%w: counter of process %d on resource %d, period %d is there twice",
					ErrRecords, m.incarnation, c.p.res.id, c.p.period)
			}
			if err := c.check(); err != nil {
				return fmt.Errorf("%w: %w", ErrRecords, err)
			}
			c.p.tally(c, 1)
		}
		l.reschedule(m)
	}
	for _, r := range l.all() {
		for _, p := range r.pools {
			slices.SortFunc(p.counters, func(a, b *counter) int {
				return cmp.Compare(a.m.incarnation, b.m.incarnation)
			})
		}
	}
	return nil
}
