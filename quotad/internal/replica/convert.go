package replica

import (
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// each converts a slice; nil stays nil.
func each[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

func counterOf(c *raftlogv1.Counter) ledger.Counter {
	return ledger.Counter{
		Resource: c.GetResource(), Period: c.GetPeriod(), Spent: c.GetSpent(), Returned: c.GetReturned(),
		Held: c.GetHeld(), Demand: c.GetDemand(), Close: c.GetClose(), ProviderLeft: c.ProviderLeft, Granted: c.GetGranted(),
	}
}

func fileFinalOf(f *raftlogv1.FileFinal) ledger.FileFinal {
	return ledger.FileFinal{
		Identity: f.GetIdentity(), Incarnation: f.GetIncarnation(), Seq: f.GetSeq(),
		Counters: each(f.GetCounters(), counterOf), Proven: f.GetProven(), Successor: f.GetSuccessor(),
	}
}

func periodsOf(ps []*raftlogv1.Period) []ledger.Period {
	return each(ps, func(p *raftlogv1.Period) ledger.Period {
		return ledger.Period{Timezone: p.GetTimezone(), Period: p.GetPeriod(), EndsMS: p.GetEndsMs()}
	})
}

func periodsTo(ps []ledger.Period) []*raftlogv1.Period {
	return each(ps, func(p ledger.Period) *raftlogv1.Period {
		return &raftlogv1.Period{Timezone: p.Timezone, Period: p.Period, EndsMs: p.EndsMS}
	})
}

// fairnessOf reads how pools are divided from the machine's own record.
func fairnessOf(m *raftlogv1.MetaState) ledger.Fairness {
	return ledger.Fairness{
		Weights: each(m.GetWeights(), func(w *raftlogv1.TeamWeight) ledger.TeamWeight {
			return ledger.TeamWeight{Team: w.GetTeam(), Weight: w.GetWeight()}
		}),
		Reserves: each(m.GetReserves(), func(r *raftlogv1.ClassReserve) ledger.ClassReserve {
			return ledger.ClassReserve{Class: r.GetClass(), Permille: r.GetPermille()}
		}),
	}
}

func weightsTo(ws []ledger.TeamWeight) []*raftlogv1.TeamWeight {
	return each(ws, func(w ledger.TeamWeight) *raftlogv1.TeamWeight {
		return &raftlogv1.TeamWeight{Team: w.Team, Weight: w.Weight}
	})
}

func reservesTo(rs []ledger.ClassReserve) []*raftlogv1.ClassReserve {
	return each(rs, func(r ledger.ClassReserve) *raftlogv1.ClassReserve {
		return &raftlogv1.ClassReserve{Class: r.Class, Permille: r.Permille}
	})
}

func changeOf(c *raftlogv1.Change) registry.Change {
	return registry.Change{
		BaseVersion: c.GetBaseVersion(), First: c.GetFirst(), Objects: each(c.GetObjects(), objectOf),
		Actor: c.GetActor(), AtMS: c.GetAtMs(), Note: c.GetNote(),
	}
}

func objectOf(o *raftlogv1.Object) registry.Object {
	return registry.Object{Kind: o.GetKind(), ID: o.GetId(), Spec: o.GetSpecJson()}
}

func objectTo(o registry.Object) *raftlogv1.Object {
	return &raftlogv1.Object{Kind: o.Kind, Id: o.ID, SpecJson: o.Spec}
}

func resourceTo(r ledger.ResourceState) *raftlogv1.ResourceState {
	return &raftlogv1.ResourceState{
		Id: r.ID, Scope: r.Scope, Owner: r.Owner, Kind: int32(r.Kind), Limit: r.Limit, Burst: r.Burst, Hard: r.Hard,
		Timezone: r.Timezone, AlertPermille: r.AlertPermille, Weight: r.Weight, Level_60K: r.Level60k, LevelAtMs: r.LevelAtMS,
		Each: int32(r.Each), Of: r.Of, Name: r.Name, UsedAtMs: r.UsedAtMS, KeepMs: r.KeepMS, SetAside_60K: r.SetAside60k, Withheld_60K: r.Withheld60k,
		Currency: r.Currency, Rates: each(r.Rates, func(c ledger.Rate) *raftlogv1.CurrencyRate {
			return &raftlogv1.CurrencyRate{Period: c.Period, PerUsdNano: c.PerUSDNano}
		}),
		Periods: each(r.Periods, func(p ledger.BudgetPeriodState) *raftlogv1.BudgetPeriodState {
			return &raftlogv1.BudgetPeriodState{
				Period: p.Period, EndsMs: p.EndsMS, Cap: p.Cap, Credits: p.Credits, Settled: p.Settled,
				Outstanding: p.Outstanding, Suspense: p.Suspense, Free: p.Free, AlertedPermille: p.AlertedPermille,
				ToldPermille: p.ToldPermille, Closed: p.Closed, CreditIds: p.CreditIDs,
				PerUsdNano: p.PerUSDNano, Learned: p.Learned, Raised: p.Raised,
				Given: each(p.Given, func(c ledger.Credit) *raftlogv1.CreditState {
					return &raftlogv1.CreditState{Id: c.ID, AmountNano: c.Amount, AtMs: c.AtMS, Actor: c.Actor, Reason: c.Reason}
				}),
			}
		}),
	}
}

func resourceFrom(r *raftlogv1.ResourceState) ledger.ResourceState {
	return ledger.ResourceState{
		ID: r.GetId(), Scope: r.GetScope(), Owner: r.GetOwner(), Kind: ledger.Kind(r.GetKind()), Limit: r.GetLimit(),
		Burst: r.GetBurst(), Hard: r.GetHard(), Timezone: r.GetTimezone(), AlertPermille: r.GetAlertPermille(),
		Weight: r.GetWeight(), Level60k: r.GetLevel_60K(), LevelAtMS: r.GetLevelAtMs(),
		Each: ledger.Each(r.GetEach()), Of: r.GetOf(), Name: r.GetName(), UsedAtMS: r.GetUsedAtMs(), KeepMS: r.GetKeepMs(),
		SetAside60k: r.GetSetAside_60K(), Withheld60k: r.GetWithheld_60K(), Currency: r.GetCurrency(),
		Rates: each(r.GetRates(), func(c *raftlogv1.CurrencyRate) ledger.Rate {
			return ledger.Rate{Period: c.GetPeriod(), PerUSDNano: c.GetPerUsdNano()}
		}),
		Periods: each(r.GetPeriods(), func(p *raftlogv1.BudgetPeriodState) ledger.BudgetPeriodState {
			return ledger.BudgetPeriodState{
				Period: p.GetPeriod(), EndsMS: p.GetEndsMs(), Cap: p.GetCap(), Credits: p.GetCredits(), Settled: p.GetSettled(),
				Outstanding: p.GetOutstanding(), Suspense: p.GetSuspense(), Free: p.GetFree(),
				AlertedPermille: p.GetAlertedPermille(), ToldPermille: p.GetToldPermille(), Closed: p.GetClosed(),
				CreditIDs: p.GetCreditIds(), PerUSDNano: p.GetPerUsdNano(),
				Learned: p.GetLearned(), Raised: p.GetRaised(),
				Given: each(p.GetGiven(), func(c *raftlogv1.CreditState) ledger.Credit {
					return ledger.Credit{ID: c.GetId(), Amount: c.GetAmountNano(), AtMS: c.GetAtMs(), Actor: c.GetActor(), Reason: c.GetReason()}
				}),
			}
		}),
	}
}

func counterStateTo(c ledger.CounterState) *raftlogv1.CounterState {
	return &raftlogv1.CounterState{
		Incarnation: c.Incarnation, Resource: c.Resource, Period: c.Period, Granted: c.Granted, Spent: c.Spent,
		Returned: c.Returned, Forfeited: c.Forfeited, Held: c.Held, Demand: c.Demand, Suspense: c.Suspense, Asked: c.Asked,
		Shares: each(c.Shares, func(s ledger.ShareState) *raftlogv1.ShareState {
			return &raftlogv1.ShareState{Version: s.Version, PerMinute: s.PerMinute}
		}),
	}
}

func counterStateFrom(c *raftlogv1.CounterState) ledger.CounterState {
	return ledger.CounterState{
		Incarnation: c.GetIncarnation(), Resource: c.GetResource(), Period: c.GetPeriod(), Granted: c.GetGranted(),
		Spent: c.GetSpent(), Returned: c.GetReturned(), Forfeited: c.GetForfeited(), Held: c.GetHeld(), Demand: c.GetDemand(),
		Suspense: c.GetSuspense(), Asked: c.GetAsked(),
		Shares: each(c.GetShares(), func(s *raftlogv1.ShareState) ledger.ShareState {
			return ledger.ShareState{Version: s.GetVersion(), PerMinute: s.GetPerMinute()}
		}),
	}
}

func memberTo(m ledger.MemberState) *raftlogv1.MemberState {
	return &raftlogv1.MemberState{
		Incarnation: m.Incarnation, Identity: m.Identity, Seq: m.Seq, LapseAtMs: m.LapseAtMS, StandbyAtMs: m.StandbyAtMS,
		JoinedMs: m.JoinedMS, Lapsed: m.Lapsed, Fenced: m.Fenced, Left: m.Left, ShareVersion: m.ShareVersion,
		ShareAcked: m.ShareAcked, Epoch: m.Epoch,
		Asks: each(m.Asks, func(a ledger.AskResult) *raftlogv1.AskResultState {
			return &raftlogv1.AskResultState{
				Id: a.ID, Granted: a.Granted, Resource: a.Resource, Shortage: int32(a.Shortage), Left: a.Left,
				RetryAfterMs: a.RetryAfterMS,
			}
		}),
	}
}

func memberFrom(m *raftlogv1.MemberState) ledger.MemberState {
	return ledger.MemberState{
		Incarnation: m.GetIncarnation(), Identity: m.GetIdentity(), Seq: m.GetSeq(), LapseAtMS: m.GetLapseAtMs(),
		StandbyAtMS: m.GetStandbyAtMs(), JoinedMS: m.GetJoinedMs(), Lapsed: m.GetLapsed(), Fenced: m.GetFenced(),
		Left: m.GetLeft(), ShareVersion: m.GetShareVersion(), ShareAcked: m.GetShareAcked(), Epoch: m.GetEpoch(),
		Asks: each(m.GetAsks(), func(a *raftlogv1.AskResultState) ledger.AskResult {
			return ledger.AskResult{
				ID: a.GetId(), Granted: a.GetGranted(), Resource: a.GetResource(), Shortage: ledger.Shortage(a.GetShortage()),
				Left: a.GetLeft(), RetryAfterMS: a.GetRetryAfterMs(),
			}
		}),
	}
}

func historyTo(h registry.HistoryEntry) *raftlogv1.HistoryState {
	return &raftlogv1.HistoryState{
		Version: h.Version, Actor: h.Actor, AtMs: h.AtMS, Note: h.Note,
		Before: each(h.Before, objectTo), After: each(h.After, objectTo),
	}
}

func historyFrom(h *raftlogv1.HistoryState) registry.HistoryEntry {
	return registry.HistoryEntry{
		Version: h.GetVersion(), Actor: h.GetActor(), AtMS: h.GetAtMs(), Note: h.GetNote(),
		Before: each(h.GetBefore(), objectOf), After: each(h.GetAfter(), objectOf),
	}
}

// batchOf leaves out what the level does not know.
func batchOf(b *raftlogv1.UsageBatch, level uint32) rollup.Batch {
	out := rollup.Batch{
		Source: b.GetSource(), FromSeq: b.GetFromSeq(), ToSeq: b.GetToSeq(), Rows: each(b.GetRows(), usageOf),
	}
	for i := range out.Rows {
		if r := &out.Rows[i]; level == 0 {
			r.InputAudio, r.OutputAudio, r.InputImage, r.OutputImage, r.WebSearches = 0, 0, 0, 0, 0
		}
	}
	return out
}

func usageOf(r *raftlogv1.UsageRow) rollup.Row {
	return rollup.Row{
		Names: rollup.Names{
			HourMS: r.GetHourMs(), Team: r.GetTeam(), Key: r.GetKey(), Alias: r.GetAlias(), Deployment: r.GetDeployment(),
			Feature: r.GetFeature(), PriceVersion: r.GetPriceVersion(),
		},
		Sums: rollup.Sums{
			Attempts: r.GetAttempts(), Requests: r.GetRequests(), Errors: r.GetErrors(), Input: r.GetInput(),
			CacheRead: r.GetCacheRead(), CacheWrite5m: r.GetCacheWrite_5M(), CacheWrite1h: r.GetCacheWrite_1H(),
			Output: r.GetOutput(), Reasoning: r.GetReasoning(), CostNano: r.GetCostNano(), Estimated: r.GetEstimated(),
			InputAudio: r.GetInputAudio(), OutputAudio: r.GetOutputAudio(), InputImage: r.GetInputImage(),
			OutputImage: r.GetOutputImage(), WebSearches: r.GetWebSearches(),
		},
	}
}

func usageTo(r rollup.Row) *raftlogv1.UsageRow {
	return &raftlogv1.UsageRow{
		HourMs: r.HourMS, Team: r.Team, Key: r.Key, Alias: r.Alias, Deployment: r.Deployment, Feature: r.Feature,
		PriceVersion: r.PriceVersion, Attempts: r.Attempts, Requests: r.Requests, Errors: r.Errors, Input: r.Input,
		CacheRead: r.CacheRead, CacheWrite_5M: r.CacheWrite5m, CacheWrite_1H: r.CacheWrite1h, Output: r.Output,
		Reasoning: r.Reasoning, CostNano: r.CostNano, Estimated: r.Estimated,
		InputAudio: r.InputAudio, OutputAudio: r.OutputAudio, InputImage: r.InputImage,
		OutputImage: r.OutputImage, WebSearches: r.WebSearches,
	}
}
