package replica

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// BenchmarkApply is what one entry costs a node: 32 renews of 15 counters and 5 asks of 6 needs, of 5,000 sidecars of
// 200 teams, decoded, applied, checked and given to the state file. ns/renew is what counts.
func BenchmarkApply(b *testing.B) {
	const sidecars, teams, keys, perEntry = 5000, 200, 4, 32
	st, err := store.Open(store.Config{Dir: b.TempDir(), NodeID: "a"}, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	f := newFSM(Config{}.WithDefaults(), st, newHub(), zap.NewNop())
	if err := f.load(); err != nil {
		b.Fatal(err)
	}
	l := f.machine.Ledger
	var specs []ledger.Spec
	index := uint64(1)
	for t := range teams {
		owners := []string{registry.ScopeTeam, registry.ScopeKey, registry.ScopeKey, registry.ScopeKey, registry.ScopeKey}
		for i, scope := range owners[:1+keys] {
			for _, k := range []ledger.Kind{ledger.Requests, ledger.TotalTokens, ledger.Money} {
				specs = append(specs, ledger.Spec{Scope: scope, Owner: fmt.Sprintf("%d-%d", t, i), Kind: k, Limit: 1e12, Hard: true})
			}
		}
	}
	if err := l.Define(index, specs, ledger.Fairness{}); err != nil {
		b.Fatal(err)
	}
	l.OpenPeriods([]ledger.Period{{Period: 202611, EndsMS: 1 << 50}})
	ids := map[string][]uint64{}
	for _, r := range l.Resources() {
		ids[r.Spec.Owner] = append(ids[r.Spec.Owner], r.ID)
	}
	renews := make([]*raftlogv1.Renew, sidecars)
	period := func(i int) uint32 { return uint32(i % 3 / 2 * 202611) }
	for i := range renews {
		t := i % teams
		r := &raftlogv1.Renew{Identity: fmt.Sprintf("team-%03d", t), Incarnation: uint64(i)*0x9e3779b97f4a7c15 | 1}
		for o := range 1 + keys {
			for j, id := range ids[fmt.Sprintf("%d-%d", t, o)] {
				r.Counters = append(r.Counters, &raftlogv1.Counter{Resource: id, Period: period(j), Demand: 10})
				if o > 0 {
					continue
				}
			}
		}
		for a := range 5 {
			ask := &raftlogv1.Ask{}
			for _, o := range []int{0, 1 + a%keys} {
				for j, id := range ids[fmt.Sprintf("%d-%d", t, o)] {
					ask.Needs = append(ask.Needs, &raftlogv1.Need{Resource: id, Period: period(j), Amount: 1})
				}
			}
			r.Asks = append(r.Asks, ask)
		}
		renews[i] = r
	}
	stamp, next := int64(1_000_000), 0
	entry := func() []byte {
		e := &raftlogv1.Entry{StampMs: stamp}
		for range perEntry {
			r := renews[next%sidecars]
			next++
			r.Seq++
			for _, c := range r.Counters {
				c.Spent = int64(r.Seq) * 2
			}
			for i, a := range r.Asks {
				a.Id = r.Seq*8 + uint64(i)
			}
			e.Ops = append(e.Ops, &raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: r}})
		}
		data, err := proto.Marshal(e)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	apply := func(data []byte) {
		index++
		stamp++
		results := f.Apply(&raft.Log{Index: index, Data: data}).([]Result)
		for _, r := range results {
			if r.Renew.Refusal != 0 || !r.Renew.Asks[0].Granted {
				b.Fatalf("%+v", r.Renew)
			}
		}
	}
	for range sidecars/perEntry + 1 {
		apply(entry())
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		data := entry()
		b.StartTimer()
		apply(data)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perEntry, "ns/renew")
}
