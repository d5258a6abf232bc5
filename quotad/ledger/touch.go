package ledger

// touched is what changed: keys of what Touched has not taken yet, and what CheckTouched has not looked at. A record says
// whether it is in the first, and carries the round of checks that it was last entered in.
type touched struct {
	resources []uint64
	counters  []CounterKey
	members   []uint64

	round     uint64
	unchecked struct {
		resources []*resource
		counters  []*counter
	}
}

func (l *Ledger) touchResource(r *resource) {
	if r.checked != l.touch.round {
		r.checked = l.touch.round
		l.touch.unchecked.resources = append(l.touch.unchecked.resources, r)
	}
	if !r.touched {
		r.touched = true
		l.touch.resources = append(l.touch.resources, r.id)
	}
}

func (l *Ledger) touchCounter(c *counter) {
	if c.checked != l.touch.round {
		c.checked = l.touch.round
		l.touch.unchecked.counters = append(l.touch.unchecked.counters, c)
	}
	if !c.touched {
		c.touched = true
		l.touch.counters = append(l.touch.counters, c.key())
	}
}

func (l *Ledger) touchMember(m *member) {
	if !m.touched {
		m.touched = true
		l.touch.members = append(l.touch.members, m.incarnation)
	}
}

// checked begins a round of checks.
func (t *touched) checked() {
	t.round++
	clear(t.unchecked.resources)
	clear(t.unchecked.counters)
	t.unchecked.resources, t.unchecked.counters = t.unchecked.resources[:0], t.unchecked.counters[:0]
}

// Touched takes the keys of at most most records that changed since they were taken last, in no order; there are no more
// when it returns fewer. They are good until something changes. Those that ResourceState, CounterState or MemberState no longer know are deleted. One that was
// deleted and made again may come twice.
func (l *Ledger) Touched(most int) (resources []uint64, counters []CounterKey, members []uint64) {
	resources = take(&l.touch.resources, most)
	for _, id := range resources {
		if r, ok := l.resources[id]; ok {
			r.touched = false
		}
	}
	counters = take(&l.touch.counters, most-len(resources))
	for _, k := range counters {
		if c := l.counter(k); c != nil {
			c.touched = false
		}
	}
	members = take(&l.touch.members, most-len(resources)-len(counters))
	for _, incarnation := range members {
		if m, ok := l.members[incarnation]; ok {
			m.touched = false
		}
	}
	return resources, counters, members
}

// take cuts at most most elements off the end of a list, whose memory goes on being used.
func take[T any](list *[]T, most int) []T {
	n := len(*list) - min(len(*list), most)
	out := (*list)[n:]
	*list = (*list)[:n]
	return out
}
