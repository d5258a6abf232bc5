package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

// Refusals to change who is in the cluster. Nothing was done.
var (
	// ErrUnknownNode: no node is called so.
	ErrUnknownNode = errors.New("no node of the cluster is called")
	// ErrAddressTaken: another node is at one of the addresses.
	ErrAddressTaken = errors.New("another node is at that address")
	// ErrLastVoter: without it there would be no cluster.
	ErrLastVoter = errors.New("it is the only voter: without it there is no cluster")
	// ErrNoQuorum: too few of the others answer.
	ErrNoQuorum = errors.New("too few of the other voters answer: without it the cluster would stand still")
	// ErrOwnAddress: the cluster consists of a node of which only it knows where it is.
	ErrOwnAddress = errors.New("others cannot reach it")
)

// probe asks whoever is at an address which node it is and of which cluster.
func (n *Node) probe(ctx context.Context, id, address string) (greeting, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, answer, err := n.streams.meet(ctx, id, address)
	if err == nil {
		_ = c.Close()
	}
	return answer, err
}

// answer is what a peer said of itself.
type answer struct {
	peer Peer
	greeting
	err error
}

// ask probes every other node that is configured or in the log, at once.
func (n *Node) ask(ctx context.Context) []answer {
	var out []answer
	var wg sync.WaitGroup
	for _, p := range n.others() {
		out = append(out, answer{peer: p})
	}
	for i := range out {
		wg.Go(func() {
			a := &out[i]
			for _, address := range n.streams.book.addresses(a.peer.ID) {
				if a.greeting, a.err = n.probe(ctx, a.peer.ID, address); a.err == nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return out
}

// others lists every other node that is known.
func (n *Node) others() []Peer {
	seen := map[string]bool{n.cfg.ID: true}
	var out []Peer
	add := func(p Peer) {
		if !seen[p.ID] {
			seen[p.ID] = true
			out = append(out, p)
		}
	}
	n.fsm.view(func(m *Machine) {
		for _, p := range m.Nodes() {
			add(p)
		}
	})
	for _, p := range n.cfg.Peers {
		add(p)
	}
	return out
}

// peer tells where a node is, as far as it is known.
func (n *Node) peer(id string) (Peer, bool) { return n.book.peer(id) }

// wasRemoved notes that a peer says so. Run ends.
func (n *Node) wasRemoved() { n.removedOnce.Do(func() { close(n.removed) }) }

// runMembership ends the node when it was removed. A node that is not in the configuration may be one that was removed,
// or one that is being added and has not heard of it yet; one that hears of no leader may have been removed before it was
// told. The others know.
func (n *Node) runMembership(ctx context.Context) error {
	look := time.NewTicker(membershipEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.removed:
			return ErrRemoved
		case <-look.C:
			if n.streams == nil {
				continue
			}
			servers := n.servers()
			_, leader := n.raft.LeaderWithID()
			if len(servers) > 0 && (leader == "" || find(servers, n.cfg.ID) == nil) {
				n.ask(ctx) // who refuses is heard
			}
		}
	}
}

// servers is raft's configuration.
func (n *Node) servers() []raft.Server {
	future := n.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

func find(servers []raft.Server, id string) *raft.Server {
	for i := range servers {
		if string(servers[i].ID) == id {
			return &servers[i]
		}
	}
	return nil
}

func voters(servers []raft.Server) (n int) {
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

func (n *Node) addMember(ctx context.Context, p Peer) error {
	if n.serving.Load() == nil {
		return n.notServing()
	}
	servers := n.servers()
	if err := n.checkAddresses(p, servers); err != nil {
		return err
	}
	if p.ID != n.cfg.ID && n.streams != nil {
		answer, err := n.probe(ctx, p.ID, p.RaftAddress)
		switch {
		case errors.Is(err, errOtherNode):
			return fmt.Errorf("%s at %s: %w", p.ID, p.RaftAddress, ErrAddressTaken)
		case errors.Is(err, ErrOtherCluster), errors.Is(err, errNotPeer):
			return fmt.Errorf("%s at %s: %w: %w", p.ID, p.RaftAddress, ErrAddressTaken, err)
		}
		if errors.Is(err, errUngreeted) || err == nil && answer.Level < n.fsm.level.Load() {
			return ErrOlderBuild{What: "to add a node", Node: p.ID}
		}
		// One that does not answer yet may be started later: it does not count before it has caught up.
	}
	var known Peer
	n.View(func(m *Machine) { known, _ = m.Node(p.ID) })
	if known != p {
		if _, err := n.Propose(ctx, setNodeOp(p)); err != nil {
			return err
		}
	}
	id, address := raft.ServerID(p.ID), raft.ServerAddress(p.RaftAddress)
	switch s := find(servers, p.ID); {
	case s == nil, s.Suffrage != raft.Voter && s.Address != address:
		return n.reconfigure(ctx, n.raft.AddNonvoter(id, address, 0, enqueueTimeout))
	case s.Address != address:
		return n.reconfigure(ctx, n.raft.AddVoter(id, address, 0, enqueueTimeout))
	}
	return nil
}

// checkAddresses refuses addresses at which another node is.
func (n *Node) checkAddresses(p Peer, servers []raft.Server) error {
	var nodes []Peer
	n.View(func(m *Machine) { nodes = m.Nodes() })
	for _, s := range servers {
		nodes = append(nodes, Peer{ID: string(s.ID), RaftAddress: string(s.Address)})
	}
	for _, other := range nodes {
		switch {
		case other.ID == p.ID:
		case other.RaftAddress == p.RaftAddress, other.ClientAddress == p.ClientAddress, other.AdminAddress == p.AdminAddress:
			return fmt.Errorf("%s: %w: %s", p.ID, ErrAddressTaken, other.ID)
		}
	}
	if p.ID == n.cfg.ID {
		return nil
	}
	own, _ := n.peer(n.cfg.ID)
	if host, _, err := net.SplitHostPort(own.RaftAddress); err != nil || host == "" {
		return fmt.Errorf("%s is at %q: %w: first `quotad member add %s=HOST`", n.cfg.ID, own.RaftAddress, ErrOwnAddress, n.cfg.ID)
	}
	return nil
}

// reconfigure waits for a change of raft's configuration.
func (n *Node) reconfigure(ctx context.Context, future raft.IndexFuture) error {
	err := n.awaitCtx(ctx, future.Error)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return n.notServing()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNoLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrBusy
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

func (n *Node) removeMember(ctx context.Context, id string, force bool) error {
	lead := n.serving.Load()
	if lead == nil {
		return n.notServing()
	}
	servers := n.servers()
	s := find(servers, id)
	var known, removed bool
	n.View(func(m *Machine) {
		_, known = m.Node(id)
		removed = m.Removed(id)
	})
	switch {
	case s == nil && removed:
		return nil
	case s == nil && !known:
		return fmt.Errorf("%w %.64q", ErrUnknownNode, id)
	case s != nil && s.Suffrage == raft.Voter:
		err := n.mayLose(servers, id, force)
		// A new leader has not heard of everybody yet.
		for errors.Is(err, ErrNoQuorum) && fault.Now().Sub(lead.since) < silentAfter && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(quorumRetryEvery):
			}
			err = n.mayLose(servers, id, force)
		}
		if err != nil {
			return err
		}
	}
	if n.fsm.level.Load() == 0 {
		if err := n.behind(ctx, "to remove a node", id); err != nil {
			return err
		}
	}
	if id == n.cfg.ID {
		return n.yield(ctx)
	}
	if s != nil {
		if err := n.reconfigure(ctx, n.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout)); err != nil {
			return err
		}
	}
	ops := []*raftlogv1.Op{removeNodeOp(id)}
	if p, ok := n.peer(id); ok && !known {
		ops = append([]*raftlogv1.Op{setNodeOp(p)}, ops...) // what was never there leaves no mark
	}
	_, err := n.Propose(ctx, ops...)
	return err
}

// mayLose refuses to lose a voter when the others could not go on.
func (n *Node) mayLose(servers []raft.Server, id string, force bool) error {
	left, alive := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter || string(s.ID) == id {
			continue
		}
		left++
		if string(s.ID) == n.cfg.ID || time.Since(n.gate.seen(string(s.ID)).at) < silentAfter {
			alive++
		}
	}
	switch {
	case left == 0:
		return fmt.Errorf("%s: %w", id, ErrLastVoter)
	case alive <= left/2 && !force:
		return fmt.Errorf("%s: %w: %d of %d", id, ErrNoQuorum, alive, left)
	}
	return nil
}

// yield hands leadership over, so that another node can do what this one cannot do to itself: the error names it.
func (n *Node) yield(ctx context.Context) error {
	if err := n.awaitCtx(ctx, func() error { return n.raft.LeadershipTransfer().Error() }); err != nil {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	changes := n.Watch(ctx)
	for {
		if id, _, _, _ := n.leader(); id != "" && id != n.cfg.ID {
			return n.notServing()
		}
		if _, more := <-changes; !more {
			return ErrNoLeader
		}
	}
}

// promote lets nodes vote that have caught up: before that they would only be missed.
func (n *Node) promote(ctx context.Context) {
	for _, s := range n.servers() {
		seen := n.gate.seen(string(s.ID))
		if s.Suffrage == raft.Voter || time.Since(seen.at) > silentAfter || seen.lag > promoteLagMax {
			continue
		}
		limited, cancel := context.WithTimeoutCause(ctx, dutyTimeout, errTimeout)
		err := n.reconfigure(limited, n.raft.AddVoter(s.ID, s.Address, 0, enqueueTimeout))
		cancel()
		n.log.Info("node has caught up and votes", zap.String("node", string(s.ID)), zap.Error(err))
	}
}

// recordNodes writes down where the nodes are that the log does not know of: those of a new cluster, or of one that was
// made by a version that did not write it down.
func (n *Node) recordNodes(ctx context.Context, l *leadership) {
	var ops []*raftlogv1.Op
	if n.fsm.level.Load() == 0 {
		return
	}
	for _, s := range n.servers() {
		var known bool
		n.fsm.view(func(m *Machine) { _, known = m.Node(string(s.ID)) })
		if p, ok := n.peer(string(s.ID)); !known && ok {
			ops = append(ops, setNodeOp(p))
		}
	}
	if len(ops) > 0 {
		_ = n.proposeDuty(ctx, l, ops...) // its failure is logged; the next leader does it
	}
}
