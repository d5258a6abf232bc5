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
	stingy   bool                 // grants asks only
	idleMax  map[counterKey]int64 // the most that others let lie idle at a machine
	epoch    uint64

	templates map[uint64]int64 // what is one for each name, and what each begins with
	childOf   map[nameKey]uint64
	nameOf    map[uint64]nameKey
	capped    map[uint64]bool // templates of budgets
	namesMost int             // of a template; further ones share one
	lastChild uint64
	spentBy   map[counterKey]int64 // by counters that were closed
	stubborn  bool                 // agrees to no close
	silent    bool                 // does not tell which one a name is that it refuses
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
		idleMax: map[counterKey]int64{}, gone: map[counterKey]bool{}, fenced: map[uint64]bool{}, usable: 10_000, standby: 3_600_000,
		templates: map[uint64]int64{}, childOf: map[nameKey]uint64{}, nameOf: map[uint64]nameKey{}, capped: map[uint64]bool{},
		namesMost: 1 << 30, lastChild: 1000, spentBy: map[counterKey]int64{},
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
		Epoch: l.epoch,
	}
	touched := map[counterKey]bool{}
	for _, c := range r.GetCounters() {
		k := counterKey{c.GetResource(), c.GetPeriod()}
		touched[k] = true
		if l.dropped(k) {
			continue
		}
		if _, child := l.nameOf[k.resource]; child && l.accounts[fakeKey{inc, k}] == nil {
			return nil, fmt.Errorf("counter %v of %v is of none that was made or asked for", k, l.nameOf[k.resource])
		}
		a := l.account(inc, k)
		if c.GetGranted() > a.granted {
			return nil, fmt.Errorf("counter %v says %d was granted, not %d", k, c.GetGranted(), a.granted)
		}
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
	closed := map[counterKey]bool{}
	for _, c := range r.GetCounters() {
		k := counterKey{c.GetResource(), c.GetPeriod()}
		if !c.GetClose() || l.dropped(k) {
			continue
		}
		a := l.account(inc, k)
		if a.out() != 0 || c.GetHeld() != 0 || c.GetDemand() != 0 {
			return nil, fmt.Errorf("counter %v is closed with %+v: %v", k, *a, c)
		}
		if !l.stubborn {
			l.spentBy[k] += a.spent
			delete(l.accounts, fakeKey{inc, k})
			closed[k] = true
		}
	}
	for _, ask := range r.GetAsks() {
		reply.Asks = append(reply.Asks, l.ask(inc, ask, touched))
	}
	for _, c := range r.GetCounters() {
		k := counterKey{c.GetResource(), c.GetPeriod()}
		if l.dropped(k) || closed[k] {
			continue
		}
		a := l.account(inc, k)
		if want := 2*c.GetDemand() - (a.out() - a.held); want > 0 && l.free[k] > 0 && !l.stingy && !r.GetLeaving() {
			give := min(want, l.free[k])
			a.granted += give
			l.free[k] -= give
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(touched), counterKey.compare) {
		a := l.accounts[fakeKey{inc, k}]
		if closed[k] && a != nil {
			return nil, fmt.Errorf("counter %v is closed and asked for at once", k)
		}
		if a == nil || l.gone[k] {
			reply.Grants = append(reply.Grants, &quotav1.Grant{Resource: k.resource, Period: k.period, Gone: true})
			continue
		}
		reply.Grants = append(reply.Grants, &quotav1.Grant{
			Resource: k.resource, Period: k.period, Granted: a.granted, Forfeited: a.forfeited, Free: l.free[k],
			IdleMax: l.idleMax[k],
			Of:      l.nameOf[k.resource].template, Name: l.nameOf[k.resource].name,
		})
	}
	l.replies[inc] = reply
	return reply, nil
}

func (l *fakeLedger) ask(inc uint64, ask *quotav1.Ask, touched map[counterKey]bool) *quotav1.AskResult {
	for _, n := range ask.GetNeeds() {
		k := l.asked(n)
		if n.GetAmount() > l.free[k] && !l.soft[k] {
			res := &quotav1.AskResult{
				Id: ask.GetId(), Resource: n.GetResource(), Left: l.free[k], RetryAfterMs: 300,
				Shortage: quotav1.Shortage_SHORTAGE_THROTTLED,
			}
			if k.period != 0 || l.capped[n.GetResource()] {
				res.Shortage = quotav1.Shortage_SHORTAGE_RESERVED
				if n.GetAmount() > l.free[k]+l.outstanding(k) {
					res.Shortage, res.RetryAfterMs = quotav1.Shortage_SHORTAGE_EXHAUSTED, 0
				}
			}
			if _, child := l.nameOf[k.resource]; child && !l.silent {
				l.account(inc, k)
				touched[k] = true
			}
			return res
		}
	}
	for _, n := range ask.GetNeeds() {
		k := l.asked(n)
		a := l.account(inc, k)
		a.granted += n.GetAmount()
		a.held += n.GetAmount()
		l.free[k] -= n.GetAmount()
		touched[k] = true
	}
	return &quotav1.AskResult{Id: ask.GetId(), Granted: true}
}

// dropped: a counter of it is answered as gone.
func (l *fakeLedger) dropped(k counterKey) bool {
	_, child := l.nameOf[k.resource]
	return k.resource > 1000 && !child
}

// asked is what an ask draws on. One of a name is made at the first ask.
func (l *fakeLedger) asked(n *quotav1.Need) counterKey {
	first, ok := l.templates[n.GetResource()]
	if !ok {
		return counterKey{n.GetResource(), n.GetPeriod()}
	}
	key := nameKey{n.GetResource(), n.GetName()}
	if l.childOf[key] == 0 && l.names(n.GetResource()) >= l.namesMost {
		key.name = ""
	}
	if l.childOf[key] == 0 {
		l.lastChild++
		l.childOf[key], l.nameOf[l.lastChild] = l.lastChild, key
		l.fund(l.lastChild, 0, first)
	}
	return counterKey{l.childOf[key], 0}
}

func (l *fakeLedger) names(template uint64) (n int) {
	for _, key := range l.nameOf {
		if key.template == template {
			n++
		}
	}
	return n
}

// evict drops the one of a name, if nothing of it is out, or whatever is.
func (l *fakeLedger) evict(template uint64, name string, whatever bool) {
	key := nameKey{template, name}
	id := l.childOf[key]
	k := counterKey{id, 0}
	if id == 0 || !whatever && l.outstanding(k) != 0 {
		return
	}
	maps.DeleteFunc(l.accounts, func(o fakeKey, _ *fakeAccount) bool { return o.counterKey == k })
	delete(l.childOf, key)
	delete(l.nameOf, id)
	delete(l.free, k)
	delete(l.total, k)
	delete(l.spentBy, k)
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
		if key.incarnation == inc && key.period == 0 && !l.capped[l.nameOf[key.resource].template] {
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
	for k, spent := range l.spentBy {
		sums[k] += spent
	}
	for k, sum := range sums {
		if sum != l.total[k] {
			return fmt.Errorf("resource %v: %d of %d", k, sum, l.total[k])
		}
	}
	return nil
}
