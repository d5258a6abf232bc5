package ledger

// FileFinal takes the totals of a dead process from its successor on the same disk. It is done when it need not be
// sent again: filed, now or before; unknown; or of no use. It is not done while the process has not lapsed: it might
// still live, and a journal may only speak for the dead.
//
// What the journal says was spent is booked. The rest comes back to free only if the journal is proven and as new as
// the last renew; else it stays in suspense, as spent. The old process is fenced. When proven and new it is known to
// be dead, and the successor takes over its shares.
func (l *Ledger) FileFinal(f FileFinal) (done bool) {
	if malformedFinal(&f) {
		return true
	}
	m, known := l.members[f.Incarnation]
	switch {
	case known && m.identity != f.Identity, !known && !l.unheard(&f):
		return true
	case !known && l.rules == RulesFirst:
		return false // it is kept, and booked once that is done
	case !known:
		if m = l.join(f.Incarnation, f.Identity); m == nil {
			return false
		}
		m.lapsed = true
	}
	if !m.lapsed {
		return false
	}
	for i := range f.Counters {
		c := &f.Counters[i]
		if f.Seq < m.seq && l.ofChild(c.Resource) {
			continue
		}
		if known := m.find(c.Resource, c.Period); known != nil && l.knowsMore(m) {
			l.believeCounter(known, c)
		}
		l.raiseSpent(m, c)
	}
	if !f.Proven || f.Seq < m.seq {
		l.fence(m, false)
		return true
	}
	over := l.inherit(m, f.Successor) || l.rules == RulesFirst
	l.fence(m, over)
	for _, c := range m.counters {
		if rest := c.out(); rest > 0 { // money only: the buckets were forfeited
			l.lift(c)
			c.returned += rest
			c.suspense = 0
			l.put(c)
			c.p.free += rest
			l.wake(c.p)
		}
	}
	l.reschedule(m)
	return true
}

// unheard says that the process never got through to the ledger and yet spent on a budget: it was cut off from its first
// renew on, and a soft budget goes on. One that got further is forgotten, with all that it counted.
func (l *Ledger) unheard(f *FileFinal) bool {
	if f.Seq > 1 {
		return false
	}
	for i := range f.Counters {
		c := &f.Counters[i]
		if p := l.pool(c.Resource, c.Period); p != nil && p.countable() && p.res.budget() && c.Spent > 0 {
			return true
		}
	}
	return false
}

// ofChild says that a counter is of one name's. One that an old journal speaks of may have been closed since, and begun
// anew: what it counted is booked.
func (l *Ledger) ofChild(resource uint64) bool {
	r := l.resources[resource]
	return r != nil && r.of != nil
}

// raiseSpent books what a journal says was spent on a budget and is not booked yet. More than can be is disputed: it
// is not booked, and the counter stays as it is.
func (l *Ledger) raiseSpent(m *member, f *Counter) {
	c := m.find(f.Resource, f.Period)
	if c == nil {
		// Cut off from its first request on, it may have spent past a soft budget without a grant. What is one for each
		// name needs one: there, no counter means that it was closed, with all that it counted.
		p := l.pool(f.Resource, f.Period)
		if l.rules == RulesFirst || p == nil || !p.countable() || !p.res.budget() || f.Spent == 0 || f.Spent > l.debtMax(m, p, nil) {
			return
		}
		if c = l.ensure(m, p); c == nil {
			return
		}
	}
	if !c.p.res.budget() || f.Spent <= c.spent {
		return
	}
	more := f.Spent - c.spent
	over := max(0, more-c.out())
	if over > l.debtMax(m, c.p, c) && !l.knowsMore(m) {
		return
	}
	l.lift(c)
	c.spent += more
	c.granted += over
	c.suspense = c.out() // m has lapsed
	l.put(c)
	c.p.free += l.settle(c.p, more) - over
	l.alert(c.p)
}
