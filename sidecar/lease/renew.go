package lease

import (
	"math"
	"math/bits"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// session is the exchange of renews with quotad.
type session struct {
	connected   bool
	connectedAt int64
	silent      bool  // quotad owes an answer: to a renew, or a session
	silentSince int64 // when it began to

	seq         uint64
	inflight    *quotav1.Renew // sent and not answered; never changed once built
	firstSend   int64          // of the newest renew
	lastSend    int64
	resend      bool // at once, to a new session
	early       bool // do not wait for nextRegular
	nextEarly   int64
	nextRegular int64

	reached     bool // a reply has come
	lastReply   int64
	usableUntil int64 // bucket leases
	windowStart int64 // demand is counted since
	leaving     bool
}

// sentTotals are a counter's totals in the newest renew.
type sentTotals struct{ spent, returned int64 }

// Connected says that a session to a leader stands. An unanswered renew is due again at once.
func (m *Machine) Connected(now int64) {
	m.connected, m.connectedAt = true, now
	m.resend, m.early = m.inflight != nil, true
}

// Disconnected says that the session has ended.
func (m *Machine) Disconnected(now int64) {
	if m.connected {
		m.connected = false
		m.beSilent(now)
	}
}

// beSilent notes that quotad owes an answer from now on, unless it did before.
func (m *Machine) beSilent(now int64) {
	if !m.silent {
		m.silent, m.silentSince = true, now
	}
}

// hopeful reports whether quotad may still answer a request within the time that requests wait. It is given twice
// that time, so that a request that comes late in a failover has its whole wait too.
func (m *Machine) hopeful(now int64) bool {
	wait := int64(m.cfg.AskWait)
	return !m.silent || now-m.silentSince < 2*wait || m.connected && now-m.connectedAt < wait
}

// Wake says that something that was refused may have become free: everything remembered is forgotten.
func (m *Machine) Wake() {
	for r := range m.all() {
		r.memory = memory{}
	}
	m.early = true
}

// Leave stops admission for good. The next renew returns every idle balance and ends the standing shares. Each call
// brings forward a renew with the totals of the moment.
func (m *Machine) Leave() {
	m.leaving, m.early = true, true
	m.endShares()
	for _, w := range m.queue {
		m.finish(w, Hold{}, m.unavailable(0, 0), m.lastReply)
	}
	m.queue = nil
}

// Seq is the number of the newest renew.
func (m *Machine) Seq() uint64 { return m.seq }

// NextPoll is when Poll has something to do next; math.MaxInt64 while there is no session.
func (m *Machine) NextPoll() int64 {
	switch {
	case !m.connected:
		return math.MaxInt64
	case m.inflight != nil && m.resend:
		return m.lastSend
	case m.inflight != nil:
		return m.lastSend + int64(m.cfg.ResendEvery)
	case m.seq == 0:
		return m.connectedAt
	case m.early:
		return m.nextEarly
	}
	return max(m.nextRegular, m.nextEarly)
}

// Poll returns the renew to send now, or nil. An unanswered one is returned again, the same message, until Apply has
// its answer.
func (m *Machine) Poll(now int64) *quotav1.Renew {
	if now < m.NextPoll() {
		return nil
	}
	if m.inflight == nil {
		m.build(now)
	}
	m.lastSend, m.resend = now, false
	return m.inflight
}

// build makes the next renew.
func (m *Machine) build(now int64) {
	m.early = false
	asks := m.takeAsks(now)
	m.seq++
	msg := &quotav1.Renew{
		Incarnation: m.incarnation, Seq: m.seq, Asks: asks, ShareVersion: m.shareVersion, Leaving: m.leaving,
		Epoch: m.epoch,
	}
	elapsed := now - m.windowStart
	roll := elapsed >= int64(m.cfg.RenewEvery)*4/5
	for _, c := range m.counters {
		demand := c.demand(elapsed, int64(m.cfg.RenewEvery))
		if !c.wanted() || m.leaving {
			demand = 0
		}
		if roll && c.roll(elapsed, int64(m.cfg.RenewEvery)) {
			demand = 0
		}
		m.returnExcess(now, c, demand)
		if c.closed && !c.wanted() {
			continue
		}
		out := &quotav1.Counter{
			Resource: c.key.resource, Period: c.key.period, Granted: c.granted,
			Spent: c.spent, Returned: c.returned, Held: c.held, Demand: demand,
		}
		if out.Close = m.mayClose(c, demand, len(asks)); out.Close {
			m.close(c)
		} else {
			out.ProviderLeft = c.providerLeft(now)
		}
		c.sent = sentTotals{c.spent, c.returned}
		msg.Counters = append(msg.Counters, out)
	}
	if roll {
		m.windowStart = now
		m.forgetNames(now)
	}
	m.journalRenew(msg)
	m.inflight, m.firstSend = msg, now
	m.beSilent(now)
	// With one gap for all, the process that once comes right after a bucket's refill comes first for ever.
	gap := int64(m.cfg.MinRenewGap)
	m.nextEarly = now + gap + m.rng.Int64N(gap/2+1)
	jitter := int64(m.cfg.RenewEvery) / 5
	m.nextRegular = now + int64(m.cfg.RenewEvery) - jitter + m.rng.Int64N(2*jitter+1)
	if len(m.queue) > 0 {
		m.early = true
	}
}

// wanted reports whether new requests draw on c.
func (c *counter) wanted() bool { return c.res.known && c.res.current == c }

// returnExcess hands back what is not needed: of a bucket in two renew intervals, of money in the ten minutes that
// quotad may be away; or what is beyond that which quotad lets lie idle. A bucket balance whose lease has ended is not
// returned: quotad has forfeited it, or the next reply makes it usable again.
func (m *Machine) returnExcess(now int64, c *counter, demand int64) {
	if !c.res.capped && now >= m.usableUntil {
		return
	}
	idle, keep := c.balance(), 2*demand
	if c.res.capped {
		keep = moneyRenews * min(demand, math.MaxInt64/moneyRenews)
	}
	if c.idleMax > 0 {
		keep = min(keep, c.idleMax)
	}
	c.returned += max(0, idle-keep)
}

// demand is the use wished for in one renew interval: the windows before, or this one if it is more.
func (c *counter) demand(elapsed, interval int64) int64 {
	return max(min(c.smooth, c.possible()), c.windowUse(elapsed, interval))
}

// windowUse is the use of the present window, as far as it could be granted: callers that are refused come again and
// again, and what they wish for then has no end.
func (c *counter) windowUse(elapsed, interval int64) int64 {
	return min(perInterval(c.use, elapsed, interval), c.possible())
}

// possible is the most that could be granted at once.
func (c *counter) possible() int64 {
	if c.res.capped {
		return min(c.res.limit, maxDemand)
	}
	return max(c.res.limit, c.res.burst)
}

// roll ends a window. One without use ends the demand: at once when others lack what lies here, which is what it
// returns, and else only after a while, so that a rare caller finds its lease.
func (c *counter) roll(elapsed, interval int64) (lacking bool) {
	u := c.windowUse(elapsed, interval)
	c.use = 0
	if u > 0 {
		c.quiet = 0
		c.smooth = (c.smooth + u + 1) / 2
		return false
	}
	c.smooth /= 2
	lacking = c.scarce || c.tooMuch()
	if c.quiet++; c.quiet >= quietWindows || lacking {
		c.smooth = 0
	}
	return lacking
}

// tooMuch says that more of a bucket lay here than this process's part, while others lacked it.
func (c *counter) tooMuch() bool { return !c.res.capped && c.idleMax > 0 }

// perInterval scales the use of a window that was longer than an interval.
func perInterval(use, elapsed, interval int64) int64 {
	if elapsed <= interval || use <= 0 {
		return use
	}
	hi, lo := bits.Mul64(uint64(use), uint64(interval))
	q, _ := bits.Div64(hi, lo, uint64(elapsed)) // interval < elapsed: the quotient is below use
	return max(1, int64(q))
}

// lowWater brings the next renew forward when a balance that h has drawn on is low and quotad may have more.
func (m *Machine) lowWater(now int64, h *hold) {
	if m.early {
		return
	}
	for i := range h.n {
		c := h.needs[i].counter
		if c == nil || now < c.short {
			continue
		}
		target := 2 * max(c.smooth, c.use)
		if c.idleMax > 0 {
			target = min(target, c.idleMax) // it will not be more
		}
		if c.balance() < target/100*m.cfg.LowWaterPercent+target%100*m.cfg.LowWaterPercent/100 {
			m.early = true
			if c.idleMax == 0 {
				c.short = now + shortGap
			}
			return
		}
	}
}

// Apply takes a reply of the present session. Any but the answer to the renew in flight changes nothing, and none from
// before quotad was restored. Requests that it decides are found by Finished. fenced is true when this process was
// fenced: then next, a fresh random id, is its new incarnation.
//
// A fenced process goes on with nothing: its counters, what they hold and its shares stay behind and are quotad's to
// account for (money stays in suspense), its running requests settle to nobody, and it needs a new session.
func (m *Machine) Apply(now int64, reply *quotav1.RenewReply, next uint64) (fenced bool) {
	if m.inflight == nil || reply.GetSeq() != m.inflight.GetSeq() || reply.GetEpoch() < m.epoch {
		return false
	}
	restored := reply.GetEpoch() > m.epoch
	m.epoch = reply.GetEpoch()
	if reply.GetFenced() {
		m.fence(now, next)
		return true
	}
	first := m.firstSend
	m.inflight = nil
	m.silent, m.reached, m.lastReply = false, true, now
	for _, g := range reply.GetGrants() {
		m.applyGrant(now, g)
	}
	m.forgetGone()
	for _, c := range m.counters {
		if c.res.of == nil && !c.wanted() && c.held == 0 && c.balance() == 0 && c.sent == (sentTotals{c.spent, c.returned}) {
			c.closed = true
		}
	}
	if restored { // quotad may have forgotten what was closed: it is told all, once more
		for _, c := range m.counters {
			c.closed = false
		}
	}
	m.usableUntil = first + int64(time.Millisecond)*max(0, reply.GetUsableForMs())
	m.applyShares(first, reply)
	m.answer(now, reply.GetAsks())
	return false
}

func (m *Machine) applyGrant(now int64, g *quotav1.Grant) {
	c := m.byKey[counterKey{g.GetResource(), g.GetPeriod()}]
	switch {
	case c == nil && (g.GetGone() || g.GetOf() == 0):
		return
	case c == nil:
		c = m.adopt(g)
	case g.GetGone():
		if c.res.of == nil { // of a name there may be another by now: quotad is asked
			c.res.memory = memory{reason: Unavailable, until: now + maxMemory}
		}
		m.dropCounter(c)
		return
	case c.closing:
		m.reopen(c)
	}
	c.granted = max(c.granted, g.GetGranted())
	c.forfeited = max(c.forfeited, g.GetForfeited())
	c.free, c.stated, c.idleMax = g.GetFree(), true, g.GetIdleMax()
	c.scarce = g.GetShortage() != quotav1.Shortage_SHORTAGE_UNSPECIFIED
	if c.tooMuch() && c.balance() > 2*c.idleMax { // twice: a little more than the part can wait for the next renew
		m.early = true
	}
	if c.scarce {
		c.short = max(c.short, now+g.GetRetryAfterMs()*int64(time.Millisecond))
	}
	if c.res.current == c {
		c.res.memory.restate(now, c.free+max(c.balance(), 0))
	}
}

// close gives c up in the renew that is being built. From here on the name is asked for anew.
func (m *Machine) close(c *counter) {
	m.journalForget(c)
	c.closing = true
	if c.res.current == c {
		c.res.current = nil
	}
}

func (m *Machine) fence(now int64, next uint64) {
	m.stats.fences++
	waiting := append(m.sent, m.queue...)
	m.sent, m.queue = nil, nil
	m.restart(now, next)
	for _, w := range waiting {
		if !w.withdrawn {
			m.queue = append(m.queue, w)
		}
	}
	m.journalRestart()
}
