package lease

import (
	"cmp"
	"iter"
	"slices"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// resource is one limited thing of the snapshot, or of an earlier one if a counter of it is left. If it is one for each
// name, it is a template: it has no counter, and each name is a resource of its own, see name.go.
type resource struct {
	id      uint64 // as in the snapshot: of a name, its template's
	known   bool   // in the present snapshot
	capped  bool   // money and calls: they never come back, and their leases need no clock
	hard    bool
	each    quotav1.Each
	limit   int64
	burst   int64
	period  uint32
	endsMS  int64    // Unix
	current *counter // that needs draw on; nil before the first need, and while quotad must be asked by name
	memory  memory
	trickle trickle

	names    int      // of a template: how many are known
	provider lastWord // of a pool

	of    *resource // the template of a name; nil: it is none
	name  string
	at    int    // in Machine.named
	asked uint64 // the newest renew that asks for it
}

// counter is this process's side of a resource in a period.
type counter struct {
	res     *resource
	key     counterKey // of a name, by the id that quotad gave it
	gone    bool       // dropped by quotad, or of a fenced incarnation: nobody is told of it any more
	closed  bool       // of no use any more, and quotad knows that it balances
	closing bool       // the renew in flight closes it

	granted, spent, returned, forfeited int64
	held                                int64
	open                                int    // holds that draw on it
	born                                uint64 // of a name: the renew that asked for it first

	use     int64 // wished for since the window began
	smooth  int64 // of the windows before, halving
	quiet   int   // windows without use
	sent    sentTotals
	free    int64 // left to all, as quotad last said
	stated  bool  // free was said
	scarce  bool  // quotad could not meet the last wish in full
	idleMax int64 // the most that quotad lets lie idle here; 0: it said nothing
	short   int64 // until then quotad has nothing more for it: no early renew for a low balance
}

func (c *counter) balance() int64 {
	return c.granted - c.spent - c.returned - c.forfeited - c.held
}

type counterKey struct {
	resource uint64
	period   uint32
}

func (k counterKey) compare(o counterKey) int {
	if c := cmp.Compare(k.resource, o.resource); c != 0 {
		return c
	}
	return cmp.Compare(k.period, o.period)
}

// take sets r as the snapshot has it, and says whether a refusal may have become wrong by it.
func (r *resource) take(in *quotav1.Resource) (changed bool) {
	was := *r
	r.known, r.each, r.hard = true, in.GetEach(), in.GetHard()
	r.capped = in.GetKind() == quotav1.Kind_KIND_MONEY || in.GetKind() == quotav1.Kind_KIND_CALLS
	r.limit, r.burst = in.GetLimit(), in.GetBurst()
	if !r.capped {
		r.limit, r.burst = min(max(r.limit, 0), maxPerMinute), min(r.burst, maxPerMinute)
		if r.burst <= 0 {
			r.burst = r.limit
		}
	}
	r.period, r.endsMS = in.GetPeriod(), in.GetPeriodEndsMs()
	return r.period != was.period || r.limit != was.limit || r.burst != was.burst || r.hard != was.hard
}

// ceiling is what no single request may exceed.
func (r *resource) ceiling() int64 {
	if r.capped {
		return r.limit
	}
	return r.burst
}

// Configure takes the resources of a new snapshot. A resource that is no longer in it is refused from now on.
// A budget whose period has changed draws on a new counter; open reservations settle to the old one.
func (m *Machine) Configure(now int64, resources []*quotav1.Resource) {
	for _, r := range m.resources {
		r.known = false
	}
	for _, in := range resources {
		r := m.resources[in.GetId()]
		if r == nil {
			r = &resource{id: in.GetId()}
			m.resources[r.id] = r
		}
		period := r.period
		if r.take(in) {
			r.memory = memory{}
		}
		if r.period != period {
			r.current = m.byKey[counterKey{r.id, r.period}]
		}
	}
	for id, r := range m.resources {
		if !r.known && r.current == nil && r.names == 0 {
			delete(m.resources, id)
		}
	}
	for _, r := range m.named {
		if r.inherit() {
			r.memory = memory{}
		}
	}
	m.shrinkShares(now)
}

// all are the resources and the names, in no order.
func (m *Machine) all() iter.Seq[*resource] {
	return func(yield func(*resource) bool) {
		for _, r := range m.resources {
			if !yield(r) {
				return
			}
		}
		for _, r := range m.named {
			if !yield(r) {
				return
			}
		}
	}
}

// counterOf returns the counter a need of r draws on, making it at the first need. It is nil when there is none to
// draw on: no open period, too many counters, or a name that quotad must be asked for.
func (m *Machine) counterOf(r *resource) *counter {
	if r.current != nil || r.of != nil {
		return r.current
	}
	if r.capped && r.period == 0 {
		return nil
	}
	key := counterKey{r.id, r.period}
	c := m.byKey[key]
	if c == nil {
		if len(m.counters) >= maxCounters {
			return nil
		}
		c = m.addCounter(r, key)
	}
	r.current = c
	return c
}

func (m *Machine) addCounter(r *resource, key counterKey) *counter {
	c := &counter{res: r, key: key}
	i, _ := slices.BinarySearchFunc(m.counters, key, func(o *counter, key counterKey) int { return o.key.compare(key) })
	m.counters = slices.Insert(m.counters, i, c)
	m.byKey[key] = c
	return c
}

// dropCounter forgets c because quotad did. Running requests keep it until they settle. It stays among m.counters until
// forgetGone.
func (m *Machine) dropCounter(c *counter) {
	if !c.closing {
		m.journalForget(c)
	}
	c.gone = true
	delete(m.byKey, c.key)
	if c.res.current == c {
		c.res.current = nil
	}
}

func (m *Machine) forgetGone() {
	m.counters = slices.DeleteFunc(m.counters, func(c *counter) bool { return c.gone })
}
