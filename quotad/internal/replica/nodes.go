package replica

import (
	"cmp"
	"maps"
	"slices"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// Where the nodes are is part of the state, since each of them must tell sidecars and operators where the leader is. Who
// votes is raft's.

// Node tells where a node is; false for one that is not in the cluster, also if it was.
func (m *Machine) Node(id string) (Peer, bool) {
	s, ok := m.nodes[id]
	if !ok || s.GetRemoved() {
		return Peer{ID: id}, false
	}
	return peerOf(s), true
}

// Nodes lists the nodes by id.
func (m *Machine) Nodes() []Peer {
	var out []Peer
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		if s := m.nodes[id]; !s.GetRemoved() {
			out = append(out, peerOf(s))
		}
	}
	return out
}

// Removed says that a node was one of the cluster and is not any more.
func (m *Machine) Removed(id string) bool { return m.nodes[id].GetRemoved() }

func peerOf(s *raftlogv1.NodeState) Peer {
	return Peer{
		ID: s.GetId(), RaftAddress: s.GetRaftAddress(), ClientAddress: s.GetClientAddress(), AdminAddress: s.GetAdminAddress(),
	}
}

func setNodeOp(p Peer) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_SetNode{SetNode: &raftlogv1.SetNode{
		Id: p.ID, RaftAddress: p.RaftAddress, ClientAddress: p.ClientAddress, AdminAddress: p.AdminAddress,
	}}}
}

func removeNodeOp(id string) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_RemoveNode{RemoveNode: &raftlogv1.RemoveNode{Id: id}}}
}

func (m *Machine) setNode(index uint64, n *raftlogv1.SetNode) {
	if n.GetId() == "" || len(n.GetId()) > nodeNameMax {
		return
	}
	if _, known := m.nodes[n.GetId()]; !known && len(m.nodes) >= nodesMax+nodesRemovedMax {
		return
	}
	m.putNode(&raftlogv1.NodeState{
		Id: n.GetId(), RaftAddress: n.GetRaftAddress(), ClientAddress: n.GetClientAddress(), AdminAddress: n.GetAdminAddress(),
		Version: index,
	})
}

// removeNode leaves a mark that the node was here. Of too many marks the oldest goes: its node waits in vain then, and
// is told nothing.
func (m *Machine) removeNode(index uint64, id string) {
	if m.nodes[id] == nil {
		return
	}
	m.putNode(&raftlogv1.NodeState{Id: id, Removed: true, Version: index})
	var gone []*raftlogv1.NodeState
	for _, s := range m.nodes {
		if s.GetRemoved() {
			gone = append(gone, s)
		}
	}
	if len(gone) > nodesRemovedMax {
		oldest := slices.MinFunc(gone, func(a, b *raftlogv1.NodeState) int {
			return cmp.Or(cmp.Compare(a.GetVersion(), b.GetVersion()), cmp.Compare(a.GetId(), b.GetId()))
		})
		delete(m.nodes, oldest.GetId())
		m.touchNode(oldest.GetId())
	}
}

func (m *Machine) putNode(s *raftlogv1.NodeState) {
	m.nodes[s.GetId()] = s
	m.touchNode(s.GetId())
}

// touchNode notes that a node's record changed. Where the leader is is part of what is told of it.
func (m *Machine) touchNode(id string) {
	m.touchedNodes[id] = true
	m.news.Leadership = true
}
