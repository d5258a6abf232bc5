package lease

import (
	"fmt"
	"math/rand/v2"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// Machine is the lease state of one process. It is pure: now is a reading of a clock in nanoseconds that never goes
// back, the same for every call. It is not safe for concurrent use; Client guards it with its mutex.
//
// The invariant of every counter: balance = G - S - R - F - held. A balance is spent only when it is not negative,
// so a process never spends more than it was granted, except that a settle above its reservation, a soft budget
// passed while quotad is away, and a forfeit that crossed a reservation on the wire are debt.
type Machine struct {
	cfg         Config
	incarnation uint64
	journal     *journal // nil: none
	rng         *rand.Rand

	epoch uint64 // of quotad's last reply

	resources map[uint64]*resource
	names     map[nameKey]*resource
	named     []*resource // the same, in no order
	hand      int         // in named: where evictName goes on
	counters  []*counter  // by key
	byKey     map[counterKey]*counter
	open      []*hold // running requests, in no order
	openBytes int     // what they take in a checkpoint
	freeHolds []*hold
	lastHold  uint64

	session          // renew.go
	asks             // ask.go
	standby          // outage.go
	finals  []*final // dead predecessors not yet filed, oldest first
	stats   machineStats
}

// machineStats are the counts of Stats.
type machineStats struct {
	local, asked, trickled, opened uint64
	refusals                       [NumReasons]uint64
	doubleSettles, straySettles    uint64
	fences                         uint64
}

// hold is one open reservation. It is reused after its settle: id tells a stale Hold.
type hold struct {
	id    uint64 // 0: not open
	at    int    // in Machine.open
	n     int
	needs [MaxNeeds]heldNeed
	note  []byte // kept only for the journal
}

// heldNeed is one need of a hold. counter is nil for what a standing share paid: no counter knows of it.
type heldNeed struct {
	counter *counter
	res     *resource
	amount  int64
}

// take adds a need to h, out of c.
func (h *hold) take(c *counter, r *resource, amount int64) {
	if c != nil {
		c.held += amount
		c.open++
	}
	h.needs[h.n] = heldNeed{c, r, amount}
	h.n++
}

// drop takes the needs of h off their counters.
func (h *hold) drop() {
	for i := range h.n {
		if n := &h.needs[i]; n.counter != nil {
			n.counter.held -= n.amount
			n.counter.open--
		}
	}
}

// NewMachine makes the state of a new process. incarnation is random and not 0; it also seeds the jitter, so that a
// simulation can be repeated.
func NewMachine(cfg Config, incarnation uint64, now int64) *Machine {
	if incarnation == 0 {
		panic("BUG: lease incarnation 0")
	}
	m := &Machine{
		cfg:       cfg.WithDefaults(),
		resources: make(map[uint64]*resource),
		rng:       rand.New(rand.NewPCG(incarnation, 1)),
	}
	m.restart(now, incarnation)
	return m
}

// restart begins an incarnation that has nothing.
func (m *Machine) restart(now int64, incarnation uint64) {
	m.incarnation = incarnation
	for _, c := range m.counters {
		c.gone = true // running requests still point at it
	}
	m.counters = nil
	m.byKey = make(map[counterKey]*counter)
	m.names, m.named, m.hand = make(map[nameKey]*resource), nil, 0
	m.session = session{silent: true, silentSince: now, windowStart: now, leaving: m.leaving}
	m.standby = standby{}
	for _, r := range m.resources {
		r.current, r.memory, r.trickle, r.names = nil, memory{}, trickle{}, 0
	}
}

// Incarnation is the id of this process. It changes when the process is fenced.
func (m *Machine) Incarnation() uint64 { return m.incarnation }

// checkNeeds panics on what no caller may pass.
func checkNeeds(needs []Need, note []byte) {
	if len(needs) > MaxNeeds {
		panic(fmt.Sprintf("BUG: lease: %d needs", len(needs)))
	}
	if len(note) > MaxNoteBytes {
		panic(fmt.Sprintf("BUG: lease: note of %d bytes", len(note)))
	}
	for i := range needs {
		if needs[i].Amount < 0 {
			panic(fmt.Sprintf("BUG: lease: need of %d", needs[i].Amount))
		}
		if len(needs[i].Name) > MaxNameBytes {
			panic(fmt.Sprintf("BUG: lease: name of %d bytes", len(needs[i].Name)))
		}
	}
}

// Reserve takes every need or none, and never waits. ask is true when quotad must be asked: then the Verdict means
// nothing yet, and the caller goes on with Ask. Every Reserve is one request and counts as demand.
func (m *Machine) Reserve(now int64, outage Outage, needs []Need, note []byte) (h Hold, v Verdict, ask bool) {
	checkNeeds(needs, note)
	h, v, ask = m.try(now, outage, needs, note, true)
	if !ask {
		m.count(v)
	}
	return h, v, ask
}

func (m *Machine) count(v Verdict) { m.stats.refusals[v.Reason]++ }

// try is Reserve for requests old and new; demand says whether this one counts as demand.
func (m *Machine) try(now int64, outage Outage, needs []Need, note []byte, demand bool) (Hold, Verdict, bool) {
	if m.leaving {
		return Hold{}, Verdict{Reason: Leaving}, false
	}
	h := m.newHold()
	short := -1
	usable := now < m.usableUntil
	for i := range needs {
		r := m.find(&needs[i])
		if r == nil || !r.known {
			m.undo(h)
			return Hold{}, m.unavailable(needs[i].Resource, needs[i].Amount), false
		}
		c := r.current
		if c == nil {
			c = m.counterOf(r)
			switch {
			case c == nil && r.of == nil:
				m.undo(h)
				return Hold{}, m.unavailable(r.id, needs[i].Amount), false
			case c == nil: // quotad must say which one it is
				if short < 0 {
					short = i
				}
				continue
			}
		}
		amount := needs[i].Amount
		if demand {
			c.use = min(c.use+min(amount, maxDemand), maxDemand)
		}
		if short < 0 && amount > 0 && (amount > c.balance() || !r.capped && !usable) {
			short = i
		}
		if short < 0 {
			h.take(c, r, amount)
		}
	}
	if short < 0 && len(needs) > 0 && !usable && !m.hopeful(now) {
		short = 0 // money alone, and quotad is away: the key's mode and standby decide
	}
	if short < 0 {
		v, ok := m.grant(h, note)
		if !ok {
			return Hold{}, v, false
		}
		m.stats.local++
		m.lowWater(now, h)
		return Hold{h, h.id}, v, false
	}
	m.undo(h)
	return m.shortOf(now, outage, needs, note, usable)
}

// shortOf decides what becomes of a request that the balances do not cover.
func (m *Machine) shortOf(now int64, outage Outage, needs []Need, note []byte, usable bool) (Hold, Verdict, bool) {
	for i := range needs {
		r := m.find(&needs[i])
		if amount := needs[i].Amount; amount > maxAmount || !r.capped && amount > r.burst {
			return Hold{}, Verdict{
				Reason: TooLarge, Resource: r.id, Needed: amount, Limit: r.ceiling(), Left: m.left(r),
			}, false
		}
	}
	if m.hopeful(now) {
		if v, refused := m.remembered(now, needs); refused {
			return Hold{}, v, false
		}
		return Hold{}, Verdict{}, true
	}
	h, v := m.reserveAway(now, outage, needs, note, usable)
	return h, v, false
}

// unavailable is the refusal of what cannot be decided without quotad.
func (m *Machine) unavailable(resourceID uint64, needed int64) Verdict {
	v := Verdict{Reason: Unavailable, Resource: resourceID, Needed: needed, RetryAfter: m.cfg.RenewEvery}
	if r := m.resources[resourceID]; r != nil {
		v.Limit, v.Left = r.limit, m.left(r)
	}
	return v
}

// left is what is left of r to all, as far as known: quotad's last word and the balance here. A bucket refills behind what
// it has leased, and never gives more at once than it holds.
func (m *Machine) left(r *resource) int64 {
	if r.current == nil {
		return 0
	}
	left := r.current.free + max(r.current.balance(), 0)
	if !r.capped {
		left = min(left, r.burst)
	}
	return left
}

// newHold takes a hold from the free list. It is not open before grant.
func (m *Machine) newHold() *hold {
	if n := len(m.freeHolds); n > 0 {
		h := m.freeHolds[n-1]
		m.freeHolds = m.freeHolds[:n-1]
		return h
	}
	return &hold{}
}

// undo gives back what h has taken from balances, and h itself.
func (m *Machine) undo(h *hold) {
	h.drop()
	m.release(h)
}

func (m *Machine) release(h *hold) {
	h.id, h.n, h.note = 0, 0, h.note[:0]
	m.freeHolds = append(m.freeHolds, h)
}

// grant opens h, which has taken its needs, and records it. It fails only when the journal cannot hold more open
// reservations.
func (m *Machine) grant(h *hold, note []byte) (Verdict, bool) {
	if m.journal.ok() {
		h.note = append(h.note[:0], note...)
		if !m.journalFits(h) {
			m.undo(h)
			return m.unavailable(0, 0), false
		}
	}
	m.lastHold++
	h.id = m.lastHold
	m.journalReserve(h)
	h.at = len(m.open)
	m.open = append(m.open, h)
	m.openBytes += h.recordBytes()
	return Verdict{OK: true}, true
}

// Settle ends h with what was truly used. Resources that are not named used nothing; more than was reserved is debt.
// Of a resource that is one for each name, what was used is of the name that h has reserved of it.
// The reserved rest is balance again. A Hold that is not open changes nothing and is counted.
func (m *Machine) Settle(hd Hold, used []Need) {
	h := hd.h
	if h == nil || h.id != hd.id {
		m.stats.doubleSettles++
		return
	}
	for i := range used {
		if used[i].Amount < 0 {
			panic(fmt.Sprintf("BUG: lease: settle of %d", used[i].Amount))
		}
	}
	m.journalSettle(h, used)
	m.openBytes -= h.recordBytes()
	last := len(m.open) - 1
	m.open[h.at] = m.open[last]
	m.open[h.at].at = h.at
	m.open[last] = nil
	m.open = m.open[:last]
	h.drop()
	for i := range h.n {
		if c := h.needs[i].counter; c != nil {
			c.res.memory.settled()
		}
	}
	for i := range used {
		if n := h.find(used[i].Resource); n == nil {
			m.stats.straySettles++
		} else if n.counter != nil {
			n.counter.spent += used[i].Amount
		}
	}
	m.release(h)
}

func (h *hold) find(resource uint64) *heldNeed {
	for i := range h.n {
		if h.needs[i].res.id == resource {
			return &h.needs[i]
		}
	}
	return nil
}

// Remaining is what is left of a resource, or of the one of a name, to all, its limit, and for a bucket the time until it
// is full. ok is false when quotad has said nothing about it yet. endsMS is when a budget's period ends, Unix
// milliseconds; 0 for a run.
func (m *Machine) Remaining(id uint64, name string) (left, limit int64, full time.Duration, endsMS int64, ok bool) {
	r := m.lookup(id, name)
	if r == nil || !r.known || r.current == nil || !r.current.stated {
		return 0, 0, 0, 0, false
	}
	left = m.left(r)
	if r.capped {
		return left, r.limit, 0, r.endsMS, true
	}
	return left, r.limit, time.Duration(refillMS(r.burst-left, r.limit)) * time.Millisecond, 0, true
}

// untouched reports whether this process was never served, nor had a predecessor that was.
func (m *Machine) untouched() bool {
	return m.seq == 0 && len(m.counters) == 0 && len(m.finals) == 0 && m.standbyUntil == 0
}

// Final is what a successor that finds a perfect journal would report of this process if it died now.
func (m *Machine) Final(proven bool) *quotav1.FileFinal {
	f := &quotav1.FileFinal{Incarnation: m.incarnation, Seq: m.seq, Proven: proven}
	for _, c := range m.counters {
		if c.closing {
			continue // quotad has its totals, or has dropped it
		}
		f.Counters = append(f.Counters, &quotav1.Counter{
			Resource: c.key.resource, Period: c.key.period, Spent: c.spent + c.held, Returned: c.returned,
		})
	}
	return f
}
