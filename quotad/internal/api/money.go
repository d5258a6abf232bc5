package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// ShowBudgets implements the admin service.
func (s *Service) ShowBudgets(ctx context.Context, req *connect.Request[adminv1.ShowBudgetsRequest]) (*connect.Response[adminv1.ShowBudgetsResponse], error) {
	out := &adminv1.ShowBudgetsResponse{}
	team := req.Msg.GetTeam()
	known := team == ""
	err := s.read(ctx, func(m *replica.Machine) {
		_, ok := m.Registry.Team(team)
		known = known || ok
		out.Budgets = budgets(m, team)
	})
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, missing("no team %q", team)
	}
	return connect.NewResponse(out), nil
}

// budgets lists the budgets of a team and its keys, or all. Held is what running requests have reserved: a part of
// what is outstanding.
func budgets(m *replica.Machine, team string) []*adminv1.Budget {
	type at struct {
		resource uint64
		period   uint32
	}
	held := map[at]int64{}
	for _, member := range m.Ledger.Members() {
		for _, c := range m.Ledger.Counters(member.Incarnation) {
			held[at{c.Resource, c.Period}] += c.Held
		}
	}
	var out []*adminv1.Budget
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Kind != ledger.Money || !of(m.Registry, r.Spec, team) {
			continue
		}
		for _, p := range r.Periods {
			out = append(out, &adminv1.Budget{
				Resource: r.ID, Scope: r.Spec.Scope, Owner: r.Spec.Owner, Period: p.Period, EndsMs: p.EndsMS,
				CapNano: p.Cap, CreditsNano: p.Credits, SettledNano: p.Settled, OutstandingNano: p.Outstanding,
				HeldNano: held[at{r.ID, p.Period}], SuspenseNano: p.Suspense, FreeNano: p.Free, Hard: r.Spec.Hard,
			})
		}
	}
	slices.SortFunc(out, func(a, b *adminv1.Budget) int {
		return cmp.Or(strings.Compare(a.GetScope(), b.GetScope()), strings.Compare(a.GetOwner(), b.GetOwner()),
			-cmp.Compare(a.GetPeriod(), b.GetPeriod()))
	})
	return out
}

// of reports whether a resource belongs to a team or one of its keys; every one does to "".
func of(r *registry.Registry, spec ledger.Spec, team string) bool {
	switch {
	case team == "":
		return true
	case spec.Scope == registry.ScopeTeam:
		return spec.Owner == team
	case spec.Scope == registry.ScopeKey:
		k, ok := r.Key(spec.Owner)
		return ok && k.Team == team
	}
	return false
}

// CreditBudget implements the admin service.
func (s *Service) CreditBudget(ctx context.Context, req *connect.Request[adminv1.CreditBudgetRequest]) (*connect.Response[adminv1.CreditBudgetResponse], error) {
	m := req.Msg
	if m.GetReason() == "" {
		return nil, badInput("reason: required: it stands in the audit")
	}
	if m.GetTeam() == "" { // which would mean every team
		return nil, badInput("team: required")
	}
	if m.GetAmountNano() == 0 {
		return nil, badInput("amount_nano: must not be 0")
	}
	id := m.GetId()
	if id == "" {
		var b [12]byte
		_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
		id = hex.EncodeToString(b[:])
	}
	var budget *adminv1.Budget
	find := func(mc *replica.Machine) {
		for _, b := range budgets(mc, m.GetTeam()) {
			if b.GetScope() == registry.ScopeTeam && (budget == nil || b.GetPeriod() >= budget.GetPeriod()) {
				budget = b
			}
		}
	}
	if err := s.read(ctx, find); err != nil {
		return nil, err
	}
	if budget == nil {
		return nil, missing("team %q has no budget", m.GetTeam())
	}
	res, err := s.propose(ctx, &raftlogv1.Op{Op: &raftlogv1.Op_Credit{Credit: &raftlogv1.Credit{
		Resource: budget.GetResource(), Period: budget.GetPeriod(), AmountNano: m.GetAmountNano(),
		Actor: actorOf(ctx, m.GetActor()), Reason: m.GetReason(), Id: id,
	}}})
	if err != nil {
		return nil, err
	}
	switch res.Credit {
	case ledger.CreditGone:
		return nil, missing("the budget's period is not open any more")
	case ledger.CreditInvalid:
		return nil, badInput("amount_nano or id: out of range")
	case ledger.CreditFull:
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("the period has had as many credits as it may"))
	}
	budget = nil
	s.node.View(find)
	return connect.NewResponse(&adminv1.CreditBudgetResponse{Budget: budget}), nil
}

// QueryUsage implements the admin service.
func (s *Service) QueryUsage(ctx context.Context, req *connect.Request[adminv1.QueryUsageRequest]) (*connect.Response[adminv1.QueryUsageResponse], error) {
	now := time.Now().UTC()
	from, err := instant("from", req.Msg.GetFrom(), time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		return nil, err
	}
	to, err := instant("to", req.Msg.GetTo(), now.Add(time.Hour))
	if err != nil {
		return nil, err
	}
	q := rollup.Query{Team: req.Msg.GetTeam(), FromMS: from.UnixMilli(), ToMS: to.UnixMilli()}
	if g := req.Msg.GetGroupBy(); g != "" {
		q.GroupBy = strings.Split(g, ",")
	}
	var rows []rollup.Row
	var qerr error
	if err := s.read(ctx, func(m *replica.Machine) { rows, qerr = m.Rollup.Query(q) }); err != nil {
		return nil, err
	}
	if qerr != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, qerr)
	}
	out := &adminv1.QueryUsageResponse{}
	for _, r := range rows {
		sum := &adminv1.UsageSum{
			Group: map[string]string{}, Attempts: r.Attempts, Requests: r.Requests, Errors: r.Errors, CostNano: r.CostNano,
			Estimated: r.Estimated,
			Tokens: &usagev1.Tokens{
				Input: r.Input, CacheRead: r.CacheRead, CacheWrite_5M: r.CacheWrite5m, CacheWrite_1H: r.CacheWrite1h,
				Output: r.Output, Reasoning: r.Reasoning,
			},
		}
		for _, name := range q.GroupBy {
			sum.Group[name] = r.Value(name)
		}
		out.Rows = append(out.Rows, sum)
	}
	return connect.NewResponse(out), nil
}

func instant(name, s string, otherwise time.Time) (time.Time, error) {
	if s == "" {
		return otherwise, nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, badInput("%s: %q is neither yyyy-mm-dd nor an RFC 3339 time", name, s)
	}
	return t, nil
}
