package sim

import (
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// witness counts what truly happened, from what callers were told and what the provider billed. It takes the word of
// neither side for it.
type witness struct {
	w         *world
	accounts  []*account
	byNumber  map[uint64]*account // of an incarnation; looked up, never walked
	resources []*truth
	byID      map[uint64]*truth // looked up, never walked
	refusals  [lease.NumReasons]int
	eased     time.Duration // when somebody's suspense was given back last
	loosened  []wait        // by the present entry: more of them became free
}

// fate is what became of a process.
type fate uint8

const (
	living     fate = iota
	killedKept      // dead; its journal was found whole
	rolledBack      // dead; an old state of its journal was found
	poweredOff      // dead with its machine; its journal is of another boot, and may be an old state
	lost            // dead; nothing was found
	fencedOff       // lives on under another incarnation; what it had is nobody's
)

// account is what one incarnation was granted, held and used.
type account struct {
	incarnation uint64
	sidecar     *sidecar
	fate        fate
	cloned      bool // two processes use it: what they spend twice is not the protocol's to prevent
	shadow      bool // the second of them
	saidDead    bool
	isFiled     bool
	running     int    // requests
	applied     uint64 // the newest renew
	appliedAt   time.Duration
	balances    []*balance
	named       []*balance // of what is one for each name

	waits       []wait            // what its last renew was refused
	settledOver []debt            // settled since the last renew was built
	sentOver    map[uint64][]debt // by seq
}

// balance is an account's use of one resource in a period.
type balance struct {
	truth    *truth
	period   uint32
	held     int64 // by running requests
	spent    int64 // settled at the process
	consumed int64 // billed by the provider, whether or not anybody settled it
	over     int64 // may be consumed beyond what was granted: overruns, and soft budgets that were passed
	atDeath  int64 // held when a process died whose journal says so
	claimed  int64 // spent and held, as an old state of the journal says
	gone     bool  // the sidecar has dropped it

	granted, returned, settled, suspense int64 // at quotad, as last seen
}

func newWitness(w *world) *witness {
	return &witness{w: w, byNumber: map[uint64]*account{}, byID: map[uint64]*truth{}}
}

// open begins an account. The second of an incarnation is a clone's.
func (t *witness) open(incarnation uint64, s *sidecar) *account {
	a := &account{incarnation: incarnation, sidecar: s, sentOver: map[uint64][]debt{}}
	t.accounts = append(t.accounts, a)
	if first := t.byNumber[incarnation]; first != nil {
		first.cloned, a.cloned, a.shadow = true, true, true
		return a
	}
	t.byNumber[incarnation] = a
	return a
}

func (a *account) end(f fate) { a.fate = f }

// journalLost: the journal of a dead process is gone before it was filed, as far as anybody knows.
func (a *account) journalLost() {
	if !a.isFiled {
		a.fate = lost
		for _, b := range a.balances {
			b.held = max(b.held, b.atDeath)
		}
	}
}

// recorded takes what the journal of a dead process says.
func (a *account) recorded(f *quotav1.FileFinal, as fate) {
	for _, b := range a.named {
		m := b.month()
		switch {
		case m == nil:
		case as == killedKept:
			b.atDeath = b.held
			m.settled += b.held
		default:
			m.settled += a.claims(f, b)
		}
	}
	for _, b := range a.balances {
		m := b.month()
		if b.gone || m == nil {
			continue
		}
		if as == killedKept {
			b.atDeath = b.held
			m.settled += b.held
			continue
		}
		for _, c := range f.Counters {
			if c.Resource == b.truth.id && c.Period == b.period {
				b.claimed = c.Spent
				m.settled += max(0, c.Spent-b.spent)
			}
		}
	}
}

// claims is how much more of a run an old state of a journal says was spent than quotad knows of. A counter of a run may
// have been closed and begun anew, so that its total says nothing of what was spent before; of a state from before the
// last renew nothing is booked.
func (a *account) claims(f *quotav1.FileFinal, b *balance) int64 {
	l := a.sidecar.w.quotad.l
	if m, ok := l.MemberState(a.incarnation); ok && f.Seq < m.Seq {
		return 0
	}
	for _, c := range f.Counters {
		if r, _ := l.Resource(c.Resource); r.Of != b.truth.id || r.Name != b.truth.name {
			continue
		}
		known := int64(0)
		for _, at := range l.Counters(a.incarnation) {
			if at.Resource == c.Resource {
				known = at.Spent
			}
		}
		return max(0, c.Spent-known)
	}
	return 0
}

// of is the account's balance of a resource in a period.
func (a *account) of(res *truth, period uint32) *balance {
	list := &a.balances
	if res.spec.Each != ledger.Whole {
		list = &a.named
	}
	for _, b := range *list {
		if b.truth == res && b.period == period && !b.gone {
			return b
		}
	}
	b := &balance{truth: res, period: period}
	*list = append(*list, b)
	return b
}

// admitted counts a request that may run. from is the snapshot that its needs are of, at is when they were reserved:
// of an ask, when quotad granted it, for the bucket fills again from then on, however late the answer comes.
func (t *witness) admitted(r *request, from *snapshot, at time.Duration) {
	p := r.p
	stats := p.m.Stats(p.s.clock())
	byShare := stats.UsableFor == 0 // then standing shares pay for buckets
	r.books.running++
	r.entries, r.flows = make([]*balance, len(r.needs)), make([]int, len(r.needs))
	for i, n := range r.needs {
		res := t.need(n.Resource, n.Name)
		period := uint32(0)
		for _, known := range from.resources {
			if known.Id == n.Resource {
				period = known.Period
			}
		}
		if !capped(res.spec.Kind) {
			r.flows[i] = len(res.flows)
			res.flows = append(res.flows, flow{at, n.Amount, p.s.name, r.books.cloned, false})
			if byShare {
				continue
			}
		}
		b := r.books.of(res, period)
		b.held += n.Amount
		r.entries[i] = b
		if !capped(res.spec.Kind) {
			continue
		}
		over := r.overrunOf(res)
		b.over += over
		if balanceAt(&stats, n.Resource, period) < 0 && !res.spec.Hard {
			b.over += n.Amount // passed a soft budget
		}
		m := res.month(period)
		m.unbooked += over
		m.unbookedMost = max(m.unbookedMost, m.unbooked)
	}
}

// overrunOf is what a request costs beyond what it reserves of a budget.
func (r *request) overrunOf(res *truth) int64 {
	if res.spec.Kind == ledger.Money {
		return r.over
	}
	return 0
}

func balanceAt(s *lease.Stats, resource uint64, period uint32) int64 {
	for _, c := range s.Counters {
		if c.Resource == resource && c.Period == period {
			return c.Balance
		}
	}
	return 0
}

// billed: the provider has done the work, whoever is left to hear of it.
func (t *witness) billed(r *request) {
	r.books.running--
	for i, b := range r.entries {
		if b == nil {
			continue
		}
		b.consumed += r.uses[i].Amount
		if m := b.month(); m != nil && !r.books.cloned {
			m.spent += r.uses[i].Amount
		}
		t.checkCovered(r.books, b)
	}
}

// settled: the process hears of it, if it is still the incarnation that admitted it.
func (t *witness) settled(r *request) {
	if r.books != r.p.books {
		return
	}
	for i, b := range r.entries {
		if b == nil {
			continue
		}
		reserved, used := r.needs[i].Amount, r.uses[i].Amount
		b.held -= reserved
		b.spent += used
		m := b.month()
		if m == nil && used > reserved && !b.gone {
			r.books.settledOver = append(r.books.settledOver, debt{b.truth, nil, used - reserved})
		}
		if m == nil {
			switch {
			case used >= reserved || b.gone:
			case t.w.plan.refundsLate:
				b.truth.flows = append(b.truth.flows, flow{t.w.now, used - reserved, r.p.s.name, r.books.cloned, false})
			default:
				b.truth.flows[r.flows[i]].amount = used
			}
			continue
		}
		m.settled += used
		if over := r.overrunOf(b.truth); over > 0 {
			r.books.settledOver = append(r.books.settledOver, debt{b.truth, m, over})
		}
	}
}

// sent: a renew was built that says what was settled until now.
func (a *account) sent(seq uint64) {
	a.sentOver[seq], a.settledOver = a.settledOver, nil
}

// renewed looks at what quotad has made of a renew.
func (t *witness) renewed(a *account, in *ledger.Renew, rep *ledger.RenewReply) {
	if rep.Refusal == ledger.RefusedNot && !rep.Fenced {
		t.book(a, a.sentOver[in.Seq])
		delete(a.sentOver, in.Seq)
	}
	t.observe(in.Incarnation)
	first := t.byNumber[in.Incarnation]
	if in.Seq <= first.applied {
		return // repeated, or a twin's: what was said then is said again
	}
	first.applied, first.appliedAt, first.waits = in.Seq, t.w.now, nil
	for i := range rep.Asks {
		first.waitsFor(&in.Asks[i], &rep.Asks[i])
		if rep.Asks[i].Shortage == ledger.Exhausted {
			t.checkExhausted(&in.Asks[i], &rep.Asks[i])
		}
	}
}

// book: quotad knows of overruns.
func (t *witness) book(a *account, debts []debt) {
	for _, d := range debts {
		if d.month != nil {
			t.bookMonth(d)
		} else {
			d.truth.flows = append(d.truth.flows, flow{t.w.now, d.amount, a.sidecar.name, a.cloned, true})
		}
	}
}

// waitsFor takes down what an ask was refused for.
func (a *account) waitsFor(ask *ledger.Ask, res *ledger.AskResult) {
	if res.Granted || res.Shortage == ledger.Gone {
		return
	}
	for _, n := range ask.Needs {
		if n.Resource == res.Resource {
			a.waits = append(a.waits, wait{n.Resource, n.Period})
		}
	}
}

func (t *witness) forgetWaits() {
	for _, a := range t.accounts {
		a.waits = nil
	}
}

// bookMonth: quotad pays an overrun out of what is free. What is more than that comes on top of what is out on lease, which
// is spent all the same, as if nobody had heard of it.
func (t *witness) bookMonth(d debt) {
	m, beyond := d.month, int64(0)
	if p, ok := t.w.quotad.month(d.truth.id, d.truth.name, m.period); ok {
		beyond = min(max(0, -p.Free-m.uncovered), d.amount)
	}
	m.uncovered += beyond
	m.unbooked -= d.amount - beyond
}

// bookMoney is book for what a journal says: it speaks of money only.
func (t *witness) bookMoney(debts []debt) {
	for _, d := range debts {
		if d.month != nil {
			t.bookMonth(d)
		}
	}
}

// filed looks at what quotad has made of a dead process's journal.
func (t *witness) filed(incarnation uint64, done bool) {
	a := t.byNumber[incarnation]
	if !done || a == nil {
		return
	}
	if a.fate == killedKept && !a.isFiled {
		t.bookMoney(a.settledOver)
		for seq, debts := range a.sentOver { // a sum: the order is all one
			t.bookMoney(debts)
			delete(a.sentOver, seq)
		}
		a.settledOver = nil
	}
	a.isFiled = true
	t.eased = t.w.now
	t.observe(incarnation)
}

// observe takes down quotad's side of an account.
func (t *witness) observe(incarnation uint64) {
	a := t.byNumber[incarnation]
	if a == nil {
		return
	}
	for _, c := range t.w.quotad.l.Counters(incarnation) {
		res := t.byID[c.Resource]
		if res == nil || !capped(res.spec.Kind) { // nil: a name's
			continue
		}
		b := a.of(res, c.Period)
		m := b.month()
		m.settledAt += c.Spent - b.settled
		b.granted, b.returned, b.settled, b.suspense = c.Granted, c.Returned, c.Spent, c.Suspense
		t.checkCovered(a, b)
	}
}

// refused hears what a caller was told.
func (t *witness) refused(r *request, v lease.Verdict) {
	t.refusals[v.Reason]++
	if v.Reason == lease.Exhausted {
		t.checkExhaustedHere(r, v)
	}
}
