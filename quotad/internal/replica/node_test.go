package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

func TestSingleNodeServes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := start(t, single(t))
		n.untilServing()
		if r := n.seal("openai"); r.SealedVersion != 1 || r.Index == 0 {
			t.Fatalf("first: %+v", r)
		}
		if r := n.seal("openai"); r.SealedVersion != 2 {
			t.Fatalf("second: %+v", r)
		}
		if err := n.Linearizable(ctxFor(t)); err != nil {
			t.Fatalf("Linearizable: %v", err)
		}
		s := n.Status()
		if !s.Serving || s.State != "leader" || s.ClusterID == "" || s.LeaderID != "a" || len(s.Members) != 1 ||
			!s.Members[0].Voter || !s.Members[0].Self || s.Violations != 0 || s.Applied == 0 {
			t.Fatalf("status: %+v", s)
		}
		if id, _, _, self := n.Leader(); id != "a" || !self {
			t.Fatalf("Leader: %q, self %v", id, self)
		}
		if s.NowMS < time.Now().Add(-time.Hour).UnixMilli() {
			t.Fatalf("a new cluster's time is not seeded: %d", s.NowMS)
		}
	})
}

func TestReplayIsExactlyOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flush bool // the state file holds half of it
		snap  bool // and a snapshot is there
	}{
		{name: "nothing on disk but the log"},
		{name: "half in the state file", flush: true},
		{name: "half in state file and snapshot", snap: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := single(t)
			n := start(t, cfg)
			n.untilServing()
			for range 20 {
				n.seal("k")
			}
			if tt.flush {
				if err := n.store.State().Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.snap {
				n.snapshot()
			}
			var last Result
			for range 20 {
				last = n.seal("k")
			}
			cluster := n.Status().ClusterID
			cfg.DataDir = copyDir(t, cfg.DataDir)
			n.stop()

			n = start(t, cfg)
			n.untilServing()
			if got := n.sealed("k"); got != 40 || last.SealedVersion != 40 {
				t.Fatalf("applied %d times, want 40", got)
			}
			if got := n.Status().ClusterID; got != cluster {
				t.Fatalf("cluster: got %q, want %q", got, cluster)
			}
			if r := n.seal("k"); r.SealedVersion != 41 {
				t.Fatalf("after the restart: %+v", r)
			}
		})
	}
}

func TestLostOrDamagedStateFileIsRecovered(t *testing.T) {
	for _, tt := range []struct {
		name string
		snap bool
		harm func(t *testing.T, path string)
	}{
		{name: "deleted", harm: func(t *testing.T, path string) { must(t, os.Remove(path)) }},
		{name: "deleted, snapshot there", snap: true, harm: func(t *testing.T, path string) { must(t, os.Remove(path)) }},
		{name: "torn, snapshot there", snap: true, harm: func(t *testing.T, path string) { must(t, os.Truncate(path, 8192)) }},
		{name: "torn", harm: func(t *testing.T, path string) { must(t, os.Truncate(path, 5000)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := single(t)
			n := start(t, cfg)
			n.untilServing()
			for range 10 {
				n.seal("k")
			}
			if tt.snap {
				n.snapshot()
			}
			n.seal("k")
			n.stop()
			tt.harm(t, filepath.Join(cfg.DataDir, "state.db"))

			n = start(t, cfg)
			n.untilServing()
			if got := n.sealed("k"); got != 11 {
				t.Fatalf("applied %d times, want 11", got)
			}
			n.stop()
			n = start(t, cfg) // and it is whole again
			n.untilServing()
			if got := n.sealed("k"); got != 11 {
				t.Fatalf("after another start: applied %d times, want 11", got)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentProposalsShareEntries(t *testing.T) {
	n := start(t, single(t))
	n.untilServing()
	before := n.Status().LastIndex
	const callers, each = 200, 10
	seen := make([]bool, callers*each+1)
	var mu sync.Mutex
	var wg sync.WaitGroup
	ctx := ctxFor(t)
	for range callers {
		wg.Go(func() {
			for range each {
				res, err := n.Propose(ctx, sealOp("k"))
				if err != nil {
					t.Errorf("Propose: %v", err)
					return
				}
				mu.Lock()
				if v := res[0].SealedVersion; v == 0 || int(v) >= len(seen) || seen[v] {
					t.Errorf("version %d is wrong or there twice", v)
				} else {
					seen[v] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if got := n.sealed("k"); got != callers*each {
		t.Fatalf("applied %d times, want %d", got, callers*each)
	}
	if entries := n.Status().LastIndex - before; entries > callers*each/4 {
		t.Fatalf("%d entries for %d operations: not batched", entries, callers*each)
	}
}

func TestProposalKeepsItsOrderAndCount(t *testing.T) {
	n := start(t, single(t))
	n.untilServing()
	ops := make([]*raftlogv1.Op, entryOpsMax)
	for i := range ops {
		ops[i] = sealOp("k")
	}
	res, err := n.Propose(ctxFor(t), ops...)
	if err != nil || len(res) != len(ops) {
		t.Fatalf("Propose: %d results, %v", len(res), err)
	}
	for i, r := range res {
		if r.SealedVersion != uint64(i+1) || r.Index != res[0].Index {
			t.Fatalf("result %d: %+v", i, r)
		}
	}
}

func TestBadProposalsAreBugs(t *testing.T) {
	n := start(t, single(t))
	for name, ops := range map[string][]*raftlogv1.Op{
		"none":          {},
		"too many":      make([]*raftlogv1.Op, entryOpsMax+1),
		"without op":    {{}},
		"nil operation": {nil},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p, _ := recover().(string); !strings.HasPrefix(p, "BUG:") {
					t.Fatalf("panic: got %q, want a BUG", p)
				}
			}()
			_, _ = n.Propose(ctxFor(t), ops...)
		})
	}
}

func TestUnknownOperationHaltsTheNode(t *testing.T) {
	future := protowire.AppendTag(nil, 4000, protowire.BytesType)
	future = protowire.AppendBytes(future, []byte("of a newer version"))
	entry := protowire.AppendTag(nil, 2, protowire.BytesType)
	entry = protowire.AppendBytes(entry, future)
	for name, data := range map[string][]byte{
		"unknown operation": entry,
		"not an entry":      []byte("\xff\xff\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			n, err := Open(single(t), zap.NewNop())
			must(t, err)
			ended := make(chan error, 1)
			r := &running{Node: n, t: t, ended: ended}
			go func() { ended <- n.Run(context.Background()) }()
			r.untilServing()
			applied := r.seal("k").Index
			if err := n.raft.Apply(data, time.Second).Error(); err != nil {
				t.Fatalf("raft refused the entry: %v", err)
			}
			if err := <-ended; !errors.Is(err, errHalted) {
				t.Fatalf("Run: got %v, want errHalted", err)
			}
			_, err = n.Propose(ctxFor(t), sealOp("k"))
			if !errors.Is(err, ErrNoLeader) {
				t.Fatalf("Propose on a halted node: %v", err)
			}
			if got := n.Status().Applied; got < applied || got >= n.Status().LastIndex {
				t.Fatalf("applied %d of %d entries, the first of them %d", got, n.Status().LastIndex, applied)
			}
			if err := n.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
		})
	}
}

func TestDirectoryOfAnotherClusterIsRefused(t *testing.T) {
	one, two := single(t), single(t)
	for _, c := range []Config{one, two} {
		n := start(t, c)
		n.untilServing()
		n.until("the directory has its cluster", func() bool { return n.seal("k").Index > 0 && n.store.ClusterID() != "" })
		n.stop()
	}
	// The state file of one cluster ends up in the directory of the other.
	b, err := os.ReadFile(filepath.Join(one.DataDir, "state.db"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(two.DataDir, "state.db"), b, 0o600))
	_, err = Open(two, zap.NewNop())
	if !errors.Is(err, store.ErrOtherCluster) {
		t.Fatalf("Open: got %v, want ErrOtherCluster", err)
	}
}

func TestSecondNodeOnADirectoryIsRefused(t *testing.T) {
	cfg := single(t)
	start(t, cfg)
	if _, err := Open(cfg, zap.NewNop()); !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), cfg.DataDir) {
		t.Fatalf("second Open: %v", err)
	}
}

func TestClosedNodeAnswers(t *testing.T) {
	n := start(t, single(t))
	n.untilServing()
	n.seal("k")
	n.stop()
	if _, err := n.Propose(ctxFor(t), sealOp("k")); !errors.Is(err, ErrNoLeader) && !errors.Is(err, ErrClosed) {
		t.Fatalf("Propose: %v", err)
	}
	if err := n.Linearizable(ctxFor(t)); !errors.Is(err, ErrClosed) {
		t.Fatalf("Linearizable: %v", err)
	}
	if got := n.sealed("k"); got != 1 {
		t.Fatalf("View after Close: %d, want 1", got)
	}
}

func TestCallerThatStopsWaiting(t *testing.T) {
	n := start(t, single(t))
	n.untilServing()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// Whatever the outcome, it is told apart: nothing done, or unknown, or done.
	_, err := n.Propose(ctx, sealOp("k"))
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("Propose: %v", err)
	}
	before := n.seal("mark").Index
	n.waitApplied(before)
	if err != nil && !errors.Is(err, ErrUnknown) && n.sealed("k") != 0 {
		t.Fatalf("Propose said that nothing was done (%v), and it was", err)
	}
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	err := Config{Peers: []Peer{{ID: "b", RaftAddress: "x:1"}, {ID: "b"}}, LeaderLeaseTimeout: time.Minute, Bootstrap: true}.WithDefaults().Validate()
	for _, want := range []string{"id is not set", "data directory", "listen", "timeouts", "twice", "not among the peers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate: %v does not tell of %q", err, want)
		}
	}
	if err := single(t).WithDefaults().Validate(); err != nil {
		t.Errorf("Validate of a good one: %v", err)
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, bb := range []struct {
		name    string
		callers int
	}{{"callers=1", 1}, {"callers=64", 64}, {"callers=1024", 1024}} {
		b.Run(bb.name, func(b *testing.B) {
			n := start(b, single(b))
			n.untilServing()
			if _, err := n.Propose(ctxFor(b), changeOp(teamObject(b, "t", "", 1e12, 1e9))); err != nil {
				b.Fatal(err)
			}
			var resources []ledger.Resource
			n.View(func(m *Machine) { resources = m.Ledger.Resources() })
			before := n.raft.LastIndex()
			ops := make(chan struct{}, bb.callers)
			var wg sync.WaitGroup
			ctx := context.Background()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range bb.callers {
				wg.Go(func() {
					// Each caller is a sidecar with demand on one bucket and one budget.
					renew := &raftlogv1.Renew{Identity: "s", Incarnation: uint64(i + 1)}
					for _, r := range resources {
						c := &raftlogv1.Counter{Resource: r.ID, Demand: 10}
						if p, ok := r.Open(); ok {
							c.Period = p.Period
						}
						renew.Counters = append(renew.Counters, c)
					}
					op := &raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: renew}}
					for range ops {
						renew.Seq++
						if res, err := n.Propose(ctx, op); err != nil || res[0].Renew.Seq != renew.Seq || res[0].Renew.Fenced {
							b.Errorf("renew: %+v, %v", res, err)
						}
					}
				})
			}
			for range b.N {
				ops <- struct{}{}
			}
			close(ops)
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(b.N)/float64(n.raft.LastIndex()-before), "ops/entry")
		})
	}
}

var _ raft.FSM = (*fsm)(nil)
