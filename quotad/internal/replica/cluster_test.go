package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/sluice-gateway/sluice/bench/memnet"
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
	host := memnet.New(0).Host("127.0.0.1")
	return Config{ID: "a", DataDir: t.TempDir(), RaftListen: "127.0.0.1:0", Listen: host.Listen, Bootstrap: true, FlushEvery: time.Hour,
		// Alone, it has nobody to wait for.
		HeartbeatTimeout: 50 * time.Millisecond, ElectionTimeout: 50 * time.Millisecond, LeaderLeaseTimeout: 50 * time.Millisecond}
}

// inBubble plays on a virtual clock, which stands still while anything works: elections and leases do not depend on how
// busy the machine is.
func inBubble(t *testing.T, play func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Raft goes on for a moment after it was shut down, with handing over its leadership to who is gone as well. The
		// bubble must not end before; this runs last.
		t.Cleanup(func() { <-time.After(time.Minute) })
		play(t)
	})
}

// network joins nodes in memory, each on a machine of its own.
type network struct {
	*memnet.Net
	ips map[string]string // by node
}

// three returns the configurations of a cluster of three on a network in memory, inside a bubble.
func three(t *testing.T) ([]Config, network) {
	t.Helper()
	net := network{memnet.New(time.Millisecond), map[string]string{}}
	var cfgs []Config
	var peers []Peer
	for i, id := range []string{"a", "b", "c"} {
		ip := fmt.Sprintf("127.0.0.%d", i+1)
		net.ips[id] = ip
		host := net.Host(ip)
		t.Cleanup(host.Exit) // raft leaves connections that it accepted to the other side
		peers = append(peers, Peer{ID: id, RaftAddress: ip + ":7071", ClientAddress: id + ":7070", AdminAddress: id + ":7072"})
		cfgs = append(cfgs, Config{
			ID: id, DataDir: t.TempDir(), RaftListen: ip + ":7071", Listen: host.Listen, Dial: host.Dial, Bootstrap: true,
			FlushEvery: time.Hour,
		})
	}
	for i := range cfgs {
		cfgs[i].Peers = peers
	}
	return cfgs, net
}

// cut takes a node off the network, until Heal.
func (n network) cut(id string) {
	for other, ip := range n.ips {
		if other != id {
			n.Cut(n.ips[id], ip)
		}
	}
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
