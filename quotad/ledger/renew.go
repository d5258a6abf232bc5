package ledger

// Renew applies a lease renewal and answers it. The steps stand in the order in which they count: what comes back
// can be granted again in the same message, asks go before demand, and shares come last.
//
// A seq already seen changes nothing and is answered from the totals.
func (l *Ledger) Renew(r Renew) RenewReply {
	if malformed(&r) {
		return RenewReply{Seq: r.Seq, Refusal: RefusedMalformed}
	}
	m, refused := l.sender(&r)
	if m == nil {
		return refused
	}
	if r.Seq == m.seq {
		return l.reply(m, &r)
	}
	if !l.plausible(m, &r) {
		l.fenceLiar(m)
		return RenewReply{Seq: r.Seq, Epoch: l.restored.Epoch, Fenced: true}
	}
	l.touchMember(m)
	late := m.lapsed && l.rules > RulesFirst
	if m.lapsed {
		l.revive(m)
	}
	m.seq = r.Seq
	m.lapseAt, m.standbyAt = l.now+l.cfg.LapseAfterMS, l.now+l.standby()
	l.reschedule(m)

	if l.knowsMore(m) {
		l.believe(m, &r)
		if r.Epoch == l.restored.Epoch {
			m.epoch = r.Epoch // it has heard of the restore, and told all it has
		}
	}
	l.applyCounters(m, r.Counters, late)
	l.ackShares(m, r.ShareVersion)
	if r.Leaving && !m.left {
		l.leave(m)
	}
	m.asks = make([]AskResult, len(r.Asks))
	for i := range r.Asks {
		m.asks[i] = l.ask(m, &r.Asks[i])
	}
	if m.live() {
		for i := range r.Counters {
			if c := m.find(r.Counters[i].Resource, r.Counters[i].Period); c != nil {
				l.grantDemand(c)
			}
		}
		if l.holdMS() == 0 {
			l.setShares(m)
		}
	}
	l.closeCounters(m, &r)
	return l.reply(m, &r)
}

// closeCounters drops the counters on which r has the last word, if the ledger's is the same: nothing is out and nothing
// wished for. They are answered as gone, which ends them for the sidecar too. What a counter on something whole has
// counted is never forgotten before its process, so that no journal is booked on top of it.
func (l *Ledger) closeCounters(m *member, r *Renew) {
	for i := range r.Counters {
		rc := &r.Counters[i]
		if !rc.Close {
			continue
		}
		if c := m.find(rc.Resource, rc.Period); c != nil && c.p.res.of != nil && c.out() == 0 && c.held == 0 && c.demand == 0 {
			l.drop(c)
		}
	}
}

// sender finds who sent r, or says why it is not served.
//
// A process the ledger does not know starts with its first renew. A later one comes from a process that was
// forgotten after a long silence: what it says of the past cannot be checked any more, so it starts over.
func (l *Ledger) sender(r *Renew) (*member, RenewReply) {
	m, ok := l.members[r.Incarnation]
	if !ok {
		if r.Seq != 1 && !l.returns(r) {
			return nil, RenewReply{Seq: r.Seq, Epoch: l.restored.Epoch, Fenced: true}
		}
		if m = l.join(r.Incarnation, r.Identity); m == nil {
			return nil, RenewReply{Seq: r.Seq, Refusal: RefusedFull}
		}
		if r.Seq != 1 {
			m.epoch = r.Epoch
		}
		return m, RenewReply{}
	}
	if m.fenced || m.identity != r.Identity {
		return nil, RenewReply{Seq: r.Seq, Epoch: l.restored.Epoch, Fenced: true}
	}
	if r.Seq < m.seq {
		// A late copy of what an honest process sent before; it does not wait for that any more, and an answer to it
		// changes nothing there. Who does wait is a twin that fell behind: two processes with one memory.
		return nil, RenewReply{Seq: r.Seq, Fenced: true}
	}
	return m, RenewReply{}
}

// plausible says that r could come from an honest process with one memory: no total went down, and no more is
// overrun than leases could cause. Else it was cloned, rolled back, or lies.
func (l *Ledger) plausible(m *member, r *Renew) bool {
	for i := range r.Counters {
		rc := &r.Counters[i]
		c := m.find(rc.Resource, rc.Period)
		if c != nil && c.p.res.template() {
			continue // nothing is drawn on it
		}
		if c != nil {
			if rc.Spent < c.spent || rc.Returned < c.returned {
				return false
			}
			if over := rc.Spent + rc.Returned + c.forfeited - c.granted; over > 0 && !l.knowsMore(m) && over > l.debtMax(m, c.p, c) {
				return false
			}
			continue
		}
		if over := rc.Spent + rc.Returned; over > 0 && !l.knowsMore(m) {
			if p := l.pool(rc.Resource, rc.Period); p != nil && p.countable() && over > l.debtMax(m, p, nil) {
				return false
			}
		}
	}
	return true
}

// applyCounters books a message's counters. Those it does not list want nothing any more. late says that its sender had
// lapsed.
func (l *Ledger) applyCounters(m *member, rcs []Counter, late bool) {
	l.mark++
	for i := range rcs {
		rc := &rcs[i]
		c := m.find(rc.Resource, rc.Period)
		if c == nil {
			p := l.pool(rc.Resource, rc.Period)
			if p == nil || !p.countable() {
				continue // answered as gone
			}
			if c = l.ensure(m, p); c == nil {
				continue
			}
		}
		if c.p.res.template() {
			continue
		}
		c.listed = l.mark
		l.apply(c, rc, late)
	}
	for _, c := range m.counters {
		if c.listed != l.mark && (c.demand > 0 || c.asked > 0) { // grantDemand does not look at it either
			l.lift(c)
			c.demand, c.asked = 0, 0
			l.put(c)
		}
	}
}

// countable says that a renew may begin a counter. One on a child begins with an ask: one that was closed, or went with
// its child, must not count again what it has counted before.
func (p *pool) countable() bool { return p.res.of == nil && !p.res.template() }

// apply books one counter: settled use, what comes back, and the overrun, which is debt.
//
// What running requests hold they may use to the end, so an overrun of others is paid out of what is free, not out of
// what is held: it would come to light only when they settle, and be granted to somebody until then. Held is a gauge,
// which nobody fences for: of an absurd one no more is booked than an overrun may be.
//
// What comes back to a bucket after a lapse is lost: the bucket has filled again beside it.
func (l *Ledger) apply(c *counter, rc *Counter, late bool) {
	most := l.debtMax(c.m, c.p, c)
	l.lift(c)
	spent, returned := rc.Spent-c.spent, rc.Returned-c.returned
	unused := min(returned, c.asked) // of what asks were granted; it may be less
	c.spent, c.returned, c.held, c.demand, c.asked = rc.Spent, rc.Returned, rc.Held, rc.Demand, 0
	over := max(0, -c.out())
	uncovered := c.held - max(0, c.out())
	over += max(0, min(uncovered, most-over, grantedMax-c.granted-over))
	c.back, c.gathers = max(0, returned-over), false
	c.granted += over
	c.waiting = false
	l.put(c)
	p := c.p
	if p.res.of != nil && (spent > 0 || returned > 0 || c.held > 0 || c.demand > 0) {
		l.use(p.res)
	}
	if !p.res.budget() {
		p.res.confirm(unused)
		if !late {
			p.res.giveBack(returned)
		}
		p.res.charge(over)
		if rc.ProviderLeft != nil && p.res.claimant() {
			l.correct(p.res.of, *rc.ProviderLeft)
		}
		return
	}
	p.free += l.settle(p, spent) + returned - over
	if spent > 0 {
		l.alert(p)
	}
}

// reply answers from the totals and the stored results of m's last asks.
func (l *Ledger) reply(m *member, r *Renew) RenewReply {
	out := RenewReply{
		Seq: r.Seq, Epoch: l.restored.Epoch, Asks: append([]AskResult(nil), m.asks...), ShareVersion: m.shareVersion,
		UsableForMS: l.cfg.UsableForMS, StandbyForMS: l.cfg.StandbyForMS,
		Grants: make([]Grant, 0, len(r.Counters)),
	}
	l.mark++
	for i := range r.Counters {
		out.Grants = l.appendGrant(out.Grants, m, r.Counters[i].Resource, r.Counters[i].Period)
	}
	for i := range r.Asks {
		granted := i < len(m.asks) && m.asks[i].Granted
		for k := range r.Asks[i].Needs {
			// A refused ask tells which child a name is, so that the next renew can say what is wished for of it.
			n := &r.Asks[i].Needs[k]
			if c := l.drew(m, n); c != nil && (granted || c.p.res.of != nil) {
				out.Grants = l.appendGrant(out.Grants, m, c.p.res.id, c.p.period)
			} else if granted && n.Name == "" {
				out.Grants = l.appendGrant(out.Grants, m, n.Resource, n.Period)
			}
		}
	}
	for _, c := range m.counters {
		if s := c.share(); s > 0 {
			out.Shares = append(out.Shares, Share{c.p.res.id, s})
		}
	}
	return out
}

// appendGrant adds the ledger's side of one counter, once a reply.
func (l *Ledger) appendGrant(gs []Grant, m *member, resource uint64, period uint32) []Grant {
	c := m.find(resource, period)
	if c == nil || c.p.res.template() {
		return append(gs, Grant{Resource: resource, Period: period, Gone: true, Shortage: Gone})
	}
	if c.listed == l.mark {
		return gs
	}
	c.listed = l.mark
	g := Grant{Resource: resource, Period: period, Granted: c.granted, Forfeited: c.forfeited}
	if t := c.p.res.of; t != nil {
		g.Of, g.Name = t.id, c.p.res.name
	}
	if c.p.res.budget() {
		g.Free, g.IdleMax = c.p.free, l.idleMax(c)
	} else {
		g.Free, g.IdleMax = floorDiv(c.p.res.levelNow(l.now), perUnit), l.fairIdle(c)
	}
	g.Shortage, g.RetryAfterMS = l.unmet(c)
	if g.Shortage != ShortageNone {
		c.waiting = true
	}
	return append(gs, g)
}
