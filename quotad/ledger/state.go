package ledger

import "slices"

// The State types are the ledger's records: what the machine outside writes to disk. Together with the time, the
// periods and the fairness they are the whole state, except who waits to be woken.

// ResourceState mirrors raftlog.v1.ResourceState.
type ResourceState struct {
	ID            uint64
	Scope, Owner  string
	Kind          Kind
	Limit, Burst  int64
	Hard          bool
	Timezone      string
	AlertPermille []int64
	Weight        int64
	Level60k      int64 // units × 60,000
	Withheld60k   int64 // likewise: refilled, and not there before what asks were granted is known to run
	LevelAtMS     int64
	Periods       []BudgetPeriodState // ascending
	Each          Each
	Of            uint64 // a child: what it is a child of; the rest of its spec stands there
	Name          string // a child's
	UsedAtMS      int64  // a child: its last use; a pool: when it was divided last
	KeepMS        int64
	SetAside60k   int64 // a claimant: what is set aside for it, units × 60,000; negative: what it drew ahead
	Currency      string
	Rates         []Rate // ascending
}

// BudgetPeriodState mirrors raftlog.v1.BudgetPeriodState.
// Settled + Outstanding + Suspense + Free = Cap + Credits.
type BudgetPeriodState struct {
	Period          uint32
	EndsMS          int64
	Cap             int64
	Credits         int64
	Settled         int64
	Outstanding     int64
	Suspense        int64
	Free            int64
	AlertedPermille []int64 // ascending
	ToldPermille    []int64 // those of them that someone was told of; ascending
	Closed          bool
	CreditIDs       []string // of credits by RulesFirst; sorted
	Given           []Credit // the others, in the order they came
	Learned, Raised int64    // after a restore, see Learn
	PerUSDNano      int64    // rate the cap was converted with; 0 for USD
}

// CounterKey names a counter.
type CounterKey struct {
	Incarnation uint64
	Resource    uint64
	Period      uint32
}

// CounterState mirrors raftlog.v1.CounterState.
type CounterState struct {
	Incarnation uint64
	Resource    uint64
	Period      uint32
	Granted     int64
	Spent       int64
	Returned    int64
	Forfeited   int64
	Held        int64
	Demand      int64
	Suspense    int64
	Asked       int64
	Shares      []ShareState // ascending versions; the last is the newest
}

// ShareState is one version of a standing share.
type ShareState struct {
	Version   uint64
	PerMinute int64
}

// MemberState mirrors raftlog.v1.MemberState.
type MemberState struct {
	Incarnation  uint64
	Identity     string
	Seq          uint64
	Asks         []AskResult
	LapseAtMS    int64
	StandbyAtMS  int64
	JoinedMS     int64
	Lapsed       bool
	Fenced       bool
	Left         bool
	ShareVersion uint64
	ShareAcked   uint64
	Epoch        uint64
}

// ResourceState returns the record of a resource; false when it is deleted or never was.
func (l *Ledger) ResourceState(id uint64) (ResourceState, bool) {
	r, ok := l.resources[id]
	if !ok {
		return ResourceState{}, false
	}
	s := ResourceState{ID: r.id, Name: r.name, Level60k: r.level, LevelAtMS: r.levelAt, UsedAtMS: r.used, SetAside60k: r.aside}
	s.Withheld60k = r.withheld
	if r.of != nil {
		s.Of = r.of.id
	} else {
		spec := r.spec.clone()
		s.Scope, s.Owner, s.Kind, s.Each = spec.Scope, spec.Owner, spec.Kind, spec.Each
		s.Limit, s.Burst, s.Hard, s.Timezone = spec.Limit, spec.Burst, spec.Hard, spec.Timezone
		s.AlertPermille, s.Weight, s.KeepMS = spec.AlertPermille, spec.Weight, spec.KeepMS
		s.Currency, s.Rates = spec.Currency, spec.Rates
	}
	if r.budget() {
		for _, p := range r.pools {
			s.Periods = append(s.Periods, p.state())
		}
	}
	return s, true
}

// CounterState returns the record of a counter; false when it is deleted or never was.
func (l *Ledger) CounterState(k CounterKey) (CounterState, bool) {
	if c := l.counter(k); c != nil {
		return c.state(), true
	}
	return CounterState{}, false
}

// counter finds a counter; nil when there is none.
func (l *Ledger) counter(k CounterKey) *counter {
	if m, ok := l.members[k.Incarnation]; ok {
		return m.find(k.Resource, k.Period)
	}
	return nil
}

func (c *counter) key() CounterKey { return CounterKey{c.m.incarnation, c.resource, c.period} }

// MemberState returns the record of a process; false when it is forgotten or never was.
func (l *Ledger) MemberState(incarnation uint64) (MemberState, bool) {
	m, ok := l.members[incarnation]
	if !ok {
		return MemberState{}, false
	}
	return MemberState{
		Incarnation: m.incarnation, Identity: m.identity, Seq: m.seq, Asks: slices.Clone(m.asks), LapseAtMS: m.lapseAt,
		StandbyAtMS: m.standbyAt, JoinedMS: m.joined, Lapsed: m.lapsed, Fenced: m.fenced, Left: m.left,
		ShareVersion: m.shareVersion, ShareAcked: m.shareAcked, Epoch: m.epoch,
	}, true
}

func (p *pool) state() BudgetPeriodState {
	return BudgetPeriodState{
		Period: p.period, EndsMS: p.endsMS, Cap: p.cap, Credits: p.credits, Settled: p.settled, Outstanding: p.out,
		Suspense: p.suspense, Free: p.free, AlertedPermille: slices.Clone(p.alerted),
		ToldPermille: slices.Clone(p.told), Closed: p.closed, CreditIDs: slices.Clone(p.creditIDs), Given: slices.Clone(p.given),
		PerUSDNano: p.rate,
		Learned:    p.learned, Raised: p.raised,
	}
}

func (c *counter) state() CounterState {
	return CounterState{
		Incarnation: c.m.incarnation, Resource: c.p.res.id, Period: c.p.period, Granted: c.granted, Spent: c.spent,
		Returned: c.returned, Forfeited: c.forfeited, Held: c.held, Demand: c.demand, Suspense: c.suspense,
		Asked: c.asked, Shares: slices.Clone(c.shares),
	}
}
