package route

import (
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/breaker"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func target(id string, priority, weight int) exchange.Target {
	return exchange.Target{Deployment: &exchange.Deployment{ID: id}, Priority: priority, Weight: weight}
}

func anyRoom(*exchange.Deployment) bool { return true }

func ids(ts []exchange.Target) (out string) {
	for _, t := range ts {
		out += t.Deployment.ID
	}
	return out
}

// failed is nil for FailNone.
func failed(kind exchange.FailureKind) *exchange.Failure {
	if kind == exchange.FailNone {
		return nil
	}
	return &exchange.Failure{Kind: kind}
}

// TestRest: a rate limit moves traffic and never the breaker; a later, shorter wish does not cut a rest short.
func TestRest(t *testing.T) {
	r := New()
	c := []exchange.Target{target("a", 1, 1), target("b", 2, 1)}
	at := func(d time.Duration) string { o, _ := r.Order(start.Add(d), c, anyRoom); return ids(o) }
	limited := func(wait time.Duration) *exchange.Failure {
		return &exchange.Failure{Kind: exchange.FailRateLimited, RetryAfter: wait}
	}
	if at(0) != "ab" {
		t.Fatal(at(0))
	}
	r.Report(start, "a", limited(time.Minute))
	r.Report(start.Add(time.Second), "a", limited(time.Second))
	r.Report(start.Add(time.Second), "a", limited(0))
	for d, want := range map[time.Duration]string{2 * time.Second: "ba", time.Minute - 1: "ba", time.Minute: "ab"} {
		if got := at(d); got != want {
			t.Errorf("after %s: %s, want %s", d, got, want)
		}
	}
	r.Report(start.Add(time.Hour), "a", limited(0))
	if at(time.Hour) != "ba" || at(time.Hour+restLeast) != "ab" {
		t.Error("a limit without a time must rest for the least one")
	}
	r.Report(start.Add(2*time.Hour), "b", &exchange.Failure{Kind: exchange.FailOverloaded, RetryAfter: 24 * time.Hour})
	r.Report(start.Add(2*time.Hour), "a", limited(time.Hour))
	if got := at(2*time.Hour + restMax - 1); got != "ab" {
		t.Errorf("both rest: %s, want them by priority", got)
	}
	if got := r.Health(start.Add(2 * time.Hour)); got[0].State != "closed" || got[0].Failures != 0 || got[0].Successes != 0 {
		t.Errorf("rate limits moved the breaker: %+v", got[0])
	}
}

func TestCandidates(t *testing.T) {
	d := &exchange.Deployment{
		ID: "d", Account: "bu", DataClasses: []string{"public"}, Capabilities: []string{"tools"},
	}
	alias := &exchange.Alias{Targets: []exchange.Target{{Deployment: d}}}
	good := Query{Alias: alias, Account: "bu", DataClass: "public", Needs: []string{"tools"}}
	for name, c := range map[string]struct {
		change func(*Query)
		reason string
	}{
		"fits":             {func(*Query) {}, ""},
		"another account":  {func(q *Query) { q.Account = "" }, "account"},
		"data class":       {func(q *Query) { q.DataClass = "internal" }, "data_class"},
		"capability":       {func(q *Query) { q.Needs = []string{"vision"} }, "vision"},
		"no class, no bar": {func(q *Query) { q.DataClass = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := good
			c.change(&q)
			ok, out := Candidates(q)
			if c.reason == "" && len(ok) != 1 {
				t.Fatalf("left out: %v", out)
			}
			if c.reason != "" && (len(ok) != 0 || out[0].Reason != c.reason) {
				t.Fatalf("got %v %v, want reason %s", ok, out, c.reason)
			}
		})
	}
}

func TestOrderFollowsPriorityThenWeight(t *testing.T) {
	r := New()
	first := map[string]int{}
	for range 10_000 {
		o, _ := r.Order(start, []exchange.Target{target("a", 1, 80), target("b", 1, 20), target("c", 2, 1), target("z", 2, 0)}, anyRoom)
		if got := ids(o); got[2:] != "cz" {
			t.Fatalf("order %s: the second priority must come last, weight 0 at its end", got)
		}
		first[o[0].Deployment.ID]++
	}
	// Binomial(10,000, 0.8): 6 standard deviations are 240.
	if n := first["a"]; n < 7_760 || n > 8_240 {
		t.Errorf("a came first %d times of 10,000, want about 8,000", n)
	}
}

// TestRoom: within a priority who has room comes first, whatever the weights; a priority without room stays before the
// next one.
func TestRoom(t *testing.T) {
	r := New()
	full := func(d *exchange.Deployment) bool { return d.ID != "a" && d.ID != "c" }
	for range 100 {
		o, _ := r.Order(start, []exchange.Target{target("a", 1, 1_000), target("b", 1, 1), target("c", 2, 1), target("d", 3, 1)}, full)
		if ids(o) != "bacd" {
			t.Fatal(ids(o))
		}
	}
}

func TestBreaker(t *testing.T) {
	r := New()
	c := []exchange.Target{target("a", 1, 1)}
	report := func(at time.Time, kind exchange.FailureKind, n int) {
		for range n {
			r.Report(at, "a", failed(kind))
		}
	}
	open := func(at time.Time) bool { o, _ := r.Order(at, c, anyRoom); return len(o) == 0 }

	report(start, exchange.FailOverloaded, breaker.Min-1)
	if open(start) {
		t.Fatal("opened below the least number of attempts")
	}
	report(start, exchange.FailRateLimited, 5)
	report(start, exchange.FailRequest, 5)
	report(start, exchange.FailCancelled, 50)
	if open(start) {
		t.Fatal("rate limits, callers' faults and cancellations must not open it")
	}
	report(start, exchange.FailTimeout, 1)
	if !open(start) {
		t.Fatal("10 of 10 failed: it must open")
	}
	if _, wait := r.Order(start, c, anyRoom); wait != breaker.OpenFor {
		t.Errorf("wait %s, want %s", wait, breaker.OpenFor)
	}
	later := start.Add(breaker.OpenFor)
	if open(later) {
		t.Fatal("a probe is due")
	}
	if !open(later) {
		t.Fatal("one probe at a time")
	}
	report(later, exchange.FailRateLimited, 1)
	if open(later) || !open(later) {
		t.Fatal("a probe that says nothing is followed by another")
	}
	report(later, exchange.FailConnect, 1)
	if !open(later.Add(breaker.OpenFor - 1)) {
		t.Fatal("a failed probe opens it again")
	}
	again := later.Add(breaker.OpenFor)
	if open(again) {
		t.Fatal("the next probe is due")
	}
	report(again, exchange.FailNone, 1)
	for range 2 {
		if open(again) {
			t.Fatal("a good probe closes it")
		}
	}
}

func TestBreakerForgets(t *testing.T) {
	r := New()
	for range breaker.Min {
		r.Report(start, "a", nil)
	}
	for i := range breaker.Min + 1 {
		r.Report(start.Add(breaker.Window+time.Duration(i)), "a", failed(exchange.FailOverloaded))
	}
	if o, _ := r.Order(start.Add(breaker.Window+time.Second), []exchange.Target{target("a", 1, 1)}, anyRoom); len(o) != 0 {
		t.Error("good attempts of more than a window ago must not keep it closed")
	}
}

func TestRetryBudget(t *testing.T) {
	r := New()
	n := 0
	for r.Retry(start) {
		n++
	}
	if n != retryFloor {
		t.Errorf("a quiet sidecar has %d retries, want %v", n, retryFloor)
	}
	for range 100 {
		r.Request(start)
	}
	for n = 0; r.Retry(start); {
		n++
	}
	if n < 9 || n > 10 { // a tenth of the requests, less what rounding of sums of 0.1 may take
		t.Errorf("after 100 requests: %d retries, want 10", n)
	}
	if !r.Retry(start.Add(time.Second)) {
		t.Error("the floor must refill with time")
	}
}

// TestProblem: operators are told until when a deployment is left alone and why, and nothing once it is well.
func TestProblem(t *testing.T) {
	r := New()
	c := []exchange.Target{target("a", 1, 1)}
	want := func(at time.Time, text string) {
		t.Helper()
		if h := r.Health(at); h[0].Problem != text || (h[0].State == "closed") != (text == "") {
			t.Errorf("%+v, want %q", h, text)
		}
	}
	report := func(at time.Time, f *exchange.Failure) { r.Report(at, "a", f) }
	for range 2 {
		report(start, nil)
	}
	for range 8 {
		want(start, "")
		report(start, &exchange.Failure{Kind: exchange.FailOverloaded, Status: 500, Message: "out of \"luck\"\n"})
	}
	later := start.Add(8500 * time.Millisecond)
	want(later, `is left alone for 22 s more: 8 of its last 10 requests failed, the last with status 500 ("out of \"luck\"\n")`)
	due := start.Add(breaker.OpenFor)
	want(due, `is tried again with the next request: 8 of its last 10 requests failed, the last with status 500 ("out of \"luck\"\n")`)
	r.Order(due, c, anyRoom)
	report(due, &exchange.Failure{Kind: exchange.FailTimeout})
	report(due, &exchange.Failure{Kind: exchange.FailRateLimited, Status: 429}) // which does not keep it open
	want(due, "is left alone for 30 s more: 9 of its last 11 requests failed, the last without an answer")
	due = due.Add(breaker.OpenFor)
	r.Order(due, c, anyRoom)
	report(due, &exchange.Failure{Kind: exchange.FailCredential, Status: 401, Message: "wrong key sk-secret"})
	want(due.Add(time.Second), "is left alone for 29 s more: 10 of its last 12 requests failed, the last with status 401")
	due = due.Add(breaker.OpenFor)
	r.Order(due, c, anyRoom)
	report(due, nil)
	want(due, "")
}

// TestNothingToWaitFor: of open breakers those do not count whose deployment is misconfigured.
func TestNothingToWaitFor(t *testing.T) {
	r := New()
	fail := func(at time.Time, id string, kind exchange.FailureKind) {
		for range breaker.Min {
			r.Report(at, id, failed(kind))
		}
	}
	fail(start, "a", exchange.FailCredential)
	fail(start, "b", exchange.FailNotFound)
	fail(start.Add(time.Second), "c", exchange.FailOverloaded)
	now := start.Add(2 * time.Second)
	if o, wait := r.Order(now, []exchange.Target{target("a", 1, 1), target("b", 1, 1)}, anyRoom); len(o) != 0 || wait != 0 {
		t.Errorf("%s, wait %s", ids(o), wait)
	}
	both := []exchange.Target{target("a", 1, 1), target("c", 1, 1)}
	if o, wait := r.Order(now, both, anyRoom); len(o) != 0 || wait != breaker.OpenFor-time.Second {
		t.Errorf("%s, wait %s", ids(o), wait)
	}
	r.Forget(func(id string) bool { return id == "a" })
	if o, _ := r.Order(now, both, anyRoom); ids(o) != "a" {
		t.Errorf("%s: what is another now is trusted, what is not is not", ids(o))
	}
}
