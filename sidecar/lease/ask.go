package lease

import (
	"strings"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// asks are the requests that wait for quotad.
type asks struct {
	lastAsk  uint64
	queue    []*Waiting // not in a renew yet, oldest first
	sent     []*Waiting // in the renew in flight
	finished []*Waiting // decided since the last Finished
}

// Waiting is a request that waits for quotad. Hold and Verdict are set once Done.
type Waiting struct {
	Hold    Hold
	Verdict Verdict

	id        uint64
	outage    Outage
	needs     []Need
	note      []byte
	asked     []*quotav1.Need // as in the renew
	since     int64
	done      bool
	withdrawn bool          // nobody waits any more, but quotad may still grant it
	ready     chan struct{} // the driver's; the machine does not touch it
}

// Done reports whether the request is decided.
func (w *Waiting) Done() bool { return w.done }

// Ask makes a request wait for quotad, after Reserve said so. It is nil when the queue is full; then the Verdict is
// the refusal.
func (m *Machine) Ask(now int64, outage Outage, needs []Need, note []byte) (*Waiting, Verdict) {
	if len(m.queue)+len(m.sent) >= maxWaiting {
		v := m.queueFull(needs)
		m.count(v)
		return nil, v
	}
	m.lastAsk++
	w := &Waiting{
		id: m.lastAsk, outage: outage, since: now,
		needs: append([]Need(nil), needs...), note: append([]byte(nil), note...),
	}
	for i := range w.needs {
		w.needs[i].Name = strings.Clone(w.needs[i].Name)
	}
	m.queue = append(m.queue, w)
	m.early = true
	return w, Verdict{}
}

func (m *Machine) queueFull(needs []Need) Verdict {
	for _, n := range needs {
		r := m.find(&n)
		if r == nil || r.current != nil && n.Amount <= r.current.balance() {
			continue
		}
		v := Verdict{
			Reason: Throttled, Resource: n.Resource, Left: m.left(r), Needed: n.Amount, Limit: r.limit,
			RetryAfter: queueFullRetry,
		}
		if r.capped {
			v.Reason = Reserved
		}
		return v
	}
	return m.unavailable(0, 0)
}

// Finished returns the requests decided since the last call. The slice is valid until the next call of the machine.
func (m *Machine) Finished() []*Waiting {
	f := m.finished
	m.finished = m.finished[:0]
	return f
}

func (m *Machine) finish(w *Waiting, h Hold, v Verdict, now int64) {
	v.Waited = time.Duration(max(0, now-w.since))
	w.done, w.Hold, w.Verdict = true, h, v
	m.count(v)
	m.finished = append(m.finished, w)
}

// Withdraw ends the wait of a request that is not decided: gone says that its caller has left, else it has waited too
// long and is decided as if quotad were away. What quotad grants it later goes back. Afterwards it is Done, and is
// not returned by Finished.
func (m *Machine) Withdraw(now int64, w *Waiting, gone bool) {
	if w.done {
		return
	}
	for i, q := range m.queue {
		if q == w {
			m.queue = append(m.queue[:i], m.queue[i+1:]...)
			break
		}
	}
	w.withdrawn = true // matters only if it is in the renew in flight
	h, v := Hold{}, Verdict{Reason: CallerGone}
	switch {
	case gone:
		m.forgetDemand(w.needs)
	case m.leaving:
		v = Verdict{Reason: Leaving}
	default:
		h, v = m.reserveAway(now, w.outage, w.needs, w.note, now < m.usableUntil)
	}
	v.Waited = time.Duration(max(0, now-w.since))
	w.done, w.Hold, w.Verdict = true, h, v
	m.count(v)
}

// forgetDemand takes back what a request added that nobody wants any more.
func (m *Machine) forgetDemand(needs []Need) {
	for _, n := range needs {
		if r := m.lookup(n.Resource, n.Name); r != nil && r.current != nil {
			r.current.use = max(0, r.current.use-n.Amount)
		}
	}
}

// takeAsks fills the next renew with waiting requests. Those that can be decided here by now are.
func (m *Machine) takeAsks(now int64) []*quotav1.Ask {
	var out []*quotav1.Ask
	queue := m.queue
	m.queue = nil
	for i, w := range queue {
		if len(out) >= maxAsksPerRenew {
			m.queue = append(m.queue, queue[i:]...)
			break
		}
		h, v, ask := m.try(now, w.outage, w.needs, w.note, false)
		if !ask {
			m.finish(w, h, v, now)
			continue
		}
		w.asked = m.askedNeeds(w.needs)
		m.handBack(now, w.asked)
		m.sent = append(m.sent, w)
		out = append(out, &quotav1.Ask{Id: w.id, Needs: w.asked})
	}
	return out
}

// askedNeeds are needs as quotad wants them: with their periods, positive, each resource once. The request passes try, so
// there is a counter of each, but for names that quotad has to say more of: those are asked for even if nothing of them
// is needed, for use that exceeds it must be known to somebody.
func (m *Machine) askedNeeds(needs []Need) []*quotav1.Need {
	out := make([]*quotav1.Need, 0, len(needs))
next:
	for i := range needs {
		r, amount := m.find(&needs[i]), needs[i].Amount
		if r.of != nil {
			r.asked = m.seq + 1
		}
		if amount == 0 {
			if r.current != nil {
				continue
			}
			amount = 1
		}
		for _, o := range out {
			if o.Resource == r.id && o.Name == r.name {
				o.Amount += amount
				continue next
			}
		}
		out = append(out, &quotav1.Need{Resource: r.id, Period: r.period, Amount: amount, Name: r.name})
	}
	return out
}

// handBack returns the balances an ask will be measured against. quotad grants whole needs out of what is free, so
// what is free must include what lies idle here: all of it where the need is larger, else as much as the need.
func (m *Machine) handBack(now int64, needs []*quotav1.Need) {
	for _, n := range needs {
		r := m.lookup(n.Resource, n.Name)
		if r == nil || r.current == nil {
			continue // a name that is not known here
		}
		if idle := r.current.balance(); idle > 0 && (r.capped || now < m.usableUntil) {
			r.current.returned += min(idle, n.Amount)
		}
	}
}

// answer decides the requests of the renew in flight.
func (m *Machine) answer(now int64, results []*quotav1.AskResult) {
	sent := m.sent
	m.sent = nil
	var again []*Waiting
	for i, w := range sent {
		res := findResult(results, i, w.id)
		if !w.withdrawn {
			m.demandOfNew(w.asked)
		}
		switch {
		case w.withdrawn:
			if res.GetGranted() {
				m.giveBack(w)
			}
		case res == nil:
			again = append(again, w)
		case res.GetGranted() && !m.takeGrant(now, w):
			m.giveBack(w)
			again = append(again, w)
		case !res.GetGranted():
			m.finish(w, Hold{}, m.refused(now, w, res), now)
		}
	}
	m.queue = append(again, m.queue...)
	if len(m.queue) > 0 {
		m.early = true
	}
}

// findResult is the result for an ask; they come in the order of the asks.
func findResult(results []*quotav1.AskResult, i int, id uint64) *quotav1.AskResult {
	if i < len(results) && results[i].GetId() == id {
		return results[i]
	}
	for _, r := range results {
		if r.GetId() == id {
			return r
		}
	}
	return nil
}

// giveBack returns what was granted to a request that will not run on it. Nobody else may spend it here: quotad took it
// for held and let the bucket fill again beside it, for as long as the answer was on its way.
func (m *Machine) giveBack(w *Waiting) {
	for _, n := range w.asked {
		if c := m.grantedTo(n); c != nil {
			c.returned += max(0, min(c.balance(), n.Amount))
			m.early = true
		}
	}
}

// takeGrant turns a granted ask into a hold, before anyone else sees the balance. False: the lease ended on the way, or
// what it was of.
func (m *Machine) takeGrant(now int64, w *Waiting) bool {
	h := m.newHold()
	for _, n := range w.asked {
		c := m.grantedTo(n)
		if c == nil || n.Amount > c.balance() || !c.res.capped && now >= m.usableUntil {
			m.undo(h)
			return false
		}
		h.take(c, c.res, n.Amount)
	}
	for _, n := range w.needs { // a need of 0 may still settle to more
		if n.Amount == 0 && h.find(n.Resource) == nil {
			r := m.lookup(n.Resource, n.Name)
			if r == nil || m.counterOf(r) == nil { // dropped meanwhile
				m.undo(h)
				return false
			}
			h.take(r.current, r, 0)
		}
	}
	v, ok := m.grant(h, w.note)
	if !ok {
		m.finish(w, Hold{}, v, now)
		m.giveBack(w)
		return true
	}
	m.stats.asked++
	m.finish(w, Hold{h, h.id}, v, now)
	return true
}

// memory is the last refusal by quotad, so that a storm of refused requests is answered here.
type memory struct {
	reason Reason // Granted: nothing is remembered
	amount int64  // that was refused
	left   int64  // then, to all
	at     int64
	until  int64
}

// settled: what others wait for may have become free.
func (y *memory) settled() {
	if y.reason == Reserved {
		*y = memory{}
	}
}

// restate takes a newer word on what is left.
func (y *memory) restate(now, left int64) {
	switch y.reason {
	case Throttled, Reserved, Exhausted:
		if left >= y.amount {
			*y = memory{}
			return
		}
		y.left, y.at = left, now
	}
}

// refused turns quotad's refusal into a verdict and remembers it.
func (m *Machine) refused(now int64, w *Waiting, res *quotav1.AskResult) Verdict {
	v := Verdict{Resource: res.GetResource(), Left: res.GetLeft()}
	retry := max(1, res.GetRetryAfterMs()) * int64(time.Millisecond)
	var r *resource
	for _, n := range w.asked {
		if n.Resource == v.Resource {
			v.Needed, r = n.Amount, m.lookup(n.Resource, n.Name)
		}
	}
	until := now + maxMemory
	switch res.GetShortage() {
	case quotav1.Shortage_SHORTAGE_THROTTLED:
		v.Reason, v.RetryAfter = Throttled, time.Duration(retry)
		until = now + retry
	case quotav1.Shortage_SHORTAGE_RESERVED:
		v.Reason, v.RetryAfter = Reserved, time.Duration(retry)
		until = now + min(retry, maxMemory)
	case quotav1.Shortage_SHORTAGE_EXHAUSTED:
		v.Reason = Exhausted
	case quotav1.Shortage_SHORTAGE_TOO_LARGE:
		v.Reason = TooLarge
	default:
		v = m.unavailable(v.Resource, v.Needed)
	}
	if r != nil {
		v.Limit = r.limit
		switch {
		case v.Reason == TooLarge && r.capped && v.Needed <= r.limit:
			v.Reason = Exhausted // negative credits took it: the cap itself has room for it
		case v.Reason == TooLarge:
			v.Limit = r.ceiling()
		}
		r.memory = memory{reason: v.Reason, amount: v.Needed, left: v.Left, at: now, until: until}
	}
	return v
}

// remembered repeats a refusal that still stands. It looks at every need that does not fit here.
func (m *Machine) remembered(now int64, needs []Need) (Verdict, bool) {
	for _, n := range needs {
		r := m.find(&n)
		y := &r.memory
		if y.reason == Granted {
			continue
		}
		if now >= y.until {
			*y = memory{}
			continue
		}
		balance := int64(0)
		if r.current != nil && (r.capped || now < m.usableUntil) {
			balance = max(r.current.balance(), 0)
		}
		v := Verdict{Reason: y.reason, Resource: r.id, Needed: n.Amount, Limit: r.limit, Left: y.left + balance}
		switch y.reason {
		case Throttled:
			v.Left = min(v.Left+refilled(now-y.at, r.limit), r.burst)
			if n.Amount <= v.Left {
				continue
			}
			retry := y.until - now
			if wait := refillMS(n.Amount-v.Left, r.limit) * int64(time.Millisecond); n.Amount < y.amount && wait < retry {
				retry = wait
			}
			v.RetryAfter = roundUpMS(retry)
		case Reserved:
			if n.Amount <= v.Left {
				continue
			}
			v.RetryAfter = roundUpMS(y.until - now)
		case Exhausted:
			if n.Amount <= v.Left || n.Amount < y.amount { // a smaller one may fit once others settle: quotad knows
				continue
			}
		case TooLarge:
			if n.Amount < y.amount {
				continue
			}
			v.Limit = r.ceiling()
		default:
			v = m.unavailable(r.id, n.Amount)
		}
		return v, true
	}
	return Verdict{}, false
}

// refilled is what a bucket gains at most in a time.
func refilled(elapsed, perMinute int64) int64 {
	ms := min(elapsed/int64(time.Millisecond), 3_600_000)
	return perMinute * ms / 60_000 // 2^40 x 2^22 fits
}

// refillMS is how long a bucket needs to gain amount, at most an hour.
func refillMS(amount, perMinute int64) int64 {
	const most = 3_600_000
	if amount <= 0 {
		return 0
	}
	if perMinute <= 0 {
		return most
	}
	amount = min(amount, maxPerMinute)
	return min((amount*60_000+perMinute-1)/perMinute, most)
}

func roundUpMS(ns int64) time.Duration {
	ms := int64(time.Millisecond)
	return time.Duration(max(ms, (ns+ms-1)/ms*ms))
}
