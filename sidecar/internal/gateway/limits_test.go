package gateway

import (
	"strings"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

const (
	keyRequests = 100 + iota
	teamTokens
	keyOutput
	teamMoney
)

// limited draws on a bucket of requests, two of tokens and a budget.
func limited(requests, tokens, output, money int64) func(*quotav1.Snapshot) {
	return func(s *quotav1.Snapshot) {
		bucket := func(id uint64, scope, owner string, kind quotav1.Kind, n int64) *quotav1.Resource {
			return &quotav1.Resource{Id: id, Scope: scope, Owner: owner, Kind: kind, Limit: n, Burst: n}
		}
		budget := bucket(teamMoney, "team", "red", quotav1.Kind_KIND_MONEY, money)
		budget.Hard, budget.Period, budget.PeriodEndsMs = true, 209912, time.Now().Add(48*time.Hour).UnixMilli()
		s.Resources = []*quotav1.Resource{
			bucket(keyRequests, "key", "app", quotav1.Kind_KIND_REQUESTS, requests),
			bucket(teamTokens, "team", "red", quotav1.Kind_KIND_TOTAL_TOKENS, tokens),
			bucket(keyOutput, "key", "app", quotav1.Kind_KIND_OUTPUT_TOKENS, output), budget,
		}
		s.Keys[0].Draws = []uint64{keyRequests, teamTokens, keyOutput, teamMoney}
	}
}

var limitHeaderNames = []string{
	"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
	"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens", "x-gw-budget-remaining",
}

// checkLimits wants every header of the contract, with numbers and OpenAI's kind of durations.
func checkLimits(t *testing.T, a answer) {
	t.Helper()
	for _, name := range limitHeaderNames {
		v := a.header.Get(name)
		switch {
		case v == "":
			t.Errorf("%d without %s", a.status, name)
		case strings.Contains(name, "-reset-"):
			if d, err := time.ParseDuration(v); err != nil || d < 0 || d > time.Minute {
				t.Errorf("%s: %q", name, v)
			}
		case strings.HasPrefix(name, "x-ratelimit-") && a.number(name) < 0:
			t.Errorf("%s: %q", name, v)
		}
	}
	if a.number("x-ratelimit-remaining-requests") > a.number("x-ratelimit-limit-requests") {
		t.Error("more remains than there is")
	}
}

func TestLimitHeaders(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, limited(3, 100_000, 50_000, 1_000_000_000_000))
	for i := range 3 {
		a := r.chat(hello)
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		checkLimits(t, a)
		if got := a.number("x-ratelimit-remaining-requests"); got != int64(2-i) {
			t.Errorf("request %d: %d requests remain", i, got)
		}
		if a.number("x-ratelimit-limit-requests") != 3 || a.number("x-ratelimit-limit-tokens") != 50_000 {
			t.Errorf("limits %v", a.header)
		}
	}
	a := r.chat(hello)
	if a.status != 429 || a.get("error.code").Str != "key_requests_per_minute" || a.get("error.needed").Int() != 1 ||
		a.get("error.left").Int() != 0 || a.get("error.limit").Int() != 3 {
		t.Errorf("%d %s", a.status, a.body)
	}
	checkLimits(t, a)
	if a.number("x-ratelimit-remaining-requests") != 0 {
		t.Errorf("%v", a.header)
	}
	if a.number("retry-after") != 2 || a.number("retry-after-ms") != 1_500 || a.header.Get("x-should-retry") != "true" {
		t.Errorf("%v", a.header)
	}
	// A body that is refused is told all the same.
	if a = r.chat(`{"model":"chat"}`); a.status != 400 || a.header.Get("retry-after") != "" || a.header.Get("x-should-retry") != "false" {
		t.Errorf("%d %v", a.status, a.header)
	}
	checkLimits(t, a)
}

// TestLimitThatRanOutIsTheOneTold: of two limits on tokens the headers show the one that refused, although less is left
// of the other.
func TestLimitThatRanOutIsTheOneTold(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, limited(10, 400, 300, 1_000_000_000_000))
	if a := r.chat(hello); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// 100 to 400 tokens were in use; the answer used 15. Now the whole of the output limit is asked for.
	a := r.chat(strings.Replace(hello, `{`, `{"max_tokens":299,`, 1))
	if a.status != 429 || a.get("error.code").Str != "key_output_tokens_per_minute" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a.number("x-ratelimit-limit-tokens") != 300 || a.number("x-ratelimit-remaining-tokens") != a.get("error.left").Int() {
		t.Errorf("%v for %s", a.header, a.body)
	}
}

func TestRequestThatNeverFits(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, limited(10, 400, 300, 1_000_000_000_000))
	a := r.chat(strings.Replace(hello, `{`, `{"max_tokens":301,`, 1))
	if a.status != 400 || a.get("error.code").Str != "request_exceeds_limit" || a.get("error.left").Int() != 300 ||
		a.get("error.needed").Int() != 301 || a.header.Get("x-should-retry") != "false" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestBudgetGone(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, limited(10, 100_000, 50_000, 2_000_000)) // 0.002 USD: two hundred output tokens
	a := r.chat(strings.Replace(hello, `{`, `{"max_tokens":99,`, 1))
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	checkLimits(t, a)
	a = r.chat(strings.Replace(hello, `{`, `{"max_tokens":195,`, 1))
	if a.status != 429 || a.get("error.code").Str != "budget_exhausted" || a.header.Get("retry-after") != "" ||
		a.header.Get("retry-after-ms") != "" || a.header.Get("x-should-retry") != "false" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	checkLimits(t, a)
	at, err := time.Parse(time.RFC3339, a.get("error.resets_at").Str)
	if err != nil || time.Until(at) < 47*time.Hour || time.Until(at) > 49*time.Hour {
		t.Errorf("resets_at %s: %v", a.get("error.resets_at").Raw, err)
	}
	// 10 input tokens at 2 and 5 output tokens at 10 nano-dollars a thousand were used.
	if got := a.header.Get("x-gw-budget-remaining"); got != "0.00193" {
		t.Errorf("x-gw-budget-remaining %s", got)
	}
}

// TestFirstRequestIsRefused: the headers are there before quotad has granted anything.
func TestFirstRequestIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		limits func(*quotav1.Snapshot)
		body   string
		status int
		left   map[string]string // by header
	}{
		"by the body": {limited(10, 100_000, 50_000, 2_000_000), `{`, 400, map[string]string{
			"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "10", "x-ratelimit-reset-requests": "0s",
			"x-ratelimit-limit-tokens": "50000", "x-ratelimit-remaining-tokens": "50000", "x-gw-budget-remaining": "",
		}},
		"by the budget": {limited(10, 100_000, 50_000, 1_000), hello, 429, map[string]string{
			"x-ratelimit-remaining-requests": "10", "x-ratelimit-remaining-tokens": "50000", "x-gw-budget-remaining": "0.000001",
		}},
		"by a size": {limited(10, 100_000, 50, 2_000_000), hello, 400, map[string]string{
			"x-ratelimit-limit-tokens": "50", "x-ratelimit-remaining-tokens": "50", "x-ratelimit-remaining-requests": "10",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newRig(t, []*provider{{id: "a", answer: fine}}, c.limits).chat(c.body)
			if a.status != c.status {
				t.Fatalf("%d %s", a.status, a.body)
			}
			for h, want := range c.left {
				if got := a.header.Get(h); got != want {
					t.Errorf("%s: %q, want %q", h, got, want)
				}
			}
		})
	}
}
