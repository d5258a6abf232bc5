package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// patience is how long a test waits for what must happen. It is long, so that only a fault reaches it.
const patience = 60 * time.Second

// running is a node and its Run.
type running struct {
	*Node
	t      testing.TB
	cancel context.CancelFunc
	ended  chan error // what Run returned
	once   sync.Once
}

// start opens and runs a node, and stops it at the end of the test.
func start(t testing.TB, cfg Config) *running {
	t.Helper()
	n, err := Open(cfg, zap.NewNop())
	if err != nil {
		t.Fatalf("Open %s: %v", cfg.ID, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Node: n, t: t, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- n.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

// stop ends Run and closes the node.
func (r *running) stop() {
	r.once.Do(func() {
		r.cancel()
		if err := <-r.ended; err != nil {
			r.t.Errorf("Run of %s: %v", r.cfg.ID, err)
		}
		if err := r.Close(); err != nil {
			r.t.Errorf("Close of %s: %v", r.cfg.ID, err)
		}
	})
}

// until waits until cond is true, which it looks at again after every signal.
func (r *running) until(what string, cond func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	signals := r.Watch(ctx)
	for range signals {
		if cond() {
			return
		}
	}
	r.t.Fatalf("%s: waited in vain until %s; status %+v", r.cfg.ID, what, r.Status())
}

func (r *running) untilServing() {
	r.t.Helper()
	r.until("it serves", func() bool { return r.serving.Load() != nil })
}

func ctxFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func sealOp(name string) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_Seal{Seal: &raftlogv1.Seal{Name: name, Sealed: []byte("x"), KeyId: "k"}}}
}

// seal proposes one operation that counts how often it was applied, and returns its result.
func (r *running) seal(name string) Result {
	r.t.Helper()
	res, err := r.Propose(ctxFor(r.t), sealOp(name))
	if err != nil {
		r.t.Fatalf("Propose on %s: %v", r.cfg.ID, err)
	}
	return res[0]
}

func (r *running) sealed(name string) (version uint64) {
	r.View(func(m *Machine) {
		s, _ := m.Sealed(name)
		version = s.GetVersion()
	})
	return version
}

func (r *running) waitApplied(index uint64) {
	r.t.Helper()
	if err := r.WaitApplied(ctxFor(r.t), index); err != nil {
		r.t.Fatalf("%s: entry %d: %v; status %+v", r.cfg.ID, index, err, r.Status())
	}
}

// single is the configuration of a cluster of one.
func single(t testing.TB) Config {
	return Config{ID: "a", DataDir: t.TempDir(), RaftListen: "127.0.0.1:0", Bootstrap: true, FlushEvery: time.Hour,
		// Alone, it has nobody to wait for.
		HeartbeatTimeout: 50 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond, LeaderLeaseTimeout: 50 * time.Millisecond}
}

// opened is a Listen that gives out what is open already.
func opened(l net.Listener) func(string, string) (net.Listener, error) {
	return func(string, string) (net.Listener, error) { return l, nil }
}

// three returns the configurations of a cluster of three on loopback.
func three(t testing.TB) []Config {
	t.Helper()
	cfgs := make([]Config, 3)
	peers := make([]Peer, 3)
	for i := range cfgs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		id := string(rune('a' + i))
		peers[i] = Peer{ID: id, RaftAddress: l.Addr().String(), ClientAddress: id + ":7070", AdminAddress: id + ":7072"}
		cfgs[i] = Config{ID: id, DataDir: t.TempDir(), RaftListen: l.Addr().String(), Listen: opened(l), Bootstrap: true, FlushEvery: time.Hour}
	}
	for i := range cfgs {
		cfgs[i].Peers = peers
	}
	return cfgs
}

// again is the configuration of a second start: the first one's listener is closed.
func again(c Config) Config {
	c.Listen = nil
	return c
}

func startAll(t testing.TB, cfgs []Config) []*running {
	t.Helper()
	nodes := make([]*running, len(cfgs))
	for i, c := range cfgs {
		nodes[i] = start(t, c)
	}
	return nodes
}

// leaderOf waits until one of the nodes serves, and returns it first, then the others.
func leaderOf(t testing.TB, nodes ...*running) (*running, []*running) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	merged := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for _, n := range nodes {
		signals := n.Watch(ctx)
		wg.Go(func() {
			for range signals {
				select {
				case merged <- struct{}{}:
				default:
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for {
		select {
		case <-merged:
		case <-ctx.Done():
			t.Fatal("no leader")
		}
		for i, n := range nodes {
			if n.serving.Load() != nil {
				var others []*running
				others = append(append(others, nodes[:i]...), nodes[i+1:]...)
				return n, others
			}
		}
	}
}

// copyDir makes an image of a data directory, as a crash would leave it.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// snapshot takes a snapshot and leaves next to nothing in the log before it.
func (r *running) snapshot() {
	r.t.Helper()
	c := r.raft.ReloadableConfig()
	c.TrailingLogs = 1
	if err := r.raft.ReloadConfig(c); err != nil {
		r.t.Fatal(err)
	}
	if err := r.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		r.t.Fatalf("snapshot on %s: %v", r.cfg.ID, err)
	}
}

func (r *running) String() string { return fmt.Sprintf("node %s", r.cfg.ID) }
