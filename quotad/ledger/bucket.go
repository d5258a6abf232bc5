package ledger

// A bucket's level grows by limit / 60,000 units each millisecond, less the shares of silent sidecars, which may be
// using them. It stops where level and idle leases together reach the capacity, or else the leases would be a second
// bucket behind the first. The level may be negative: an overrun is repaid out of the refill.

// levelNow returns the level at now, in units × perUnit, and changes nothing.
func (r *resource) levelNow(now int64) int64 {
	p := r.pools[0]
	room := (r.spec.Burst - min(p.idle, 2*bucketMax)) * perUnit
	if now <= r.levelAt || r.level >= room {
		return r.level
	}
	gain := mulSat(r.rate(), now-r.levelAt)
	if gain >= room-r.level {
		return room
	}
	return r.level + gain
}

// rate is the refill, units a minute.
func (r *resource) rate() int64 { return max(0, r.spec.Limit-r.pools[0].lapsedShares) }

func (l *Ledger) refill(r *resource) {
	if r.levelAt != l.now {
		r.level, r.levelAt = r.levelNow(l.now), l.now
		l.touchResource(r)
	}
}

// giveBack returns units to the level, as far as there is room for them.
func (r *resource) giveBack(units int64) {
	room := (r.spec.Burst - min(r.pools[0].idle, 2*bucketMax)) * perUnit
	if r.level < room {
		r.level = min(r.level+min(units, 4*bucketMax)*perUnit, room)
	}
}

// charge takes units out of the level, whatever it is. What a bucket owes is bounded, or else one wild report would
// close it for ever.
func (r *resource) charge(units int64) { r.charge60k(min(units, 80*bucketMax) * perUnit) }

// charge60k is charge in units × perUnit.
func (r *resource) charge60k(amount int64) {
	owed := -(r.spec.Burst + debtMinutes*r.spec.Limit) * perUnit
	if r.level > owed {
		r.level = max(r.level-min(amount, 80*bucketMax*perUnit), owed)
	}
}

// available is the level in whole units. The bucket must be refilled.
func (r *resource) available() int64 { return floorDiv(r.level, perUnit) }

// waitMS says in how many milliseconds from now need units could be there, 1..retryMaxMS.
func (r *resource) waitMS(now, need int64) int64 {
	wait := int64(1)
	if lack := min(need, 2*bucketMax)*perUnit - r.levelNow(now); lack > 0 {
		rate := r.rate()
		if rate == 0 {
			return stalledRetryMS
		}
		wait = (lack-1)/rate + 1
	}
	if need > r.spec.Burst-r.pools[0].idle {
		wait = max(wait, idleReturnMS) // refill alone cannot get there
	}
	return min(wait, retryMaxMS)
}

// debtMax bounds the overrun that m may report on p in one message; c is its counter, nil if it has none.
//
// Honest overruns come from reservations since the last renew, which cannot exceed what was out, and from what a
// cut-off sidecar went on doing: bucket leases that lapsed on the way, its standing share, soft budgets.
func (l *Ledger) debtMax(m *member, p *pool, c *counter) int64 {
	base := int64(0)
	if c != nil {
		base = c.out()
		if m.lapsed {
			base = addSat(base, c.forfeited)
		}
	}
	spec := &p.res.spec
	if !p.res.money() {
		silent := max(0, l.now-(m.lapseAt-l.cfg.LapseAfterMS))
		floor := addSat(spec.Burst, mulSat(spec.Limit, 1+silent/60_000))
		return addSat(mulSat(base, overrunFactor), floor)
	}
	floor := max(p.cap, 0)
	if spec.Hard {
		floor /= 100
	}
	most := addSat(mulSat(base, overrunFactor), max(floor, overrunFloor))
	return min(most, max(0, p.free-freeMin))
}
