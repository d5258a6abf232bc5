package sim

import (
	"github.com/sluice-gateway/sluice/quotad/ledger"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// This file carries messages over to the ledger's types and back, as quotad's session and replica do.

func toLedger(identity string, r *quotav1.Renew) ledger.Renew {
	out := ledger.Renew{
		Identity: identity, Incarnation: r.Incarnation, Seq: r.Seq, ShareVersion: r.ShareVersion, Leaving: r.Leaving,
		Epoch: r.Epoch,
	}
	for _, c := range r.Counters {
		out.Counters = append(out.Counters, ledger.Counter{
			Resource: c.Resource, Period: c.Period, Spent: c.Spent, Returned: c.Returned, Held: c.Held, Demand: c.Demand,
			Close: c.Close, ProviderLeft: c.ProviderLeft, Granted: c.Granted,
		})
	}
	for _, a := range r.Asks {
		ask := ledger.Ask{ID: a.Id}
		for _, n := range a.Needs {
			ask.Needs = append(ask.Needs, ledger.Need{Resource: n.Resource, Period: n.Period, Amount: n.Amount, Name: n.Name})
		}
		out.Asks = append(out.Asks, ask)
	}
	return out
}

func finalToLedger(identity string, f *quotav1.FileFinal, successor uint64) ledger.FileFinal {
	out := ledger.FileFinal{
		Identity: identity, Incarnation: f.Incarnation, Seq: f.Seq, Proven: f.Proven, Successor: successor,
	}
	for _, c := range f.Counters {
		out.Counters = append(out.Counters, ledger.Counter{
			Resource: c.Resource, Period: c.Period, Spent: c.Spent, Returned: c.Returned,
		})
	}
	return out
}

func fromLedger(r ledger.RenewReply) *quotav1.RenewReply {
	out := &quotav1.RenewReply{
		Seq: r.Seq, UsableForMs: r.UsableForMS, ShareVersion: r.ShareVersion, StandbyForMs: r.StandbyForMS,
		Fenced: r.Fenced,
	}
	for _, g := range r.Grants {
		out.Grants = append(out.Grants, &quotav1.Grant{
			Resource: g.Resource, Period: g.Period, Granted: g.Granted, Forfeited: g.Forfeited, Gone: g.Gone,
			Free: g.Free, Shortage: quotav1.Shortage(g.Shortage), RetryAfterMs: g.RetryAfterMS, IdleMax: g.IdleMax,
			Of: g.Of, Name: g.Name,
		})
	}
	for _, a := range r.Asks {
		out.Asks = append(out.Asks, &quotav1.AskResult{
			Id: a.ID, Granted: a.Granted, Resource: a.Resource, Shortage: quotav1.Shortage(a.Shortage), Left: a.Left,
			RetryAfterMs: a.RetryAfterMS,
		})
	}
	for _, s := range r.Shares {
		out.Shares = append(out.Shares, &quotav1.Share{Resource: s.Resource, PerMinute: s.PerMinute})
	}
	return out
}
