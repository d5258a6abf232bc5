package sim

import (
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// This file is what the witness knows of resources.

// truth is what is known of one resource. What is one for each name has a truth of each; the claimants of a pool have
// one together.
type truth struct {
	id        uint64
	of        *truth // a name's
	name      string
	kids      []*truth
	byName    map[string]*truth // the same; looked up, never walked
	spec      ledger.Spec
	deleted   bool
	limits    []limit
	burstMost int64
	flows     []flow
	months    []*month
}

// limit is a bucket's, from a moment on.
type limit struct {
	at        time.Duration
	perMinute int64
}

// flow is use of a bucket by one request: what was reserved at admission, less what it gave back in the end. A debt is
// what it used beyond, from when quotad knows.
type flow struct {
	at     time.Duration
	amount int64
	owner  string
	cloned bool
	debt   bool
}

// wait is a resource that a process was refused for the time being.
type wait struct {
	resource uint64
	period   uint32
}

// month is what is known of a budget in one period.
type month struct {
	period       uint32
	capMost      int64 // cap and credits, the most they were
	cap          int64
	loosened     time.Duration // when more became free other than by settling
	spent        int64         // billed
	settled      int64         // by processes, or by what their journals say
	settledAt    int64         // at quotad, as last seen
	suspense     int64         // the same
	unbooked     int64         // overruns of requests that quotad has not booked
	unbookedMost int64
	uncovered    int64 // part of unbooked that is booked, and was more than was free: leases were spent beside it
	short        bool  // some request was refused for good
	closed       bool
	known        bool // cap was learnt
	capChanged   bool
}

// debt is an overrun of a month, or of a bucket.
type debt struct {
	truth  *truth
	month  *month // nil for a bucket
	amount int64
}

// learn takes the resources as they are defined now.
func (t *witness) learn(l *ledger.Ledger) {
	known := map[uint64]bool{}
	for _, r := range l.Resources() {
		known[r.ID] = true
		res := t.byID[r.ID]
		if res == nil {
			res = &truth{id: r.ID}
			t.byID[r.ID] = res
			t.resources = append(t.resources, res)
		}
		res.spec = r.Spec
		if n := len(res.limits); n == 0 || res.limits[n-1].perMinute != r.Spec.Limit {
			if n > 0 && !capped(r.Spec.Kind) && r.Spec.Each == ledger.Whole && r.Spec.Limit > res.limits[n-1].perMinute {
				t.loosened = append(t.loosened, wait{r.ID, 0})
			}
			res.limits = append(res.limits, limit{t.w.now, r.Spec.Limit})
		}
		res.burstMost = max(res.burstMost, r.Spec.Burst)
		for _, kid := range res.kids {
			t.learnKid(kid)
		}
		for _, p := range r.Periods {
			m := res.month(p.Period)
			if p.Cap+p.Credits > m.cap {
				m.loosened = t.w.now
				t.loosened = append(t.loosened, wait{r.ID, p.Period})
			}
			if p.Closed && !m.closed {
				m.closed = true
				t.loosened = append(t.loosened, wait{r.ID, p.Period})
			}
			m.capChanged = m.capChanged || m.known && m.cap != p.Cap+p.Credits
			m.known = true
			m.cap = p.Cap + p.Credits
			m.capMost = max(m.capMost, m.cap)
		}
	}
	for _, res := range t.resources {
		res.deleted = res.deleted || !known[res.id]
	}
}

// need is what a need draws on.
func (t *witness) need(resource uint64, name string) *truth {
	res := t.byID[resource]
	if res.spec.Each != ledger.EachName {
		return res
	}
	kid := res.byName[name]
	if kid == nil {
		kid = &truth{id: res.id, of: res, name: name}
		if res.byName == nil {
			res.byName = map[string]*truth{}
		}
		res.byName[name] = kid
		res.kids = append(res.kids, kid)
		t.learnKid(kid)
	}
	return kid
}

// learnKid takes over what is said of all names. The cap of a run is its limit.
func (t *witness) learnKid(kid *truth) {
	kid.spec = kid.of.spec
	if !capped(kid.spec.Kind) {
		return
	}
	m := kid.month(0)
	if m.known && kid.spec.Limit > m.cap {
		m.loosened = t.w.now
	}
	m.capChanged = m.capChanged || m.known && m.cap != kid.spec.Limit
	m.known = true
	m.cap = kid.spec.Limit
	m.capMost = max(m.capMost, m.cap)
}

// top is the template of a name, or the resource itself.
func (r *truth) top() *truth {
	if r.of != nil {
		return r.of
	}
	return r
}

func (r *truth) month(period uint32) *month {
	for _, m := range r.months {
		if m.period == period {
			return m
		}
	}
	m := &month{period: period}
	r.months = append(r.months, m)
	return m
}

// month is nil for a bucket.
func (b *balance) month() *month {
	if !capped(b.truth.spec.Kind) {
		return nil
	}
	return b.truth.month(b.period)
}
