package gateway

import (
	"maps"
	"slices"
	"sync"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// ledger is quotad to a sidecar: it hands out what each resource has, once, and knows every name of one that is one for
// each.
type ledger struct {
	client *lease.Client
	calls  sync.WaitGroup

	mu        sync.Mutex
	before    func(*quotav1.Renew) // runs before a renew is applied
	resources map[uint64]*quotav1.Resource
	books     map[uint64]*book // by resource, or by the id made for a name
	said      map[uint64]int64 // the provider's word, by pool
}

// book is a resource that is drawn on: a whole one, or one of those of a name.
type book struct {
	id                   uint64
	of                   *quotav1.Resource
	name                 string
	purse                *purse
	granted, back, spent int64
}

// purse is what is left. The claimants of a pool have one.
type purse struct{ free int64 }

// firstChild is beyond the ids that tests give to resources.
const firstChild = 1 << 20

func newLedger(c *lease.Client, resources []*quotav1.Resource) *ledger {
	l := &ledger{
		client: c, resources: map[uint64]*quotav1.Resource{}, books: map[uint64]*book{}, said: map[uint64]int64{},
	}
	for _, r := range resources {
		l.resources[r.GetId()] = r
		l.books[r.GetId()] = &book{id: r.GetId(), of: r, purse: &purse{whole(r)}}
	}
	return l
}

func whole(r *quotav1.Resource) int64 {
	if r.GetKind() == quotav1.Kind_KIND_MONEY || r.GetKind() == quotav1.Kind_KIND_CALLS {
		return r.GetLimit()
	}
	return r.GetBurst()
}

// book finds what a need is about, and makes it for a new name.
func (l *ledger) book(resource uint64, name string) *book {
	r := l.resources[resource]
	if r.GetEach() == quotav1.Each_EACH_UNSPECIFIED {
		return l.books[resource]
	}
	for _, b := range l.books {
		if b.id >= firstChild && b.of == r && b.name == name {
			return b
		}
	}
	b := &book{id: firstChild + uint64(len(l.books)), of: r, name: name, purse: l.books[resource].purse}
	if r.GetEach() == quotav1.Each_EACH_NAME {
		b.purse = &purse{whole(r)}
	}
	l.books[b.id] = b
	return b
}

// give adds to what is left, as an operator who raises a limit, or a provider that refills.
func (l *ledger) give(resource uint64, name string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book(resource, name).purse.free += n
}

// left is what nobody has.
func (l *ledger) left(resource uint64, name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book(resource, name).purse.free
}

// names are those of a resource that were asked for.
func (l *ledger) names(resource uint64) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.books {
		if b.id >= firstChild && b.of.GetId() == resource {
			out = append(out, b.name)
		}
	}
	slices.Sort(out)
	return out
}

// word is what a provider was last heard to say of a pool.
func (l *ledger) word(pool uint64) (left int64, said bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, said = l.said[pool]
	return left, said
}

// Send implements lease.Sender.
func (l *ledger) Send(m *quotav1.SessionRequest) bool {
	if r := m.GetRenew(); r != nil {
		l.calls.Go(func() {
			l.mu.Lock()
			before := l.before
			l.mu.Unlock()
			if before != nil {
				before(r)
			}
			l.client.HandleRenewReply(l.renew(r))
		})
	}
	return true
}

func (l *ledger) renew(r *quotav1.Renew) *quotav1.RenewReply {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply := &quotav1.RenewReply{Seq: r.GetSeq(), UsableForMs: 600_000, StandbyForMs: 3_600_000}
	touched := map[uint64]*book{}
	for _, c := range r.GetCounters() {
		b := l.books[c.GetResource()]
		touched[b.id] = b
		b.purse.free += c.GetReturned() - b.back
		b.back, b.spent = c.GetReturned(), c.GetSpent()
		if c.ProviderLeft != nil { //nolint:protogetter // whether it is there
			l.said[b.of.GetId()] = c.GetProviderLeft()
		}
	}
	for _, ask := range r.GetAsks() {
		res := &quotav1.AskResult{Id: ask.GetId(), Granted: true}
		for _, n := range ask.GetNeeds() {
			b := l.book(n.GetResource(), n.GetName())
			if n.GetAmount() > b.purse.free {
				res = &quotav1.AskResult{
					Id: ask.GetId(), Resource: n.GetResource(), Left: b.purse.free,
					Shortage: quotav1.Shortage_SHORTAGE_THROTTLED, RetryAfterMs: 1_500,
				}
				if k := b.of.GetKind(); k == quotav1.Kind_KIND_MONEY || k == quotav1.Kind_KIND_CALLS {
					res.Shortage, res.RetryAfterMs = quotav1.Shortage_SHORTAGE_EXHAUSTED, 0
				}
				break
			}
		}
		for _, n := range ask.GetNeeds() {
			b := l.book(n.GetResource(), n.GetName())
			touched[b.id] = b
			if res.GetGranted() {
				b.granted += n.GetAmount()
				b.purse.free -= n.GetAmount()
			}
		}
		reply.Asks = append(reply.Asks, res)
	}
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		b := touched[id]
		g := &quotav1.Grant{Resource: id, Period: b.of.GetPeriod(), Granted: b.granted, Free: b.purse.free}
		if id >= firstChild {
			g.Of, g.Name = b.of.GetId(), b.name
		}
		reply.Grants = append(reply.Grants, g)
	}
	return reply
}
