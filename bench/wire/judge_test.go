package wire

import (
	"slices"
	"strconv"
	"testing"
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
	shown := w.Status
	if w.CallerStatus != 0 {
		shown = w.CallerStatus
	}
	var status []int
	var code []string
	retry := strconv.FormatBool(w.Retryable)
	switch {
	case shown == 429 && w.Retryable:
		status, code = []int{429}, []string{"upstream_rate_limited"}
	case shown == 429: // the account's money is gone: ours to see to, and nothing the caller can wait for
		status, code = []int{429, 502}, []string{"upstream_rate_limited", "upstream_misconfigured"}
	case shown == 400 || shown == 413:
		status, code = []int{shown}, []string{w.Error.Code}
		if w.Error.Code == "" {
			code = []string{"invalid_value", "unsupported_parameter", "context_length_exceeded"}
		}
	case shown == 502 && !w.Retryable:
		status, code = []int{502}, []string{"upstream_misconfigured"}
	default:
		status = []int{502, 503, 504}
		code = []string{"upstream_overloaded", "upstream_invalid_response", "upstream_timeout", "upstream_error", "upstream_cut"}
	}
	if !slices.Contains(status, got.status) {
		t.Errorf("status %d, want one of %v: %s", got.status, status, got.body)
	}
	if !slices.Contains(code, got.err.Code) {
		t.Errorf("code %q, want one of %q: %s", got.err.Code, code, got.body)
	}
	if param := d.member(w.Error.Param); shown == 400 && got.err.Param != param {
		t.Errorf("param %q, want %q", got.err.Param, param)
	}
	if got.err.Type == "" || got.message == "" {
		t.Errorf("type %q, message %q", got.err.Type, got.message)
	}
	if got.retry != retry {
		t.Errorf("x-should-retry %q, want %q", got.retry, retry)
	}
	judgeWait(t, f, got)
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
	if d.name == "chat" && got.err.Code == "" {
		t.Errorf("no code: %s", got.body)
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
	// Who speaks the provider's dialect sees the message's own numbers; the books hold those of the iterations.
	if d.name == "messages" && f.File == "anthropic/stream-fallback-iterations.http" {
		g = *w
	}
	if g.Prompt != w.Prompt || g.Completion != w.Completion || g.Total != w.Total || g.Cached != w.Cached {
		t.Errorf("usage %+v, want %+v", g, *w)
	}
	if d.name != "messages" && g.Reasoning != w.Reasoning {
		t.Errorf("%d reasoning tokens, want %d", g.Reasoning, w.Reasoning)
	}
	if want := nano(t, w); told && nanoOf(t, got.gateway.Cost.String()) != want {
		t.Errorf("cost %s, want %d nano-dollars", got.gateway.Cost, want)
	}
}
