package session

import (
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// The log has messages of its own, so that the wire may change without touching what is stored for years. These
// functions carry one over to the other.

func countersTo(in []*quotav1.Counter) []*raftlogv1.Counter {
	out := make([]*raftlogv1.Counter, len(in))
	for i, c := range in {
		out[i] = &raftlogv1.Counter{
			Resource: c.GetResource(), Period: c.GetPeriod(), Spent: c.GetSpent(), Returned: c.GetReturned(),
			Held: c.GetHeld(), Demand: c.GetDemand(), Close: c.GetClose(), ProviderLeft: c.ProviderLeft, Granted: c.GetGranted(),
		}
	}
	return out
}

func renewTo(identity string, r *quotav1.Renew) *raftlogv1.Op {
	out := &raftlogv1.Renew{
		Identity: identity, Incarnation: r.GetIncarnation(), Seq: r.GetSeq(), Counters: countersTo(r.GetCounters()),
		ShareVersion: r.GetShareVersion(), Leaving: r.GetLeaving(), Epoch: r.GetEpoch(),
	}
	for _, a := range r.GetAsks() {
		ask := &raftlogv1.Ask{Id: a.GetId()}
		for _, n := range a.GetNeeds() {
			ask.Needs = append(ask.Needs, &raftlogv1.Need{
				Resource: n.GetResource(), Period: n.GetPeriod(), Amount: n.GetAmount(), Name: n.GetName(),
			})
		}
		out.Asks = append(out.Asks, ask)
	}
	return &raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: out}}
}

func finalTo(identity string, successor uint64, f *quotav1.FileFinal) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_FileFinal{FileFinal: &raftlogv1.FileFinal{
		Identity: identity, Incarnation: f.GetIncarnation(), Seq: f.GetSeq(), Counters: countersTo(f.GetCounters()),
		Proven: f.GetProven(), Successor: successor,
	}}}
}

func replyFrom(r ledger.RenewReply) *quotav1.RenewReply {
	out := &quotav1.RenewReply{
		Seq: r.Seq, UsableForMs: r.UsableForMS, ShareVersion: r.ShareVersion, StandbyForMs: r.StandbyForMS, Fenced: r.Fenced,
	}
	for _, g := range r.Grants {
		out.Grants = append(out.Grants, &quotav1.Grant{
			Resource: g.Resource, Period: g.Period, Granted: g.Granted, Forfeited: g.Forfeited, Gone: g.Gone,
			Free: g.Free, Shortage: quotav1.Shortage(g.Shortage), RetryAfterMs: g.RetryAfterMS,
			IdleMax: g.IdleMax, Of: g.Of, Name: g.Name,
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

// batchTo carries a batch over, with those of its rows that may pass.
func batchTo(b *quotav1.UsageBatch, rows []*quotav1.UsageRow) *raftlogv1.Op {
	out := &raftlogv1.UsageBatch{Source: b.GetSource(), FromSeq: b.GetFromSeq(), ToSeq: b.GetToSeq()}
	for _, r := range rows {
		t := r.GetTokens()
		out.Rows = append(out.Rows, &raftlogv1.UsageRow{
			HourMs: r.GetHourMs(), Team: r.GetTeam(), Key: r.GetKey(), Alias: r.GetAlias(), Deployment: r.GetDeployment(),
			Feature: r.GetFeature(), PriceVersion: r.GetPriceVersion(), Attempts: r.GetAttempts(),
			Requests: r.GetRequests(), Errors: r.GetErrors(), Input: t.GetInput(), CacheRead: t.GetCacheRead(),
			CacheWrite_5M: t.GetCacheWrite_5M(), CacheWrite_1H: t.GetCacheWrite_1H(), Output: t.GetOutput(),
			Reasoning: t.GetReasoning(), CostNano: r.GetCostNano(), Estimated: r.GetEstimated(),
		})
	}
	return &raftlogv1.Op{Op: &raftlogv1.Op_UsageBatch{UsageBatch: out}}
}

func rowsFrom(in []rollup.Row) []*quotav1.UsageRow {
	out := make([]*quotav1.UsageRow, len(in))
	for i, r := range in {
		out[i] = &quotav1.UsageRow{
			HourMs: r.HourMS, Team: r.Team, Key: r.Key, Alias: r.Alias, Deployment: r.Deployment, Feature: r.Feature,
			PriceVersion: r.PriceVersion, Attempts: r.Attempts, Requests: r.Requests, Errors: r.Errors,
			CostNano: r.CostNano, Estimated: r.Estimated,
			Tokens: &usagev1.Tokens{
				Input: r.Input, CacheRead: r.CacheRead, CacheWrite_5M: r.CacheWrite5m, CacheWrite_1H: r.CacheWrite1h,
				Output: r.Output, Reasoning: r.Reasoning,
			},
		}
	}
	return out
}
