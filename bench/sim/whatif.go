package sim

import (
	"slices"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/breaker"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// Scenario is a world without accidents, but with those that it names: tenants that want requests of providers.
type Scenario struct {
	Lasts     time.Duration
	Sidecars  int
	Reserves  []ledger.ClassReserve // of the priority classes; what is left out is as usual
	Tenants   []Tenant
	Providers []Provider
	Away      []Span // quotad

	FirstCome bool // what a provider allows is not divided: who comes first gets it
	NoBreaker bool // nobody remembers that a provider fails
}

// Tenant is a team and what it wants.
type Tenant struct {
	Name      string
	Class     string // interactive, standard or batch
	Weight    int64  // among the tenants of its class
	Demand    []Step // by time, the first at 0
	BurstSize int    // callers that come at once beside those
	BurstGap  time.Duration
	PerMinute int64 // its own limit; 0 for none
	CostNano  int64 // of a request
	CapNano   int64 // its budget of a month; 0 for none
	Providers []int // that it may use, in the order in which they are tried
}

// Step is a demand from a moment on.
type Step struct {
	At        time.Duration
	PerMinute float64
}

// Provider is a deployment with a limit of its own.
type Provider struct {
	Name       string
	PerMinute  int64 // requests that it lets us have
	Burst      int64
	Down       []Span
	FailsAfter time.Duration // how long an attempt takes to fail while it is down
	Takes      time.Duration // and to succeed else
}

// Span is a time in which something is away.
type Span struct{ From, To time.Duration }

func (s Span) holds(t time.Duration) bool { return t >= s.From && t < s.To }

// Course is what became of the tenants' callers, by slots of time.
type Course struct {
	Slot    time.Duration
	Tenants []TenantCourse
}

// TenantCourse counts one tenant's callers in the slot in which they came.
type TenantCourse struct {
	Wanted   []int
	Answered []int
	Waited   []time.Duration // of all of them together, until they were answered or gave up
	Nano     []int64         // spent
	Spent    bool            // the budget, before the end
}

const (
	slots       = 60               // of a scenario
	comeAgain   = 15 * time.Second // callers that are refused, until they give up
	attemptMost = 3
	retryLeast  = 100 * time.Millisecond
)

// PlayScenario plays a scenario from a seed. An error means that a promise was broken on the way.
func PlayScenario(sc Scenario, seed uint64) (Course, error) {
	w := newWorld(seed, sc.plan(), nil)
	w.faulty, w.load.on = false, false
	run := &whatIf{w: w, sc: &sc, course: Course{Slot: sc.Lasts / slots}, breakers: map[*sidecar][]breaker.Breaker{}}
	for i := range sc.Tenants {
		run.course.Tenants = append(run.course.Tenants, TenantCourse{
			Wanted: make([]int, slots), Answered: make([]int, slots), Waited: make([]time.Duration, slots), Nano: make([]int64, slots),
		})
		for _, s := range w.sidecars {
			run.breakers[s] = make([]breaker.Breaker, len(sc.Providers))
			run.arrivals(i, s)
		}
		if sc.Tenants[i].BurstSize > 0 {
			run.bursts(i)
		}
	}
	for _, away := range sc.Away {
		w.after(away.From, func() { w.quotad.lose(away.To-away.From, false, false) })
	}
	w.playUntil(sc.Lasts)
	return run.course, w.broken
}

// plan makes the resources of a scenario.
func (sc *Scenario) plan() plan {
	p := plan{sidecars: sc.Sidecars, lasts: requestLasts, fairness: ledger.Fairness{Reserves: sc.Reserves}}
	each := ledger.EachClaimant
	if sc.FirstCome {
		each = ledger.Whole
	}
	for _, d := range sc.Providers {
		p.specs = append(p.specs, ledger.Spec{
			Scope: "deployment", Owner: d.Name, Kind: ledger.Requests, Each: each, Limit: d.PerMinute, Burst: d.Burst,
		})
	}
	for _, t := range sc.Tenants {
		p.teams = append(p.teams, team{name: t.Name, outage: lease.Share, class: t.Class, weight: t.Weight})
		p.fairness.Weights = append(p.fairness.Weights, ledger.TeamWeight{Team: t.Name, Weight: t.Weight})
		if t.PerMinute > 0 {
			p.specs = append(p.specs, ledger.Spec{Scope: "team", Owner: t.Name, Kind: ledger.Requests, Limit: t.PerMinute})
		}
		if t.CapNano > 0 {
			p.addBudget("team", t.Name, t.CapNano, true)
		}
	}
	return p
}

// whatIf plays a scenario.
type whatIf struct {
	w        *world
	sc       *Scenario
	course   Course
	breakers map[*sidecar][]breaker.Breaker // looked up, never walked
}

func (t *Tenant) demand(at time.Duration) float64 {
	d := 0.0
	for _, s := range t.Demand {
		if s.At <= at {
			d = s.PerMinute
		}
	}
	return d
}

// arrivals lets a tenant's callers come to one sidecar, evenly but for some chance.
func (r *whatIf) arrivals(tenant int, s *sidecar) {
	perMinute := r.sc.Tenants[tenant].demand(r.w.now) / float64(r.sc.Sidecars)
	gap := time.Second // until it is looked at again
	if perMinute > 0 {
		gap = time.Duration(float64(time.Minute) / perMinute)
		gap = gap/2 + r.w.upTo(gap)
	}
	r.w.after(gap, func() {
		if perMinute > 0 {
			r.come(tenant, s)
		}
		r.arrivals(tenant, s)
	})
}

func (r *whatIf) bursts(tenant int) {
	t := &r.sc.Tenants[tenant]
	r.w.after(t.BurstGap, func() {
		for range t.BurstSize {
			r.come(tenant, r.w.sidecars[r.w.rng.IntN(len(r.w.sidecars))])
		}
		r.bursts(tenant)
	})
}

// caller is one request of a tenant, until it is answered or gives up.
type caller struct {
	run      *whatIf
	tenant   int
	s        *sidecar
	since    time.Duration
	slot     int
	provider int // in its tenant's list
	attempts int
	again    time.Duration // shortest time that a refusal has named in this round
}

func (r *whatIf) come(tenant int, s *sidecar) {
	c := &caller{run: r, tenant: tenant, s: s, since: r.w.now, slot: min(slots-1, int(r.w.now/r.course.Slot))}
	r.course.Tenants[tenant].Wanted[c.slot]++
	c.try()
}

func (c *caller) course() *TenantCourse { return &c.run.course.Tenants[c.tenant] }

func (c *caller) left() { c.course().Waited[c.slot] += c.run.w.now - c.since }

// clock is the time for breakers.
func (c *caller) clock() time.Time { return time.Unix(0, 0).Add(c.run.w.now) }

// try goes to the next provider that may be tried. When none is left the caller comes again a little later, or gives up.
func (c *caller) try() {
	w, list := c.run.w, c.run.sc.Tenants[c.tenant].Providers
	for ; c.provider < len(list) && c.attempts < attemptMost; c.provider++ {
		wait := time.Duration(0)
		if !c.run.sc.NoBreaker {
			wait = c.run.breakers[c.s][list[c.provider]].Wait(c.clock())
		}
		if wait == 0 {
			c.ask(list[c.provider])
			return
		}
		c.wait(wait)
	}
	again := max(c.again, retryLeast)
	if c.attempts >= attemptMost || c.again == 0 || w.now+again-c.since > comeAgain {
		c.left()
		return
	}
	w.after(again, func() {
		c.provider, c.again = 0, 0
		c.try()
	})
}

func (c *caller) wait(d time.Duration) {
	if c.again == 0 || d < c.again {
		c.again = d
	}
}

// ask has an attempt at a provider admitted.
func (c *caller) ask(provider int) {
	w, t, d := c.run.w, &c.run.sc.Tenants[c.tenant], &c.run.sc.Providers[provider]
	p := c.s.p
	if p == nil || p.config == nil {
		c.left()
		return
	}
	down := slices.ContainsFunc(d.Down, func(s Span) bool { return s.holds(w.now) })
	r := &request{p: p, books: p.books, team: c.tenant, since: c.since, lasts: d.Takes}
	used := int64(1)
	if down {
		r.lasts, used = d.FailsAfter, 0
	}
	add := func(scope, owner, one string, kind ledger.Kind, amount int64) {
		if res := p.config.byName[name(scope, owner, kind)]; res != nil && amount > 0 {
			r.needs = append(r.needs, lease.Need{Resource: res.Id, Amount: amount, Name: one})
			r.uses = append(r.uses, lease.Need{Resource: res.Id, Amount: amount * used})
		}
	}
	add("team", t.Name, "", ledger.Requests, 1)
	add("team", t.Name, "", ledger.Money, t.CostNano)
	add("deployment", d.Name, t.Class+"/"+t.Name, ledger.Requests, 1)
	r.refused = func(v lease.Verdict) {
		if v.Reason == lease.Exhausted {
			c.course().Spent = true
			c.left()
			return
		}
		c.provider++
		if v.RetryAfter > 0 {
			c.wait(v.RetryAfter)
		}
		c.try()
	}
	r.ended = func() {
		c.run.breakers[c.s][provider].Report(c.clock(), !down)
		if down {
			c.attempts++
			c.provider++
			c.try()
			return
		}
		c.course().Answered[c.slot]++
		c.course().Nano[c.slot] += t.CostNano
		c.left()
	}
	p.run(func() { p.submit(r) })
}
