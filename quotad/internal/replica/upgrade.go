package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// While nodes are upgraded one by one, all of them must make the same of the same entries. So the state has a level: it
// is changed by the rules of that level and no other, whatever a node knows besides. The leader raises it, by an entry,
// once every voter has said that it knows more.

// ErrOlderBuild says that what was asked for needs every voter to know it, and that one does not. Nothing was done.
type ErrOlderBuild struct {
	What string // was asked for
	Node string
	Err  error // not nil: the node was asked, and did not answer
}

func (e ErrOlderBuild) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: node %s has not said that it knows that: it may run an older build, and does not answer now (%v)",
			e.What, e.Node, e.Err)
	}
	return fmt.Sprintf("%s: node %s runs an older build: upgrade it first", e.What, e.Node)
}

// Level says by which rules the state is changed: see raftlog.v1.Upgrade.
func (m *Machine) Level() uint32 { return m.level }

// obey sets the level. What follows from the configuration is not defined anew.
func (m *Machine) obey(level uint32) {
	m.level = level
	m.Ledger.Follow(ledger.Rules(level))
}

// raise begins a level: what the configuration has had for longer and the level before made nothing of is defined. It
// changes nothing when that is too much.
func (m *Machine) raise(index uint64, level uint32) error {
	if level <= m.level {
		return nil
	}
	before := m.level
	m.obey(level)
	specs, fair := m.wanted(m.Registry)
	if err := m.Ledger.CheckDefine(index, specs, fair); err != nil {
		m.obey(before)
		return err
	}
	if err := m.Ledger.Define(index, specs, fair); err != nil {
		panic(fmt.Sprintf("BUG: replica: resources refused after they were checked: %v", err))
	}
	m.touchedLevel = true
	m.tellConfig()
	return nil
}

// knows is the highest level that this node knows.
func (n *Node) knows() uint32 {
	if n.cfg.older {
		return 0
	}
	return levelKnown
}

// needs says what in an operation the first level does not know; empty for nothing.
func (n *Node) needs(op *raftlogv1.Op) (what string) {
	switch o := op.GetOp().(type) {
	case *raftlogv1.Op_SetNode, *raftlogv1.Op_RemoveNode:
		return "to change who is in the cluster"
	case *raftlogv1.Op_RestoreChunk, *raftlogv1.Op_RestoreCommit:
		return "to restore"
	case *raftlogv1.Op_Change:
		n.fsm.view(func(m *Machine) { what = m.Registry.Newer(changeOf(o.Change)) })
	}
	return what
}

// allow refuses operations that not every voter knows.
func (n *Node) allow(ctx context.Context, ops []*raftlogv1.Op) error {
	if n.fsm.level.Load() > 0 {
		return nil
	}
	for _, op := range ops {
		if what := n.needs(op); what != "" {
			if lead := n.serving.Load(); lead != nil {
				return n.raise(ctx, lead, what)
			}
			return n.notServing()
		}
	}
	return nil
}

// raise raises the level to what this node knows, or says which voter does not.
func (n *Node) raise(ctx context.Context, l *leadership, what string) error {
	if n.fsm.level.Load() >= n.knows() {
		return nil
	}
	if err := n.behind(ctx, what, ""); err != nil {
		return err
	}
	if err := n.proposeDuty(ctx, l, &raftlogv1.Op{Op: &raftlogv1.Op_Upgrade{Upgrade: &raftlogv1.Upgrade{Level: n.knows()}}}); err != nil {
		return err
	}
	if n.fsm.level.Load() < n.knows() {
		return fmt.Errorf("%s: every node knows that, but the limits of deployments in the configuration make more resources "+
			"than one entry can: take some away until the cluster is upgraded", what)
	}
	n.log.Info("every node knows the rules that hold from now on", zap.Uint32("level", n.knows()))
	return nil
}

// behind names a voter that has not said that it knows what this node knows. Each is asked now: what it said earlier
// counts for nothing, since it may have been replaced.
func (n *Node) behind(ctx context.Context, what, except string) error {
	if n.streams == nil {
		return nil
	}
	said := map[string]answer{}
	for _, a := range n.ask(ctx) {
		said[a.peer.ID] = a
	}
	var silent error
	for _, s := range n.servers() {
		id := string(s.ID)
		if s.Suffrage != raft.Voter || id == n.cfg.ID || id == except {
			continue
		}
		a, asked := said[id]
		if !asked {
			a.err = errors.New("where it is is not known")
		}
		switch {
		case a.err == nil && a.Level >= n.knows():
		case a.err == nil || errors.Is(a.err, errUngreeted):
			return ErrOlderBuild{What: what, Node: id}
		case silent == nil:
			silent = ErrOlderBuild{What: what, Node: id, Err: a.err}
		}
	}
	return silent
}

// upgrade raises the level as soon as every voter knows it, and does what could not be done before.
func (n *Node) upgrade(ctx context.Context, l *leadership) {
	again := time.NewTicker(upgradeEvery)
	defer again.Stop()
	for told := ""; ; {
		err := n.raise(ctx, l, "to go by the rules of this version")
		if err == nil {
			break
		}
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			n.log.Warn("the cluster is of mixed versions", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
	n.recordNodes(ctx, l)
}
