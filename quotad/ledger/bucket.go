package ledger

// A bucket's level grows by limit / 60,000 units each millisecond, less the shares of silent sidecars, which may be
// using them. It stops where level and idle leases together reach the capacity, or else the leases would be a second
// bucket behind the first. What asks were granted counts like idle leases until the next renew says that it runs: while
// the answer is on its way the callers may go, and all of it comes back. What refills meanwhile is withheld, and there at
// once when they run. The level may be negative: an overrun is repaid out of the refill.

// levelNow returns the level at now, in units × perUnit, and changes nothing.
func (r *resource) levelNow(now int64) int64 {
	r = r.bucket()
	room := r.room()
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
func (r *resource) rate() int64 {
	holder := r // of the shares
	if r.of != nil {
		holder = r.of
	}
	return max(0, r.spec.Limit-holder.pools[0].lapsedShares)
}

// refill brings a bucket's level up to date; of the template of users, every bucket that is not full.
func (l *Ledger) refill(r *resource) {
	r = r.bucket()
	if r.template() && !r.shared() {
		for _, kid := range r.kids {
			if kid.level < kid.room() || kid.pools[0].asked > 0 {
				l.refill(kid)
			}
		}
		return
	}
	if r.levelAt != l.now {
		level := r.levelNow(l.now)
		if beside := mulSat(r.rate(), l.now-r.levelAt) - (level - r.level); beside > 0 || r.withheld > 0 {
			r.withheld = min(addSat(r.withheld, max(0, beside)), r.askedRoom())
		}
		r.level, r.levelAt = level, l.now
		l.touchResource(r)
		if r.shared() {
			l.setAside(r)
		}
	}
}

// room is how high the level may rise.
func (r *resource) room() int64 {
	return (r.spec.Burst-min(r.pools[0].idle, 2*bucketMax))*perUnit - r.askedRoom()
}

// askedRoom is the part of the capacity that is kept for what asks were granted and may come back.
func (r *resource) askedRoom() int64 { return min(r.pools[0].asked, 2*bucketMax) * perUnit }

// confirm says that a renew has told what became of asks: unused units were granted to them and never used. What is
// withheld is by how much the level is too low if all that is in doubt runs. So it is less by what was unused; and what
// is more than the room of asks still in doubt is there now.
func (r *resource) confirm(unused int64) {
	b := r.bucket()
	b.withheld -= min(b.withheld, min(unused, 2*bucketMax)*perUnit)
	freed := max(0, b.withheld-b.askedRoom())
	b.withheld -= freed
	if room := b.room(); b.level < room {
		b.level += min(freed, room-b.level)
	}
}

// fill makes a bucket full, unless its limit is 0.
func (l *Ledger) fill(r *resource) {
	r.levelAt = l.now
	if r.spec.Limit > 0 {
		r.level = r.spec.Burst * perUnit
	}
}

// add changes the level, and with it what is set aside for the claimant that did it.
func (r *resource) add(amount int64) {
	b := r.bucket()
	b.level += amount
	if r != b && b.contested() {
		r.credit(max(amount, -accountMax-r.aside))
	}
}

// giveBack returns units to the level, as far as there is room for them.
func (r *resource) giveBack(units int64) {
	b := r.bucket()
	if room := b.room(); b.level < room {
		r.add(min(min(units, 4*bucketMax)*perUnit, room-b.level))
	}
}

// charge takes units out of the level, whatever it is. What a bucket owes is bounded, or else one wild report would
// close it for ever.
func (r *resource) charge(units int64) { r.charge60k(min(units, 80*bucketMax) * perUnit) }

// charge60k is charge in units × perUnit.
func (r *resource) charge60k(amount int64) {
	owed := -(r.spec.Burst + debtMinutes*r.spec.Limit) * perUnit
	if level := r.bucket().level; level > owed {
		r.add(-min(amount, 80*bucketMax*perUnit, level-owed))
	}
}

// levelFor is what is left for r at now, in whole units: of a contested pool, what is set aside for the claimant.
func (r *resource) levelFor(now int64) int64 {
	level := r.levelNow(now)
	switch {
	case r.template() && !r.shared():
		level = r.spec.Burst * perUnit
	case r.claimant() && r.of.contested():
		level = min(level, r.aside)
	}
	return floorDiv(level, perUnit)
}

// fits says that the bucket, refilled, has units for r now.
func (r *resource) fits(units int64) bool {
	b := r.bucket()
	return units <= floorDiv(b.level, perUnit) && (r == b || !b.contested() || r.mayDraw(units*perUnit))
}

// waitMS says in how many milliseconds from now need units could be there, 1..retryMaxMS.
func (r *resource) waitMS(now, need int64) int64 {
	wait := int64(1)
	b, rate := r.bucket(), r.rate()
	if lack := min(need, 2*bucketMax)*perUnit - r.levelNow(now); lack > 0 {
		if rate == 0 {
			return stalledRetryMS
		}
		wait = (lack-1)/rate + 1
	}
	if b != r && b.contested() {
		if rate == 0 {
			return stalledRetryMS
		}
		wait = max(wait, r.turnMS(min(need, 2*bucketMax)*perUnit, rate))
	}
	if need > b.spec.Burst-b.pools[0].idle {
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
	spec := p.res.spec
	if !p.res.budget() {
		silent := max(0, l.now-(m.lapseAt-l.cfg.LapseAfterMS))
		floor := addSat(spec.Burst, mulSat(spec.Limit, 1+silent/60_000))
		return addSat(mulSat(base, overrunFactor), floor)
	}
	floor, least := max(p.cap, 0), int64(overrunFloor)
	if spec.Hard {
		floor /= 100
	}
	if spec.Kind == Calls {
		least = overrunCalls
	}
	most := addSat(mulSat(base, overrunFactor), max(floor, least))
	return min(most, max(0, p.free-freeMin))
}
