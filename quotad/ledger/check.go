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
	counters := 0
	for _, r := range l.byName {
		for _, p := range r.pools {
			counters += len(p.counters)
			var sum pool
			for i, c := range p.counters {
				if err := c.check(); err != nil {
					return err
				}
				if i > 0 && p.counters[i-1].m.incarnation >= c.m.incarnation {
					return fmt.Errorf("%w: counters of resource %d are out of order", ErrBroken, r.id)
				}
				sum.tally(c, 1)
			}
			if sum.sums != p.sums {
				return fmt.Errorf("%w: resource %d, period %d: sums are %+v, counters make %+v",
					ErrBroken, r.id, p.period, p.sums, sum.sums)
			}
			if err := p.conserved(); err != nil {
				return err
			}
		}
	}
	for _, m := range l.order {
		counters -= len(m.counters)
		planned := int64(math.MaxInt64)
		if m.at >= 0 && m.at < len(l.due) && l.due[m.at] == m {
			planned = m.due
		}
		if planned != m.nextDue() {
			return fmt.Errorf("%w: process %d is due at %d, planned for %d", ErrBroken, m.incarnation, m.nextDue(), planned)
		}
	}
	if counters != 0 || len(l.order) != len(l.members) || len(l.byName) != len(l.resources) {
		return fmt.Errorf("%w: indexes differ: %d counters, %d of %d processes, %d of %d resources",
			ErrBroken, counters, len(l.order), len(l.members), len(l.byName), len(l.resources))
	}
	return nil
}

// CheckTouched verifies conservation and the numbers of whatever was touched since the last Touched. It costs as much
// as what was touched, so it may be called after every entry.
func (l *Ledger) CheckTouched() error {
	for _, id := range l.touch.resources {
		if r, ok := l.resources[id]; ok {
			for _, p := range r.pools {
				if err := p.conserved(); err != nil {
					return err
				}
			}
		}
	}
	for _, k := range l.touch.counters {
		if m, ok := l.members[k.Incarnation]; ok {
			if c := m.find(k.Resource, k.Period); c != nil {
				if err := c.check(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *pool) conserved() error {
	r := p.res
	if p.out < 0 || p.suspense < 0 || p.idle < 0 || p.wants < 0 || p.shares < 0 || p.lapsedShares < 0 {
		return fmt.Errorf("%w: resource %d, period %d: a negative sum in %+v", ErrBroken, r.id, p.period, p.sums)
	}
	if !r.money() {
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
	money := c.p.res.money()
	switch {
	case c.granted < 0 || c.spent < 0 || c.returned < 0 || c.forfeited < 0 || c.held < 0 || c.demand < 0:
		return fault("negative")
	case c.spent > totalMax || c.returned > totalMax || c.demand > totalMax || c.forfeited > grantedMax ||
		c.granted > grantedMax || c.held > grantedMax+totalMax:
		return fault("out of range")
	case c.out() < 0:
		return fault("more used than granted")
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
