package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// capped is a chat with an output cap.
func capped(model, prompt string, most int64) openai.ChatCompletionNewParams {
	p := ask(model, prompt)
	p.MaxCompletionTokens = openai.Int(most)
	return p
}

// refused is the API error of a call that must fail.
func refused(t *testing.T, err error, status int, code string) *openai.Error {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an API error", err)
	}
	if e.StatusCode != status || e.Code != code {
		t.Fatalf("got %d %s, want %d %s", e.StatusCode, e.RawJSON(), status, code)
	}
	return e
}

// TestRateLimitIsWaitedOut: the SDK waits as long as the refusal says, and its own retry succeeds.
func TestRateLimitIsWaitedOut(t *testing.T) {
	o := org{limits: "{ tpm: 3000 }"}.made(t)
	a := newApp(t, o.secret)
	if _, err := a.Chat.Completions.New(testContext(t), capped(o.model, "[[tokens=2900]] hello", 2900)); err != nil {
		t.Fatal(err)
	}
	// About 90 tokens are left, 50 come each second.
	if _, err := a.Chat.Completions.New(testContext(t), capped(o.model, "[[tokens=5]] hello", 300)); err != nil {
		t.Fatal(err)
	}
	got := a.sent.statuses()
	if len(got) < 3 || got[1] != 429 || got[len(got)-1] != 200 {
		t.Errorf("the sidecar answered %v, want 200, then 429, at last 200", got)
	}
	if n := received(t, o.upstream[0]); n != 2 {
		t.Errorf("%d requests reached the provider, want 2", n)
	}
	for _, h := range a.sent.headers(429) {
		if h.Get("retry-after") == "" || h.Get("retry-after-ms") == "" || h.Get("x-should-retry") != "true" {
			t.Errorf("a refusal without a time to retry: %v", h)
		}
	}
}

// TestRateLimitIsShown: an app that does not want retries sees the scope and its numbers.
func TestRateLimitIsShown(t *testing.T) {
	o := org{limits: "{ rpm: 1 }"}.made(t)
	a := newApp(t, o.secret)
	if _, err := a.Chat.Completions.New(testContext(t), ask(o.model, "hello")); err != nil {
		t.Fatal(err)
	}
	_, err := a.Chat.Completions.New(testContext(t), ask(o.model, "hello"), option.WithMaxRetries(0))
	e := refused(t, err, 429, "key_requests_per_minute")
	if e.Type != "rate_limit_error" || e.Response.Header.Get("retry-after") == "" || a.sent.n.Load() != 2 {
		t.Errorf("%s, %v, %d requests", e.RawJSON(), e.Response.Header, a.sent.n.Load())
	}
}

// TestBudgetExhaustedIsFinal: the SDK does not repeat what can only succeed next month.
func TestBudgetExhaustedIsFinal(t *testing.T) {
	o := org{budget: "{ monthly: 0.002, hard: true }"}.made(t)
	a := newApp(t, o.secret)
	served := int64(0)
	for range 50 {
		before := a.sent.n.Load()
		_, err := a.Chat.Completions.New(testContext(t), capped(o.model, "[[tokens=20]] hello", 20), option.WithMaxRetries(5))
		if err == nil {
			served++
			continue
		}
		e := refused(t, err, 429, "budget_exhausted")
		h := e.Response.Header
		if e.Type != "insufficient_quota" || h.Get("x-should-retry") != "false" || h.Get("retry-after") != "" ||
			!strings.Contains(e.RawJSON(), "resets_at") {
			t.Errorf("%s %v", e.RawJSON(), h)
		}
		if n := a.sent.n.Load() - before; n != 1 {
			t.Errorf("the SDK sent it %d times", n)
		}
		if n := received(t, o.upstream[0]); n != served || served == 0 {
			t.Errorf("%d requests reached the provider, %d were answered", n, served)
		}
		return
	}
	t.Error("the budget never ended")
}

// TestBudgetReservedIsRetried: money that a running stream holds comes back, and the SDK's retry finds it.
func TestBudgetReservedIsRetried(t *testing.T) {
	o := org{budget: "{ monthly: 0.02, hard: true }", alias: "reserve: cap,"}.made(t)
	ctx, leave := context.WithCancel(testContext(t))
	defer leave()
	running := newApp(t, o.secret).Chat.Completions.NewStreaming(ctx, capped(o.model, "[[tokens=1500 gap=1h first=10ms]] hello", 1500))
	if !running.Next() {
		t.Fatal(running.Err())
	}
	a := newApp(t, o.secret)
	a.sent.after = func(status int) {
		if status == 429 {
			leave() // its caller goes, and what it held is free again
		}
	}
	_, err := a.Chat.Completions.New(testContext(t), capped(o.model, "[[tokens=5]] hello", 800), option.WithMaxRetries(5))
	if err != nil {
		t.Fatal(err)
	}
	if got := a.sent.statuses(); got[0] != 429 || got[len(got)-1] != 200 {
		t.Errorf("the sidecar answered %v, want 429 first and 200 at last", got)
	}
	h := a.sent.headers(429)[0]
	if h.Get("x-should-retry") != "true" || h.Get("retry-after") == "" {
		t.Errorf("reserved must be retryable: %v", h)
	}
}

// TestErrorClasses: what the SDK makes of each status, and how often it sends what.
func TestErrorClasses(t *testing.T) {
	covers(t, openaiChat, "errors")
	o := org{alias: "max_attempts: 1,"}.made(t)
	overloaded := org{alias: "max_attempts: 1,"}.made(t)
	everywhere := func(o org, set map[string]any) { // one that was rate limited is left for the other
		for _, model := range o.upstream {
			fault(t, model, 0, set)
		}
	}
	reached := func(o org) int64 { return received(t, o.upstream[0]) + received(t, o.upstream[1]) }
	everywhere(overloaded, map[string]any{"status": 503})
	limited := org{alias: "max_attempts: 1,"}.made(t)
	everywhere(limited, map[string]any{"status": 429, "retry-after": "10ms"})
	slow := org{alias: "max_attempts: 1, timeouts: { total: 400ms },"}.made(t)
	everywhere(slow, map[string]any{"fault": "hang"})
	for _, row := range []struct {
		name   string
		o      org
		p      openai.ChatCompletionNewParams
		status int
		code   string
		sent   int64
	}{
		{"400", o, capped(o.model, "hello", -1), 400, "invalid_value", 1},
		{"403", o, ask("chat", "hello"), 403, "alias_not_allowed", 1},
		{"404", o, ask("nope", "hello"), 404, "model_not_found", 1},
		{"413", o, ask(o.model, strings.Repeat("x", 33<<20)), 413, "request_too_large", 1},
		{"the provider's 400", o, ask(o.model, "[[status=400 code=bad_thing]] hello"), 400, "bad_thing", 1},
		{"the provider's 401", o, ask(o.model, "[[status=401]] hello"), 502, "upstream_misconfigured", 1},
		{"the provider's 429", limited, ask(limited.model, "hello"), 429, "upstream_rate_limited", 3},
		{"the provider's 503", overloaded, ask(overloaded.model, "hello"), 503, "upstream_overloaded", 3},
		{"a provider that says nothing", slow, ask(slow.model, "hello"), 504, "upstream_timeout", 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newApp(t, row.o.secret)
			before := reached(row.o)
			_, err := a.Chat.Completions.New(testContext(t), row.p)
			e := refused(t, err, row.status, row.code)
			if e.Message == "" || e.Response.Header.Get("x-request-id") == "" {
				t.Errorf("%s %v", e.RawJSON(), e.Response.Header)
			}
			want := "true"
			if row.sent == 1 {
				want = "false"
			}
			if got := e.Response.Header.Get("x-should-retry"); got != want || a.sent.n.Load() != row.sent {
				t.Errorf("x-should-retry %q, sent %d times, want %q and %d", got, a.sent.n.Load(), want, row.sent)
			}
			if n := reached(row.o) - before; row.sent > 1 && n != row.sent {
				t.Errorf("%d requests reached the provider, want one for each of the SDK's %d", n, row.sent)
			}
		})
	}
}

// TestFailover: a deployment that fails before the first token costs the app nothing but time.
func TestFailover(t *testing.T) {
	for name, set := range map[string]map[string]any{
		"500": {"status": 500}, "429": {"status": 429}, "cut before the head": {"fault": "cut", "after": "head"},
		"error as the first event": {"fault": "error-first"}, "a page": {"fault": "html"},
	} {
		t.Run(name, func(t *testing.T) {
			o := org{}.made(t)
			fault(t, o.upstream[0], 0, set)
			a := newApp(t, o.secret)
			var raw *http.Response
			got, err := a.Chat.Completions.New(testContext(t), ask(o.model, "[[tokens=5]] hello"), option.WithResponseInto(&raw))
			if err != nil {
				t.Fatal(err)
			}
			if raw.Header.Get("x-gw-attempts") != "2" || raw.Header.Get("x-gw-deployment") != o.upstream[1] || got.Model != o.model {
				t.Errorf("headers %v, model %q", raw.Header, got.Model)
			}
			s := a.Chat.Completions.NewStreaming(testContext(t), ask(o.model, "[[tokens=5]] hello"))
			words := text(s)
			if s.Err() != nil || len(strings.Fields(words)) != 5 {
				t.Errorf("stream: %q, %v", words, s.Err())
			}
			if n := a.sent.n.Load(); n != 2 {
				t.Errorf("the SDK sent %d requests, want 2", n)
			}
		})
	}
}

// TestBrokenStreamIsAnError: a stream that breaks must never look like one that ended.
func TestBrokenStreamIsAnError(t *testing.T) {
	o := org{alias: "timeouts: { idle: 300ms },"}.made(t)
	for _, f := range []string{"cut", "reset", "truncate", "error-mid", "hang", "broken-json"} {
		t.Run(f, func(t *testing.T) {
			a := newApp(t, o.secret)
			s := a.Chat.Completions.NewStreaming(testContext(t), ask(o.model, fmt.Sprintf("[[tokens=20 after=8 fault=%s]] hello", f)))
			words := len(strings.Fields(text(s)))
			if s.Err() == nil {
				t.Error("the stream ended as if it were whole")
			}
			if words < 1 || words > 8 {
				t.Errorf("%d words before the break, want some of 8", words)
			}
			if n := a.sent.n.Load(); n != 1 {
				t.Errorf("%d requests: nobody may repeat a stream that had begun", n)
			}
		})
	}
}

func text(s interface {
	Next() bool
	Current() openai.ChatCompletionChunk
}) (out string) {
	for s.Next() {
		for _, c := range s.Current().Choices {
			out += c.Delta.Content
		}
	}
	return out
}

// TestTimeout: the SDK's own deadline ends the provider's work too.
func TestTimeout(t *testing.T) {
	const maxTokens = 1903 // of no other request: it finds the provider's record
	o := org{}.made(t)
	for _, row := range []struct {
		name, prompt string
		stream       bool
	}{{"json", "[[first=1h]] hello", false}, {"stream", "[[tokens=1900 gap=50ms]] hello", true}} {
		t.Run(row.name, func(t *testing.T) {
			a := newApp(t, o.secret)
			p := capped(o.model, row.prompt, maxTokens)
			limit := option.WithRequestTimeout(500 * time.Millisecond)
			var err error
			if row.stream {
				ctx, cancel := context.WithTimeout(testContext(t), 500*time.Millisecond)
				defer cancel()
				s := a.Chat.Completions.NewStreaming(ctx, p)
				_ = text(s)
				err = s.Err()
			} else {
				_, err = a.Chat.Completions.New(testContext(t), p, limit, option.WithMaxRetries(0))
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want a deadline", err)
			}
			if r := awaitRecord(t, testContext(t), maxTokens); r.Outcome != "cancelled" {
				t.Errorf("the provider went on: %+v", r)
			}
		})
	}
}

// TestRawHeaders: what the sidecar says in headers is to be had through the SDK.
func TestRawHeaders(t *testing.T) {
	o := org{limits: "{ rpm: 600, tpm: 60000 }"}.made(t)
	var raw *http.Response
	a := newApp(t, o.secret)
	if _, err := a.Chat.Completions.New(testContext(t), ask(o.model, "hello"), option.WithResponseInto(&raw)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"x-gw-deployment": o.upstream[0], "x-gw-attempts": "1", "x-ratelimit-limit-requests": "600",
		"x-ratelimit-limit-tokens": "60000",
	} {
		if got := raw.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{
		"x-request-id", "x-gw-config-version", "x-gw-budget-remaining", "x-ratelimit-remaining-requests",
		"x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens",
	} {
		if raw.Header.Get(name) == "" {
			t.Errorf("no %s in %v", name, slices.Sorted(func(yield func(string) bool) {
				for k := range raw.Header {
					if !yield(k) {
						return
					}
				}
			}))
		}
	}
}
