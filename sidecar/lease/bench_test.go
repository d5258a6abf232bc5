package lease

import (
	"testing"

	"go.uber.org/zap"
)

var benchNeeds = []Need{need(1, 1), need(3, 1000)}

// benchClient has a journal on disk and all the balance it needs.
func benchClient(b testing.TB) *Client {
	b.Helper()
	c, err := New(Config{Dir: b.TempDir()}, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	rich(c)
	for _, r := range c.m.resources {
		r.current.granted = 1 << 60
	}
	return c
}

func BenchmarkAcquireSettle(b *testing.B) {
	c := benchClient(b)
	note, used := make([]byte, 120), []Need{need(1, 1), need(3, 700)}
	b.ReportAllocs()
	for b.Loop() {
		h, v := c.Acquire(nil, Share, benchNeeds, note)
		if !v.OK {
			b.Fatal(v)
		}
		c.Settle(h, used)
	}
}

func BenchmarkAcquireRefused(b *testing.B) {
	c := benchClient(b)
	c.m.Connected(c.cfg.Now())
	r := c.m.resources[3]
	r.current.granted = 0
	r.memory = memory{reason: Exhausted, amount: 1, until: 1 << 62}
	b.ReportAllocs()
	for b.Loop() {
		if _, v := c.Acquire(nil, Share, benchNeeds, nil); v.Reason != Exhausted {
			b.Fatal(v)
		}
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates: only run, not counted")
	}
	c := benchClient(t)
	note, used := make([]byte, 120), []Need{need(1, 1), need(3, 700)}
	got := testing.AllocsPerRun(5000, func() {
		h, v := c.Acquire(nil, Share, benchNeeds, note)
		if !v.OK {
			t.Fatal(v)
		}
		c.Settle(h, used)
	})
	if got != 0 && !raceEnabled {
		t.Fatalf("%v allocations per request, want 0", got)
	}
}
