package ledger

import (
	"cmp"
	"math"
	"slices"
)

// member is one sidecar process. Its life:
//
//	live ──silence──▶ lapsed ──standby passed──▶ ended ──remembered long enough──▶ forgotten
//	  ▲                 │                           │
//	  └──────renew──────┴───────────renew───────────┘        fenced: lapsed for good
//
// Lapsed, its bucket leases are forfeited, its money stands in suspense and its shares still count. Ended, its
// shares are over too. It is forgotten as a whole or not at all, and not while money is in suspense at it: half a
// memory would book its totals twice if it came back.
type member struct {
	incarnation  uint64
	identity     string
	seq          uint64
	asks         []AskResult // of seq
	lapseAt      int64
	standbyAt    int64
	joined       int64
	lapsed       bool
	ended        bool // lapsed and past standbyAt
	fenced       bool
	left         bool
	shareVersion uint64
	shareAcked   uint64
	epoch        uint64     // of the last restore it is known to have heard of
	counters     []*counter // by resource and period

	alarm   alarm // what becomes of it next
	woken   bool
	touched bool // see touch.go
}

// newMember returns a process that is known to nobody yet.
func newMember(incarnation uint64, identity string) *member {
	m := &member{incarnation: incarnation, identity: identity}
	m.alarm = alarm{id: incarnation, at: -1, m: m}
	return m
}

// live members are granted things and share in N.
func (m *member) live() bool { return !m.lapsed && !m.fenced && !m.left }

func (m *member) balanced() bool {
	for _, c := range m.counters {
		if c.out() != 0 {
			return false
		}
	}
	return true
}

// nextDue is when Advance must look at m again; the largest int64 for never.
func (m *member) nextDue() int64 {
	switch {
	case !m.lapsed:
		return min(m.lapseAt, m.standbyAt)
	case !m.ended:
		return m.standbyAt
	case !m.balanced():
		return math.MaxInt64 // until the period goes
	case m.fenced || m.left:
		return m.standbyAt
	}
	return m.standbyAt + goneKeepMS
}

// join makes a member; nil when there are too many.
func (l *Ledger) join(incarnation uint64, identity string) *member {
	if len(l.order) >= membersMax {
		return nil
	}
	m := newMember(incarnation, identity)
	m.joined, m.epoch = l.now, l.restored.Epoch
	m.lapseAt, m.standbyAt = l.now+l.cfg.LapseAfterMS, l.now+l.standby()
	l.addMember(m)
	l.reschedule(m)
	l.touchMember(m)
	return m
}

func (l *Ledger) addMember(m *member) {
	l.members[m.incarnation] = m
	i, _ := l.searchMember(m.incarnation)
	l.order = slices.Insert(l.order, i, m)
}

func (l *Ledger) searchMember(incarnation uint64) (int, bool) {
	return slices.BinarySearchFunc(l.order, incarnation,
		func(m *member, id uint64) int { return cmp.Compare(m.incarnation, id) })
}

// standby is how long shares outlive the last renew here: the sidecar stops first, as with leases.
func (l *Ledger) standby() int64 {
	margin := l.cfg.StandbyMarginMS
	if l.rules == RulesFirst {
		margin = firstMarginMS
	}
	return max(l.cfg.StandbyForMS+margin, l.cfg.LapseAfterMS)
}

// change takes all counters of m out of the sums, lets f change m, then each, and brings them back.
func (l *Ledger) change(m *member, f func(), each func(c *counter)) {
	for _, c := range m.counters {
		l.lift(c)
	}
	f()
	for _, c := range m.counters {
		each(c)
	}
	for _, c := range m.counters {
		l.put(c)
	}
	l.touchMember(m)
	for _, c := range m.counters {
		if c.p.res.budget() {
			l.alert(c.p)
		}
	}
}

// lapse: m has been silent for too long. It has stopped using its bucket leases, so they are forfeited for good, but
// for what requests still hold. Since they ended it may have used its share, while the bucket refilled in full: that
// is made up for. Money needs no clock: it is only called suspense.
func (l *Ledger) lapse(m *member) {
	alone := l.cfg.LapseAfterMS - l.cfg.UsableForMS
	l.change(m, func() { m.lapsed = true }, func(c *counter) {
		c.asked = 0 // it may never say what became of them
		if c.p.res.budget() {
			c.suspense = c.out()
		} else {
			c.forfeited += c.idle()
			if l.rules > RulesFirst {
				c.p.res.charge60k(mulSat(c.standing(), alone))
			}
		}
	})
	l.reschedule(m)
}

// endStandby: m may not use its shares any more, and no request of it can be running.
func (l *Ledger) endStandby(m *member) {
	l.change(m, func() { m.ended = true }, func(c *counter) {
		c.shares = nil
		if !c.p.res.budget() {
			c.forfeited += c.out()
			c.held = 0
		}
	})
	l.reschedule(m)
}

// revive brings a lapsed member back by its renew. After standby it is a newcomer.
func (l *Ledger) revive(m *member) {
	l.change(m, func() {
		if m.ended {
			m.joined = l.now
		}
		m.lapsed, m.ended = false, false
	}, func(c *counter) { c.suspense = 0 })
}

// leave ends m's shares and grants. Its running requests may still settle.
func (l *Ledger) leave(m *member) {
	l.change(m, func() { m.left = true; m.shareVersion++ }, func(c *counter) { c.shares = nil })
}

// fence ends m for good: nothing it sends is applied any more. dead says that the process is known to be gone, so
// that its shares are over; else they count until standby.
func (l *Ledger) fence(m *member, dead bool) {
	l.change(m, func() { m.fenced, m.lapsed, m.asks = true, true, nil }, func(c *counter) {
		c.held, c.demand, c.asked = 0, 0, 0
		if dead {
			c.shares = nil
		}
		if c.p.res.budget() {
			c.suspense = c.out()
		} else {
			c.forfeited += c.out()
		}
	})
	l.reschedule(m)
}

// fenceLiar fences a process that sent what cannot be. It may have a twin, so that no journal can prove what it did
// not spend: with the largest seq on record, every one is too old.
func (l *Ledger) fenceLiar(m *member) {
	m.seq = math.MaxUint64
	l.fence(m, false)
}

// Fence ends a process for good, on the word of an operator or orchestrator that it is dead. Its shares end at once,
// its bucket leases are forfeited and its money stands in suspense. An unknown one changes nothing.
func (l *Ledger) Fence(incarnation uint64) {
	if m, ok := l.members[incarnation]; ok {
		l.fence(m, true)
	}
}

// forget drops m and its counters, which all balance.
func (l *Ledger) forget(m *member) {
	for _, c := range m.counters {
		l.lift(c)
		if i, ok := c.p.search(m.incarnation); ok {
			c.p.counters = slices.Delete(c.p.counters, i, i+1)
		}
		l.touchCounter(c)
	}
	m.counters = nil
	l.due.remove(&m.alarm)
	if i, ok := l.searchMember(m.incarnation); ok {
		l.order = slices.Delete(l.order, i, i+1)
	}
	delete(l.members, m.incarnation)
	l.touchMember(m)
}

// reschedule brings m's place in the heap up to date.
func (l *Ledger) reschedule(m *member) {
	if due := m.nextDue(); due == math.MaxInt64 {
		l.due.remove(&m.alarm)
	} else {
		l.due.set(&m.alarm, due)
	}
}
