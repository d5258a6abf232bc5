package usage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"go.uber.org/zap"
)

// counter is quotad's side: it counts a source's events exactly once, as the rollups do.
type counter struct {
	r       *Recorder
	last    map[string]uint64
	costs   map[string]int64 // by source
	cost    int64
	drop    bool // answers get lost
	batches int
	rows    int // of the largest batch
}

func (c *counter) Send(m *quotav1.SessionRequest) bool {
	b := m.GetUsageBatch()
	c.batches++
	if b.GetFromSeq() == c.last[b.GetSource()]+1 {
		c.last[b.GetSource()] = b.GetToSeq()
		for _, row := range b.GetRows() {
			c.cost += row.GetCostNano()
			c.costs[b.GetSource()] += row.GetCostNano()
		}
		c.rows = max(c.rows, len(b.GetRows()))
	}
	return true
}

func newCounter(r *Recorder) *counter {
	return &counter{r: r, last: map[string]uint64{}, costs: map[string]int64{}}
}

// rounds lets the recorder send and quotad answer, n times.
func (c *counter) rounds(n int) {
	for range n {
		c.r.step(time.Unix(0, 0))
		c.answer()
	}
}

// answer acknowledges what was sent; apart from Send, which is called under the recorder's lock.
func (c *counter) answer() {
	if c.drop {
		return
	}
	for s, n := range c.last {
		c.r.HandleAck(&quotav1.UsageAck{Source: s, LastSeq: n})
	}
}

func event(cost int64) *usagev1.Event {
	return &usagev1.Event{
		RequestId: "r", Team: "t", Key: "k", AtMs: 1_796_040_000_000, Billed: true, Status: usagev1.Status_STATUS_OK,
		Source: usagev1.Source_SOURCE_PROVIDER, Tokens: &usagev1.Tokens{Input: 1}, CostNano: cost,
	}
}

const fileBytes, keepBytes = 1 << 20, 3 << 20

func open(t *testing.T, dir, name string) *Recorder {
	t.Helper()
	r, err := Open(Config{Dir: dir, Name: name, FileBytes: fileBytes, KeepBytes: keepBytes}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryEventCountsOnce(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(0, 0)
	r := open(t, dir, "one")
	q := newCounter(r)
	r.Connected(q)
	for i := range 10 {
		r.Record(event(1))
		now = now.Add(resendAfter)
		q.drop = i%2 == 0 // half of the answers get lost: the batch is sent again
		r.step(now)
		q.answer()
	}
	r.Disconnected()
	r.Record(event(1)) // never sent by this process, which now dies without a goodbye

	r = open(t, dir, "two")
	q.r, q.drop = r, false
	r.Record(event(1))
	r.Connected(q)
	for range 5 {
		now = now.Add(resendAfter)
		r.step(now)
		q.answer()
	}
	if q.cost != 12 {
		t.Errorf("counted %d of 12 events", q.cost)
	}
	if s := r.Stats(); s.Unsent != 0 || s.OlderSources != 0 {
		t.Errorf("left over: %+v", s)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+doneSuffix))
	if err != nil || len(names) != 1 {
		t.Errorf("the dead process's file must be set aside: %v %v", names, err)
	}
}

func TestTornLineIsDropped(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, "one")
	r.Record(event(5))
	r.Record(event(7))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "one.jsonl")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"status":"ok"`) || !strings.Contains(string(b), `"cost_nano":5`) {
		t.Errorf("an event is not readable by people: %s", b)
	}
	if err := os.WriteFile(file, b[:len(b)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir, "two")
	q := newCounter(r)
	r.Connected(q)
	r.step(time.Unix(0, 0))
	if q.cost != 5 {
		t.Errorf("counted %d, want the whole line alone", q.cost)
	}
}

func TestUnwritableDirectory(t *testing.T) {
	dir := t.TempDir()
	block := filepath.Join(dir, "events")
	if err := os.WriteFile(block, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	r := open(t, block, "one")
	q := newCounter(r)
	r.Record(event(3))
	if s := r.Stats(); s.Unwritten != 1 || s.LastError == "" {
		t.Errorf("the fault must be visible: %+v", s)
	}
	r.Connected(q)
	r.step(time.Unix(0, 0))
	if q.cost != 3 {
		t.Errorf("counted %d: events in memory must be sent all the same", q.cost)
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(block, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Record(event(4))
	if s := r.Stats(); s.Unwritten != 0 || s.LastError != "" {
		t.Errorf("the disk is back, everything must be written: %+v", s)
	}
	b, err := os.ReadFile(filepath.Join(block, "one.jsonl"))
	if err != nil || strings.Count(string(b), "\n") != 2 {
		t.Errorf("got %q, %v; want two lines", b, err)
	}
}

// However long quotad is away, what waits for it takes no more room than there are kinds of events.
func TestLongOutageIsKeptAsSums(t *testing.T) {
	r := open(t, t.TempDir(), "one")
	const n = 20_000 // several files
	for i := range n {
		e := event(1)
		e.Feature = []string{"search", "chat"}[i%2]
		r.Record(e)
	}
	kept := len(r.own.open)
	for _, s := range append(r.older, r.own) {
		for _, b := range s.sealed {
			kept += len(b.GetRows())
		}
	}
	if s := r.Stats(); s.Unsent != n || s.OlderSources < 3 || kept > 2*(s.OlderSources+1) {
		t.Errorf("%d rows are kept for %+v", kept, s)
	}
	q := newCounter(r)
	r.Connected(q)
	q.rounds(20)
	if s := r.Stats(); q.cost != n || s.Unsent != 0 || s.OlderSources != 0 {
		t.Errorf("counted %d of %d, %+v", q.cost, n, s)
	}
}

func TestManyKindsOfEventsAreManyBatches(t *testing.T) {
	r := open(t, t.TempDir(), "one")
	q := newCounter(r)
	const n = 3*rowsMax + 7
	for i := range n {
		e := event(1)
		e.AtMs += int64(i) * time.Hour.Milliseconds()
		r.Record(e)
	}
	r.Connected(q)
	q.rounds(6)
	if q.cost != n || q.rows > rowsMax {
		t.Errorf("counted %d of %d, in up to %d rows", q.cost, n, q.rows)
	}
}

// A quotad that was restored from a backup knows less than it once did; it is told again, from the files.
func TestQuotadForgets(t *testing.T) {
	r := open(t, t.TempDir(), "one")
	q := newCounter(r)
	r.Connected(q)
	for range 10 {
		r.Record(event(1))
		q.rounds(1)
	}
	if q.cost != 10 {
		t.Fatalf("counted %d of 10", q.cost)
	}
	q.cost, q.last["one"] = 4, 4
	for range 3 {
		r.Record(event(1))
		q.rounds(2)
	}
	q.rounds(5)
	if s := r.Stats(); q.cost != 13 || s.Unsent != 0 || s.OlderSources != 0 {
		t.Errorf("counted %d of 13, %+v", q.cost, s)
	}
}

// The successor sums a dead process's events otherwise than it did: what quotad had counted must not count again.
func TestDeadProcessHadSentAPart(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, "one")
	q := newCounter(r)
	r.Connected(q)
	q.drop = true
	r.Record(event(1))
	r.Record(event(1))
	q.rounds(1)
	r.Record(event(1)) // after the last batch of the dead
	r = open(t, dir, "two")
	q.r, q.drop = r, false
	r.Connected(q)
	q.rounds(5)
	if q.cost != 3 || r.Stats().OlderSources != 0 {
		t.Errorf("counted %d of 3, %+v", q.cost, r.Stats())
	}
}

func TestSentFilesAreKeptWithinTheirSpace(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, "one")
	q := newCounter(r)
	r.Connected(q)
	for range 20_000 {
		r.Record(event(1))
	}
	q.rounds(30)
	names, err := filepath.Glob(filepath.Join(dir, "*"+doneSuffix))
	if err != nil || len(names) == 0 {
		t.Fatalf("got %v, %v", names, err)
	}
	total := int64(0)
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > keepBytes || r.Stats().Recorded != 20_000 || q.cost != 20_000 {
		t.Errorf("%d bytes in %v are kept, want at most %d; counted %d", total, names, keepBytes, q.cost)
	}
}

func TestAFileThatCannotBeReadDoesNotHoldUpTheOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a"+openSuffix), 0o700); err != nil { // opens, and cannot be read
		t.Fatal(err)
	}
	r := open(t, dir, "b")
	r.Record(event(1))
	r = open(t, dir, "c")
	q := newCounter(r)
	r.Connected(q)
	r.Record(event(1))
	q.rounds(10)
	if q.costs["b"] != 1 || q.costs["c"] != 1 {
		t.Errorf("counted %v", q.costs)
	}
	if s := r.Stats(); s.LastError == "" {
		t.Errorf("the fault must be visible: %+v", s)
	}
}

func BenchmarkRecord(b *testing.B) {
	r, err := Open(Config{Dir: b.TempDir(), Name: "one"}, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	e := event(1)
	b.ReportAllocs()
	for b.Loop() {
		r.Record(e)
	}
}
