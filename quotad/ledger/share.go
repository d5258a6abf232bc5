package ledger

// A standing share is the rate a sidecar may use when its leases have ended and quotad is away. A counter keeps the
// versions of it that may be in force at the sidecar: the first is the newest it has acknowledged, the others were
// sent since. The sum over all sidecars of the largest such version never grows beyond the limit, so a share shrinks
// first and grows later. (A lowered limit is met as the sidecars acknowledge.)
//
// What is one for each name has its shares on the template: a process has a counter on it as soon as it has one on any
// child. The share of users holds for each of them by itself, that of a pool for all its claimants together.

func worstShare(vs []ShareState) int64 {
	worst := int64(0)
	for _, v := range vs {
		worst = max(worst, v.PerMinute)
	}
	return worst
}

// standing is the largest share under which the process may use the bucket of c alone. The share of what is one for
// each name holds for each of them; that of a pool is on the pool.
func (c *counter) standing() int64 {
	t := c.p.res.of
	switch {
	case c.p.res.each == EachName && t == nil || c.p.res.claimant():
		return 0
	case t != nil:
		if holder := c.m.find(t.id, 0); holder != nil {
			return worstShare(holder.shares)
		}
		return 0
	}
	return worstShare(c.shares)
}

// share is the newest version.
func (c *counter) share() int64 {
	if n := len(c.shares); n > 0 {
		return c.shares[n-1].PerMinute
	}
	return 0
}

// pushShare adds a version. m is not lapsed.
func (l *Ledger) pushShare(c *counter, version uint64, perMinute int64) {
	before := worstShare(c.shares)
	c.shares = append(c.shares, ShareState{version, perMinute})
	c.p.shares += worstShare(c.shares) - before
	l.touchCounter(c)
}

// ackShares drops the versions that are no longer in force at m.
func (l *Ledger) ackShares(m *member, version uint64) {
	version = min(version, m.shareVersion)
	if version <= m.shareAcked {
		return
	}
	m.shareAcked = version
	for _, c := range m.counters {
		keep := 0
		for i, v := range c.shares {
			if v.Version <= version {
				keep = i
			}
		}
		idle := len(c.shares) == keep+1 && c.shares[keep].PerMinute == 0
		if keep == 0 && !idle {
			continue
		}
		before := worstShare(c.shares)
		if idle {
			c.shares = nil
		} else {
			c.shares = append([]ShareState(nil), c.shares[keep:]...)
		}
		c.p.shares += worstShare(c.shares) - before
		l.touchCounter(c)
	}
}

// setShares moves the shares of m towards limit / N, N being the live sidecars that use the bucket. While a silent
// sidecar's share is outstanding, a newcomer's does not grow for its first minute, or else one process in a crash
// loop would leave a trail of dead shares. It begins with none, or with what it inherited.
func (l *Ledger) setShares(m *member) {
	version := m.shareVersion + 1
	newcomer := l.now-m.joined < l.cfg.NewcomerMS
	for _, c := range m.counters {
		p := c.p
		if p.res.budget() || p.res.of != nil || len(c.shares) >= sharesMax {
			continue
		}
		target := p.res.spec.Limit / max(p.live, 1)
		now := c.share()
		if newcomer && p.lapsedShares > 0 {
			target = min(target, now)
		}
		if target > now {
			target = max(now, min(target, p.res.spec.Limit-(p.shares-worstShare(c.shares))))
		}
		if target != now {
			l.pushShare(c, version, target)
			m.shareVersion = version
		}
	}
}

// inherit gives the shares of old, which is lapsed and dead, to its successor. No share gets longer by that: a
// successor the ledger has not met lasts until old's standby unless it renews.
//
// The successor has used them since it began, until a reply tells it better; so one that was not heard of for long takes
// them too, and they count at it as at any silent process. False: some it cannot take, and they are in use all the same.
func (l *Ledger) inherit(old *member, successor uint64) (all bool) {
	has := false
	for _, c := range old.counters {
		has = has || worstShare(c.shares) > 0
	}
	if !has || successor == 0 {
		return true
	}
	m, ok := l.members[successor]
	if !ok {
		if m = l.join(successor, old.identity); m == nil {
			return false
		}
		m.standbyAt = old.standbyAt
		l.reschedule(m)
	}
	if m.left || m.ended || m.identity != old.identity || l.rules == RulesFirst && !m.live() {
		return true
	}
	m.shareVersion++
	l.touchMember(m)
	all = true
	for _, c := range old.counters {
		worst := worstShare(c.shares)
		if worst == 0 {
			continue
		}
		heir := l.ensure(m, c.p)
		if heir == nil || len(heir.shares) >= sharesMax {
			all = false
			continue
		}
		l.lift(c)
		c.shares = nil
		l.put(c)
		room := c.p.res.spec.Limit - (c.p.shares - worstShare(heir.shares))
		if share := min(worst, room); share > heir.share() {
			l.lift(heir)
			heir.shares = append(heir.shares, ShareState{m.shareVersion, share})
			l.put(heir)
		}
	}
	return all
}
