package api

import (
	"cmp"
	"context"
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
	out := &adminv1.ListRunsResponse{}
	known := false
	err := s.read(ctx, func(m *replica.Machine) {
		if _, known = m.Registry.Team(team); known {
			out.Runs = runs(m, team)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, missing("no team %q", team)
	}
	out.Total = int64(len(out.GetRuns()))
	out.Runs = out.GetRuns()[:min(limit, len(out.GetRuns()))]
	return connect.NewResponse(out), nil
}

// runs lists a team's runs, those that spent most first. A run has a budget of money, one of calls, or both.
func runs(m *replica.Machine, team string) []*adminv1.Run {
	held := heldOf(m)
	byID := map[string]*adminv1.Run{}
	for _, kind := range [...]ledger.Kind{ledger.Money, ledger.Calls} {
		for _, kid := range children(m, registry.ScopeRun, team, kind) {
			open, ok := kid.Open()
			if !ok {
				continue
			}
			idle := max(0, m.Ledger.Now()-kid.UsedMS)
			r := byID[kid.Name]
			if r == nil {
				r = &adminv1.Run{Id: kid.Name, IdleMs: idle}
				byID[kid.Name] = r
			}
			r.IdleMs = min(r.GetIdleMs(), idle)
			running := held[at{kid.ID, open.Period}]
			if kind == ledger.Calls {
				r.Calls, r.MaxCalls = open.Settled+running+open.Suspense, open.Cap
				continue
			}
			r.SettledNano, r.OutstandingNano, r.HeldNano, r.SuspenseNano = open.Settled, open.Outstanding, running, open.Suspense
			r.FreeNano, r.CapNano, r.CreditsNano = open.Free, open.Cap, open.Credits
		}
	}
	out := make([]*adminv1.Run, 0, len(byID))
	for _, r := range byID {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *adminv1.Run) int {
		return cmp.Or(-cmp.Compare(a.GetSettledNano(), b.GetSettledNano()), -cmp.Compare(a.GetCalls(), b.GetCalls()),
			strings.Compare(a.GetId(), b.GetId()))
	})
	return out
}

// children lists those of a resource that is one for each name.
func children(m *replica.Machine, scope, owner string, kind ledger.Kind) []ledger.Resource {
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Scope == scope && r.Spec.Owner == owner && r.Spec.Kind == kind {
			return m.Ledger.Children(r.ID)
		}
	}
	return nil
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
