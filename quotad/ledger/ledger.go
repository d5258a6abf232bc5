package ledger

import (
	"cmp"
	"math"
	"slices"
)

// Config holds the ledger's times and sizes. All nodes of a cluster must agree on it.
type Config struct {
	UsableForMS       int64 // bucket leases are usable this long from the renew's first send; default 10,000
	LapseAfterMS      int64 // a silent sidecar lapses this long after its last applied renew; default 11,100; above UsableForMS
	StandbyForMS      int64 // standing shares end this long after the last renew, at the sidecar; default 3,600,000
	StandbyMarginMS   int64 // and this much later here; default 1,100 + 0.5% of StandbyForMS; at least those 0.5%
	NewcomerMS        int64 // a newcomer's share is 0 this long while a silent one's is outstanding; default 60,000
	IdleLeasePermille int64 // hard budgets: unheld money out on lease, thousandths of the cap; default 5, at most 1000
}

// WithDefaults fills in what is 0 and bounds what is absurd. LapseAfterMS is raised above UsableForMS: the sidecar
// must stop first. So must it at the end of standby, an hour by two clocks: a clock that no one disciplines (an NTP
// daemon that is stopped, a guest that is throttled) may be wrong by 500 millionths, the leader's too, and after a
// failover the next leader's; half a hundredth covers all of them many times.
func (c Config) WithDefaults() Config {
	fill := func(v *int64, def, most int64) {
		if *v <= 0 {
			*v = def
		}
		*v = min(*v, most)
	}
	fill(&c.UsableForMS, 10_000, durationMax)
	fill(&c.LapseAfterMS, 11_100, durationMax)
	fill(&c.StandbyForMS, 3_600_000, durationMax)
	fill(&c.StandbyMarginMS, c.StandbyForMS/clockError+1_100, durationMax)
	c.StandbyMarginMS = max(c.StandbyMarginMS, c.StandbyForMS/clockError)
	fill(&c.NewcomerMS, 60_000, durationMax)
	fill(&c.IdleLeasePermille, 5, 1000)
	c.LapseAfterMS = max(c.LapseAfterMS, c.UsableForMS+1)
	return c
}

// Ledger is the state machine. It is not safe for concurrent use: its owner guards it. Reads change nothing, so a
// read lock is enough for them; Events and Touched are not reads.
type Ledger struct {
	cfg       Config
	rules     Rules
	now       int64
	members   map[uint64]*member // look-up only; order has the order
	order     []*member          // by incarnation
	due       alarms             // what becomes of members next, and templates whose oldest child may go
	resources map[uint64]*resource
	byName    []*resource // by scope, owner, kind
	children  int         // of all templates
	lastID    uint64      // largest resource id given out
	zones     []Period    // by time zone
	fair      fairness
	index     uint64 // Raft index of the entry at hand

	restored Restored

	mark    uint64           // numbers the passes that mark counters
	claims  []claim          // scratch space of part
	parties [classes][]claim // scratch space of setAside
	drawing []*pool          // scratch space of ask
	events  []Event
	wakes   int // events that are wakes
	woken   []*member

	touch touched
}

// New returns an empty ledger at time 0.
func New(cfg Config) *Ledger {
	return &Ledger{
		cfg:       cfg.WithDefaults(),
		rules:     RulesNow,
		members:   map[uint64]*member{},
		resources: map[uint64]*resource{},
		touch:     touched{round: 1},
		fair:      fairness{reserves: usualReserves},
	}
}

// Enter begins a Raft entry: children made until the next one have ids of its index. It never goes back.
func (l *Ledger) Enter(index uint64) { l.index = max(l.index, min(index, indexMax)) }

// Now returns the ledger's time in milliseconds.
func (l *Ledger) Now() int64 { return l.now }

// Advance moves time to stampMS, or leaves it when that is in the past. Whoever is due on the way lapses, or passes
// the end of its standby, at its own time and in order of (time, incarnation), and children not used for long go.
func (l *Ledger) Advance(stampMS int64) {
	stampMS = min(stampMS, stampMax)
	for len(l.due) > 0 && l.due[0].due <= stampMS {
		next := l.due[0]
		l.now = max(l.now, next.due)
		switch m := next.m; {
		case m == nil:
			l.expire(next.r)
		case !m.lapsed:
			l.lapse(m)
		case !m.ended:
			l.endStandby(m)
		default:
			l.forget(m)
		}
	}
	l.now = max(l.now, stampMS)
}

// NextDue returns when Advance has something to do next, in ledger time; the largest int64 if never.
func (l *Ledger) NextDue() int64 {
	if len(l.due) == 0 {
		return math.MaxInt64
	}
	return l.due[0].due
}

// Events returns what happened since the last call, in order, and clears it.
func (l *Ledger) Events() []Event {
	es := l.events
	l.events, l.wakes = nil, 0
	for _, m := range l.woken {
		m.woken = false
	}
	l.woken = l.woken[:0]
	return es
}

// wake hints to everybody who was refused something of p that it may have become free.
func (l *Ledger) wake(p *pool) {
	for _, c := range p.counters {
		if !c.waiting {
			continue
		}
		c.waiting = false
		if c.m.live() && !c.m.woken && l.wakes < eventsMax {
			c.m.woken = true
			l.wakes++
			l.woken = append(l.woken, c.m)
			l.events = append(l.events, Event{Kind: Wake, Incarnation: c.m.incarnation})
		}
	}
}

// Periods returns the open period of every known time zone, sorted by zone.
func (l *Ledger) Periods() []Period { return slices.Clone(l.zones) }

// Resource returns a read view of one resource.
func (l *Ledger) Resource(id uint64) (Resource, bool) {
	r, ok := l.resources[id]
	if !ok {
		return Resource{}, false
	}
	return r.view(l.now), true
}

// Spec returns what a resource is, and of a child its name; a child's spec is its template's, and of is not 0. Unlike a
// view it costs nothing, and what it shares with the ledger must not be changed or kept.
func (l *Ledger) Spec(id uint64) (spec *Spec, of uint64, name string, ok bool) {
	r, ok := l.resources[id]
	switch {
	case !ok:
		return nil, 0, "", false
	case r.of != nil:
		return r.of.spec, r.of.id, r.name, true
	}
	return r.spec, 0, "", true
}

// Named returns a read view of the resource that has a name; false when there is none.
func (l *Ledger) Named(scope, owner string, kind Kind) (Resource, bool) {
	name := Spec{Scope: scope, Owner: owner, Kind: kind}
	i, ok := slices.BinarySearchFunc(l.byName, &name, func(r *resource, name *Spec) int { return compareName(r.spec, name) })
	if !ok {
		return Resource{}, false
	}
	return l.byName[i].view(l.now), true
}

// Resources returns read views of all resources, sorted by id, without children.
func (l *Ledger) Resources() []Resource {
	out := make([]Resource, 0, len(l.byName))
	for _, r := range l.byName {
		out = append(out, r.view(l.now))
	}
	slices.SortFunc(out, func(a, b Resource) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Members returns read views of all processes the ledger remembers, sorted by incarnation.
func (l *Ledger) Members() []Member {
	out := make([]Member, 0, len(l.order))
	for _, m := range l.order {
		out = append(out, Member{
			Incarnation: m.incarnation, Identity: m.identity, Seq: m.seq, LapseAtMS: m.lapseAt, StandbyAtMS: m.standbyAt,
			JoinedMS: m.joined, Lapsed: m.lapsed, Fenced: m.fenced, Left: m.left, ShareVersion: m.shareVersion,
			ShareAcked: m.shareAcked, Counters: len(m.counters),
		})
	}
	return out
}

// Counters returns the counters of one process, sorted by resource and period.
func (l *Ledger) Counters(incarnation uint64) []CounterState {
	m, ok := l.members[incarnation]
	if !ok {
		return nil
	}
	out := make([]CounterState, 0, len(m.counters))
	for _, c := range m.counters {
		out = append(out, c.state())
	}
	return out
}
