package api

import (
	"context"
	"encoding/hex"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// Status implements the admin service. It answers on every node, from what that node knows.
func (s *Service) Status(_ context.Context, req *connect.Request[adminv1.StatusRequest]) (*connect.Response[adminv1.StatusResponse], error) {
	st := s.node.Status()
	leader, _, leaderAdmin, self := s.node.Leader()
	out := &adminv1.StatusResponse{
		ClusterId: st.ClusterID, NodeId: st.NodeID, LeaderId: leader, Term: st.Term, Applied: st.Applied,
		ConfigVersion: st.ConfigVersion, ConservationViolations: int64(st.Violations), Build: s.cfg.Build,
		LeaderAdminAddress: leaderAdmin, Epoch: st.Epoch, Members: s.members(),
	}
	if req.Msg.GetHash() {
		index, sum := s.node.StateHash()
		out.Applied, out.StateHash = index, hex.EncodeToString(sum[:])
	}
	if s.cfg.Certificate != nil {
		problem, ends := s.cfg.Certificate()
		if out.TlsProblem = problem; !ends.IsZero() {
			out.TlsEndsMs = ends.UnixMilli()
		}
	}
	if self {
		out.Sidecars = s.sidecars.Sidecars()
	}
	connected := map[uint64]bool{}
	for _, c := range out.GetSidecars() {
		connected[c.GetIncarnation()] = true
	}
	s.node.View(func(m *replica.Machine) {
		for _, member := range m.Ledger.Members() {
			if connected[member.Incarnation] || member.Fenced {
				continue
			}
			state := "silent"
			switch {
			case member.Left:
				state = "left"
			case member.Lapsed:
				state = "lapsed"
			}
			out.Sidecars = append(out.Sidecars, &adminv1.SidecarStatus{
				Identity: member.Identity, Incarnation: member.Incarnation, State: state, LastRenewMs: -1,
			})
		}
	})
	return connect.NewResponse(out), nil
}
