package lease

import (
	"cmp"
	"slices"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// standby is what this process may use while quotad is away: standing shares of buckets, until an absolute end.
// Money needs none: what is on lease may be spent at any time. A share of what is one for each name is each name's by
// itself; the claimants of a pool have theirs together.
type standby struct {
	shares       map[uint64]int64 // resource to units a minute
	shareVersion uint64
	standbyUntil int64 // 0: quotad was never reached and nothing was inherited
	trickleFrom  int64 // shares of a predecessor trickle from here; else from the end of the leases
}

// trickle is one standing share in use. It fills from empty at the share's rate.
//
// It gathers the largest request seen or trickleDepth of the share, whichever is smaller, so that a sidecar that was
// quiet has no burst. A request that needs more than trickleDepth may still gather its own need, or it could never
// pass; that is one request, and from an empty bucket.
type trickle struct {
	running bool
	level   int64 // units x 60,000, so that a millisecond's gain is exact
	at      int64
	largest int64 // request seen
	want    int64 // largest refused since the last that passed
}

const perUnit = 60_000

// Shares are the standing shares in force, by resource, and their end; nil when there are none.
func (m *Machine) Shares(now int64) (shares []*quotav1.Share, until int64) {
	if now >= m.standbyUntil || len(m.shares) == 0 {
		return nil, 0
	}
	return m.sortedShares(), m.standbyUntil
}

// Inherit takes over the shares of a predecessor that is dead beyond doubt. It must not be called once quotad was
// reached.
func (m *Machine) Inherit(now int64, shares []*quotav1.Share, until int64) {
	if until <= now || len(shares) == 0 {
		return
	}
	m.standbyUntil, m.trickleFrom = until, now
	m.setShares(shares)
}

func (m *Machine) setShares(shares []*quotav1.Share) {
	m.shares = make(map[uint64]int64, len(shares))
	for _, s := range shares {
		if s.GetPerMinute() > 0 {
			m.shares[s.GetResource()] = min(s.GetPerMinute(), maxPerMinute)
		}
	}
}

// applyShares takes the standing shares of a reply; first is when its renew was first sent.
func (m *Machine) applyShares(first int64, reply *quotav1.RenewReply) {
	for r := range m.all() {
		r.trickle = trickle{}
	}
	if m.leaving {
		return
	}
	same := reply.GetShareVersion() == m.shareVersion && m.trickleFrom == 0
	m.trickleFrom = 0
	m.standbyUntil = first + int64(time.Millisecond)*max(0, reply.GetStandbyForMs())
	if same && len(reply.GetShares()) == len(m.shares) {
		m.journalStandby()
		return
	}
	m.setShares(reply.GetShares())
	m.shareVersion = reply.GetShareVersion()
	m.journalShares()
}

// endShares gives the shares up for good.
func (m *Machine) endShares() {
	m.shares, m.standbyUntil, m.trickleFrom = nil, 0, 0
	m.journalShares()
}

// shrinkShares keeps a share within a lowered limit, should quotad go away before it says so itself.
func (m *Machine) shrinkShares(now int64) {
	for id, s := range m.shares {
		if r := m.resources[id]; r != nil && r.known && s > r.limit {
			for one := range m.all() {
				if one.id == id && one.trickle.running {
					one.trickle.advance(now, s, m.trickleStart())
				}
			}
			m.shares[id] = r.limit
		}
	}
}

// trickler is the trickle that a need of r draws on.
func (r *resource) trickler() *trickle {
	if r.of != nil && r.of.each == quotav1.Each_EACH_CLAIMANT {
		return &r.of.trickle
	}
	return &r.trickle
}

func (m *Machine) trickleStart() int64 { return max(m.usableUntil, m.trickleFrom) }

// sortedShares are the shares by resource.
func (m *Machine) sortedShares() []*quotav1.Share {
	out := make([]*quotav1.Share, 0, len(m.shares))
	for id, s := range m.shares {
		out = append(out, &quotav1.Share{Resource: id, PerMinute: s})
	}
	slices.SortFunc(out, func(a, b *quotav1.Share) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// reserveAway takes every need or none without quotad: buckets from a lease that has not ended, then from the
// standing share; money from what is on lease; and a soft budget without limit if the key's mode is Open.
func (m *Machine) reserveAway(now int64, outage Outage, needs []Need, note []byte, usable bool) (Hold, Verdict) {
	if now >= m.standbyUntil || outage == Closed && !usable {
		return Hold{}, m.unavailableNeed(now, needs)
	}
	h := m.newHold()
	trickled, opened := false, false
	for i := range needs {
		r, amount := m.find(&needs[i]), needs[i].Amount
		var c *counter
		if r != nil && r.known {
			c = m.counterOf(r)
		}
		if c == nil && (r == nil || !r.known || r.of == nil) {
			m.undoAway(h)
			return Hold{}, m.unavailable(needs[i].Resource, amount)
		}
		wait, ok := int64(0), amount == 0 || c != nil && amount <= c.balance() && (r.capped || usable)
		switch {
		case ok:
		case r.capped && c == nil: // of a run that is not known here nothing is on lease
		case r.capped:
			ok = outage == Open && !r.hard && amount <= maxAmount
			opened = opened || ok
		case usable:
			wait = m.usableUntil - now
		default:
			if wait, ok = r.trickler().take(now, m.shares[r.id], m.trickleStart(), amount); ok {
				trickled, c = true, nil
			}
		}
		if !ok {
			m.undoAway(h)
			v := m.unavailable(r.id, amount)
			if wait > 0 {
				v.RetryAfter = roundUpMS(wait)
			}
			return Hold{}, v
		}
		h.take(c, r, amount)
	}
	v, ok := m.grant(h, note)
	if !ok {
		return Hold{}, v
	}
	switch {
	case opened:
		m.stats.opened++
	case trickled:
		m.stats.trickled++
	default:
		m.stats.local++
	}
	return Hold{h, h.id}, v
}

// unavailableNeed names the first need that is not covered here.
func (m *Machine) unavailableNeed(now int64, needs []Need) Verdict {
	for _, n := range needs {
		r := m.lookup(n.Resource, n.Name)
		if r == nil || r.current == nil || n.Amount > r.current.balance() || !r.capped && now >= m.usableUntil {
			return m.unavailable(n.Resource, n.Amount)
		}
	}
	return m.unavailable(0, 0)
}

// undoAway is undo for a hold that may have taken from standing shares.
func (m *Machine) undoAway(h *hold) {
	for i := range h.n {
		if n := &h.needs[i]; n.counter == nil {
			n.res.trickler().level += n.amount * perUnit
		}
	}
	m.undo(h)
}

// take takes amount from a share of perMinute that trickles since start. Else wait is how long it needs; 0 when it
// never will.
func (t *trickle) take(now, perMinute, start, amount int64) (wait int64, ok bool) {
	if perMinute <= 0 || amount > maxPerMinute {
		return 0, false
	}
	t.largest = max(t.largest, amount)
	t.advance(now, perMinute, start)
	t.want = max(t.want, amount) // gathers from now on
	if lack := amount*perUnit - t.level; lack > 0 {
		return (lack + perMinute - 1) / perMinute * int64(time.Millisecond), false
	}
	t.level -= amount * perUnit
	if amount >= t.want {
		t.want = 0
	}
	return 0, true
}

// advance adds what has trickled in.
func (t *trickle) advance(now, perMinute, start int64) {
	if !t.running {
		t.running, t.at = true, start
	}
	depth := max(min(t.largest*perUnit, perMinute*(trickleDepth/int64(time.Millisecond))), t.want*perUnit)
	ms := max(0, now-t.at) / int64(time.Millisecond)
	t.at += ms * int64(time.Millisecond)
	if ms > depth/perMinute {
		t.level = depth
	} else {
		t.level = min(t.level+ms*perMinute, depth)
	}
}
