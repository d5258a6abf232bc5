package ledger

// verdict says whether need fits p now; ShortageNone if so. left is what p has.
func (l *Ledger) verdict(p *pool, need int64) (short Shortage, left, retryMS int64) {
	if wait := l.holdMS(); wait > 0 {
		return l.onHold(p), 0, min(wait, retryMaxMS)
	}
	if !p.res.budget() {
		l.refill(p.res)
		left = p.res.levelFor(l.now)
		switch {
		case need > p.res.spec.Burst, p.res.spec.Limit == 0:
			return TooLarge, left, 0
		case !p.res.fits(need):
			return Throttled, left, p.res.waitMS(l.now, need)
		}
		return ShortageNone, left, 0
	}
	left = p.free
	switch {
	case p.closed:
		return Gone, left, 0
	case !p.res.spec.Hard && left-need >= freeMin, need <= left:
		return ShortageNone, left, 0
	case p.res.spec.Hard && need > p.cap+p.credits:
		return TooLarge, left, 0
	case need <= left+p.out: // suspense counts as spent
		return Reserved, left, reservedRetryMS
	}
	return Exhausted, left, 0
}

func (s Shortage) final() bool { return s == Exhausted || s == TooLarge || s == Gone }

// ask grants one request whole or not at all. When it does not fit, a final shortage is named before a passing one.
func (l *Ledger) ask(m *member, a *Ask) AskResult {
	out := AskResult{ID: a.ID, Granted: true}
	fresh := 0
	pools := l.drawing[:0]
	for i := range a.Needs {
		n := &a.Needs[i]
		left, retry := int64(0), int64(0)
		var p *pool
		short := Gone
		if m.live() {
			p, short = l.drawn(n)
		}
		pools = append(pools, p)
		if p == nil {
			if short == Reserved {
				retry = reservedRetryMS
			}
		} else if lacking := m.lacking(p); len(m.counters)+fresh+lacking > countersMax {
			short = Gone
		} else if c := m.find(p.res.id, p.period); c != nil && c.granted > grantedMax-n.Amount {
			short = TooLarge
		} else if short, left, retry = l.verdict(p, n.Amount); short == ShortageNone {
			fresh += lacking
		}
		if p != nil && short != ShortageNone && short != Gone {
			l.refuse(l.ensure(m, p), n.Amount) // there is room for it, or else it were gone
		}
		if short != ShortageNone && (out.Granted || short.final() && !out.Shortage.final()) {
			out = AskResult{ID: a.ID, Resource: n.Resource, Shortage: short, Left: left, RetryAfterMS: retry}
		}
	}
	l.drawing = pools
	if !out.Granted {
		for _, p := range pools {
			if p != nil {
				if c := m.find(p.res.id, p.period); c != nil {
					c.gathers = true
				}
			}
		}
		return out
	}
	for i := range a.Needs {
		n := &a.Needs[i]
		c := l.ensure(m, pools[i])
		l.lift(c)
		c.granted += n.Amount
		c.held += n.Amount // the waiting request takes it at once
		if l.rules > RulesFirst && !c.p.res.budget() {
			c.asked += n.Amount
		}
		l.put(c)
		l.take(c.p, n.Amount)
	}
	return out
}

// refuse notes that somebody waits for amount. What refills in a contested pool is set aside by wishes: this is one, also
// before the sidecar's next renew says so.
func (l *Ledger) refuse(c *counter, amount int64) {
	c.waiting = true
	if c.p.res.claimant() && c.demand < amount {
		l.lift(c)
		c.demand = amount
		l.put(c)
	}
}

// take pays a grant out of what is free.
func (l *Ledger) take(p *pool, amount int64) {
	if p.res.budget() {
		p.free -= amount
	} else {
		p.res.add(-amount * perUnit)
	}
}

// grantDemand tops a lease up towards demandRenews × demand out of what is free.
//
// What the same message handed back of a bucket for an ask that was then refused is not divided again: or else a large
// request could never gather its need while others draw on it. Money is not gathered: two processes that each keep what
// the other lacks would wait for ever.
func (l *Ledger) grantDemand(c *counter) {
	p, want := c.p, c.want()
	if want == 0 || c.granted > grantedMax-want || l.holdMS() > 0 {
		return
	}
	amount := int64(0)
	switch {
	case !p.res.budget():
		l.refill(p.res)
		free := p.res.levelFor(l.now)
		amount = l.part(c, want, free)
		if c.gathers {
			amount = max(amount, min(want, c.back, free))
		}
	case p.closed:
	case !p.res.spec.Hard:
		want = min(want, max(0, l.idleMax(c)-c.idle()))
		if p.free-want >= freeMin {
			amount = want
		}
	default:
		// A lease that is of no use to a request only keeps the money from others: asks serve instead.
		amount = l.part(c, min(want, l.leaseRoom(c)), p.free)
		if amount < l.typical(c) || c.gathers {
			amount = 0
		}
	}
	if amount <= 0 {
		return
	}
	l.lift(c)
	c.granted += amount
	l.put(c)
	l.take(p, amount)
}

// typical is taken for the size of one request: a small part of the demand, or of what may be on lease if that is less.
func (l *Ledger) typical(c *counter) int64 {
	return max(1, min(c.demand, l.idleMax(c))/typicalDivisor)
}

// leaseRoom is how much more unheld money c may have on lease: its part of a small part of the cap. So what idle
// leases can keep from others is bounded.
func (l *Ledger) leaseRoom(c *counter) int64 {
	return max(0, min(l.idleMax(c)-c.idle(), l.idleLeases(c.p)-c.p.idle))
}

// idleLeases is how much money of a pool may lie idle on leases.
func (l *Ledger) idleLeases(p *pool) int64 { return mulDiv(p.cap, l.cfg.IdleLeasePermille, 1000) }

// idleMax is how much of it may lie idle at one process: an equal part. A soft budget may be passed, so what the next
// requests need is granted in any case.
func (l *Ledger) idleMax(c *counter) int64 {
	part := l.idleLeases(c.p) / max(c.p.live, 1)
	if !c.p.res.spec.Hard {
		part = max(part, demandRenews*min(c.demand, wantMax))
	}
	return part
}

// fairIdle is how much of a bucket may lie idle at a process while others lack it: its part by max-min of all that is
// idle or free. 0 when it has no more than that, or nobody lacks anything.
func (l *Ledger) fairIdle(c *counter) int64 {
	p := c.p
	free := max(p.res.levelFor(l.now), 0)
	if p.wants <= free {
		return 0
	}
	n, all := p.claimants, free+p.idle
	if c.want() == 0 {
		n++
	}
	if c.idle() <= all/n { // no max-min part is smaller, and few have more: the usual case needs no division
		return 0
	}
	l.claims = l.claims[:0]
	for _, other := range p.counters {
		if w := other.wish(); w > 0 {
			l.claims = append(l.claims, claim{id: other.m.incarnation, want: w, weight: 1})
		}
	}
	if c.wish() == 0 {
		return 0 // without demand it hands all of it back anyway
	}
	if part := divide(all, l.claims, c.m.incarnation); part < c.idle() {
		return max(part, 1)
	}
	return 0
}

// part is what c gets of free when all who want of its pool get theirs by weighted max-min.
func (l *Ledger) part(c *counter, want, free int64) int64 {
	p := c.p
	switch {
	case want <= 0 || free <= 0:
		return 0
	case free >= p.wants, want <= free/p.claimants: // the usual cases need no division
		return min(want, free)
	}
	l.claims = l.claims[:0]
	for _, other := range p.counters {
		w := other.want()
		if w == 0 {
			continue
		}
		if other == c {
			w = want
		} else if p.res.budget() {
			w = min(w, l.leaseRoom(other))
		}
		l.claims = append(l.claims, claim{id: other.m.incarnation, want: w, weight: 1})
	}
	return divide(free, l.claims, c.m.incarnation)
}

// unmet says why c still lacks something; ShortageNone when it lacks nothing, or only because leases of money are
// kept small. It follows from the state, so a re-sent message is answered alike.
func (l *Ledger) unmet(c *counter) (short Shortage, retryMS int64) {
	want := c.lacks(demandRenews)
	if want == 0 {
		return ShortageNone, 0
	}
	p := c.p
	if wait := l.holdMS(); wait > 0 {
		return l.onHold(p), min(wait, retryMaxMS)
	}
	if !p.res.budget() {
		if p.res.spec.Limit == 0 {
			return TooLarge, 0
		}
		return Throttled, p.res.waitMS(l.now, min(want, p.res.spec.Burst))
	}
	need := l.typical(c)
	switch {
	case p.closed || !p.res.spec.Hard || need <= p.free:
		return ShortageNone, 0
	case need <= p.free+p.out:
		return Reserved, reservedRetryMS
	}
	return Exhausted, 0
}
