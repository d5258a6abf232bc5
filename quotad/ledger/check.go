package ledger

import (
	"errors"
	"fmt"
	"math"
)

// ErrBroken says that an invariant does not hold.
var ErrBroken = errors.New("ledger invariant is broken")

// Check verifies the whole state; it walks every counter. Conservation: in each budget and period, settled +
// outstanding + suspense + free = cap + credits. Running sums equal the sums over counters; nothing is negative that
// must not be; everything due lies ahead. An error wraps ErrBroken and names the first fault.
func (l *Ledger) Check() error {
	counters, children := 0, 0
	for _, r := range l.byName {
		if err := l.checkTemplate(r); err != nil {
			return err
		}
		children += len(r.kids)
	}
	for _, r := range l.all() {
		for _, p := range r.pools {
			counters += len(p.counters)
			if err := p.check(); err != nil {
				return err
			}
		}
	}
	for _, m := range l.order {
		counters -= len(m.counters)
		planned := int64(math.MaxInt64)
		if a := &m.alarm; a.at >= 0 && a.at < len(l.due) && l.due[a.at] == a {
			planned = a.due
		}
		if planned != m.nextDue() {
			return fmt.Errorf("%w: process %d is due at %d, planned for %d", ErrBroken, m.incarnation, m.nextDue(), planned)
		}
	}
	if counters != 0 || len(l.order) != len(l.members) || children != l.children ||
		len(l.byName)+children != len(l.resources) {
		return fmt.Errorf("%w: indexes differ: %d counters, %d of %d processes, %d of %d children, %d of %d resources",
			ErrBroken, counters, len(l.order), len(l.members), children, l.children, len(l.byName)+children, len(l.resources))
	}
	return nil
}

// all returns all resources, children after their templates.
func (l *Ledger) all() []*resource {
	out := make([]*resource, 0, len(l.resources))
	for _, r := range l.byName {
		out = append(append(out, r), r.kids...)
	}
	return out
}

// check verifies a pool's counters and what is summed up over them.
func (p *pool) check() error {
	var sum sums
	for i, c := range p.counters {
		if err := c.check(); err != nil {
			return err
		}
		if i > 0 && p.counters[i-1].m.incarnation >= c.m.incarnation {
			return fmt.Errorf("%w: counters of resource %d are out of order", ErrBroken, p.res.id)
		}
		sum.tally(c, 1)
	}
	if p.res.shared() {
		for _, kid := range p.res.kids {
			for _, c := range kid.pools[0].counters {
				sum.use(c, 1)
			}
		}
	}
	if sum != p.sums {
		return fmt.Errorf("%w: resource %d, period %d: sums are %+v, counters make %+v",
			ErrBroken, p.res.id, p.period, p.sums, sum)
	}
	return p.conserved()
}

// checkTemplate verifies what a template knows of its children.
func (l *Ledger) checkTemplate(t *resource) error {
	fault := func(what string, k *resource) error {
		return fmt.Errorf("%w: child %q of resource %d: %s", ErrBroken, k.name, t.id, what)
	}
	asides, accounts := int64(0), 0
	for i, k := range t.kids {
		switch a := &k.alarm; {
		case k.of != t || !t.template() || k.spec != t.spec || l.resources[k.id] != k || len(k.pools) != 1:
			return fault("it is not linked", k)
		case i > 0 && t.kids[i-1].name >= k.name:
			return fault("it is out of order", k)
		case a.at < 0 || a.at >= len(t.oldest) || t.oldest[a.at] != a || a.due != k.used || k.used > l.now:
			return fault("its last use is not on record", k)
		case k.aside > accountMax || k.aside < -accountMax || k.aside != 0 && !k.claimant():
			return fault("what is set aside is out of range", k)
		}
		asides += k.aside
		if k.aside != 0 {
			accounts++
		}
		for _, c := range k.pools[0].counters {
			if !t.budget() && c.m.find(t.id, 0) == nil {
				return fault("a process has a counter, but none on the template", k)
			}
		}
	}
	if asides != t.asides || accounts != t.accounts || len(t.oldest) != len(t.kids) || len(t.kids) > t.kidsMax()+1 {
		return fmt.Errorf("%w: resource %d: %d set aside in %d accounts, children make %d in %d; %d of %d children",
			ErrBroken, t.id, t.asides, t.accounts, asides, accounts, len(t.oldest), len(t.kids))
	}
	if a := &t.alarm; len(t.kids) > 0 && (a.at < 0 || a.at >= len(l.due) || l.due[a.at] != a || a.due != t.expiry()) {
		return fmt.Errorf("%w: resource %d: its children are due at another time than planned", ErrBroken, t.id)
	}
	return nil
}

// CheckTouched verifies conservation and the numbers of whatever was touched since it was called last. It costs as much as what was touched, so it may be called after every entry.
func (l *Ledger) CheckTouched() error {
	defer l.touch.checked()
	for _, r := range l.touch.unchecked.resources {
		if l.resources[r.id] != r {
			continue
		}
		for _, p := range r.pools {
			if err := p.conserved(); err != nil {
				return err
			}
		}
	}
	for _, c := range l.touch.unchecked.counters {
		if l.counter(c.key()) != c {
			continue
		}
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) conserved() error {
	r := p.res
	if p.out < 0 || p.suspense < 0 || p.idle < 0 || p.asked < 0 || p.wants < 0 || p.shares < 0 || p.lapsedShares < 0 {
		return fmt.Errorf("%w: resource %d, period %d: a negative sum in %+v", ErrBroken, r.id, p.period, p.sums)
	}
	if !r.budget() {
		if r.level > r.spec.Burst*perUnit {
			return fmt.Errorf("%w: bucket %d: level %d is above its capacity", ErrBroken, r.id, r.level)
		}
		return nil
	}
	if p.settled < 0 || p.settled+p.out+p.suspense+p.free != p.cap+p.credits {
		return fmt.Errorf("%w: budget %d, period %d: settled %d + outstanding %d + suspense %d + free %d is not "+
			"cap %d + credits %d", ErrBroken, r.id, p.period, p.settled, p.out, p.suspense, p.free, p.cap, p.credits)
	}
	return nil
}

func (c *counter) check() error {
	fault := func(what string) error {
		return fmt.Errorf("%w: counter of process %d on resource %d, period %d: %s: %+v",
			ErrBroken, c.m.incarnation, c.p.res.id, c.p.period, what, c.state())
	}
	money := c.p.res.budget()
	switch {
	case c.granted < 0 || c.spent < 0 || c.returned < 0 || c.forfeited < 0 || c.held < 0 || c.demand < 0:
		return fault("negative")
	case c.spent > totalMax || c.returned > totalMax || c.demand > totalMax || c.forfeited > grantedMax ||
		c.granted > grantedMax || c.held > grantedMax+totalMax:
		return fault("out of range")
	case c.out() < 0:
		return fault("more used than granted")
	case c.asked < 0 || c.asked > c.held, money && c.asked != 0:
		return fault("asked")
	case money && c.forfeited != 0, !money && c.suspense != 0:
		return fault("forfeits or suspense of the wrong kind")
	case money && c.m.lapsed && c.suspense != c.out(), !c.m.lapsed && c.suspense != 0:
		return fault("suspense is not what is out")
	case money && len(c.shares) > 0, len(c.shares) > sharesMax:
		return fault("shares")
	}
	for i, s := range c.shares {
		if s.PerMinute < 0 || s.PerMinute > bucketMax || i > 0 && s.Version <= c.shares[i-1].Version {
			return fault("shares")
		}
	}
	return nil
}
