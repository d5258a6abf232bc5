package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
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
		out.Budgets, out.Names = budgets(m, team, team != ""), namesOf(m, team)
	})
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, missing("no team %q", team)
	}
	return connect.NewResponse(out), nil
}

// budgets lists the budgets of a team and its keys, or all; with the credits that were given to each, or without.
func budgets(m *replica.Machine, team string, given bool) []*adminv1.Budget {
	held := heldOf(m)
	var out []*adminv1.Budget
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Kind != ledger.Money || !of(m.Registry, r.Spec, team) {
			continue
		}
		for _, p := range r.Periods {
			b := budgetTo(r, p, held)
			if given {
				b.Given = creditsTo(p.Given)
			}
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *adminv1.Budget) int {
		return cmp.Or(strings.Compare(a.GetScope(), b.GetScope()), strings.Compare(a.GetOwner(), b.GetOwner()),
			-cmp.Compare(a.GetPeriod(), b.GetPeriod()))
	})
	return out
}

func budgetTo(r ledger.Resource, p ledger.BudgetPeriodState, held holds) *adminv1.Budget {
	return &adminv1.Budget{
		Resource: r.ID, Scope: r.Spec.Scope, Owner: r.Spec.Owner, Run: r.Name, Period: p.Period, EndsMs: p.EndsMS,
		CapNano: p.Cap, CreditsNano: p.Credits, SettledNano: p.Settled, OutstandingNano: p.Outstanding,
		HeldNano: held[at{r.ID, p.Period}], SuspenseNano: p.Suspense, FreeNano: p.Free, Hard: r.Spec.Hard,
		Currency: cmp.Or(r.Spec.Currency, "USD"), LimitNano: r.Spec.Limit, PerUsdNano: p.PerUSDNano,
	}
}

func creditsTo(given []ledger.Credit) []*adminv1.Credit {
	out := make([]*adminv1.Credit, len(given))
	for i, c := range given {
		out[i] = &adminv1.Credit{Id: c.ID, AmountNano: c.Amount, AtMs: c.AtMS, Actor: c.Actor, Reason: c.Reason}
	}
	return out
}

// holds are what running requests have reserved: a part of what is outstanding.
type holds map[at]int64

type at struct {
	resource uint64
	period   uint32
}

func heldOf(m *replica.Machine) holds {
	held := holds{}
	for _, member := range m.Ledger.Members() {
		for _, c := range m.Ledger.Counters(member.Incarnation) {
			held[at{c.Resource, c.Period}] += c.Held
		}
	}
	return held
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

const (
	creditIDMax = 128  // bytes
	reasonMax   = 1024 // bytes
	actorMax    = 512  // bytes
)

// CreditBudget implements the admin service.
func (s *Service) CreditBudget(ctx context.Context, req *connect.Request[adminv1.CreditBudgetRequest]) (*connect.Response[adminv1.CreditBudgetResponse], error) {
	m := req.Msg
	switch {
	case m.GetReason() == "":
		return nil, badInput("reason: required: budget show tells it")
	case len(m.GetReason()) > reasonMax:
		return nil, badInput("reason: at most %d bytes", reasonMax)
	case len(actorOf(ctx, m.GetActor())) > actorMax:
		return nil, badInput("actor: at most %d bytes", actorMax)
	case len(m.GetId()) > creditIDMax:
		return nil, badInput("id: at most %d bytes", creditIDMax)
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
	var known bool
	find := func(mc *replica.Machine) {
		budget = creditable(mc, m.GetTeam(), m.GetRun())
		_, known = mc.Registry.Team(m.GetTeam())
	}
	if err := s.read(ctx, find); err != nil {
		return nil, err
	}
	switch {
	case budget == nil && m.GetRun() != "":
		return nil, missing("team %q has no run %q with a budget of money: runs are remembered for the lifetime after their "+
			"last request", m.GetTeam(), m.GetRun())
	case budget == nil && !known:
		return nil, missing("no team %q", m.GetTeam())
	case budget == nil:
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
		return nil, missing("the budget's period is not open any more, or the run is forgotten")
	case ledger.CreditInvalid:
		return nil, badInput("amount_nano: together with the credits of %s that there are it is more than can be counted",
			registry.Nano(budget.GetCreditsNano()).USD())
	case ledger.CreditFull:
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("the period, or the run, has had as many credits as it may"))
	}
	s.node.View(find)
	out := &adminv1.CreditBudgetResponse{Budget: budget, Credit: creditOf(budget, id), Repeated: res.Credit == ledger.CreditRepeated}
	if res.Credit == ledger.CreditOther {
		was := out.GetCredit()
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("id: %q is that of a credit of %s, %s by %s: %q; nothing was done: "+
			"another credit needs another id", id, registry.Nano(was.GetAmountNano()).USD(), time.UnixMilli(was.GetAtMs()).UTC().Format(time.RFC3339),
			was.GetActor(), was.GetReason()))
	}
	return connect.NewResponse(out), nil
}

// creditOf finds a credit of a budget; nil when no more than its id is known.
func creditOf(b *adminv1.Budget, id string) *adminv1.Credit {
	for _, c := range b.GetGiven() {
		if c.GetId() == id {
			return c
		}
	}
	return nil
}

// creditable is the open budget of a team, or of one of its runs; nil when there is none.
func creditable(m *replica.Machine, team, run string) *adminv1.Budget {
	if run != "" {
		kid, ok := m.Ledger.Child(templateOf(m, registry.ScopeRun, team, ledger.Money), run)
		if open, known := kid.Open(); ok && known {
			b := budgetTo(kid, open, heldOf(m))
			b.Given = creditsTo(open.Given)
			return b
		}
		return nil
	}
	for _, b := range budgets(m, team, true) { // of one owner, the newest period comes first
		if b.GetScope() == registry.ScopeTeam {
			return b
		}
	}
	return nil
}
