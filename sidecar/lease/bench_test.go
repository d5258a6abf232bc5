package lease

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

var benchNeeds = []Need{need(1, 1), need(3, 1000)}

// benchClient has a journal on disk and all the balance it needs.
func benchClient(b testing.TB) *Client {
	b.Helper()
	c, err := New(Config{Dir: b.TempDir(), MarkDir: b.TempDir()}, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	rich(c)
	c.Configure([]*quotav1.Resource{
		bucketOf(1, 600, 100), budgetOf(3, 1_000_000_000, jan, true), usersOf(5, 600, 100), runOf(6, 1_000_000_000),
	})
	for i, r := range []*resource{c.m.one(c.m.resources[5], strings.Repeat("ab", 32)), c.m.one(c.m.resources[6], "run-1")} {
		r.current = c.m.addCounter(r, counterKey{uint64(1000 + i), 0})
	}
	for _, k := range c.m.counters {
		k.granted = 1 << 60
	}
	return c
}

// benchRequests are a request that draws on what is whole, and one that draws on a user and a run as well.
func benchRequests() map[string][2][]Need {
	user := strings.Repeat("ab", 32)
	whole := [2][]Need{benchNeeds, {need(1, 1), need(3, 700)}}
	return map[string][2][]Need{
		"whole": whole,
		"named": {
			append(slices.Clone(whole[0]), named(5, user, 1), named(6, "run-1", 1000)),
			append(slices.Clone(whole[1]), need(5, 1), need(6, 700)),
		},
	}
}

func BenchmarkAcquireSettle(b *testing.B) {
	for name, needs := range benchRequests() {
		b.Run(name, func(b *testing.B) {
			c := benchClient(b)
			note := make([]byte, 120)
			b.ReportAllocs()
			for b.Loop() {
				h, v := c.Acquire(nil, 0, Share, needs[0], note)
				if !v.OK {
					b.Fatal(v)
				}
				c.Settle(h, needs[1])
			}
		})
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
		if _, v := c.Acquire(nil, 0, Share, benchNeeds, nil); v.Reason != Exhausted {
			b.Fatal(v)
		}
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates: only run, not counted")
	}
	for name, needs := range benchRequests() {
		t.Run(name, func(t *testing.T) {
			c := benchClient(t)
			note := make([]byte, 120)
			got := testing.AllocsPerRun(5000, func() {
				h, v := c.Acquire(nil, 0, Share, needs[0], note)
				if !v.OK {
					t.Fatal(v)
				}
				c.Settle(h, needs[1])
			})
			if got != 0 && !raceEnabled {
				t.Fatalf("%v allocations per request, want 0", got)
			}
		})
	}
}
