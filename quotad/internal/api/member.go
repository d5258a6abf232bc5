package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// ListMembers implements the admin service.
func (s *Service) ListMembers(ctx context.Context, _ *connect.Request[adminv1.ListMembersRequest]) (*connect.Response[adminv1.ListMembersResponse], error) {
	if err := s.node.Linearizable(ctx); err != nil {
		return nil, s.failed(err)
	}
	return connect.NewResponse(&adminv1.ListMembersResponse{Members: s.members()}), nil
}

// AddMember implements the admin service.
func (s *Service) AddMember(ctx context.Context, r *connect.Request[adminv1.AddMemberRequest]) (*connect.Response[adminv1.AddMemberResponse], error) {
	m := r.Msg
	if err := replica.CheckNodeID(m.GetId()); err != nil {
		return nil, badInput("id: %w", err)
	}
	for _, a := range [...]struct{ field, address string }{
		{"raft_address", m.GetRaftAddress()}, {"sidecar_address", m.GetSidecarAddress()}, {"admin_address", m.GetAdminAddress()},
	} {
		if err := replica.CheckAddress(a.address); err != nil {
			return nil, badInput("%s: %w", a.field, err)
		}
	}
	err := s.node.AddMember(ctx, replica.Peer{
		ID: m.GetId(), RaftAddress: m.GetRaftAddress(), ClientAddress: m.GetSidecarAddress(), AdminAddress: m.GetAdminAddress(),
	})
	if err != nil {
		return nil, s.memberFailed(err)
	}
	for _, p := range s.members() {
		if p.GetId() == m.GetId() {
			return connect.NewResponse(&adminv1.AddMemberResponse{Member: p}), nil
		}
	}
	return nil, missing("%s was removed meanwhile", m.GetId())
}

// RemoveMember implements the admin service.
func (s *Service) RemoveMember(ctx context.Context, r *connect.Request[adminv1.RemoveMemberRequest]) (*connect.Response[adminv1.RemoveMemberResponse], error) {
	if r.Msg.GetId() == "" {
		return nil, badInput("id: required")
	}
	if err := s.node.RemoveMember(ctx, r.Msg.GetId(), r.Msg.GetForce()); err != nil {
		return nil, s.memberFailed(err)
	}
	return connect.NewResponse(&adminv1.RemoveMemberResponse{Members: s.members()}), nil
}

func (s *Service) memberFailed(err error) error {
	switch {
	case errors.Is(err, replica.ErrAddressTaken):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, replica.ErrUnknownNode):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("id: %w", err))
	case errors.Is(err, replica.ErrNoQuorum):
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%w (--force removes it all the same)", err))
	case errors.Is(err, replica.ErrLastVoter), errors.Is(err, replica.ErrOwnAddress):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return s.failed(err)
}

// members lists the nodes as this one sees them.
func (s *Service) members() []*adminv1.Member {
	st := s.node.Status()
	_, _, _, self := s.node.Leader()
	var out []*adminv1.Member
	for _, m := range st.Members {
		p := &adminv1.Member{
			Id: m.ID, RaftAddress: m.RaftAddress, SidecarAddress: m.ClientAddress, AdminAddress: m.AdminAddress,
			Leader: m.Leader, Voter: m.Voter, Lag: -1, LastContactMs: -1,
		}
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
		out = append(out, p)
	}
	return out
}
