package replica

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

func (n *Node) status() Status {
	_, leader := n.raft.LeaderWithID()
	s := Status{
		NodeID: n.cfg.ID, State: strings.ToLower(n.raft.State().String()), Serving: n.serving.Load() != nil,
		Stalled: n.watch.stalled(), Term: n.raft.CurrentTerm(), LastIndex: n.raft.LastIndex(),
		CommitIndex: n.raft.CommitIndex(), LeaderID: string(leader), Flush: n.store.State().Stats(),
	}
	n.fsm.view(func(m *Machine) {
		s.ClusterID, s.Epoch, s.ConfigVersion, s.NowMS = m.ClusterID(), m.Epoch(), m.ConfigVersion(), m.Ledger.Now()
		s.Applied, s.Violations = n.fsm.applied, n.fsm.violations
	})
	s.Members = n.members(s)
	return s
}

// members lists the cluster's nodes, as raft has them; before it has any, as they are configured.
func (n *Node) members(s Status) []MemberStatus {
	var out []MemberStatus
	for _, srv := range n.servers() {
		m := MemberStatus{Voter: srv.Suffrage == raft.Voter}
		var ok bool
		if m.Peer, ok = n.peer(string(srv.ID)); !ok {
			m.RaftAddress = string(srv.Address)
		}
		out = append(out, m)
	}
	if out == nil {
		for _, p := range n.cfg.Peers {
			out = append(out, MemberStatus{Peer: p})
		}
	}
	for i := range out {
		m := &out[i]
		m.Self, m.Leader = m.ID == n.cfg.ID, m.ID == s.LeaderID && s.LeaderID != ""
		if seen := n.gate.seen(m.ID); s.State == "leader" && !m.Self && !seen.at.IsZero() {
			m.LastContact, m.Lag = seen.at, seen.lag
		}
	}
	slices.SortFunc(out, func(a, b MemberStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
