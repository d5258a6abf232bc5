package system

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	partitionCars = 12
	partitionCut  = partitionCars / 3
	partitionTime = 2 * time.Minute // that a third is cut off
)

// arrivals are the moments at which the provider was called, by the witness.
func (w *world) arrivals() []time.Time {
	w.t.Helper()
	s := w.fake.Witness(10_000)
	if int64(len(s.Records)) != s.Totals.Received {
		w.t.Fatalf("the witness remembers %d of %d requests", len(s.Records), s.Totals.Received)
	}
	at := make([]time.Time, 0, len(s.Records))
	for _, r := range s.Records {
		at = append(at, time.Unix(0, r.StartedNS))
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// between counts moments of a half-open interval.
func between(at []time.Time, from, to time.Time) (n int) {
	for _, a := range at {
		if !a.Before(from) && a.Before(to) {
			n++
		}
	}
	return n
}

// jain is Jain's index of what each got: 1 when all got the same.
func jain(served []int) float64 {
	sum, squares := 0, 0
	for _, n := range served {
		sum, squares = sum+n, squares+n*n
	}
	return float64(sum*sum) / float64(len(served)*squares)
}

// TestPartitionOfLimit: of twelve sidecars whose callers want more than a limit, four are cut off from quotad for two
// minutes. Once the bucket has first emptied, no 60 s see more than the limit + 1% at the provider, and the limit is
// used all the same. A minute after it healed, everybody has its part again.
func TestPartitionOfLimit(t *testing.T) {
	const limit = 900 // a minute
	inWorld(t, 1, partitionCars, outageOrg(limit), func(t *testing.T, w *world) {
		var each [partitionCars]admissions
		run := func(d time.Duration) {
			end := time.Now().Add(d)
			var callers sync.WaitGroup
			for i, m := range w.cars {
				for range 2 {
					callers.Go(func() { w.greedy(m, end, &each[i], limited) })
				}
			}
			callers.Wait()
		}
		served := func() (out []int) {
			for i := range each {
				out = append(out, len(each[i].at))
			}
			return out
		}
		began := time.Now()
		run(45 * time.Second)
		w.cutOff(w.cars[:partitionCut]...)
		cut := time.Now()
		run(partitionTime)
		w.net.Heal()
		healed := time.Now()
		run(time.Minute)
		for _, m := range w.cars {
			s := w.status(m)
			if len(s.Lease.Shares) != 1 || s.Lease.Shares[0].PerMinute != limit/partitionCars || !s.Quotad.Connected {
				t.Errorf("%s a minute after it healed: shares %+v", m.name, s.Lease.Shares)
			}
		}
		if b := w.budgets()[0]; b.SuspenseNano != 0 {
			t.Errorf("a minute after it healed: %d nano-dollars in suspense", b.SuspenseNano)
		}
		before := served()
		run(2 * time.Minute)
		after := served()
		for i := range after {
			after[i] -= before[i]
		}

		at := w.arrivals()
		// The bucket is empty when what was in it and what has come since are gone.
		empty := time.Time{}
		for i, a := range at {
			if float64(i+1) >= limit+limit*a.Sub(began).Minutes()-limit/100 {
				empty = a
				break
			}
		}
		if empty.IsZero() || empty.After(cut) {
			t.Fatalf("the bucket was empty at %v, cut at %v: the test is about nothing", empty, cut)
		}
		later := admissions{at: slices.DeleteFunc(slices.Clone(at), func(a time.Time) bool { return !a.After(empty) })}
		worst := later.worst(time.Minute - time.Nanosecond)
		lapsed := cut.Add(15 * time.Second)
		used := float64(between(at, lapsed, healed)) / (limit * healed.Sub(lapsed).Minutes())
		t.Logf("empty after %v; worst minute since: %d of %d; used while cut: %.1f%%; served after it healed: %v, Jain's index %.4f",
			empty.Sub(began), worst, limit, 100*used, after, jain(after))
		if worst > limit*101/100 {
			t.Errorf("%d admitted within a minute, the limit is %d", worst, limit)
		}
		if used < 0.95 {
			t.Errorf("%.1f%% of the limit used while a third was cut off", 100*used)
		}
		back := 0 // served at those that were cut off
		for _, n := range after[:partitionCut] {
			back += n
		}
		n := between(at, healed.Add(time.Minute), healed.Add(3*time.Minute))
		if n < 2*limit*95/100 || back < n/3*85/100 || back > n/3*115/100 || jain(after) < 0.95 {
			t.Errorf("%d served after it healed, by sidecar %v", n, after)
		}
		w.agree()
	})
}

// TestPartitionOfBudget: the same with a hard budget that comes to its end while a third is cut off. It is never
// passed; the end is said when all but what lies at silent sidecars is spent; what lay there is spent once it healed.
func TestPartitionOfBudget(t *testing.T) {
	const budget = 700_000_000 // nano-dollars, for about 3,000 requests
	config := strings.Replace(org(provider, fmt.Sprintf("{ monthly: %.2f }", budget/1e9), "{}"),
		"  chat: {", "  chat: { reserve: cap,", 1)
	inWorld(t, 1, partitionCars, config, func(t *testing.T, w *world) {
		body := say("tokens=20", `,"max_tokens":20`)
		var mu sync.Mutex
		counts := map[string]int{} // answers of those that are cut off, and of the others
		atTheEnd := int64(0)       // spent when the end was first said
		suspense := int64(-1)      // just before
		run := func(d time.Duration) {
			end := time.Now().Add(d)
			var callers sync.WaitGroup
			for i, m := range w.cars {
				callers.Go(func() {
					for time.Now().Before(end) {
						a := w.chat(m, body)
						mu.Lock()
						where := "with quotad "
						if i < partitionCut {
							where = "cut off "
						}
						for k, n := range tally([]answer{a}) {
							counts[where+k] += n
						}
						first := a.code() == "budget_exhausted" && suspense < 0
						if first {
							suspense, atTheEnd = 0, w.witnessed().cost
						}
						mu.Unlock()
						if first {
							s := w.budgets()[0].SuspenseNano
							mu.Lock()
							suspense = s
							mu.Unlock()
						}
						w.pass(500 * time.Millisecond)
					}
				})
			}
			callers.Wait()
		}
		run(time.Minute)
		w.cutOff(w.cars[:partitionCut]...)
		run(partitionTime)
		if spent := w.witnessed().cost; atTheEnd == 0 || suspense <= 0 {
			t.Fatalf("%d of %d spent, %d in suspense when the end was said: the test is about nothing", spent, budget, suspense)
		}
		w.net.Heal()
		run(time.Minute)
		spent := w.witnessed().cost
		t.Logf("%v", counts)
		t.Logf("the end was said at %d, %d in suspense; spent in all %d of %d, %.2f%%", atTheEnd, suspense, spent, budget,
			100*float64(spent)/budget)
		if spent > budget {
			t.Errorf("spent %d of %d", spent, budget)
		}
		if atTheEnd < (budget-suspense)*99/100 {
			t.Errorf("the end was said at %d of %d, with %d in suspense", atTheEnd, budget, suspense)
		}
		if spent < budget*99/100 {
			t.Errorf("a minute after it healed %d of %d are spent", spent, budget)
		}
		if b := w.budgets()[0]; b.SuspenseNano != 0 || b.SettledNano != spent {
			t.Errorf("a minute after it healed: %v", b)
		}
		w.agree()
	})
}
