package ledger

import (
	"cmp"
	"slices"
)

// After a restore the ledger remembers less than the sidecars do. What they say counts: totals granted that are larger
// than the ledger's are adopted, until a sidecar has answered to the new epoch; usage that comes in shows what was spent
// by processes that are not there any more. Until it is known what sidecars hold, or that has ended, nothing is granted;
// and buckets begin empty, since they may just have been used up.

// Restored says where the ledger stands after a restore. The zero value: there was none.
type Restored struct {
	Epoch        uint64 // raised by each restore
	HoldUntilMS  int64  // nothing is granted before, ledger time
	LearnUntilMS int64  // until then usage shows what was spent, ledger time
}

// Restored returns where the ledger stands. It is part of the state and has no record of its own.
func (l *Ledger) Restored() Restored { return l.restored }

// Resume sets what Restored said, after Load.
func (l *Ledger) Resume(r Restored) { l.restored = r }

// Restore begins an epoch in a ledger that was loaded from a backup. nowMS is the time of the ledger it replaces: time
// goes on from there. Whoever is live in the backup is given the time to say that he still is.
func (l *Ledger) Restore(epoch uint64, nowMS int64) {
	nowMS = max(l.now, min(nowMS, stampMax))
	for _, m := range l.order {
		if !m.lapsed {
			m.lapseAt, m.standbyAt = nowMS+l.cfg.LapseAfterMS, nowMS+l.standby()
			l.reschedule(m)
			l.touchMember(m)
		}
	}
	l.Advance(nowMS)
	for _, r := range l.byName {
		l.restart(r)
		for _, kid := range r.kids {
			l.restart(kid)
		}
	}
	l.restored = Restored{
		Epoch: epoch, HoldUntilMS: l.now + l.cfg.LapseAfterMS + restoreMarginMS, LearnUntilMS: l.now + learnMS,
	}
}

// restart empties a bucket, and has a budget learn from here.
func (l *Ledger) restart(r *resource) {
	if !r.budget() {
		r.level, r.levelAt, r.withheld = min(r.level, 0), l.now, 0
	}
	for _, p := range r.pools {
		// Usage may lag behind what is settled, or be ahead of it by what is out.
		p.learned, p.raised = min(max(p.settled, p.recalled), p.settled+p.out+p.suspense), 0
		p.recalled = 0
	}
	l.touchResource(r)
}

// holdMS is for how long nothing is granted yet; 0 for no time.
func (l *Ledger) holdMS() int64 { return max(0, l.restored.HoldUntilMS-l.now) }

// onHold is why something is not granted during the hold: for no lack of it.
func (l *Ledger) onHold(p *pool) Shortage {
	if p.res.budget() {
		return Reserved
	}
	return Throttled
}

// knowsMore says that the sender of r may remember what the ledger does not.
func (l *Ledger) knowsMore(m *member) bool { return m.epoch != l.restored.Epoch }

// returns says that a process the ledger does not know is one of before the restore, which began after the backup.
func (l *Ledger) returns(r *Renew) bool {
	return r.Epoch != l.restored.Epoch && l.now < l.restored.LearnUntilMS
}

// believe takes over what a process knows was granted to it. What is new comes out of what is free, and of a bucket is
// forfeited but for what requests hold: it was used, or its time is over. Older sets of shares than the next are void.
func (l *Ledger) believe(m *member, r *Renew) {
	for i := range r.Counters {
		rc := &r.Counters[i]
		c := m.find(rc.Resource, rc.Period)
		if c == nil {
			p := l.pool(rc.Resource, rc.Period)
			if p == nil || !p.countable() {
				continue
			}
			if c = l.ensure(m, p); c == nil {
				continue
			}
		}
		l.believeCounter(c, rc)
	}
	if r.ShareVersion >= m.shareVersion {
		m.shareVersion = r.ShareVersion + 1
	}
}

func (l *Ledger) believeCounter(c *counter, rc *Counter) {
	more := min(rc.Granted, grantedMax) - c.granted
	if more <= 0 {
		return
	}
	l.lift(c)
	c.granted += more
	if c.p.res.budget() {
		c.p.free -= more
	} else {
		c.forfeited += max(0, c.granted-c.forfeited-rc.Spent-rc.Returned-rc.Held)
		// What the backup counts as used may be more than that: as long as there is no news of it.
		c.forfeited = min(c.forfeited, c.granted-c.spent-c.returned)
	}
	if c.m.lapsed && c.p.res.budget() {
		c.suspense = c.out()
	}
	l.put(c)
}

// settle books what a counter says was spent, and returns how much of it usage had already shown.
func (l *Ledger) settle(p *pool, spent int64) (known int64) {
	if p.raised > 0 && l.now < l.restored.LearnUntilMS {
		counted := p.settled - p.raised + spent
		known = p.raised - max(0, min(p.raised, p.learned-counted))
		p.raised -= known
	}
	p.settled += spent - known
	return known
}

// Recall is told, before Restore, of usage that the backup itself has.
func (l *Ledger) Recall(scope, owner string, hourMS, cost int64) {
	if p := l.periodOf(scope, owner, hourMS); p != nil && cost > 0 && p.recalled <= totalMax-min(cost, totalMax) {
		p.recalled += cost
	}
}

// Learn hears of usage that was counted for the first time: what an owner's requests of an hour cost. A budget is
// settled up to what usage says in all, where counters say less: processes that ended since the backup spent that. What
// was raised stays raised when the time for it is over.
func (l *Ledger) Learn(scope, owner string, hourMS, cost int64) {
	if l.now >= l.restored.LearnUntilMS || cost <= 0 {
		return
	}
	p := l.periodOf(scope, owner, hourMS)
	if p == nil || p.learned > totalMax-min(cost, totalMax) {
		return
	}
	p.learned += cost
	raised := max(p.raised, p.learned-(p.settled-p.raised))
	if raised > p.raised {
		p.free -= raised - p.raised
		p.settled += raised - p.raised
		p.raised = raised
		l.alert(p)
	}
	l.touchResource(p.res)
}

// Learning says whether Learn has any effect now.
func (l *Ledger) Learning() bool { return l.now < l.restored.LearnUntilMS }

// periodOf finds the budget period that an hour's usage counts in; nil for none. An hour that lies in two months, of which
// both are open, counts in the later: what is granted from is rather thought to be spent than free.
func (l *Ledger) periodOf(scope, owner string, hourMS int64) *pool {
	i, ok := slices.BinarySearchFunc(l.byName, Spec{Scope: scope, Owner: owner, Kind: Money}, func(r *resource, s Spec) int {
		return cmp.Or(cmp.Compare(r.spec.Scope, s.Scope), cmp.Compare(r.spec.Owner, s.Owner), cmp.Compare(r.spec.Kind, s.Kind))
	})
	if !ok {
		return nil
	}
	for r, n := l.byName[i], len(l.byName[i].pools)-1; n >= 0; n-- {
		if p := r.pools[n]; hourMS+hourInMS > r.begins(n) && hourMS < p.endsMS {
			return p
		}
	}
	return nil
}

// begins is when a budget's period of that index begins: where the one before ends. Where that is not known, its length
// is, but for the hour by which clocks are set forward or back: it is taken to have begun early.
func (r *resource) begins(n int) int64 {
	p, shift := r.pools[n], hourInMS
	if zone(r.spec.Timezone) == "" {
		shift = 0
	}
	usual := p.endsMS - daysIn(p.period)*dayMS
	if n > 0 {
		if before := r.pools[n-1].endsMS; before >= usual-shift && before <= usual+shift {
			return before
		}
	}
	return usual - shift
}

const (
	hourInMS = int64(3_600_000)
	dayMS    = 24 * hourInMS
)

// daysIn is how many days the month has.
func daysIn(period uint32) int64 {
	year, month := period/100, period%100
	switch {
	case month == 2 && (year%4 == 0 && year%100 != 0 || year%400 == 0):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	}
	return 31
}
