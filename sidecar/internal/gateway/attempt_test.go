package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// with is the chat request with more members.
func with(members string) string { return strings.Replace(hello, `{`, `{`+members+`,`, 1) }

// refusing answers 400 with an error object's members.
func refusing(members string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error":{"message":"no",`+members+`}}`)
	}
}

// TestWhatIsTriedNext: which failures go to the next deployment, which come back to the same one, and what the caller
// is told.
func TestWhatIsTriedNext(t *testing.T) {
	tooLong := refusing(`"code":"context_length_exceeded"`)
	for name, c := range map[string]struct {
		first, second http.HandlerFunc // second nil: there is none
		calls         []int64
		status        int
		code          string
		attempts      []string // as the error lists them
		retry         string   // x-should-retry of a failure
		after         string   // retry-after
	}{
		"overloaded, then fine":   {failing(503), fine, []int64{1, 1}, 200, "", nil, "", ""},
		"overloaded for good":     {failing(503), nil, []int64{3}, 503, "upstream_overloaded", []string{"a overloaded", "a overloaded", "a overloaded"}, "false", ""},
		"both, then the first":    {failing(500), failing(502), []int64{2, 1}, 503, "upstream_overloaded", []string{"a overloaded", "b overloaded", "a overloaded"}, "false", ""},
		"asked to wait":           {failing(503, "Retry-After", "30"), nil, []int64{1}, 503, "upstream_overloaded", []string{"a overloaded"}, "true", "30"},
		"asked to wait a little":  {failing(503, "Retry-After-Ms", "1"), nil, []int64{3}, 503, "upstream_overloaded", nil, "true", "1"},
		"told not to repeat":      {failing(503, "x-should-retry", "false"), nil, []int64{1}, 503, "upstream_overloaded", nil, "false", ""},
		"told so, another is":     {failing(503, "x-should-retry", "false"), fine, []int64{1, 1}, 200, "", nil, "", ""},
		"rate limited":            {failing(429, "Retry-After", "7"), nil, []int64{1}, 429, "upstream_rate_limited", []string{"a rate_limited"}, "true", "7"},
		"rate limited, then fine": {failing(429), fine, []int64{1, 1}, 200, "", nil, "", ""},
		"rate limited twice":      {failing(429), failing(429), []int64{1, 1}, 429, "upstream_rate_limited", nil, "true", "1"},
		"the caller's fault":      {refusing(`"param":"messages"`), fine, []int64{1, 0}, 400, "invalid_value", []string{"a request"}, "false", ""},
		"the content":             {refusing(`"code":"content_policy_violation"`), fine, []int64{1, 0}, 400, "content_policy_violation", nil, "false", ""},
		"gave up waiting":         {failing(504), nil, []int64{3}, 504, "upstream_timeout", nil, "false", ""},
		"too large for it":        {failing(413), fine, []int64{1, 0}, 413, "request_too_large", nil, "false", ""},
		"not built in":            {failing(501), fine, []int64{1, 1}, 200, "", nil, "", ""},
		"our key":                 {failing(401), fine, []int64{1, 1}, 200, "", nil, "", ""},
		"our keys":                {failing(401), failing(403), []int64{1, 1}, 502, "upstream_misconfigured", []string{"a misconfigured", "b misconfigured"}, "false", ""},
		"no such model":           {failing(404), nil, []int64{1}, 502, "upstream_misconfigured", nil, "false", ""},
		"too long for all":        {tooLong, fine, []int64{1, 0}, 400, "context_length_exceeded", nil, "false", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ps := []*provider{{id: "a", answer: c.first}}
			if c.second != nil {
				ps = append(ps, &provider{id: "b", answer: c.second})
			}
			r := newRig(t, ps, limited(100, 100_000, 50_000, 1_000_000_000_000))
			a := r.chat(hello)
			if a.status != c.status || a.get("error.code").Str != c.code {
				t.Errorf("%d %s", a.status, a.body)
			}
			var total int64
			for i, p := range ps {
				total += p.calls.Load()
				if p.calls.Load() != c.calls[i] {
					t.Errorf("%s was called %d times, want %d", p.id, p.calls.Load(), c.calls[i])
				}
			}
			if a.number("x-gw-attempts") != total || int64(len(r.attempts())) != total {
				t.Errorf("%s attempts, %d events, %d calls", a.header.Get("x-gw-attempts"), len(r.attempts()), total)
			}
			if c.status == 200 {
				return
			}
			if c.attempts != nil && !slices.Equal(kinds(a), c.attempts) {
				t.Errorf("attempts %v", kinds(a))
			}
			after := a.header.Get("retry-after")
			if c.code == "upstream_overloaded" && after == "1" && c.after == "" {
				t.Error("a wait nobody asked for")
			}
			if a.header.Get("x-should-retry") != c.retry || after != c.after {
				t.Errorf("x-should-retry %q, retry-after %q", a.header.Get("x-should-retry"), after)
			}
			for _, e := range r.attempts() {
				if e.Get("billed").Bool() || e.Get("status").Str != "failed" {
					t.Errorf("event %s", e.Raw)
				}
			}
			if open := r.g.Lease.Stats().OpenHolds; open != 0 {
				t.Errorf("%d reservations are open", open)
			}
		})
	}
}

// TestInnerError: what a provider's filter found is not lost on the way.
func TestInnerError(t *testing.T) {
	a := newRig(t, []*provider{{id: "a", answer: refusing(`"code":"content_filter","innererror":{"code":"x","content_filter_result":{"hate":{"filtered":true}}}`)}}, limited(100, 100_000, 50_000, 1_000_000_000_000)).chat(hello)
	if !a.get("error.innererror.content_filter_result.hate.filtered").Bool() || a.get("error.code").Str != "content_filter" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestEligible: a deployment that cannot honour a member is passed over without being an attempt; when none can, the
// answer names the member.
func TestEligible(t *testing.T) {
	claude := func() *provider {
		return &provider{id: "claude", dialect: "anthropic", model: "claude-fx-5", answer: failing(500)}
	}
	for name, c := range map[string]struct{ body, param string }{
		"temperature":     {with(`"temperature":1.5`), "temperature"},
		"n":               {with(`"n":2`), "n"},
		"logprobs":        {with(`"logprobs":true`), "logprobs"},
		"logit_bias":      {with(`"logit_bias":{"1":5}`), "logit_bias"},
		"seed":            {with(`"seed":5`), "seed"},
		"response_format": {with(`"response_format":{"type":"json_object"}`), "response_format"},
		"modalities":      {with(`"modalities":["text","audio"],"audio":{"voice":"x","format":"mp3"}`), "modalities"},
		"audio": {`{"model":"chat","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}`,
			"messages[0].content[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			p, other := claude(), &provider{id: "other", answer: fine}
			one := func(s *quotav1.Snapshot) { s.Aliases[0].MaxAttempts = 1 }
			r := newRig(t, []*provider{p, other}, one)
			a := r.chat(c.body)
			if a.status != 200 || a.header.Get("x-gw-deployment") != "other" || a.header.Get("x-gw-attempts") != "1" ||
				a.get("x_gateway.attempts").Int() != 1 || len(r.attempts()) != 1 || p.calls.Load() != 0 {
				t.Errorf("%d %v %s", a.status, a.header, a.body)
			}
			r = newRig(t, []*provider{p}, one)
			a = r.chat(c.body)
			if a.status != 400 || a.get("error.param").Str != c.param || a.get("error.code").Str != "unsupported_parameter" ||
				a.get("error.attempts").Exists() || a.header.Get("x-should-retry") != "false" {
				t.Errorf("%d %s", a.status, a.body)
			}
			if p.calls.Load() != 0 || len(r.attempts()) != 0 || r.g.Lease.Stats().OpenHolds != 0 {
				t.Errorf("%d calls, %d events", p.calls.Load(), len(r.attempts()))
			}
		})
	}
	t.Run("the failure of one that could outranks it", func(t *testing.T) {
		r := newRig(t, []*provider{{id: "a", answer: failing(401)}, claude()}, nil)
		if a := r.chat(with(`"seed":5`)); a.status != 502 || a.get("error.code").Str != "upstream_misconfigured" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	t.Run("the alias lets it go", func(t *testing.T) {
		p := claude()
		r := newRig(t, []*provider{p}, func(s *quotav1.Snapshot) { s.Aliases[0].AllowDropped = []string{"seed"} })
		r.chat(with(`"seed":5`))
		if b := p.lastBody(); b == "" || strings.Contains(b, "seed") {
			t.Errorf("sent %s", b)
		}
	})
	t.Run("no credential", func(t *testing.T) {
		bare := &provider{id: "bare", answer: fine, change: func(d *quotav1.Deployment) { d.Credential = "later" }}
		r := newRig(t, []*provider{bare, {id: "other", answer: fine}}, nil)
		if a := r.chat(hello); a.status != 200 || a.header.Get("x-gw-attempts") != "1" || bare.calls.Load() != 0 {
			t.Errorf("%d %v", a.status, a.header)
		}
		r = newRig(t, []*provider{claude(), bare}, nil)
		if a := r.chat(with(`"seed":5`)); a.status != 502 || strings.Contains(a.body, "later") {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestOperatorIsTold: why a deployment cannot answer stands in its health, without the provider's text, which may quote the
// key; an answer takes it back.
func TestOperatorIsTold(t *testing.T) {
	p := &provider{id: "a", answer: failing(401)}
	r := newRig(t, []*provider{p, {id: "bare", answer: fine, change: func(d *quotav1.Deployment) { d.Credential = "later" }}}, nil)
	faults := func() map[string]string {
		out := map[string]string{}
		for _, h := range r.g.Route.Health(time.Now()) {
			out[h.Deployment] = h.Fault
		}
		return out
	}
	r.chat(hello)
	if got := faults(); !strings.Contains(got["a"], "status 401") || !strings.Contains(got["bare"], `"later" has not been received`) {
		t.Errorf("got %v", got)
	}
	p.answer = fine
	r.chat(hello)
	if got := faults(); got["a"] != "" || got["bare"] == "" {
		t.Errorf("after an answer of one: %v", got)
	}
}

// TestNoneFits: when the configuration rules out every deployment, the answer says which rule, or which member.
func TestNoneFits(t *testing.T) {
	const tool = `"tools":[{"type":"function","function":{"name":"f"}}]`
	for name, c := range map[string]struct {
		change             func(*quotav1.Deployment)
		body               string
		header             []string
		status             int
		code, param, names string
	}{
		"tools": {func(d *quotav1.Deployment) { d.Capabilities = []string{"vision"} }, with(tool), nil, 400, "unsupported_parameter", "tools", "tools"},
		"schema": {func(d *quotav1.Deployment) { d.Capabilities = []string{"vision"} },
			with(`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}`), nil, 400, "unsupported_parameter", "response_format", "json_schema"},
		"data class": {func(d *quotav1.Deployment) { d.DataClasses = []string{"public"} }, hello, []string{"x-gw-data-class", "internal"}, 403, "data_class_not_allowed", "", "data_class"},
		"account":    {func(d *quotav1.Deployment) { d.Account = "bu" }, hello, nil, 403, "account_not_allowed", "model", "account"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{id: "a", answer: fine, change: c.change}
			r := newRig(t, []*provider{p}, nil)
			a := r.chat(c.body, c.header...)
			if a.status != c.status || a.get("error.code").Str != c.code || a.get("error.param").Str != c.param ||
				!strings.Contains(a.get("error.message").Str, "a: "+c.names) || a.header.Get("x-should-retry") != "false" || p.calls.Load() != 0 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// TestContextGoesWider: a prompt that was too long goes to a wider window only, past those that are not.
func TestContextGoesWider(t *testing.T) {
	window := func(n int64) func(*quotav1.Deployment) {
		return func(d *quotav1.Deployment) { d.ContextTokens = n }
	}
	tooLong := refusing(`"code":"context_length_exceeded"`)
	ps := []*provider{
		{id: "a", answer: tooLong, change: window(8_000)}, {id: "same", answer: fine, change: window(8_000)},
		{id: "unknown", answer: fine}, {id: "wide", answer: fine, change: window(32_000)},
	}
	a := newRig(t, ps, nil).chat(hello)
	if a.status != 200 || a.header.Get("x-gw-deployment") != "wide" || a.header.Get("x-gw-attempts") != "2" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if ps[1].calls.Load()+ps[2].calls.Load() != 0 {
		t.Error("a window that is no wider was tried")
	}
}

// TestRateLimitMovesTraffic: the next requests leave a deployment alone that has said it is full.
func TestRateLimitMovesTraffic(t *testing.T) {
	full, other := &provider{id: "full", answer: failing(429, "Retry-After", "40")}, &provider{id: "other", answer: fine}
	r := newRig(t, []*provider{full, other}, nil)
	for range 4 {
		if a := r.chat(hello); a.status != 200 || a.header.Get("x-gw-deployment") != "other" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if full.calls.Load() != 1 || other.calls.Load() != 4 {
		t.Errorf("%d and %d calls", full.calls.Load(), other.calls.Load())
	}
}

// TestRetryBudget: retries are a tenth of the requests, above a small floor that refills with time.
func TestRetryBudget(t *testing.T) {
	ps := []*provider{{id: "a", answer: failing(429)}, {id: "b", answer: failing(429)}}
	r := newRig(t, ps, nil)
	const requests = 60
	for range requests {
		r.chat(hello)
	}
	spent, refused := ps[0].calls.Load()+ps[1].calls.Load()-requests, r.metric("sluice_retry_budget_exhausted_total")
	if spent < 10 || spent+int64(refused) != requests || refused == 0 {
		t.Errorf("%d retries, %v refused", spent, refused)
	}
}

// hangUp takes the request and closes the connection.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = c.Close()
	}
}

// TestWhoPaysForFailedAttempts: a provider that took a request and said no more may charge for the prompt. The platform
// pays, or the team when its policy says so; the answered attempt is the one that is billed.
func TestWhoPaysForFailedAttempts(t *testing.T) {
	for name, team := range map[string]bool{"platform": false, "team": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []*provider{{id: "silent", answer: hangUp}, {id: "b", answer: fine}}, func(s *quotav1.Snapshot) {
				limited(100, 100_000, 50_000, 1_000_000_000_000)(s)
				s.Keys[0].PaysFailedAttempts = team
			})
			a := r.chat(hello)
			if a.status != 200 || a.header.Get("x-gw-attempts") != "2" || a.header.Get("x-gw-deployment") != "b" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			ev := r.attempts()
			if len(ev) != 2 {
				t.Fatalf("%d events", len(ev))
			}
			lost, paid := ev[0], ev[1]
			if lost.Get("billed").Bool() || lost.Get("platform_pays").Bool() == team || lost.Get("source").Str != "estimate" ||
				lost.Get("tokens.input").Int() <= 0 || lost.Get("cost_nano").Int() <= 0 || lost.Get("attempt").Int() != 1 {
				t.Errorf("lost %s", lost.Raw)
			}
			if !paid.Get("billed").Bool() || paid.Get("platform_pays").Bool() || paid.Get("cost_nano").Int() != 70_000 || paid.Get("attempt").Int() != 2 {
				t.Errorf("paid %s", paid.Raw)
			}
			left, _, _, _ := r.g.Lease.Remaining(teamMoney)
			want := int64(1_000_000_000_000 - 70_000)
			if team {
				want -= lost.Get("cost_nano").Int()
			} else if got := r.metric("sluice_platform_cost_nano_total"); int64(got) != lost.Get("cost_nano").Int() {
				t.Errorf("the platform's cost is %v", got)
			}
			if left != want {
				t.Errorf("%d left of the budget, want %d", left, want)
			}
		})
	}
}

// TestTheTeamPaysWhenNothingWasAnswered: the reservation is settled with what failed, not released.
func TestTheTeamPaysWhenNothingWasAnswered(t *testing.T) {
	r := newRig(t, []*provider{{id: "silent", answer: hangUp}}, func(s *quotav1.Snapshot) {
		limited(100, 100_000, 50_000, 1_000_000_000_000)(s)
		s.Aliases[0].MaxAttempts = 1
		s.Keys[0].PaysFailedAttempts = true
	})
	if a := r.chat(hello); a.status != 502 || a.get("error.code").Str != "upstream_unreachable" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	cost := r.attempts()[0].Get("cost_nano").Int()
	if left, _, _, _ := r.g.Lease.Remaining(teamMoney); cost <= 0 || left != 1_000_000_000_000-cost {
		t.Errorf("%d left after a cost of %d", left, cost)
	}
}

func TestErrorNamesTheCallersMember(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: refusing(`"param":"max_completion_tokens","code":"invalid_value"`)}}, nil)
	for body, want := range map[string]string{
		with(`"max_tokens":50`): "max_tokens", with(`"max_completion_tokens":50`): "max_completion_tokens", hello: "max_completion_tokens",
	} {
		if a := r.chat(body); a.status != 400 || a.get("error.param").Str != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

// TestThinkingIsReserved: a cap that is not the caller's leaves the answer its room; a small one is raised with what is
// reserved.
func TestThinkingIsReserved(t *testing.T) {
	p := &provider{id: "a", dialect: "anthropic", model: "claude-sonnet-4-5", answer: failing(400)}
	r := newRig(t, []*provider{p}, nil)
	for body, want := range map[string]string{
		with(`"reasoning_effort":"medium"`):                 `"max_tokens":8292,`,
		with(`"reasoning_effort":"medium","max_tokens":50`): `"max_tokens":2048,`,
		with(`"reasoning_effort":"none","max_tokens":50`):   `"max_tokens":50,`,
	} {
		if r.chat(body); !strings.Contains(p.lastBody(), want) {
			t.Errorf("%s became %s", body, p.lastBody())
		}
	}
	r = newRig(t, []*provider{p}, limited(100, 100_000, 2_000, 1_000_000_000_000))
	if a := r.chat(with(`"reasoning_effort":"low","max_tokens":50`)); a.get("error.code").Str != "request_exceeds_limit" || a.get("error.needed").Int() != 2_048 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestEndUserIsHashed: providers see who the end user is, and cannot tell who that is.
func TestEndUserIsHashed(t *testing.T) {
	p := &provider{id: "a", dialect: "anthropic", model: "claude-fx-5", answer: failing(400)}
	r := newRig(t, []*provider{p}, nil)
	all := `"metadata":{"user":"m@x.test"},"user":"u@x.test","safety_identifier":"s@x.test"`
	for _, c := range []struct {
		members string
		header  []string
		user    string
	}{
		{all, nil, "s@x.test"}, {`"user":"u@x.test","metadata":{"user":"m@x.test"}`, nil, "u@x.test"},
		{`"metadata":{"user":"m@x.test"}`, nil, "m@x.test"}, {all, []string{"x-gw-user", "h@x.test"}, "h@x.test"},
	} {
		r.chat(with(c.members), c.header...)
		if b := p.lastBody(); !strings.Contains(b, `"metadata":{"user_id":"`+hashUser(c.user)+`"}`) || strings.Contains(b, "@") {
			t.Errorf("%s became %s", c.members, b)
		}
	}
	r.chat(hello)
	if strings.Contains(p.lastBody(), "metadata") {
		t.Errorf("%s", p.lastBody())
	}
}

// TestOldAzureStatesNoUsage: a version of Azure's API from before stream_options is not sent any, however it is asked for, and
// its stream is settled by what was delivered.
func TestOldAzureStatesNoUsage(t *testing.T) {
	for name, body := range map[string]string{
		"nobody asked":     with(`"stream":true`),
		"the caller asked": with(`"stream":true,"stream_options":{"include_usage":true}`),
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{id: "a", dialect: "azure", model: "gpt", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"hello there"},"finish_reason":null}]}`+"\n\n"+
					`data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			}, change: func(d *quotav1.Deployment) { d.ApiVersion = "2024-06-01" }}
			r := newRig(t, []*provider{p}, limited(100, 100_000, 50_000, allMoney))
			a := r.chat(body)
			if a.status != 200 || strings.Contains(p.lastBody(), "stream_options") {
				t.Fatalf("%d %s: asked %s", a.status, a.body, p.lastBody())
			}
			r.eventually("it is settled", func() bool { return r.g.Lease.Stats().OpenHolds == 0 })
			ev := r.attempts()
			if len(ev) != 1 || ev[0].Get("source").Str != "estimate" || ev[0].Get("tokens.output").Int() <= 0 || ev[0].Get("tokens.input").Int() <= 0 {
				t.Fatalf("events %v", ev)
			}
			if left, _, _, _ := r.g.Lease.Remaining(teamMoney); left != allMoney-ev[0].Get("cost_nano").Int() {
				t.Errorf("%d of the budget is gone, the event says %s", allMoney-left, ev[0].Get("cost_nano").Raw)
			}
			if told := strings.Contains(a.body, `"estimated":true`); told != strings.Contains(body, "stream_options") {
				t.Errorf("the caller is told of an estimate: %v: %s", told, a.body)
			}
		})
	}
}
