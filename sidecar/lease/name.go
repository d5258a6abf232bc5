package lease

import (
	"strings"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// This file is about resources that are one for each name: end users, runs, and the claimants of pools.
//
// Each name that was lately of use here is a resource of its own, with its template's limits. It has a counter once
// quotad has said which one the name means, and until the counter is closed. Without one, quotad is asked by name.

type nameKey struct {
	template uint64
	name     string
}

// find is what a need draws on; nil when it is unknown.
func (m *Machine) find(n *Need) *resource {
	r := m.resources[n.Resource]
	if r == nil || r.each == quotav1.Each_EACH_UNSPECIFIED || !r.known {
		return r
	}
	if one := m.names[nameKey{n.Resource, n.Name}]; one != nil {
		return one
	}
	if n.Name != "" && (len(m.counters) >= countersForNames || len(m.named) >= maxNames && !m.evictName()) {
		return m.one(r, "") // that all share which have no room of their own
	}
	return m.one(r, n.Name)
}

// lookup is find for what is known already: nil for a name that is not.
func (m *Machine) lookup(id uint64, name string) *resource {
	r := m.resources[id]
	if r == nil || r.each == quotav1.Each_EACH_UNSPECIFIED {
		return r
	}
	return m.names[nameKey{id, name}]
}

// one is the resource of a name of template r, made if need be.
func (m *Machine) one(r *resource, name string) *resource {
	one := m.names[nameKey{r.id, name}]
	if one == nil {
		one = &resource{id: r.id, of: r, name: strings.Clone(name), at: len(m.named)}
		one.inherit()
		m.names[nameKey{r.id, one.name}] = one
		m.named = append(m.named, one)
		r.names++
	}
	return one
}

// inherit takes the template's limits, and says whether a refusal may have become wrong by it.
func (r *resource) inherit() (changed bool) {
	t := r.of
	changed = r.limit != t.limit || r.burst != t.burst || r.hard != t.hard
	r.known, r.capped, r.hard, r.limit, r.burst = t.known, t.capped, t.hard, t.limit, t.burst
	return changed
}

// evictName makes room for a name by one that has no counter. It looks at a few, and goes on where it left off. A share
// that trickles is kept: begun anew, it would give its depth again.
func (m *Machine) evictName() bool {
	for range min(evictTries, len(m.named)) {
		m.hand = (m.hand + 1) % len(m.named)
		if r := m.named[m.hand]; r.current == nil && !r.trickle.running && r.asked != m.seq {
			m.forgetName(r)
			return true
		}
	}
	return false
}

// forgetNames drops the names of which nothing is known any more.
func (m *Machine) forgetNames(now int64) {
	for i := len(m.named) - 1; i >= 0; i-- {
		r := m.named[i]
		if r.current == nil && now >= r.memory.until && !r.trickle.running && r.asked != m.seq {
			m.forgetName(r)
		}
	}
}

func (m *Machine) forgetName(r *resource) {
	last := m.named[len(m.named)-1]
	m.named[r.at], last.at = last, r.at
	m.named = m.named[:len(m.named)-1]
	delete(m.names, nameKey{r.id, r.name})
	r.of.names--
}

// adopt makes the counter of a name that quotad was asked for.
func (m *Machine) adopt(g *quotav1.Grant) *counter {
	t := m.resources[g.GetOf()]
	if t == nil { // gone from the snapshot meanwhile: what was granted is handed back
		t = &resource{id: g.GetOf(), each: quotav1.Each_EACH_NAME}
		m.resources[t.id] = t
	}
	r := m.one(t, g.GetName())
	r.current = m.addCounter(r, counterKey{g.GetResource(), g.GetPeriod()})
	r.current.born = m.seq
	return r.current
}

// demandOfNew counts what requests want of names that had no counter yet when they came, whatever became of them.
func (m *Machine) demandOfNew(needs []*quotav1.Need) {
	for _, n := range needs {
		if c := m.grantedTo(n); c != nil && c.res.of != nil && c.born == m.seq {
			c.use = min(c.use+min(n.GetAmount(), maxDemand), maxDemand)
		}
	}
}

// reopen goes on with a counter that quotad did not agree to close.
func (m *Machine) reopen(c *counter) {
	m.journalTotals(c)
	c.closing = false
	c.res = m.one(c.res.of, c.res.name) // it may have been forgotten
	if c.res.current == nil {
		c.res.current = c
	}
}

// grantedTo is the counter that n of an ask was granted on, or refused: that of the name, or of the one that names share
// of which quotad has too many.
func (m *Machine) grantedTo(n *quotav1.Need) *counter {
	r := m.lookup(n.GetResource(), n.GetName())
	if r != nil && r.of == nil {
		return m.byKey[counterKey{n.GetResource(), n.GetPeriod()}]
	}
	shared := m.lookup(n.GetResource(), "")
	if r != nil && r.current != nil && (shared == nil || shared.current == nil || n.GetAmount() <= r.current.balance()) {
		return r.current
	}
	if shared != nil {
		return shared.current
	}
	return nil
}

// mayClose reports whether quotad need not keep c: it is a name's that was quiet, and quotad knows that it balances.
// This renew must not ask for what it closes. Of the one that names share, an ask does not say so.
func (m *Machine) mayClose(c *counter, demand int64, asks int) bool {
	r := c.res
	if r.of == nil || c.open > 0 || c.balance() != 0 || demand > 0 || c.use > 0 ||
		c.sent != (sentTotals{c.spent, c.returned}) || r.asked == m.seq || r.name == "" && asks > 0 {
		return false
	}
	quiet := quietWindows
	if len(m.named) > maxNames/2 {
		quiet = 1
	}
	return c.quiet >= quiet || !c.wanted()
}

// lastWord is what a provider said of a pool.
type lastWord struct {
	left int64
	at   int64
	news bool
}

// ProviderLeft takes the provider's word on what is left of a pool.
func (m *Machine) ProviderLeft(now int64, resource uint64, left int64) {
	if r := m.resources[resource]; r != nil && r.each == quotav1.Each_EACH_CLAIMANT {
		r.provider = lastWord{left: min(max(left, 0), maxAmount), at: now, news: true}
	}
}

// providerLeft is what the provider has told since the last renew, with what has come back to the pool since. It is told
// once, on any counter of the pool. After a minute it would say that the pool is full.
func (c *counter) providerLeft(now int64) *int64 {
	if c.res.of == nil || !c.res.of.provider.news {
		return nil
	}
	w, limit := &c.res.of.provider, c.res.limit
	w.news = false
	back := refilled(now-w.at, limit)
	if back >= limit {
		return nil
	}
	left := w.left + back
	return &left
}
