package session

import (
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// The log has messages of its own, so that the wire may change without touching what is stored for years. These
// functions carry one over to the other. A renew is carried over in permit.go, to the ledger's own type, and its answer's
// lists are made in one piece: it is what quotad does most.

func countersTo(in []*quotav1.Counter) (out []*raftlogv1.Counter) {
	for _, c := range in {
		out = append(out, &raftlogv1.Counter{
			Resource: c.GetResource(), Period: c.GetPeriod(), Spent: c.GetSpent(), Returned: c.GetReturned(), Held: c.GetHeld(),
			Demand: c.GetDemand(), Close: c.GetClose(), ProviderLeft: c.ProviderLeft, Granted: c.GetGranted(),
		})
	}
	return out
}

func finalTo(identity string, successor uint64, f *quotav1.FileFinal) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_FileFinal{FileFinal: &raftlogv1.FileFinal{
		Identity: identity, Incarnation: f.GetIncarnation(), Seq: f.GetSeq(), Counters: countersTo(f.GetCounters()),
		Proven: f.GetProven(), Successor: successor,
	}}}
}

func replyFrom(r ledger.RenewReply) *quotav1.RenewReply {
	out := &quotav1.RenewReply{
		Seq: r.Seq, Epoch: r.Epoch, UsableForMs: r.UsableForMS, ShareVersion: r.ShareVersion, StandbyForMs: r.StandbyForMS, Fenced: r.Fenced,
	}
	out.Grants = make([]*quotav1.Grant, len(r.Grants))
	all := make([]quotav1.Grant, len(r.Grants))
	for i := range r.Grants {
		g, o := &r.Grants[i], &all[i]
		o.Resource, o.Period, o.Granted, o.Forfeited, o.Gone = g.Resource, g.Period, g.Granted, g.Forfeited, g.Gone
		o.Free, o.Shortage, o.RetryAfterMs = g.Free, quotav1.Shortage(g.Shortage), g.RetryAfterMS
		o.IdleMax, o.Of, o.Name = g.IdleMax, g.Of, g.Name
		out.Grants[i] = o
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
