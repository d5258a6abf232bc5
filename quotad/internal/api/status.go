package api

import (
	"context"
	"encoding/hex"
	"time"

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
		ConfigVersion: st.ConfigVersion, ConservationViolations: int64(st.Violations), Build: s.build,
		LeaderAdminAddress: leaderAdmin,
	}
	if req.Msg.GetHash() {
		index, sum := s.node.StateHash()
		out.Applied, out.StateHash = index, hex.EncodeToString(sum[:])
	}
	for _, m := range st.Members {
		p := &adminv1.Member{Id: m.ID, RaftAddress: m.RaftAddress, Leader: m.Leader, Voter: m.Voter, Lag: -1, LastContactMs: -1}
		if m.Self {
			// Applied was looked at later and may be ahead.
			p.Lag = max(0, int64(st.LastIndex)-int64(st.Applied))
		}
		switch {
		case self && m.Self:
			p.LastContactMs = 0
		case self && !m.LastContact.IsZero():
			p.Lag, p.LastContactMs = int64(m.Lag), max(0, time.Since(m.LastContact).Milliseconds())
		}
		out.Members = append(out.Members, p)
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
