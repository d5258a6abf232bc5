package session

import (
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Renews and their answers are nearly all that goes over the streams. Both are carried over in memory that is used
// again, so that thousands of them a second leave little to the garbage collector.

// renewal is a renew as the ledger takes it.
type renewal struct {
	ledger.Renew
	needs []ledger.Need // of all asks
}

func counterOf(c *quotav1.Counter) ledger.Counter {
	return ledger.Counter{
		Resource: c.GetResource(), Period: c.GetPeriod(), Spent: c.GetSpent(), Returned: c.GetReturned(), Held: c.GetHeld(),
		Demand: c.GetDemand(), Close: c.GetClose(), ProviderLeft: c.ProviderLeft, Granted: c.GetGranted(),
	}
}

// answer is a reply on its way to the sidecar.
type answer struct {
	response quotav1.SessionResponse
	oneof    quotav1.SessionResponse_RenewReply
	reply    quotav1.RenewReply

	grants []quotav1.Grant
	asks   []quotav1.AskResult
	shares []quotav1.Share
}

func newAnswer() *answer {
	a := &answer{}
	a.oneof.RenewReply = &a.reply
	a.response.Message = &a.oneof
	return a
}

// fill puts every field anew.
func (a *answer) fill(r *ledger.RenewReply) *quotav1.RenewReply {
	o := &a.reply
	o.Seq, o.Epoch, o.UsableForMs, o.StandbyForMs = r.Seq, r.Epoch, r.UsableForMS, r.StandbyForMS
	o.ShareVersion, o.Fenced = r.ShareVersion, r.Fenced
	o.Grants, o.Asks, o.Shares = o.Grants[:0], o.Asks[:0], o.Shares[:0]
	a.grants, a.asks, a.shares = sized(a.grants, len(r.Grants)), sized(a.asks, len(r.Asks)), sized(a.shares, len(r.Shares))
	for i := range r.Grants {
		g, w := &r.Grants[i], &a.grants[i]
		w.Resource, w.Period, w.Granted, w.Forfeited, w.Gone = g.Resource, g.Period, g.Granted, g.Forfeited, g.Gone
		w.Free, w.Shortage, w.RetryAfterMs = g.Free, quotav1.Shortage(g.Shortage), g.RetryAfterMS
		w.IdleMax, w.Of, w.Name = g.IdleMax, g.Of, g.Name
		o.Grants = append(o.Grants, w)
	}
	for i := range r.Asks {
		x, w := &r.Asks[i], &a.asks[i]
		w.Id, w.Granted, w.Resource, w.Shortage = x.ID, x.Granted, x.Resource, quotav1.Shortage(x.Shortage)
		w.Left, w.RetryAfterMs = x.Left, x.RetryAfterMS
		o.Asks = append(o.Asks, w)
	}
	for i := range r.Shares {
		w := &a.shares[i]
		w.Resource, w.PerMinute = r.Shares[i].Resource, r.Shares[i].PerMinute
		o.Shares = append(o.Shares, w)
	}
	return o
}

// sized returns n elements, those of list if it has as many.
func sized[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}
