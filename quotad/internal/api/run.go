package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

const (
	runsDefault = 50
	runsMax     = 1000
)

// ListRuns implements the admin service.
func (s *Service) ListRuns(ctx context.Context, req *connect.Request[adminv1.ListRunsRequest]) (*connect.Response[adminv1.ListRunsResponse], error) {
	limit := int(req.Msg.GetLimit())
	switch {
	case limit == 0:
		limit = runsDefault
	case limit < 0 || limit > runsMax:
		return nil, badInput("limit: must be 1 to %d", runsMax)
	}
	team := req.Msg.GetTeam()
	var known bool
	var found runs
	err := s.read(ctx, func(m *replica.Machine) {
		if _, known = m.Registry.Team(team); known {
			found = runsOf(m, team)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, missing("no team %q", team)
	}
	all := found.list()
	return connect.NewResponse(&adminv1.ListRunsResponse{Total: int64(len(all)), Runs: all[:min(limit, len(all))]}), nil
}

// runs are a team's, as the ledger has them: each has a budget of money, one of calls, or both. There may be many, so
// they are put in order when the ledger is free again.
type runs struct {
	money, calls []ledger.Resource
	held         holds
	now          int64
}

func runsOf(m *replica.Machine, team string) runs {
	return runs{
		money: m.Ledger.Children(templateOf(m, registry.ScopeRun, team, ledger.Money)),
		calls: m.Ledger.Children(templateOf(m, registry.ScopeRun, team, ledger.Calls)),
		held:  heldOf(m), now: m.Ledger.Now(),
	}
}

// templateOf finds a resource that is one for each name; 0 is none.
func templateOf(m *replica.Machine, scope, owner string, kind ledger.Kind) uint64 {
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Scope == scope && r.Spec.Owner == owner && r.Spec.Kind == kind {
			return r.ID
		}
	}
	return 0
}

// list puts those that spent most first.
func (rs runs) list() []*adminv1.Run {
	byID := make(map[string]*adminv1.Run, max(len(rs.money), len(rs.calls)))
	each := func(kids []ledger.Resource, fill func(r *adminv1.Run, open ledger.BudgetPeriodState, held int64)) {
		for _, kid := range kids {
			open, ok := kid.Open()
			if !ok {
				continue
			}
			idle := max(0, rs.now-kid.UsedMS)
			r := byID[kid.Name]
			if r == nil {
				r = &adminv1.Run{Id: kid.Name, IdleMs: idle}
				byID[kid.Name] = r
			}
			r.IdleMs = min(r.GetIdleMs(), idle)
			fill(r, open, rs.held[at{kid.ID, open.Period}])
		}
	}
	each(rs.money, func(r *adminv1.Run, open ledger.BudgetPeriodState, held int64) {
		r.SettledNano, r.OutstandingNano, r.HeldNano, r.SuspenseNano = open.Settled, open.Outstanding, held, open.Suspense
		r.FreeNano, r.CapNano, r.CreditsNano, r.Given = open.Free, open.Cap, open.Credits, creditsTo(open.Given)
	})
	each(rs.calls, func(r *adminv1.Run, open ledger.BudgetPeriodState, held int64) {
		r.Calls, r.MaxCalls = open.Settled+held+open.Suspense, open.Cap
	})
	return slices.SortedFunc(maps.Values(byID), func(a, b *adminv1.Run) int {
		return cmp.Or(-cmp.Compare(a.GetSettledNano(), b.GetSettledNano()), -cmp.Compare(a.GetCalls(), b.GetCalls()),
			strings.Compare(a.GetId(), b.GetId()))
	})
}

// namesOf counts the runs and end users of a team, or of all that have some.
func namesOf(m *replica.Machine, team string) []*adminv1.TeamNames {
	byTeam := map[string]*adminv1.TeamNames{}
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Each != ledger.EachName || team != "" && r.Spec.Owner != team {
			continue
		}
		t := byTeam[r.Spec.Owner]
		if t == nil {
			t = &adminv1.TeamNames{Team: r.Spec.Owner}
			byTeam[r.Spec.Owner] = t
		}
		// A name that several resources know is one.
		count := int64(r.Children)
		if r.Spec.Scope == registry.ScopeRun {
			t.Runs = max(t.GetRuns(), count)
		} else {
			t.EndUsers = max(t.GetEndUsers(), count)
		}
	}
	out := make([]*adminv1.TeamNames, 0, len(byTeam))
	for _, t := range byTeam {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *adminv1.TeamNames) int { return strings.Compare(a.GetTeam(), b.GetTeam()) })
	return out
}
