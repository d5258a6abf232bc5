package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
)

const (
	runMoney = 200 + iota
	runCalls
	userRequests
	userTokens
)

// each adds a resource that is one for each name to what the key draws on.
func each(id uint64, scope string, kind quotav1.Kind, n int64) func(*quotav1.Snapshot) {
	return func(s *quotav1.Snapshot) {
		r := &quotav1.Resource{Id: id, Scope: scope, Owner: "red", Kind: kind, Limit: n, Each: quotav1.Each_EACH_NAME}
		if scope == exchange.ScopeRun {
			r.Hard = true
		} else {
			r.Burst = n
		}
		s.Resources = append(s.Resources, r)
		s.Keys[0].Draws = append(s.Keys[0].GetDraws(), id)
	}
}

// all makes several changes.
func all(changes ...func(*quotav1.Snapshot)) func(*quotav1.Snapshot) {
	return func(s *quotav1.Snapshot) {
		for _, change := range changes {
			change(s)
		}
	}
}

// edit puts a changed snapshot in force.
func (r *rig) edit(change func(*quotav1.Snapshot)) {
	r.t.Helper()
	snap := proto.CloneOf(r.snap)
	change(snap)
	rules, err := policy.Compile(snap)
	r.must(err)
	r.g.Lease.Configure(snap.GetResources())
	r.must(r.g.Policy.Install(rules, snap))
	r.snap = snap
}

func output(n int) string { return with(fmt.Sprintf(`"max_tokens":%d`, n)) }

// TestRunBudget: a run may cost so much and no more, whatever its team has left. Raised, the same run goes on.
func TestRunBudget(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, all(
		limited(100, 100_000, 50_000, allMoney), each(runMoney, "run", quotav1.Kind_KIND_MONEY, 2_000_000)))
	run := []string{"x-gw-run-id", "agent/7"}
	if a := r.chat(output(99), run...); a.status != 200 || !strings.HasPrefix(a.header.Get("x-gw-budget-remaining"), "0.0009") {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	a := r.chat(output(192), run...)
	if a.status != 429 || a.get("error.code").Str != "run_budget_exhausted" || a.get("error.scope").Str != "run_budget" ||
		a.get("error.unit").Str != "usd" || a.get("error.left").Raw != "0.00193" || a.get("error.limit").Raw != "0.002" ||
		a.get("error.resets_at").Exists() || a.header.Get("x-should-retry") != "false" || a.header.Get("retry-after") != "" ||
		a.header.Get("x-gw-budget-remaining") != "0.00193" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if m := a.get("error.message").Str; !strings.Contains(m, `"agent/7"`) || !strings.Contains(m, "resumable") {
		t.Errorf("message %s", m)
	}
	for name, header := range map[string][]string{"another run": {"x-gw-run-id", "agent/8"}, "no run": nil} {
		if a := r.chat(output(192), header...); a.status != 200 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	r.ledger.give(runMoney, "agent/7", 2_000_000)
	r.edit(func(s *quotav1.Snapshot) { s.Resources[len(s.GetResources())-1].Limit = 4_000_000 })
	if a := r.chat(output(192), run...); a.status != 200 {
		t.Errorf("raised: %d %v %s", a.status, a.header, a.body)
	}
	if left, limit, _, _ := r.g.Lease.RemainingOf(runMoney, "agent/7"); left != 3_860_000 || limit != 4_000_000 {
		t.Errorf("%d of %d left of the run", left, limit)
	}
}

// TestRunIsReservedWhole: near the end of a run's budget a request is admitted at its cap, not at what such requests use:
// the budget is hard.
func TestRunIsReservedWhole(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, each(runMoney, "run", quotav1.Kind_KIND_MONEY, 7_000_000))
	for range 50 { // the series is learned: five tokens
		r.chat(output(600))
	}
	run := []string{"x-gw-run-id", "r"}
	for range 29 { // each costs 70,000
		if a := r.chat(hello, run...); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a := r.chat(output(600), run...); a.status != 429 || a.get("error.code").Str != "run_budget_exhausted" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.chat(output(400), run...); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestRunCalls: a call is a request that was answered. One that was refused, here or by every provider, costs none.
func TestRunCalls(t *testing.T) {
	broken := false
	answer := func(w http.ResponseWriter, r *http.Request) {
		if broken {
			failing(500, "x-should-retry", "false")(w, r)
			return
		}
		fine(w, r)
	}
	r := newRig(t, []*provider{{id: "a", answer: answer}}, all(
		limited(100, 400, 300, allMoney), each(runCalls, "run", quotav1.Kind_KIND_CALLS, 3)))
	run := []string{"x-gw-run-id", "r"}
	ask := func(body string, status int) counted {
		t.Helper()
		a := r.chat(body, run...)
		if a.status != status {
			t.Fatalf("%d, want %d: %s", a.status, status, a.body)
		}
		left, _, _, _ := r.g.Lease.RemainingOf(runCalls, "r")
		return counted{a, left}
	}
	if left := ask(hello, 200).left; left != 2 {
		t.Errorf("%d calls left after one", left)
	}
	ask(output(301), 400)
	ask(output(299), 429) // the key's tokens
	broken = true
	ask(hello, 503)
	broken = false
	if left := ask(with(`"stream":true`), 200).left; left != 1 {
		t.Errorf("%d calls left after two", left)
	}
	ask(hello, 200)
	a := ask(hello, 429)
	if a.get("error.code").Str != "run_budget_exhausted" || a.get("error.scope").Str != "run_calls" ||
		a.get("error.unit").Str != "calls" || a.get("error.left").Int() != 0 || a.get("error.needed").Int() != 1 ||
		a.get("error.limit").Int() != 3 || a.header.Get("x-should-retry") != "false" || a.header.Get("retry-after") != "" {
		t.Errorf("%v %s", a.header, a.body)
	}
}

// counted is an answer and the calls that are left after it.
type counted struct {
	answer
	left int64
}

// TestNeverFitsAnyOne: what is larger than a run's whole cap or a user's whole burst is refused, and quotad never hears
// of it.
func TestNeverFitsAnyOne(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, all(
		each(runMoney, "run", quotav1.Kind_KIND_MONEY, 2_000_000), each(userTokens, "end_user", quotav1.Kind_KIND_TOTAL_TOKENS, 150)))
	for name, c := range map[string]struct {
		header   []string
		resource uint64
		scope    string
	}{
		"a run":  {[]string{"x-gw-run-id", "r"}, runMoney, "run_budget"},
		"a user": {[]string{"x-gw-user", "ann"}, userTokens, "end_user_tokens_per_minute"},
	} {
		a := r.chat(output(201), c.header...)
		if a.status != 400 || a.get("error.code").Str != "request_exceeds_limit" || a.get("error.scope").Str != c.scope ||
			a.header.Get("x-should-retry") != "false" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if got := r.ledger.names(c.resource); len(got) != 0 {
			t.Errorf("%s: quotad was asked for %v", name, got)
		}
	}
}

func TestRunID(t *testing.T) {
	p := &provider{id: "a", answer: fine}
	r := newRig(t, []*provider{p}, each(runCalls, "run", quotav1.Kind_KIND_CALLS, 10))
	long := strings.Repeat("r", runIDMax)
	for _, id := range []string{"r", "a/b:c~!", long} {
		if a := r.chat(hello, "x-gw-run-id", id); a.status != 200 {
			t.Errorf("%q: %d %s", id, a.status, a.body)
		}
	}
	if got := r.ledger.names(runCalls); len(got) != 3 || got[2] != long {
		t.Errorf("runs %v", got)
	}
	before := p.calls.Load()
	for _, id := range []string{"", "a b", "a\tb", "é", long + "r"} {
		a := r.chat(hello, "x-gw-run-id", id)
		if a.status != 400 || a.get("error.param").Str != "x-gw-run-id" || a.header.Get("x-should-retry") != "false" {
			t.Errorf("%q: %d %s", id, a.status, a.body)
		}
	}
	if p.calls.Load() != before {
		t.Error("a run without a valid id reached a provider")
	}
}

// TestEndUser: each user has a limit of its own; who it is leaves the process as a hash; without one the limit is not
// drawn on.
func TestEndUser(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, all(
		each(userRequests, "end_user", quotav1.Kind_KIND_REQUESTS, 2), each(userTokens, "end_user", quotav1.Kind_KIND_TOTAL_TOKENS, 1_000)))
	for range 2 {
		if a := r.chat(hello, "x-gw-user", "ann@example.com"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := r.chat(with(`"user":"ann@example.com"`))
	if a.status != 429 || a.get("error.code").Str != "end_user_requests_per_minute" || a.get("error.left").Int() != 0 ||
		a.get("error.needed").Int() != 1 || a.get("error.limit").Int() != 2 || a.number("retry-after-ms") != 1_500 ||
		a.header.Get("x-should-retry") != "true" || a.number("x-ratelimit-remaining-requests") != 0 ||
		a.number("x-ratelimit-limit-requests") != 2 {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := r.chat(hello, "x-gw-user", "bob"); a.status != 200 || a.number("x-ratelimit-remaining-requests") != 1 ||
		a.number("x-ratelimit-limit-tokens") != 1_000 {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := r.chat(output(950), "x-gw-user", "carl"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.chat(output(980), "x-gw-user", "carl"); a.status != 429 || a.get("error.code").Str != "end_user_tokens_per_minute" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for range 3 {
		if a := r.chat(hello); a.status != 200 || a.header.Get("x-ratelimit-limit-requests") != "" {
			t.Errorf("no user: %d %v %s", a.status, a.header, a.body)
		}
	}
	for _, name := range r.ledger.names(userRequests) {
		if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
			t.Errorf("quotad was told %q", name)
		}
	}
}

// TestNames: so many names of a key are told apart, and no more; those that rest make room. Other keys, and the other
// scope, have their own.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{}
		admit := func(key, scope, name string) string { return g.names.admit(time.Now(), key, scope, name) }
		for i := range namesMax {
			if name := fmt.Sprint(i); admit("k", "run", name) != name {
				t.Fatalf("name %d has no room", i)
			}
		}
		if admit("k", "run", "late") != "" || admit("k", "run", "0") != "0" || admit("other", "run", "late") != "late" ||
			admit("k", "end_user", "late") != "late" {
			t.Error("the bound is of one key and one scope, and those who are in stay in")
		}
		if got := g.Names("run"); got != (NameCounts{namesMax + 1, 1}) {
			t.Errorf("%+v", got)
		}
		<-time.After(nameKept - 1)
		if admit("k", "run", "0") != "0" || admit("k", "run", "late") != "" {
			t.Error("names are live until ten minutes after their last request")
		}
		<-time.After(1)
		if admit("k", "run", "late") != "late" {
			t.Error("who rests makes room")
		}
		if got := g.Names("run"); got.Live != 2 || len(g.names.live) != 2 || g.names.byUse.Len() != 2 {
			t.Errorf("%+v of %d", got, len(g.names.live))
		}
		<-time.After(nameKept)
		if got := g.Names("run"); got.Live != 0 || len(g.names.count) != 0 || len(g.names.live) != 0 {
			t.Errorf("%+v: all are gone", got)
		}
	})
}

// TestRequestCap: no single request of the team may reserve more.
func TestRequestCap(t *testing.T) {
	p := &provider{id: "a", answer: fine}
	r := newRig(t, []*provider{p}, func(s *quotav1.Snapshot) { s.Keys[0].RequestCapNano = 2_000_000 })
	a := r.chat(output(201))
	if a.status != 400 || a.get("error.code").Str != "request_exceeds_limit" || a.get("error.scope").Str != "request_cap" ||
		a.get("error.limit").Raw != "0.002" || a.get("error.needed").Num <= 0.002 || a.header.Get("x-should-retry") != "false" ||
		!strings.Contains(a.get("error.message").Str, `team "red" has a request_cap of 0.002 USD`) || p.calls.Load() != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.chat(output(150)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
