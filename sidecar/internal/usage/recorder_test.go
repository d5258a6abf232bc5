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
	cost    int64
	drop    bool // answers get lost
	batches int
}

func (c *counter) Send(m *quotav1.SessionRequest) bool {
	b := m.GetUsageBatch()
	c.batches++
	if b.GetFromSeq() == c.last[b.GetSource()]+1 {
		c.last[b.GetSource()] = b.GetToSeq()
		for _, row := range b.GetRows() {
			c.cost += row.GetCostNano()
		}
	}
	return true
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

func open(t *testing.T, dir, name string) *Recorder {
	t.Helper()
	r, err := Open(dir, name, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryEventCountsOnce(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(0, 0)
	r := open(t, dir, "one")
	q := &counter{r: r, last: map[string]uint64{}}
	r.Connected(q)
	for i := range 10 {
		r.Record(event(1))
		now = now.Add(resendAfter)
		q.drop = i%2 == 0 // half of the answers get lost: the batch is sent again
		r.send(now)
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
		r.send(now)
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
	q := &counter{r: r, last: map[string]uint64{}}
	r.Connected(q)
	r.send(time.Unix(0, 0))
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
	q := &counter{r: r, last: map[string]uint64{}}
	r.Record(event(3))
	if s := r.Stats(); s.Unwritten != 1 || s.LastError == "" {
		t.Errorf("the fault must be visible: %+v", s)
	}
	r.Connected(q)
	r.send(time.Unix(0, 0))
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
