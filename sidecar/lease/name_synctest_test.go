package lease

import (
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// TestUserInRealTime: a user is asked for once, has a lease after that, and is forgotten after a while; a run's end is
// told to its caller.
func TestUserInRealTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.l.templates = map[uint64]int64{userID: 40, runID: 5000, poolID: 600}
		w.l.capped[runID] = true
		w.c.Configure([]*quotav1.Resource{usersOf(userID, 600, 40), runOf(runID, 5000), poolOf(poolID, 6000, 600)})
		s := w.connect()
		elapse(time.Second)
		needs := []Need{named(userID, "ann", 1), named(runID, "r1", 1000), named(poolID, "standard/t", 10)}
		h, v := w.c.Acquire(nil, 0, Share, needs, nil)
		if !v.OK || v.Waited != 2*time.Millisecond {
			t.Fatalf("got %+v, want a grant after one round trip", v)
		}
		w.c.Settle(h, []Need{need(userID, 1), need(runID, 900), need(poolID, 5)})
		w.c.ProviderLeft(poolID, 77)
		elapse(5 * time.Second)
		if h, v = w.c.Acquire(nil, 0, Share, needs[:1], nil); !v.OK || v.Waited != 0 {
			t.Fatalf("got %+v, want a grant from the lease", v)
		}
		w.c.Settle(h, []Need{need(userID, 1)})
		told := 0
		for _, m := range s.messages() {
			for _, c := range m.msg.GetRenew().GetCounters() {
				if c.ProviderLeft != nil && *c.ProviderLeft >= 77 {
					told++
				}
			}
		}
		if told != 1 {
			t.Errorf("the provider's word was told %d times", told)
		}
		if left, limit, _, ok := w.c.RemainingOf(runID, "r1"); !ok || left != 4100 || limit != 5000 {
			t.Errorf("%d of %d left of the run, known %v", left, limit, ok)
		}
		if _, _, _, ok := w.c.Remaining(runID); ok {
			t.Error("something is said of all runs together")
		}
		if _, v = w.c.Acquire(nil, 0, Share, []Need{named(runID, "r1", 4101)}, nil); v.Reason != Exhausted || v.Left != 4100 {
			t.Errorf("got %+v, want the run to be exhausted", v)
		}
		elapse(30 * time.Second)
		if got := w.c.Stats().Counters; len(got) != 0 {
			t.Errorf("counters %+v after half a minute without use", got)
		}
	})
}
