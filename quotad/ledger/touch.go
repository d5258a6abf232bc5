package ledger

import (
	"cmp"
	"slices"
)

// touched collects the keys of the records that changed. A record carries the round that it was last collected in,
// so that it is collected once a round.
type touched struct {
	round     uint64
	resources []uint64
	counters  []CounterKey
	members   []uint64
	periods   bool
}

func (l *Ledger) touchResource(r *resource) {
	if r.touched != l.touch.round {
		r.touched = l.touch.round
		l.touch.resources = append(l.touch.resources, r.id)
	}
}

func (l *Ledger) touchCounter(c *counter) {
	if c.touched != l.touch.round {
		c.touched = l.touch.round
		l.touch.counters = append(l.touch.counters, CounterKey{c.m.incarnation, c.p.res.id, c.p.period})
	}
}

func (l *Ledger) touchMember(m *member) {
	if m.touched != l.touch.round {
		m.touched = l.touch.round
		l.touch.members = append(l.touch.members, m.incarnation)
	}
}

// Touched returns the keys of the records that changed since the last call, sorted and each once, and clears them.
// Those that ResourceState, CounterState or MemberState no longer know are deleted.
func (l *Ledger) Touched() (resources []uint64, counters []CounterKey, members []uint64, periodsChanged bool) {
	t := l.touch
	l.touch = touched{round: t.round + 1}
	slices.Sort(t.resources)
	slices.Sort(t.members)
	slices.SortFunc(t.counters, func(a, b CounterKey) int {
		if c := cmp.Compare(a.Incarnation, b.Incarnation); c != 0 {
			return c
		}
		return compareKey(a.Resource, a.Period, b.Resource, b.Period)
	})
	// A record that was deleted and made again in one round is collected twice.
	return slices.Compact(t.resources), slices.Compact(t.counters), slices.Compact(t.members), t.periods
}
