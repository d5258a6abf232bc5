package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-gateway/sluice/quotad/internal/fault"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// Node is one node of the cluster. Its methods may be called from any goroutine.
type Node struct {
	cfg   Config
	log   *zap.Logger
	store *store.Store
	fsm   *fsm
	hub   *hub
	raft  *raft.Raft
	gate  *gate
	book  *book
	// streams is nil when the configuration brought a transport of its own.
	streams *streams
	watch   *stallWatch
	batch   *batcher
	reads   chan chan error

	// serving is the leadership in force; nil while this node does not lead or is not ready.
	serving atomic.Pointer[leadership]
	stopped chan struct{} // closed when Run has ended, or Close was called without it
	stop    func()        // closes stopped, once
	// futures counts goroutines that wait for raft. They end with raft, in Close.
	futures sync.WaitGroup

	removed     chan struct{} // closed when a peer says that this node was removed
	removedOnce sync.Once
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	fill := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	fill(&c.HeartbeatTimeout, 350*time.Millisecond)
	fill(&c.ElectionTimeout, 350*time.Millisecond)
	fill(&c.LeaderLeaseTimeout, 200*time.Millisecond)
	fill(&c.FlushEvery, flushEvery/time.Duration(fault.Often()))
	c.disk = c.disk.withDefaults()
	if c.Listen == nil {
		c.Listen = net.Listen
	}
	if c.Dial == nil {
		c.Dial = fault.Dial
	}
	c.Ledger = c.Ledger.WithDefaults()
	// Every node must bootstrap the same configuration, byte for byte.
	c.Peers = slices.Clone(c.Peers)
	slices.SortFunc(c.Peers, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	return c
}

// Validate reports all faults together.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("replica: "+format, args...)) }
	if c.ID == "" {
		fault("id is not set")
	}
	if c.DataDir == "" {
		fault("data directory is not set")
	}
	if c.Transport == nil && c.RaftListen == "" {
		fault("no address to listen on for peers")
	}
	if c.LeaderLeaseTimeout > c.HeartbeatTimeout || c.ElectionTimeout < c.HeartbeatTimeout {
		fault("timeouts must be: leader lease <= heartbeat <= election")
	}
	ids, addresses := map[string]bool{}, map[string]bool{}
	for _, p := range c.Peers {
		if p.ID == "" || p.RaftAddress == "" {
			fault("peer %q at %q: id and raft address must be set", p.ID, p.RaftAddress)
		}
		if ids[p.ID] || addresses[p.RaftAddress] {
			fault("peer %q at %q: id or raft address is there twice", p.ID, p.RaftAddress)
		}
		ids[p.ID], addresses[p.RaftAddress] = true, true
	}
	if len(c.Peers) > 0 && !ids[c.ID] && c.Bootstrap {
		fault("%q is not among the peers", c.ID)
	}
	return errors.Join(errs...)
}

// advertise returns the address peers reach this node at.
func (c Config) advertise(l net.Listener) string {
	if c.RaftAdvertise != "" {
		return c.RaftAdvertise
	}
	for _, p := range c.Peers {
		if p.ID == c.ID {
			return p.RaftAddress
		}
	}
	return l.Addr().String()
}

func open(cfg Config, log *zap.Logger) (_ *Node, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	st, err := store.Open(store.Config{Dir: cfg.DataDir, NodeID: cfg.ID, Build: cfg.Build, CompactBytes: cfg.disk.compact, FlushEvery: cfg.FlushEvery}, log)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	n := &Node{
		cfg: cfg, log: log, store: st, hub: newHub(), watch: newStallWatch(), batch: newBatcher(),
		reads: make(chan chan error, readsQueuedMax), stopped: make(chan struct{}), removed: make(chan struct{}),
	}
	n.stop = sync.OnceFunc(func() { close(n.stopped) })
	n.fsm = newFSM(cfg, st, n.hub, log)
	n.fsm.decoder.knows = n.knows()
	n.fsm.restored = func() { n.watch.blank.Store(false) }
	if err := n.start(); err != nil {
		if n.gate != nil {
			err = errors.Join(err, n.gate.Close())
		}
		return nil, errors.Join(err, st.Close())
	}
	return n, nil
}

// start loads the state and starts raft.
func (n *Node) start() error {
	if err := n.fsm.load(); err != nil {
		return fmt.Errorf("%s: load state.db: %w", n.cfg.DataDir, err)
	}
	var cluster string
	n.fsm.view(func(m *Machine) { cluster = m.GroupID() })
	if cluster != "" {
		if err := n.store.SetClusterID(cluster); err != nil {
			return err
		}
	}
	restore, err := n.store.SnapshotNeeded()
	if err != nil {
		return err
	}
	known, err := raft.HasExistingState(n.store.Log(), n.store.Stable(), n.store.Snapshots())
	if err != nil {
		return fmt.Errorf("look for existing state: %w", err)
	}
	n.watch.blank.Store(!known)
	n.book = newBook(n.cfg.Peers, n.logged)
	transport := n.cfg.Transport
	if transport == nil {
		n.streams = &streams{
			dial: n.cfg.Dial, tls: n.cfg.TLS, book: n.book, self: n.greeting, refused: n.refusedBy,
			first:   func() bool { return n.fsm.level.Load() == 0 },
			removed: func(id string) (is bool) { n.fsm.view(func(m *Machine) { is = m.Removed(id) }); return is },
		}
		if transport, err = newTransport(n.cfg, n.streams, n.log); err != nil {
			return err
		}
	}
	n.gate = newGate(transport, n.watch, n.cfg.ID)
	if len(n.cfg.Peers) == 0 && n.cfg.Bootstrap {
		n.cfg.Peers = []Peer{{ID: n.cfg.ID, RaftAddress: string(transport.LocalAddr())}}
		n.book.configured[n.cfg.ID] = n.cfg.Peers[0]
	}
	logs := n.store.Log()
	if n.cfg.wrapLog != nil {
		logs = n.cfg.wrapLog(logs)
	}
	cache, err := raft.NewLogCache(logCacheEntries, watchedLog{LogStore: logs, watch: n.watch})
	if err != nil {
		return fmt.Errorf("make log cache: %w", err)
	}
	n.raft, err = raft.NewRaft(n.raftConfig(restore), n.fsm, cache, n.store.Stable(), n.store.Snapshots(), n.gate)
	if err != nil {
		return fmt.Errorf("start raft with the snapshots in %s: %w", filepath.Join(n.store.Dir(), "snapshots"), err)
	}
	return nil
}

// logged tells where a node is by the log.
func (n *Node) logged(id string) (p Peer, ok bool) {
	n.fsm.view(func(m *Machine) { p, ok = m.Node(id) })
	return p, ok
}

// greeting is what this node says of itself to peers.
func (n *Node) greeting() greeting {
	return greeting{ID: n.cfg.ID, Group: n.store.ClusterID(), Level: n.knows()}
}

// refusedBy hears that a peer wants nothing to do with this node.
func (n *Node) refusedBy(peer string, err error) {
	if errors.Is(err, ErrRemoved) {
		n.wasRemoved()
		return
	}
	n.log.Error("a peer refuses this node", zap.String("peer", peer), zap.Error(err))
}

func (n *Node) raftConfig(restore bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = n.cfg.HeartbeatTimeout, n.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = n.cfg.LeaderLeaseTimeout
	often := fault.Often()
	c.SnapshotThreshold, c.TrailingLogs = uint64(snapshotEntries/often), uint64(trailingEntries/often)
	c.SnapshotInterval = snapshotEvery / time.Duration(often)
	c.NoSnapshotRestoreOnStart = !restore
	c.NoLegacyTelemetry = true
	c.Logger = store.HCLog(n.log, "raft")
	return c
}

func (n *Node) run(ctx context.Context) error {
	defer n.stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.store.Run(ctx) })
	g.Go(func() error { n.runBatcher(ctx); return nil })
	g.Go(func() error { n.runReads(ctx); return nil })
	g.Go(func() error { return n.runLeadership(ctx) })
	g.Go(func() error { return n.bootstrap(ctx) })
	g.Go(func() error { return n.runMembership(ctx) })
	g.Go(func() error { return n.runDisk(ctx) })
	g.Go(func() error { return n.runHalt(ctx) })
	err := g.Wait()
	n.serving.Store(nil)
	n.batch.abandon()
	return err
}

// runHalt waits for what ends a node before its time.
func (n *Node) runHalt(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.fsm.haltedCh:
			n.fsm.mu.RLock()
			defer n.fsm.mu.RUnlock()
			return n.fsm.halted
		case <-n.fsm.clusterCh:
			var cluster string
			n.fsm.view(func(m *Machine) { cluster = m.GroupID() })
			switch err := n.store.SetClusterID(cluster); {
			case errors.Is(err, store.ErrOtherCluster):
				return fmt.Errorf("replica: %w", err)
			case err != nil:
				// It is tried again after the next entry, and checked at the next start.
				n.log.Error("cluster id was not written", zap.Error(err))
			}
		}
	}
}

// bootstrap forms the cluster when this is the first start of all its nodes. A node that lost its disk looks the same
// to itself, and must not: it forgot how it voted. So every other node must have said that it has no cluster either. A
// node that has a cluster makes sure that it is the others' too.
func (n *Node) bootstrap(ctx context.Context) error {
	if !n.watch.blank.Load() {
		return n.sameCluster(ctx)
	}
	if !n.cfg.Bootstrap {
		n.log.Info("waiting to be added to a cluster", zap.String("how", "quotad member add "+n.cfg.ID+"=HOST"))
		return nil
	}
	if len(n.cfg.Peers) > 1 && n.streams != nil && !n.allNew(ctx) {
		return nil
	}
	var c raft.Configuration
	for _, p := range n.cfg.Peers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.RaftAddress)})
	}
	if err := n.raft.BootstrapCluster(c).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("replica: make the cluster: %w", err)
	}
	return nil
}

// allNew waits until every node has said that it has no cluster. It is false when there is one, or ctx ended.
func (n *Node) allNew(ctx context.Context) bool {
	again := time.NewTicker(bootstrapEvery)
	defer again.Stop()
	said := ""
	for {
		missing := ""
		for _, a := range n.ask(ctx) {
			if a.Group != "" {
				n.log.Info("found the cluster, not making one", zap.String("cluster", a.Group), zap.String("peer", a.peer.ID))
				return false
			}
			if a.err != nil {
				missing = a.peer.ID
			}
		}
		switch {
		case n.raft.LastIndex() > 0 || ctx.Err() != nil:
			return false
		case missing == "":
			return true
		case missing != said:
			said = missing
			n.log.Info("the cluster is made once every node has answered", zap.String("missing", missing))
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
}

// sameCluster is an error when most of the others say that they are of another cluster: then it is this node that is in
// the wrong place, or has the wrong directory.
func (n *Node) sameCluster(ctx context.Context) error {
	own := n.store.ClusterID()
	if n.streams == nil || own == "" {
		return nil
	}
	same, foreign := 1, 0
	var where answer
	for _, a := range n.ask(ctx) {
		switch a.Group {
		case "":
		case own:
			same++
		default:
			foreign++
			where = a
		}
	}
	if foreign <= same {
		return nil
	}
	return fmt.Errorf("%w: %s at %s and %d more are of cluster %s, the directory %s is of cluster %s",
		ErrOtherCluster, where.peer.ID, where.peer.RaftAddress, foreign-1, where.Group, n.cfg.DataDir, own)
}

func (n *Node) close() error {
	n.stop()
	if n.raft.State() == raft.Leader && voters(n.servers()) > 1 {
		// A failed transfer costs the others an election timeout, and nothing else.
		if err := n.await(2*n.cfg.ElectionTimeout, func() error { return n.raft.LeadershipTransfer().Error() }); err != nil {
			n.log.Warn("leadership was not handed over", zap.Error(err))
		}
	}
	if err := n.await(closeTimeout, n.raft.Shutdown().Error); err != nil {
		// Raft still writes: closing its files now would crash it.
		return fmt.Errorf("replica: stop raft: %w", err)
	}
	n.futures.Wait()
	return n.store.Close()
}

var errTimeout = errors.New("timed out")

// await calls f, which cannot be cancelled, and gives up on it after a while. It must end when raft does.
func (n *Node) await(limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errTimeout)
	defer cancel()
	return n.awaitCtx(ctx, f)
}

func (n *Node) awaitCtx(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	n.futures.Go(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
