package replica

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// apply applies an entry as it comes out of the log.
func apply(m *Machine, index uint64, e *raftlogv1.Entry) []Result {
	data, err := proto.Marshal(e)
	if err != nil {
		panic(err)
	}
	decoded, err := (&decoder{knows: levelKnown}).decode(data)
	if err != nil {
		panic(err)
	}
	return m.Apply(index, decoded)
}

// disk is a state file in memory.
type disk map[string][]byte

func (d disk) put(records []store.Record) {
	for _, r := range records {
		if r.Value == nil {
			delete(d, r.Key)
			continue
		}
		d[r.Key] = r.Value
	}
}

// takeSome takes a few records of what changed, and reports whether there are more.
func (d disk) takeSome(m *Machine, most int) bool {
	if whole := m.brought(); whole != nil {
		clear(d)
		d.put(whole)
	}
	records, more := m.collect(most)
	d.put(records)
	return more
}

// take takes all that changed, and what is to be told.
func (d disk) take(m *Machine) Signal {
	for d.takeSome(m, 5) {
	}
	return m.signal()
}

func (d disk) load(each func(string, []byte) error) error {
	for _, k := range slices.Sorted(maps.Keys(d)) {
		if err := each(k, d[k]); err != nil {
			return err
		}
	}
	return nil
}

func changeOp(objects ...*raftlogv1.Object) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_Change{Change: &raftlogv1.Change{
		Objects: objects, Actor: "ops", Note: "n", AtMs: 5,
		Periods: []*raftlogv1.Period{{Period: 202601, EndsMs: 1}, {Timezone: "Asia/Kolkata", Period: 202601, EndsMs: 1}},
	}}}
}

func object(kind, id, spec string) *raftlogv1.Object {
	return &raftlogv1.Object{Kind: kind, Id: id, SpecJson: []byte(spec)}
}

// teamObject is a team with a budget and a bucket. Specs are stored in the parser's spelling.
func teamObject(t require, id, zone string, monthly, rpm int64) *raftlogv1.Object {
	o := registry.Team{
		ID: id, Timezone: zone, Weight: 1, Limits: &registry.Limits{RPM: rpm},
		Budget: &registry.Budget{Monthly: registry.Nano(monthly), Hard: true, AlertAt: []registry.Permille{500}},
	}.Object()
	return object(o.Kind, o.ID, string(o.Spec))
}

type require interface{ Fatalf(string, ...any) }

// drawOps draws operations that meet each other often: few names, few processes, small numbers.
func drawOps(rt *rapid.T, m *Machine) []*raftlogv1.Op {
	one := func(name string) uint64 { return rapid.Uint64Range(1, 3).Draw(rt, name) }
	var ops []*raftlogv1.Op
	for range rapid.IntRange(1, 4).Draw(rt, "ops") {
		op := &raftlogv1.Op{}
		switch rapid.IntRange(0, 9).Draw(rt, "kind") {
		case 0:
			id := fmt.Sprint("t", one("team"))
			o := teamObject(rt, id, rapid.SampledFrom([]string{"", "Asia/Kolkata"}).Draw(rt, "zone"),
				rapid.Int64Range(1, 1e12).Draw(rt, "cap"), rapid.Int64Range(1, 1e6).Draw(rt, "rpm"))
			if rapid.Bool().Draw(rt, "names") {
				o = namesObject(rt, id)
			}
			if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
				o.SpecJson = nil
			}
			op = changeOp(append(drawShared(rt), o)...)
		case 1:
			op = sealOp(fmt.Sprint("s", one("secret")))
		case 2:
			op.Op = &raftlogv1.Op_OpenPeriods{OpenPeriods: &raftlogv1.OpenPeriods{Periods: []*raftlogv1.Period{
				{Timezone: rapid.SampledFrom([]string{"", "Asia/Kolkata"}).Draw(rt, "zone"),
					Period: uint32(202601 + one("month")), EndsMs: 7},
			}}}
		case 3:
			seq := one("from")
			op.Op = &raftlogv1.Op_UsageBatch{UsageBatch: &raftlogv1.UsageBatch{
				Source: fmt.Sprint("u/", one("source")), FromSeq: seq, ToSeq: seq + 1, Rows: []*raftlogv1.UsageRow{{
					HourMs: int64(one("hour")) * 3600_000, Team: "a/b", Feature: fmt.Sprint("f/", one("feature")), Attempts: 1,
					Requests: 2, Errors: 3, Input: 4, CacheRead: 5, CacheWrite_5M: 6, CacheWrite_1H: 7, Output: 8, Reasoning: 9,
					CostNano: 10, Estimated: 11, InputAudio: 12, OutputAudio: 13, InputImage: 14, WebSearches: 15,
				}},
			}}
		case 4:
			op.Op = &raftlogv1.Op_Fence{Fence: &raftlogv1.Fence{Incarnation: one("process")}}
		case 5:
			op.Op = &raftlogv1.Op_FileFinal{FileFinal: &raftlogv1.FileFinal{
				Identity: "id", Incarnation: one("process"), Seq: one("seq"), Proven: true, Successor: one("successor"),
				Counters: drawCounters(rt, m),
			}}
		case 6:
			op.Op = &raftlogv1.Op_Credit{Credit: &raftlogv1.Credit{
				Resource: drawResource(rt, m), Period: 202601, AmountNano: 1000, Id: fmt.Sprint("c", one("credit")),
			}}
		case 7:
			op.Op = &raftlogv1.Op_Upgrade{Upgrade: &raftlogv1.Upgrade{Level: levelKnown}}
		default:
			inc := one("process")
			r := &raftlogv1.Renew{
				Identity: "id", Incarnation: inc, Counters: drawCounters(rt, m), ShareVersion: one("share"),
				Leaving: rapid.IntRange(0, 9).Draw(rt, "leaving") == 0,
			}
			if s, ok := m.Ledger.MemberState(inc); ok && s.Seq < 1<<40 {
				r.Seq = s.Seq
			}
			r.Seq += one("seq") - 1
			for i := range rapid.Uint64Range(0, 2).Draw(rt, "asks") {
				r.Asks = append(r.Asks, &raftlogv1.Ask{Id: i + 1, Needs: []*raftlogv1.Need{drawNeed(rt, m)}})
			}
			op.Op = &raftlogv1.Op_Renew{Renew: r}
		}
		ops = append(ops, op)
	}
	return ops
}

// namesObject is a team with what is one for each run and each end user.
func namesObject(rt *rapid.T, id string) *raftlogv1.Object {
	o := registry.Team{
		ID: id, Weight: rapid.Int64Range(1, 3).Draw(rt, "weight"),
		RunBudget: &registry.RunBudget{
			Max: registry.Nano(rapid.Int64Range(1, 1e6).Draw(rt, "run")), MaxCalls: 5, Lifetime: registry.Millis(rapid.Int64Range(1, 40_000).Draw(rt, "lifetime")),
		},
		EndUserLimits: &registry.Limits{RPM: rapid.Int64Range(1, 100).Draw(rt, "user rpm")},
	}.Object()
	return object(o.Kind, o.ID, string(o.Spec))
}

// drawShared draws what teams share: a pool, how it is divided, and the currency.
func drawShared(rt *rapid.T) []*raftlogv1.Object {
	out := []*raftlogv1.Object{object("fx", "2026-01", fmt.Sprintf(`{"INR":%d}`, rapid.IntRange(79, 81).Draw(rt, "rate")))}
	if rapid.Bool().Draw(rt, "rupees") {
		out = append(out, object("currency", "org", `{"code":"INR"}`))
	}
	if rapid.Bool().Draw(rt, "pool") {
		out = append(out, object("deployment", "d", fmt.Sprintf(
			`{"provider":"openai","base_url":"http://h","model":"m","unpriced":"allow","limits":{"rpm":%d}}`, rapid.IntRange(1, 100).Draw(rt, "rented"))),
			object("org", "org", fmt.Sprintf(`{"classes":{"interactive":0.6,"standard":0.2,"batch":0.%d}}`, rapid.IntRange(0, 2).Draw(rt, "batch"))))
	}
	return out
}

// drawNeed draws a need of a resource, in some name where it is one for each.
func drawNeed(rt *rapid.T, m *Machine) *raftlogv1.Need {
	n := &raftlogv1.Need{Resource: drawResource(rt, m), Amount: rapid.Int64Range(1, 1e6).Draw(rt, "need")}
	spec, _, _, ok := m.Ledger.Spec(n.GetResource())
	switch {
	case ok && spec.Each == ledger.EachClaimant:
		n.Name = rapid.SampledFrom([]string{"interactive/t1", "batch/t1", "standard/t2"}).Draw(rt, "claimant")
	case ok && spec.Each == ledger.EachName:
		n.Name = rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "name")
	default:
		n.Period = rapid.SampledFrom([]uint32{0, 202601}).Draw(rt, "period")
		return n
	}
	n.Amount = rapid.Int64Range(1, 60).Draw(rt, "small need")
	return n
}

func drawResource(rt *rapid.T, m *Machine) uint64 {
	rs := m.Ledger.Resources()
	if len(rs) == 0 {
		return 1
	}
	return rapid.SampledFrom(rs).Draw(rt, "resource").ID
}

func drawCounters(rt *rapid.T, m *Machine) []*raftlogv1.Counter {
	var out []*raftlogv1.Counter
	var rs []ledger.Resource
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Each == ledger.Whole {
			rs = append(rs, r)
		}
		rs = append(rs, m.Ledger.Children(r.ID)...)
	}
	for _, r := range rs {
		if rapid.Bool().Draw(rt, "has") {
			c := &raftlogv1.Counter{
				Resource: r.ID, Spent: rapid.Int64Range(0, 100).Draw(rt, "spent"), Demand: rapid.Int64Range(0, 1e5).Draw(rt, "demand"),
				Held: rapid.Int64Range(0, 10).Draw(rt, "held"), Close: rapid.IntRange(0, 5).Draw(rt, "close") == 0,
				Granted: rapid.Int64Range(0, 200).Draw(rt, "granted"),
			}
			if r.Spec.Each == ledger.EachClaimant && rapid.Bool().Draw(rt, "told") {
				c.ProviderLeft = proto.Int64(rapid.Int64Range(0, 100).Draw(rt, "provider left"))
			}
			if p, ok := r.Open(); ok {
				c.Period = p.Period
			}
			out = append(out, c)
		}
	}
	return out
}

// A machine loaded from its records goes on exactly as the one they are of.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, d := newMachine(ledger.Config{}), disk{}
		now := int64(1000)
		entry := func(ops []*raftlogv1.Op) *raftlogv1.Entry {
			now += rapid.Int64Range(0, 20_000).Draw(rt, "passes")
			return &raftlogv1.Entry{StampMs: now, Ops: ops}
		}
		apply(m, 1, entry([]*raftlogv1.Op{
			{Op: &raftlogv1.Op_Bootstrap{Bootstrap: &raftlogv1.Bootstrap{ClusterId: "c"}}},
			{Op: &raftlogv1.Op_Upgrade{Upgrade: &raftlogv1.Upgrade{Level: rapid.Uint32Range(0, levelKnown).Draw(rt, "level")}}},
		}))
		d.take(m)
		for index := uint64(2); index < 2+rapid.Uint64Range(1, 12).Draw(rt, "before"); index++ {
			apply(m, index, entry(drawOps(rt, m)))
			if err := m.Ledger.CheckTouched(); err != nil {
				rt.Fatalf("books: %v", err)
			}
			if n := rapid.IntRange(0, 20).Draw(rt, "taken"); n > 0 { // between entries, as the state file does
				d.takeSome(m, n)
			}
		}
		d.take(m)
		again, err := loadMachine(ledger.Config{}, d.load)
		if err != nil {
			rt.Fatalf("load: %v", err)
		}
		all := disk{}
		m.each(func(r store.Record) { all[r.Key] = r.Value })
		if !maps.EqualFunc(all, d, bytes.Equal) {
			rt.Fatalf("the hash is of %v, the records are %v", slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(d)))
		}
		if m.hash() != again.hash() {
			rt.Fatalf("hash of what was loaded differs")
		}
		if again.ClusterID() != "c" || again.ConfigVersion() != m.ConfigVersion() || !slices.Equal(again.SealedNames(), m.SealedNames()) {
			rt.Fatalf("loaded: cluster %q, version %d, sealed %v", again.ClusterID(), again.ConfigVersion(), again.SealedNames())
		}
		d2 := maps.Clone(d)
		for index := uint64(100); index < 106; index++ {
			e := entry(drawOps(rt, m))
			r1, r2 := apply(m, index, e), apply(again, index, e)
			if !reflect.DeepEqual(r1, r2) {
				rt.Fatalf("results of %v: got %+v, want %+v", e, r2, r1)
			}
			d.take(m)
			d2.take(again)
			if !maps.EqualFunc(d, d2, bytes.Equal) {
				rt.Fatalf("records differ after %v", e)
			}
			if m.hash() != again.hash() {
				rt.Fatalf("hashes differ after %v", e)
			}
		}
	})
}

func TestChangeIsAllOrNothing(t *testing.T) {
	m := newMachine(ledger.Config{})
	apply := func(index uint64, op *raftlogv1.Op) Result {
		return apply(m, index, &raftlogv1.Entry{Ops: []*raftlogv1.Op{op}})[0]
	}

	r := apply(5, changeOp(teamObject(t, "t1", "Asia/Kolkata", 1e9, 60)))
	if r.Change.Refusal != nil || r.Change.Version != 5 || r.Index != 5 {
		t.Fatalf("good change: %+v", r)
	}
	if s := (disk{}).take(m); s.ConfigVersion != 5 || s.Credentials {
		t.Fatalf("signal: %+v", s)
	}
	rs := m.Ledger.Resources()
	if len(rs) != 2 {
		t.Fatalf("resources: %+v", rs)
	}
	for _, res := range rs {
		if p, ok := res.Open(); ok != (res.Spec.Kind == ledger.Money) || ok && p.Period != 202601 {
			t.Fatalf("a new budget's period: %+v", res)
		}
	}
	// A thing the registry takes and the ledger does not: neither has it then.
	many := make([]*raftlogv1.Object, 0, 5000)
	for i := range 5000 {
		many = append(many, teamObject(t, fmt.Sprint("x", i), "", 1e9, 60))
	}
	if big := apply(6, changeOp(many...)); big.Change.Refusal == nil || big.Change.Version != 5 {
		t.Fatalf("more resources than one change may make: %+v", big)
	}
	if m.ConfigVersion() != 5 || len(m.Ledger.Resources()) != 2 || len(m.Registry.Objects("", "")) != 1 {
		t.Fatalf("refused change left something: version %d, %d resources", m.ConfigVersion(), len(m.Ledger.Resources()))
	}
	if s := (disk{}).take(m); !s.empty() {
		t.Fatalf("signal of a refused change: %+v", s)
	}
}

func TestBootstrapCountsOnce(t *testing.T) {
	m := newMachine(ledger.Config{})
	for i, id := range []string{"one", "two"} {
		apply(m, uint64(i+1), &raftlogv1.Entry{Ops: []*raftlogv1.Op{{Op: &raftlogv1.Op_Bootstrap{Bootstrap: &raftlogv1.Bootstrap{ClusterId: id}}}}})
	}
	if got := m.ClusterID(); got != "one" {
		t.Fatalf("cluster: got %q, want one", got)
	}
}

func TestSealNamesAreBounded(t *testing.T) {
	m := newMachine(ledger.Config{})
	for name, want := range map[string]uint64{"": 0, string(bytes.Repeat([]byte("n"), sealedNameMax)): 1, string(bytes.Repeat([]byte("n"), sealedNameMax+1)): 0} {
		r := apply(m, 1, &raftlogv1.Entry{Ops: []*raftlogv1.Op{sealOp(name)}})[0]
		if r.SealedVersion != want {
			t.Errorf("name of %d bytes: version %d, want %d", len(name), r.SealedVersion, want)
		}
	}
}

func TestBadRecordsAreNotTaken(t *testing.T) {
	for name, d := range map[string]disk{
		"does not decode":   {"meta": []byte("\xff")},
		"unknown kind":      {"z/1": nil},
		"does not fit":      {"c/1": encoded(t, &raftlogv1.CounterState{Incarnation: 1, Resource: 2, Granted: 5})},
		"object of no kind": {"o/x/y": encoded(t, &raftlogv1.ObjectState{Kind: "x", Id: "y", SpecJson: []byte("{}")})},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadMachine(ledger.Config{}, d.load); err == nil {
				t.Fatal("loaded")
			}
		})
	}
}

func encoded(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	must(t, err)
	return b
}

func TestUsageKeysDoNotCollide(t *testing.T) {
	m, d := newMachine(ledger.Config{}), disk{}
	rows := []*raftlogv1.UsageRow{{Team: "a/b", Key: "c"}, {Team: "a", Key: "b/c"}, {Team: "a%2Fb", Key: "c"}}
	apply(m, 1, &raftlogv1.Entry{Ops: []*raftlogv1.Op{{Op: &raftlogv1.Op_UsageBatch{UsageBatch: &raftlogv1.UsageBatch{
		Source: "s", FromSeq: 1, ToSeq: 3, Rows: rows,
	}}}}})
	d.take(m)
	again, err := loadMachine(ledger.Config{}, d.load)
	must(t, err)
	if got, want := again.Rollup.Rows(), m.Rollup.Rows(); len(got) != 3 || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// TestUsageGrowsOldByTheEntrysTime: it is folded and dropped by the time in the log, and so are its records.
func TestUsageGrowsOldByTheEntrysTime(t *testing.T) {
	const hour, day = int64(3_600_000), int64(86_400_000)
	start := 20_000 * day
	batch := &raftlogv1.UsageBatch{Source: "s", FromSeq: 1, ToSeq: 1}
	for i := range int64(24) {
		batch.Rows = append(batch.Rows, &raftlogv1.UsageRow{HourMs: start + i*hour, Team: "t", CostNano: 1})
	}
	m, d := newMachine(ledger.Config{}), disk{}
	kept := func() (n int, cost int64) {
		rows := 0
		for key := range d {
			if strings.HasPrefix(key, "u/r/") {
				rows++
			}
		}
		for _, r := range m.Rollup.Rows() {
			n, cost = n+1, cost+r.CostNano
		}
		if rows != n {
			t.Errorf("%d records of %d rows", rows, n)
		}
		return n, cost
	}
	tick := &raftlogv1.Op{Op: &raftlogv1.Op_Tick{Tick: &raftlogv1.Tick{}}}
	for i, step := range []struct {
		stamp int64
		op    *raftlogv1.Op
		rows  int
		cost  int64
	}{
		{start, &raftlogv1.Op{Op: &raftlogv1.Op_UsageBatch{UsageBatch: batch}}, 24, 24},
		{start + 40*day, tick, 24, 24}, {start + 40*day + 12*hour, tick, 13, 24}, {start + 41*day, tick, 1, 24},
		{start + 401*day - 1, tick, 1, 24}, {start + 401*day, tick, 0, 0},
	} {
		apply(m, uint64(i+1), &raftlogv1.Entry{StampMs: step.stamp, Ops: []*raftlogv1.Op{step.op}})
		d.take(m)
		if rows, cost := kept(); rows != step.rows || cost != step.cost {
			t.Errorf("step %d: %d rows of %d, want %d of %d", i, rows, cost, step.rows, step.cost)
		}
		loaded, err := loadMachine(ledger.Config{}, d.load)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(loaded.Rollup.Rows(), m.Rollup.Rows()) {
			t.Errorf("step %d: loaded %v", i, loaded.Rollup.Rows())
		}
		m = loaded
	}
}

func TestPeriodAt(t *testing.T) {
	for _, tt := range []struct {
		name, zone, at string
		period         uint32
		ends           string
	}{
		{"middle of a month", "", "2026-03-10T12:00:00Z", 202603, "2026-04-01T00:00:00Z"},
		{"first moment", "", "2026-03-01T00:00:00Z", 202603, "2026-04-01T00:00:00Z"},
		{"last moment", "", "2026-12-31T23:59:59Z", 202612, "2027-01-01T00:00:00Z"},
		{"ahead of UTC", "Asia/Kolkata", "2026-02-28T18:30:00Z", 202603, "2026-03-31T18:30:00Z"},
		{"behind UTC", "America/New_York", "2026-03-01T04:59:59Z", 202602, "2026-03-01T05:00:00Z"},
		{"over a clock change", "America/New_York", "2026-03-01T05:00:00Z", 202603, "2026-04-01T04:00:00Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, tt.at)
			must(t, err)
			p, err := PeriodAt(tt.zone, at)
			must(t, err)
			ends := time.UnixMilli(p.GetEndsMs()).UTC().Format(time.RFC3339)
			if p.GetPeriod() != tt.period || ends != tt.ends || p.GetTimezone() != tt.zone {
				t.Fatalf("got %v ending %s, want %d ending %s", p, ends, tt.period, tt.ends)
			}
		})
	}
	if _, err := PeriodAt("Mars/Olympus", time.Now()); err == nil {
		t.Fatal("an unknown zone has a period")
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, e := range []*raftlogv1.Entry{
		{}, {StampMs: 5, Ops: []*raftlogv1.Op{sealOp("k")}}, {Ops: []*raftlogv1.Op{{}}},
		{Ops: []*raftlogv1.Op{{Op: &raftlogv1.Op_Renew{Renew: &raftlogv1.Renew{Incarnation: 1, Seq: 1}}}}},
	} {
		b, err := proto.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := (&decoder{knows: levelKnown}).decode(data)
		if err != nil {
			return
		}
		m, d := newMachine(ledger.Config{}), disk{}
		if got := m.Apply(1, e); len(got) != len(e.ops) {
			t.Fatalf("%d results of %d operations", len(got), len(e.ops))
		}
		if err := m.Ledger.CheckTouched(); err != nil {
			t.Fatalf("books: %v", err)
		}
		d.take(m)
		if _, err := loadMachine(ledger.Config{}, d.load); err != nil {
			t.Fatalf("what was written does not load: %v", err)
		}
	})
}
