package session

import (
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
)

// The log has messages of its own, so that the wire may change without touching what is stored for years. These
// functions carry one over to the other. Renews, which are what quotad does most, are carried over in renewal.go.

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
			InputAudio: t.GetInputAudio(), OutputAudio: t.GetOutputAudio(), InputImage: t.GetInputImage(),
			OutputImage: t.GetOutputImage(), WebSearches: t.GetWebSearches(),
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
				Output: r.Output, Reasoning: r.Reasoning, InputAudio: r.InputAudio, OutputAudio: r.OutputAudio,
				InputImage: r.InputImage, OutputImage: r.OutputImage, WebSearches: r.WebSearches,
			},
		}
	}
	return out
}
