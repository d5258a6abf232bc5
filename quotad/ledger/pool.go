package ledger

import (
	"cmp"
	"slices"
)

// resource is one limited thing. A bucket has exactly one pool, of period 0; a budget one for each period it keeps; a
// run one of period 0; the template of runs none.
type resource struct {
	id       uint64
	spec     *Spec // filled in; of a child, its template's
	money    bool  // a budget; like each it never changes, and a renew need not look into spec for it
	each     Each
	level    int64   // buckets: units × perUnit
	levelAt  int64   // buckets: ledger time of level
	withheld int64   // buckets: refill that there is no room for as long as what asks were granted may come back
	pools    []*pool // by period
	used     int64   // a child: its last use; a pool: when it was divided last
	touched  bool    // see touch.go
	checked  uint64
	alarm    alarm

	// Templates: see child.go.
	kids     []*resource // by name
	oldest   alarms      // of kids, by last use
	asides   int64       // a pool: sum of what is set aside for its claimants
	accounts int         // a pool: claimants whose account is not 0

	// Children.
	of     *resource
	name   string
	aside  int64 // a claimant: its account, units × perUnit, see aside.go
	class  class // a claimant
	weight int64 // a claimant
}

func (r *resource) budget() bool { return r.money }

// template says that the resource is one for each name: its children are drawn on.
func (r *resource) template() bool { return r.each != Whole && r.of == nil }

// claimant says that the resource is a claimant of a pool.
func (r *resource) claimant() bool { return r.each == EachClaimant && r.of != nil }

// shared says that the resource is a pool.
func (r *resource) shared() bool { return r.each == EachClaimant && r.of == nil }

// bucket is what has the level: the pool of a claimant, else r.
func (r *resource) bucket() *resource {
	if r.claimant() {
		return r.of
	}
	return r
}

// pool is what counters draw on: a bucket, or a budget in one period.
type pool struct {
	res      *resource
	period   uint32
	counters []*counter // by incarnation

	// Budgets only: settled + out + suspense + free = cap + credits.
	endsMS, cap, credits, settled, free int64
	alerted, told                       []int64 // thresholds, thousandths, ascending
	closed                              bool
	recalled                            int64    // while it is restored: spent as usage in the backup says
	learned, raised                     int64    // after a restore: spent as usage says; part of settled that only usage says
	creditIDs                           []string // by RulesFirst; sorted
	given                               []Credit // by later rules, in the order they came
	rate                                int64    // that the cap was converted with; 0 for USD

	sums
}

// sums are running sums over a pool's counters, so that a renew need not walk them. tally alone changes them. Those of
// what claimants draw on count their counters' out, idle and wants too.
type sums struct {
	out          int64 // G − S − R − F, without suspense
	suspense     int64
	idle         int64 // part of out that nobody holds
	asked        int64 // part of out that only we take for held
	wants        int64 // wishes still open
	claimants    int64 // counters with such a wish
	live         int64 // counters of live members
	shares       int64 // largest share each may have in force
	lapsedShares int64 // part of shares at lapsed members
}

// counter is what one process and the ledger share about one pool.
type counter struct {
	m                   *member
	p                   *pool
	resource            uint64 // of p
	period              uint32 // of p
	granted, spent      int64
	returned, forfeited int64
	held, demand        int64
	asked               int64        // buckets: part of held that asks were granted since the last renew; it may come back
	suspense            int64        // buckets: 0; at a lapsed member all that is out
	shares              []ShareState // see share.go
	waiting             bool         // refused something since its last renew; a hint, not in the records
	back                int64        // handed back by the renew at hand; not in the records
	gathers             bool         // the renew at hand has an ask for it that was refused; not in the records
	listed              uint64       // pass that saw it last
	touched             bool         // see touch.go
	checked             uint64
}

// out is G − S − R − F: never negative, since G rises with every overrun.
func (c *counter) out() int64 { return c.granted - c.spent - c.returned - c.forfeited }

// idle is what the process could spend on new requests.
func (c *counter) idle() int64 {
	if c.suspense > 0 {
		return 0
	}
	return max(0, c.out()-c.held)
}

// want is what the process lacks to cover its demand: of a bucket until the renew after next; of money, which serves
// while quotad is away, for much longer.
func (c *counter) want() int64 {
	if c.p.res.budget() {
		return c.lacks(moneyRenews)
	}
	want := c.lacks(demandRenews)
	if c.p.res.claimant() {
		return min(want, claimMax)
	}
	return want
}

// wish is what the process would have idle if there were enough.
func (c *counter) wish() int64 {
	if c.demand == 0 || !c.m.live() {
		return 0
	}
	return min(demandRenews*min(c.demand, wantMax), wantMax)
}

// lacks is what is missing for a number of renew intervals.
func (c *counter) lacks(renews int64) int64 {
	if c.demand == 0 || !c.m.live() {
		return 0
	}
	return min(max(0, renews*min(c.demand, wantMax)-(c.out()-c.held)), wantMax)
}

func (p *pool) tally(c *counter, sign int64) {
	p.sums.tally(c, sign)
	if p.res.claimant() {
		p.res.of.pools[0].use(c, sign)
	}
}

func (s *sums) tally(c *counter, sign int64) {
	s.use(c, sign)
	s.suspense += sign * c.suspense
	if c.m.live() {
		s.live += sign
	}
	if len(c.shares) > 0 {
		worst := worstShare(c.shares)
		s.shares += sign * worst
		if c.m.lapsed {
			s.lapsedShares += sign * worst
		}
	}
}

func (s *sums) use(c *counter, sign int64) {
	s.out += sign * (c.out() - c.suspense)
	s.idle += sign * c.idle()
	s.asked += sign * c.asked
	if w := c.want(); w > 0 {
		s.wants += sign * w
		s.claimants += sign
	}
}

// lift takes c out of its pool's sums before it or its member changes; put brings it back. In between nothing may
// read the sums. A bucket is refilled first, because its rate and room depend on them: of a template, all its children.
func (l *Ledger) lift(c *counter) {
	if !c.p.res.budget() {
		l.refill(c.p.res)
	}
	c.p.tally(c, -1)
}

func (l *Ledger) put(c *counter) {
	c.p.tally(c, 1)
	l.touchCounter(c)
	l.touchResource(c.p.res)
	l.touchResource(c.p.res.bucket())
}

// pool returns the pool a message means; nil when it is gone.
func (l *Ledger) pool(resource uint64, period uint32) *pool {
	r, ok := l.resources[resource]
	if !ok {
		return nil
	}
	for _, p := range r.pools {
		if p.period == period {
			return p
		}
	}
	return nil
}

func newCounter(m *member, p *pool) *counter {
	return &counter{m: m, p: p, resource: p.res.id, period: p.period}
}

// find returns the counter of m; nil when there is none.
func (m *member) find(resource uint64, period uint32) *counter {
	if i, ok := m.search(resource, period); ok {
		return m.counters[i]
	}
	return nil
}

// search is a binary search, written out: a renew makes a hundred of them.
func (m *member) search(resource uint64, period uint32) (int, bool) {
	from, to := 0, len(m.counters)
	for from < to {
		i := (from + to) / 2
		c := m.counters[i]
		switch {
		case c.resource == resource && c.period == period:
			return i, true
		case c.resource < resource || c.resource == resource && c.period < period:
			from = i + 1
		default:
			to = i
		}
	}
	return from, false
}

// lacking is how many counters ensure would make.
func (m *member) lacking(p *pool) int {
	n := 0
	if m.find(p.res.id, p.period) == nil {
		n++
	}
	if t := p.res.of; t != nil && !t.budget() && m.find(t.id, 0) == nil {
		n++
	}
	return n
}

// ensure returns the counter of m on p, made if need be; nil when m may have no more of them. With one on the child of
// a bucket or pool comes one on the template, which has the share.
func (l *Ledger) ensure(m *member, p *pool) *counter {
	if c := m.find(p.res.id, p.period); c != nil {
		return c
	}
	if len(m.counters)+m.lacking(p) > countersMax {
		return nil
	}
	if t := p.res.of; t != nil && !t.budget() {
		l.ensure(m, t.pools[0])
	}
	i, _ := m.search(p.res.id, p.period)
	c := newCounter(m, p)
	m.counters = slices.Insert(m.counters, i, c)
	at, _ := p.search(m.incarnation)
	p.counters = slices.Insert(p.counters, at, c)
	l.put(c)
	return c
}

// drop forgets one counter, which balances.
func (l *Ledger) drop(c *counter) {
	l.lift(c)
	if i, ok := c.m.search(c.p.res.id, c.p.period); ok {
		c.m.counters = slices.Delete(c.m.counters, i, i+1)
	}
	if i, ok := c.p.search(c.m.incarnation); ok {
		c.p.counters = slices.Delete(c.p.counters, i, i+1)
	}
	l.touchCounter(c)
	l.touchResource(c.p.res)
}

func (p *pool) search(incarnation uint64) (int, bool) {
	return slices.BinarySearchFunc(p.counters, incarnation,
		func(c *counter, id uint64) int { return cmp.Compare(c.m.incarnation, id) })
}

// dropPool forgets every counter of p. The caller takes p from its resource.
func (l *Ledger) dropPool(p *pool) {
	for _, c := range p.counters {
		if p.res.claimant() {
			p.res.of.pools[0].use(c, -1)
		}
		if i, ok := c.m.search(p.res.id, p.period); ok {
			c.m.counters = slices.Delete(c.m.counters, i, i+1)
		}
		l.touchCounter(c)
		l.reschedule(c.m) // a dead member may have waited for this counter only
	}
	p.counters, p.sums = nil, sums{}
}

func (r *resource) view(now int64) Resource {
	v := Resource{ID: r.id, Spec: r.spec.clone(), Children: len(r.kids), Name: r.name}
	if r.of != nil {
		v.Of, v.UsedMS, v.SetAside = r.of.id, r.used, floorDiv(r.aside, perUnit)
	}
	if r.budget() {
		for _, p := range r.pools {
			v.Periods = append(v.Periods, p.state())
		}
		return v
	}
	p := r.pools[0]
	v.Level = r.levelFor(now)
	v.Outstanding, v.Idle, v.Sharers, v.Shares, v.LapsedShares = p.out, p.idle, p.live, p.shares, p.lapsedShares
	return v
}
