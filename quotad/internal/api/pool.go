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

var kindNames = map[ledger.Kind]string{
	ledger.Requests: "requests", ledger.InputTokens: "input_tokens", ledger.OutputTokens: "output_tokens",
	ledger.TotalTokens: "total_tokens",
}

// ShowPools implements the admin service.
func (s *Service) ShowPools(ctx context.Context, req *connect.Request[adminv1.ShowPoolsRequest]) (*connect.Response[adminv1.ShowPoolsResponse], error) {
	out := &adminv1.ShowPoolsResponse{}
	deployment := req.Msg.GetDeployment()
	known := deployment == ""
	err := s.read(ctx, func(m *replica.Machine) {
		known = known || len(m.Registry.Objects(registry.KindDeployment, deployment)) > 0
		out.Pools = pools(m, deployment)
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, missing("no deployment %q", deployment)
	}
	return connect.NewResponse(out), nil
}

// pools lists the rented limits of a deployment, or of all.
func pools(m *replica.Machine, deployment string) []*adminv1.Pool {
	var out []*adminv1.Pool
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Each != ledger.EachClaimant || deployment != "" && r.Spec.Owner != deployment {
			continue
		}
		p := &adminv1.Pool{
			Resource: r.ID, Deployment: r.Spec.Owner, Kind: kindNames[r.Spec.Kind], Limit: r.Spec.Limit, Level: r.Level,
			Sidecars: r.Sharers, LapsedShares: r.LapsedShares,
		}
		for _, kid := range m.Ledger.Children(r.ID) {
			c := &adminv1.Claimant{SetAside: kid.SetAside, Outstanding: kid.Outstanding, Held: kid.Outstanding - kid.Idle}
			c.Class, c.Team, _ = strings.Cut(kid.Name, "/")
			p.Outstanding += c.GetOutstanding()
			p.Held += c.GetHeld()
			p.Claimants = append(p.Claimants, c)
		}
		slices.SortFunc(p.GetClaimants(), func(a, b *adminv1.Claimant) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.GetTeam(), b.GetTeam()))
		})
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *adminv1.Pool) int {
		return cmp.Or(strings.Compare(a.GetDeployment(), b.GetDeployment()), strings.Compare(a.GetKind(), b.GetKind()))
	})
	return out
}

// rank puts the highest class first, and what is none last.
func rank(c *adminv1.Claimant) int {
	if i := slices.Index(registry.Classes(), c.GetClass()); i >= 0 {
		return i
	}
	return len(registry.Classes())
}
