package replica

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

const (
	startKeys      = 250_000 // with four resources each
	startResources = 4 * startKeys
)

// BenchmarkStart is a start of one node with 1M resources of 250,000 keys in its state file, until it serves. One of
// them is opened first and tells what a resource takes: disk-B/resource in the state file, heap-B/resource in memory, the
// key's part of the configuration included.
func BenchmarkStart(b *testing.B) {
	cfg := Config{ID: "a", DataDir: b.TempDir(), RaftListen: "127.0.0.1:0", Bootstrap: true}
	_, stop := startNode(b, cfg)
	stop()
	fill(b, cfg)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold goes at the second
	runtime.ReadMemStats(&before)
	n, stop := startNode(b, cfg)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	n.View(func(m *Machine) {
		if got := len(m.Ledger.Resources()); got != startResources {
			b.Fatalf("%d resources, want %d", got, startResources)
		}
	})
	stop()
	file, err := os.Stat(filepath.Join(cfg.DataDir, "state.db"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, stop := startNode(b, cfg)
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(file.Size())/startResources, "disk-B/resource")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/startResources, "heap-B/resource")
}

// startNode returns when the node serves.
func startNode(b *testing.B, cfg Config) (n *Node, stop func()) {
	b.Helper()
	n, err := Open(cfg, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	for range n.Watch(ctx) {
		if _, _, _, self := n.Leader(); self {
			break
		}
	}
	return n, func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		if err := n.Close(); err != nil {
			b.Error(err)
		}
	}
}

// fill writes the resources and their keys as one more entry of the log would have.
func fill(b *testing.B, cfg Config) {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	st, err := store.Open(store.Config{Dir: cfg.DataDir, NodeID: cfg.ID}, zap.NewNop())
	must(err)
	index, err := st.Log().LastIndex()
	must(err)
	var last raft.Log
	must(st.Log().GetLog(index, &last))
	index++
	must(st.Log().StoreLog(&raft.Log{Index: index, Term: last.Term, Type: raft.LogNoop}))

	meta := &raftlogv1.MetaState{}
	must(st.State().Load(func(key string, value []byte) error {
		if key == metaKey {
			return proto.Unmarshal(value, meta)
		}
		return nil
	}))
	at := time.UnixMilli(meta.GetNowMs()).UTC()
	period := uint32(at.Year()*100 + int(at.Month()))
	ends := time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	meta.ConfigVersion = index
	meta.Periods = []*raftlogv1.Period{{Period: period, EndsMs: ends}}

	records := []store.Record{record(metaKey, meta)}
	object := func(kind, id, spec string) {
		records = append(records, record(objectKey(registry.Ref{Kind: kind, ID: id}), &raftlogv1.ObjectState{
			Kind: kind, Id: id, SpecJson: []byte(spec), Version: index,
		}))
	}
	object(registry.KindTeam, "t", `{"weight":1,"priority":"standard","failed_attempts":"platform"}`)
	for i := range startKeys {
		key := fmt.Sprintf("key-%06d", i)
		object(registry.KindKey, key, fmt.Sprintf(`{"team":"t","secret_sha256":"%064x","budget":{"monthly":100,"hard":true,"alert_at":[]},`+
			`"limits":{"rpm":600,"input_tpm":100000,"output_tpm":20000},"outage":"share"}`, i))
		for j, kind := range []ledger.Kind{ledger.Requests, ledger.InputTokens, ledger.OutputTokens, ledger.Money} {
			n := uint64(4*i + j)
			r := ledger.ResourceState{
				ID: (index+n>>12)<<12 | n&(1<<12-1), Scope: registry.ScopeKey, Owner: key, Kind: kind, Limit: 600, Burst: 600,
				Weight: 1, Level60k: 600 * 60_000, LevelAtMS: meta.GetNowMs(),
			}
			if kind == ledger.Money {
				const limit = 100_000_000_000
				r.Limit, r.Burst, r.Hard, r.Level60k, r.LevelAtMS = limit, 0, true, 0, 0
				r.Periods = []ledger.BudgetPeriodState{{Period: period, EndsMS: ends, Cap: limit, Free: limit}}
			}
			records = append(records, record(resourceKey(r.ID), resourceTo(r)))
		}
	}
	st.State().Append(index, records)
	must(st.Close())
}
