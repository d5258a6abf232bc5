package lease

import (
	"fmt"
	"maps"
	"slices"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// fakeLedger is the smallest thing that speaks the ledger's side of the protocol. It knows one or more machines.
// It keeps its own books, so that a machine's word can be checked against them.
type fakeLedger struct {
	free     map[counterKey]int64 // what is left to all
	total    map[counterKey]int64 // what there was at the start, plus overruns
	soft     map[counterKey]bool  // grants whatever is asked
	accounts map[fakeKey]*fakeAccount
	seqs     map[uint64]uint64
	replies  map[uint64]*quotav1.RenewReply
	gone     map[counterKey]bool
	fenced   map[uint64]bool
	shares   []*quotav1.Share
	version  uint64
	usable   int64
	standby  int64
	stingy   bool // grants asks only
}

type fakeKey struct {
	incarnation uint64
	counterKey
}

type fakeAccount struct{ granted, spent, returned, forfeited, held int64 }

func (a *fakeAccount) out() int64 { return a.granted - a.spent - a.returned - a.forfeited }

func newFakeLedger() *fakeLedger {
	return &fakeLedger{
		free: map[counterKey]int64{}, total: map[counterKey]int64{}, soft: map[counterKey]bool{},
		accounts: map[fakeKey]*fakeAccount{}, seqs: map[uint64]uint64{}, replies: map[uint64]*quotav1.RenewReply{},
		gone: map[counterKey]bool{}, fenced: map[uint64]bool{}, usable: 10_000, standby: 3_600_000,
	}
}

func (l *fakeLedger) fund(resource uint64, period uint32, amount int64) {
	k := counterKey{resource, period}
	l.free[k] += amount
	l.total[k] += amount
}

func (l *fakeLedger) account(inc uint64, k counterKey) *fakeAccount {
	key := fakeKey{inc, k}
	if l.accounts[key] == nil {
		l.accounts[key] = &fakeAccount{}
	}
	return l.accounts[key]
}

// renew answers r; an error is a promise the sender broke.
func (l *fakeLedger) renew(r *quotav1.Renew) (*quotav1.RenewReply, error) {
	inc := r.GetIncarnation()
	if l.fenced[inc] {
		return &quotav1.RenewReply{Seq: r.GetSeq(), Fenced: true}, nil
	}
	switch last := l.seqs[inc]; {
	case r.GetSeq() == last:
		return l.replies[inc], nil
	case r.GetSeq() < last:
		return nil, nil
	case r.GetSeq() != last+1:
		return nil, fmt.Errorf("seq %d after %d", r.GetSeq(), last)
	}
	l.seqs[inc] = r.GetSeq()
	reply := &quotav1.RenewReply{
		Seq: r.GetSeq(), UsableForMs: l.usable, StandbyForMs: l.standby, Shares: l.shares, ShareVersion: l.version,
	}
	for _, c := range r.GetCounters() {
		k := counterKey{c.GetResource(), c.GetPeriod()}
		a := l.account(inc, k)
		if c.GetSpent() < a.spent || c.GetReturned() < a.returned || c.GetHeld() < 0 || c.GetDemand() < 0 {
			return nil, fmt.Errorf("counter %v went back: %v after %+v", k, c, *a)
		}
		l.free[k] += c.GetReturned() - a.returned
		a.spent, a.returned, a.held = c.GetSpent(), c.GetReturned(), c.GetHeld()
		if over := -a.out(); over > 0 {
			a.granted += over
			l.free[k] -= over
		}
	}
	touched := map[counterKey]bool{}
	for _, ask := range r.GetAsks() {
		reply.Asks = append(reply.Asks, l.ask(inc, ask, touched))
	}
	for _, c := range r.GetCounters() {
		k := counterKey{c.GetResource(), c.GetPeriod()}
		a := l.account(inc, k)
		touched[k] = true
		if want := 2*c.GetDemand() - (a.out() - a.held); want > 0 && l.free[k] > 0 && !l.stingy && !r.GetLeaving() {
			give := min(want, l.free[k])
			a.granted += give
			l.free[k] -= give
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(touched), counterKey.compare) {
		a := l.account(inc, k)
		reply.Grants = append(reply.Grants, &quotav1.Grant{
			Resource: k.resource, Period: k.period, Granted: a.granted, Forfeited: a.forfeited, Free: l.free[k],
			Gone: l.gone[k],
		})
	}
	l.replies[inc] = reply
	return reply, nil
}

func (l *fakeLedger) ask(inc uint64, ask *quotav1.Ask, touched map[counterKey]bool) *quotav1.AskResult {
	for _, n := range ask.GetNeeds() {
		k := counterKey{n.GetResource(), n.GetPeriod()}
		if n.GetAmount() > l.free[k] && !l.soft[k] {
			res := &quotav1.AskResult{
				Id: ask.GetId(), Resource: k.resource, Left: l.free[k], RetryAfterMs: 300,
				Shortage: quotav1.Shortage_SHORTAGE_THROTTLED,
			}
			if k.period != 0 {
				res.Shortage = quotav1.Shortage_SHORTAGE_RESERVED
				if n.GetAmount() > l.free[k]+l.outstanding(k) {
					res.Shortage, res.RetryAfterMs = quotav1.Shortage_SHORTAGE_EXHAUSTED, 0
				}
			}
			return res
		}
	}
	for _, n := range ask.GetNeeds() {
		k := counterKey{n.GetResource(), n.GetPeriod()}
		a := l.account(inc, k)
		a.granted += n.GetAmount()
		a.held += n.GetAmount()
		l.free[k] -= n.GetAmount()
		touched[k] = true
	}
	return &quotav1.AskResult{Id: ask.GetId(), Granted: true}
}

func (l *fakeLedger) outstanding(k counterKey) (sum int64) {
	for key, a := range l.accounts {
		if key.counterKey == k {
			sum += a.out()
		}
	}
	return sum
}

// lapse forfeits the idle bucket balances of a process.
func (l *fakeLedger) lapse(inc uint64) {
	for key, a := range l.accounts {
		if key.incarnation == inc && key.period == 0 {
			if idle := a.out() - a.held; idle > 0 {
				a.forfeited += idle
				l.free[key.counterKey] += idle
			}
		}
	}
}

// check is conservation: everything there was is free, spent or outstanding.
func (l *fakeLedger) check() error {
	sums := maps.Clone(l.free)
	for key, a := range l.accounts {
		if a.out() < 0 {
			return fmt.Errorf("counter %v is overdrawn: %+v", key, *a)
		}
		sums[key.counterKey] += a.spent + a.out()
	}
	for k, sum := range sums {
		if sum != l.total[k] {
			return fmt.Errorf("resource %v: %d of %d", k, sum, l.total[k])
		}
	}
	return nil
}
