package system

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// capped is sharing with a cap on requests, a run budget in dollars and a limit on each end user.
func capped(base, run, limits string) string {
	return strings.Replace(sharing(base, limits), "priority: interactive }", fmt.Sprintf(
		"priority: interactive, request_cap: 0.50, run_budget: { max: %s, max_calls: 8 }, end_user_limits: { rpm: 1 } }", run), 1) +
		"org: { classes: { interactive: 0.6, standard: 0.25, batch: 0.05 } }\n"
}

// TestRunsAndUsers: with real processes a run may cost so much and no more, over both sidecars; raised by an operator the
// same run goes on, until its calls are used up. One user is limited while another is not.
func TestRunsAndUsers(t *testing.T) {
	s := start(t, 1, 2, func(base string) string { return capped(base, "0.01", "{ rpm: 6000 }") })
	one := func(i int, header ...string) answer {
		// 200 tokens of output are 0.002 dollars.
		for {
			a := s.call(t.Context(), s.sidecars[i%2], "/v1/chat/completions", appKey, say("tokens=200", `,"max_tokens":200`), header...)
			if a.code() != "budget_reserved" { // the other sidecar has not told yet what it did not use
				return a
			}
			<-time.After(retryAfter(a))
		}
	}
	run := []string{"x-gw-run-id", "agent-7"}
	served := 0
	var last answer
	for ; served < 8; served++ {
		if last = one(served, run...); last.status != 200 {
			break
		}
	}
	if last.code() != "run_budget_exhausted" || served < 3 || served > 4 || last.header.Get("x-should-retry") != "false" ||
		!strings.Contains(last.body, "resumable") || !strings.Contains(last.body, `"scope":"run_budget"`) {
		t.Fatalf("after %d calls: %d %v %s %v", served, last.status, last.header, last.body, last.err)
	}
	if cost := s.fake.Witness(0).Totals.CostNano; cost > 10_000_000 {
		t.Errorf("the run has cost %d nano-dollars, of 10,000,000", cost)
	}
	if a := one(0); a.status != 200 {
		t.Errorf("without a run: %d %s", a.status, a.body)
	}
	if a := one(1, "x-gw-run-id", "agent-8"); a.status != 200 {
		t.Errorf("another run: %d %s", a.status, a.body)
	}
	s.apply(capped(s.fakeURL, "1", "{ rpm: 6000 }"))
	s.eventually("the run goes on", func() bool { return one(0, run...).status == 200 })
	for served++; served < 8; served++ {
		if a := one(served, run...); a.status != 200 {
			t.Fatalf("call %d: %d %s", served, a.status, a.body)
		}
	}
	if a := one(1, run...); a.code() != "run_budget_exhausted" || !strings.Contains(a.body, `"scope":"run_calls"`) {
		t.Errorf("the ninth call: %d %s", a.status, a.body)
	}
	large := s.call(t.Context(), s.sidecars[0], "/v1/chat/completions", appKey, say("tokens=1", `,"max_tokens":60000`))
	if large.status != 400 || large.code() != "request_exceeds_limit" || !strings.Contains(large.body, "request_cap") {
		t.Errorf("a request above the cap: %d %s", large.status, large.body)
	}

	began := time.Now()
	limited := func(user string) (n int) {
		for i := range 4 {
			switch a := one(i, "x-gw-user", user); {
			case a.status == 200:
			case a.code() == "end_user_requests_per_minute" && a.header.Get("retry-after") != "" && a.header.Get("x-should-retry") == "true":
				n++
			default:
				t.Errorf("%s: %d %s %v", user, a.status, a.body, a.err)
			}
		}
		return n
	}
	// One a minute: what the time since the first has brought back may be served too.
	for _, user := range []string{"ann@example.com", "bob@example.com"} {
		if n, back := limited(user), 1+int(time.Since(began)/time.Minute); n < 4-1-back || n > 3 {
			t.Errorf("%s was limited %d times of 4", user, n)
		}
	}
	for _, sc := range s.sidecars {
		b, err := get(sc.ops + "/status")
		if err != nil || strings.Contains(b, "agent-7") || strings.Contains(b, sum("ann@example.com")) {
			t.Errorf("status names who is limited: %v %s", err, b)
		}
		if st := s.status(sc); st.EndUsers.Live != 2 || st.Runs.Live < 1 {
			t.Errorf("%+v %+v", st.EndUsers, st.Runs)
		}
	}
}

// TestPoolOfProcesses is TestPoolOverTwoSidecars with real processes and the real clock.
func TestPoolOfProcesses(t *testing.T) {
	long(t)
	const limit = 1_200 // a minute, and 90 percent of it are used
	s := start(t, 1, 2, func(base string) string { return capped(base, "1", fmt.Sprintf("{ rpm: %d }", limit)) })
	err := s.fake.Apply(fakeprovider.Control{Limits: &map[string]fakeprovider.Limits{"m1": {Requests: limit}}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	served := map[string]int{}
	count := func(of string) int {
		mu.Lock()
		defer mu.Unlock()
		return served[of]
	}
	began := time.Now()
	end := began.Add(2 * time.Minute)
	var load sync.WaitGroup
	for i := range 32 {
		key := []string{appKey, batchKey}[i/2%2]
		load.Go(func() {
			for time.Now().Before(end) {
				a := s.call(t.Context(), s.sidecars[i%2], "/v1/chat/completions", key, say("tokens=2 first=100ms", ""))
				switch {
				case a.status == 200:
					mu.Lock()
					served[key]++
					mu.Unlock()
				case a.code() != "upstream_rate_limited" || retryAfter(a) <= 0:
					t.Errorf("%d %s %v", a.status, a.body, a.err)
					return
				default:
					<-time.After(min(retryAfter(a), time.Until(end)))
				}
			}
		})
	}
	<-time.After(time.Minute) // the bucket that was full is used up
	all, batch := count(appKey)+count(batchKey), count(batchKey)
	from := time.Now()
	load.Wait()
	most := int(limit * 9 / 10 * time.Since(from).Milliseconds() / 60_000)
	all, batch = count(appKey)+count(batchKey)-all, count(batchKey)-batch
	refused := int(s.fake.Witness(0).Totals.RateLimited)
	t.Logf("%d served of %d, batch %d; the provider refused %d", all, most, batch, refused)
	if refused > all/100 || all < most*95/100 || all > most*105/100 || batch < most*5/100*9/10 {
		t.Error("not all of the limit, not its floor, or beyond the limit")
	}
}
