package wire

import (
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-gateway/sluice/bench/wire/cost"
)

// judge holds what a caller saw against what it must see.
func judge(t *testing.T, f *fixture, d *dialect, got *seen, asked bool) {
	t.Helper()
	if x := got.leaks(plainSecret); x != "" {
		t.Errorf("the caller sees %q: %s", x, got.body)
	}
	if got.header.Get("Content-Encoding") != "" || got.header.Get("X-Request-Id") == "" {
		t.Errorf("head %v", got.header)
	}
	if f.refused() {
		judgeRefusal(t, f, d, got)
		return
	}
	if got.status != 200 {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	if f.Stream != got.streamed() {
		t.Errorf("content type %q", got.header.Get("Content-Type"))
	}
	if f.broken() {
		judgeBroken(t, f, d, got)
		return
	}
	if got.err != nil || !got.done {
		t.Fatalf("error %+v %q, complete %v: %s", got.err, got.message, got.done, got.body)
	}
	judgeContent(t, f, d, got)
	judgeUsage(t, f, d, got, asked)
}

// judgeRefusal: nothing of the answer was forwarded, and the error is in the contract's words, whatever the provider's
// were.
func judgeRefusal(t *testing.T, f *fixture, d *dialect, got *seen) {
	t.Helper()
	if got.status == 200 || got.err == nil {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	w := f.Want
	want := contract(f)
	if got.status != want.status || got.err.Type != d.fault(want) || got.err.Code != want.code {
		t.Errorf("status %d, type %q, code %q, want %+v: %s", got.status, got.err.Type, got.err.Code, want, got.body)
	}
	if param := d.member(w.Error.Param); want.status == 400 && got.err.Param != param {
		t.Errorf("param %q, want %q", got.err.Param, param)
	}
	if got.message == "" {
		t.Errorf("no message: %s", got.body)
	}
	retry := strconv.FormatBool(w.Retryable)
	if got.retry != retry {
		t.Errorf("x-should-retry %q, want %q", got.retry, retry)
	}
	judgeWait(t, f, got)
}

// refusal is a failure in the words of the gateway's contract.
type refusal struct {
	status int
	code   string
}

// contract is what a caller is told of a provider's failure. The request's own faults keep the provider's code. All else
// is the provider's trouble or ours: limits there are named as its own, and what is wrong with our account or
// configuration is not described. That the account's money is gone is such a fault too, whatever status says so.
func contract(f *fixture) refusal {
	w := f.Want
	shown := w.Status
	if w.CallerStatus != 0 {
		shown = w.CallerStatus
	}
	switch {
	case shown == 429 && w.Retryable:
		return refusal{429, "upstream_rate_limited"}
	case shown == 429, shown == 502 && !w.Retryable:
		return refusal{502, "upstream_misconfigured"}
	case shown == 413:
		return refusal{413, "request_too_large"}
	case shown == 400 && w.Error.Code != "":
		return refusal{400, w.Error.Code}
	case f.File == "anthropic/error-400-temperature.http": // it gives no code; the member is one that it does not take
		return refusal{400, "unsupported_parameter"}
	case shown == 400:
		return refusal{400, "invalid_value"}
	case shown == 502:
		return refusal{502, "upstream_invalid_response"}
	case shown == 504:
		return refusal{504, "upstream_timeout"}
	}
	return refusal{503, "upstream_overloaded"}
}

// fault is the type of a refusal in the dialect.
func (d *dialect) fault(r refusal) string {
	chat, messages := "server_error", "overloaded_error"
	switch r.status {
	case 400:
		return "invalid_request_error"
	case 413:
		chat, messages = "invalid_request_error", "request_too_large"
	case 429:
		return "rate_limit_error"
	case 502:
		messages = "api_error"
	case 504:
		messages = "timeout_error"
	}
	if d.name == "messages" {
		return messages
	}
	return chat
}

// judgeWait: who may come again is told when, as the provider said, in both of the ways that clients know.
func judgeWait(t *testing.T, f *fixture, got *seen) {
	t.Helper()
	ms, s := got.header.Get("Retry-After-Ms"), got.header.Get("Retry-After")
	if !f.Want.Retryable {
		if ms != "" || s != "" {
			t.Errorf("retry-after %q, retry-after-ms %q though it is final", s, ms)
		}
		return
	}
	n, err := strconv.ParseInt(ms, 10, 64)
	sec, serr := strconv.ParseInt(s, 10, 64)
	if f.Want.RetryAfterMS > 0 {
		// A moment has passed since the provider said it.
		if err != nil || n > f.Want.RetryAfterMS || n < f.Want.RetryAfterMS-2000 {
			t.Errorf("retry-after-ms %q, want %d", ms, f.Want.RetryAfterMS)
		}
	}
	if (ms != "" || s != "") && (err != nil || serr != nil || sec != (n+999)/1000) {
		t.Errorf("retry-after %q, retry-after-ms %q", s, ms)
	}
}

// judgeBroken: the caller has what came before, then an error, and nothing that looks like a good end.
func judgeBroken(t *testing.T, f *fixture, d *dialect, got *seen) {
	t.Helper()
	if got.done {
		t.Errorf("a good end: %s", got.body)
	}
	if got.err == nil || got.message == "" {
		t.Fatalf("no error: %s", got.body)
	}
	c := got.choice(0)
	if c.content != f.Want.Partial || c.finish != "" {
		t.Errorf("content %q, finish %q before the error, want %q", c.content, c.finish, f.Want.Partial)
	}
	e := f.Want.Error
	if got.err.Code != e.Code || got.err.Param != e.Param || d.name == "chat" && got.err.Type != e.Type {
		t.Errorf("error %+v, want %+v: %s", *got.err, *e, got.body)
	}
}

func judgeContent(t *testing.T, f *fixture, d *dialect, got *seen) {
	t.Helper()
	w := f.Want
	if len(w.Embeddings) > 0 {
		if len(got.vectors) != len(w.Embeddings) {
			t.Fatalf("%d vectors", len(got.vectors))
		}
		for i, v := range w.Embeddings {
			if !slices.Equal(got.vectors[i], v) {
				t.Errorf("vector %v, want %v", got.vectors[i], v)
			}
		}
		return
	}
	for _, x := range w.Choices {
		if c := got.choice(x.Index); c.content != x.Content || c.finish != x.Finish {
			t.Errorf("choice %d is %+v, want %+v", x.Index, *c, x)
		}
	}
	if len(w.Choices) > 0 {
		return
	}
	c, content, refusal, finish := got.choice(0), "", w.Refusal, w.Finish
	if w.Content != nil {
		content = *w.Content
	}
	if d.name == "messages" && refusal != "" { // the dialect has no member for it
		content, refusal = content+refusal, ""
		if c.finish == "content_filter" { // it has a reason instead
			finish = c.finish
		}
	}
	if c.content != content || c.refusal != refusal || c.finish != finish {
		t.Errorf("content %q, refusal %q, finish %q; want %q, %q, %q", c.content, c.refusal, c.finish, content, refusal, finish)
	}
	if c.reasoning != w.Reasoning {
		t.Errorf("reasoning %q, want %q", c.reasoning, w.Reasoning)
	}
	if !slices.Equal(c.images, w.Images) {
		t.Errorf("images %.200q, want %.200q", c.images, w.Images)
	}
	judgeCalls(t, f, d, c)
}

func judgeCalls(t *testing.T, f *fixture, d *dialect, c *choice) {
	t.Helper()
	if len(c.calls) != len(f.Want.Calls) {
		t.Fatalf("%d calls, want %+v", len(c.calls), f.Want.Calls)
	}
	ids := map[string]bool{}
	for i, x := range f.Want.Calls {
		g := *c.calls[i]
		if g.ID == "" || ids[g.ID] {
			t.Errorf("call %d has the id %q", i, g.ID)
		}
		ids[g.ID] = true
		if x.ID == "*generated*" {
			x.ID = g.ID
		}
		if d.name != "chat" && x.Arguments == "" { // clients of these dialects read none as JSON
			x.Arguments = "{}"
		}
		if d.name == "messages" { // input is an object there, however it is written
			if g.Arguments == "" {
				g.Arguments = "{}"
			}
			g.Arguments, x.Arguments = compact(t, g.Arguments), compact(t, x.Arguments)
		}
		if g != x {
			t.Errorf("call %d is %+v, want %+v", i, g, x)
		}
	}
}

// judgeUsage: what the caller is told, and what that costs.
func judgeUsage(t *testing.T, f *fixture, d *dialect, got *seen, asked bool) {
	t.Helper()
	if d.name == "chat" && f.Stream && !asked {
		if got.usage != nil || got.gateway.Deployment != "" {
			t.Errorf("usage %+v for a caller that did not ask", got.usage)
		}
		return
	}
	if got.usage == nil {
		t.Fatalf("no usage: %s", got.body)
	}
	g, w := *got.usage, f.Want.Usage
	told := got.gateway.Deployment != "" // answers in the provider's own words are not added to
	if told && got.gateway.Estimated != (w == nil) {
		t.Errorf("estimated %v", got.gateway.Estimated)
	}
	if w == nil {
		if g.Prompt <= 0 || g.Total != g.Prompt+g.Completion {
			t.Errorf("estimate %+v", g)
		}
		return
	}
	if f.Want.CostUSD != "" && d.name == "chat" && g.Cost != f.Want.CostUSD { // what the provider says that it costs goes on
		t.Errorf("cost %q, want %q", g.Cost, f.Want.CostUSD)
	}
	// Who speaks the provider's dialect sees the message's own numbers; the books and x_gateway hold those of the iterations.
	if d.name == "messages" && f.File == "anthropic/stream-fallback-iterations.http" {
		w = &wantUsage{Prompt: 100, Completion: 20, Total: 120}
	}
	if g.Prompt != w.Prompt || g.Completion != w.Completion || g.Total != w.Total || g.Cached != w.Cached {
		t.Errorf("usage %+v, want %+v", g, *w)
	}
	if d.name != "messages" && g.Reasoning != w.Reasoning {
		t.Errorf("%d reasoning tokens, want %d", g.Reasoning, w.Reasoning)
	}
	if want := nano(t, f.Want.Usage); told {
		if n, err := cost.Exact(got.gateway.Cost.String()); err != nil || !n.IsInt64() || n.Int64() != want {
			t.Errorf("cost %s, want %d nano-dollars", got.gateway.Cost, want)
		}
	}
}
