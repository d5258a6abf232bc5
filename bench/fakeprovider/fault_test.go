package fakeprovider

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

func TestStatusFaults(t *testing.T) {
	s, url := start(t, Config{})
	tests := []struct {
		setting         string
		status          int
		openAIType      string
		openAICode      string
		anthropicType   string
		retryAfter      string // empty: none
		retryAfterMS    string
		requestsLeft    string
		shouldRetrySent string
	}{
		{"status=429", 429, "requests", "rate_limit_exceeded", "rate_limit_error", "1", "1000", "0", ""},
		{"fault=429 retry-after=2", 429, "requests", "rate_limit_exceeded", "rate_limit_error", "2", "2000", "0", ""},
		{"status=429 retry-after=1500ms remaining-requests=7", 429, "requests", "rate_limit_exceeded", "rate_limit_error", "2", "1500", "7", ""},
		{"status=429 retry-after=none code=insufficient_quota should-retry=false", 429, "requests", "insufficient_quota", "rate_limit_error", "", "", "0", "false"},
		{"status=500", 500, "server_error", "server_error", "api_error", "", "", "", ""},
		{"status=503 retry-after=3", 503, "service_unavailable_error", "server_is_overloaded", "overloaded_error", "3", "3000", "", ""},
		{"status=529", 529, "service_unavailable_error", "server_is_overloaded", "overloaded_error", "", "", "", ""},
		{"status=401", 401, "invalid_request_error", "invalid_api_key", "authentication_error", "", "", "", ""},
		{"status=400", 400, "invalid_request_error", "", "invalid_request_error", "", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.setting, func(t *testing.T) {
			r := post(t, url+"/v1/chat/completions", chatBody("[["+tt.setting+"]]", streamOn))
			e := r.json().Get("error")
			if r.status != tt.status || e.Get("type").String() != tt.openAIType || e.Get("code").String() != tt.openAICode {
				t.Errorf("%d %s", r.status, r.body)
			}
			if got := r.header.Get("Retry-After"); got != tt.retryAfter {
				t.Errorf("retry-after %q, want %q", got, tt.retryAfter)
			}
			if got := r.header.Get("Retry-After-Ms"); got != tt.retryAfterMS {
				t.Errorf("retry-after-ms %q, want %q", got, tt.retryAfterMS)
			}
			if got := r.header.Get("X-Ratelimit-Remaining-Requests"); got != tt.requestsLeft {
				t.Errorf("remaining requests %q, want %q", got, tt.requestsLeft)
			}
			if got := r.header.Get("X-Should-Retry"); got != tt.shouldRetrySent {
				t.Errorf("x-should-retry %q, want %q", got, tt.shouldRetrySent)
			}
			r = post(t, url+"/v1/messages", messagesBody("[["+tt.setting+"]]", ""))
			if r.status != tt.status || r.json().Get("error.type").String() != tt.anthropicType {
				t.Errorf("Anthropic: %d %s", r.status, r.body)
			}
			if got := r.header.Get("Anthropic-Ratelimit-Requests-Remaining"); got != tt.requestsLeft {
				t.Errorf("Anthropic remaining requests %q, want %q", got, tt.requestsLeft)
			}
			record, _ := ended(t, s)
			if record.Outcome != OutcomeFailed || record.Fault != strconv.Itoa(tt.status) || record.Served != (Usage{}) {
				t.Errorf("record %+v", record)
			}
		})
	}
}

// TestStreamFaults breaks a stream of ten tokens in each way and checks both ends.
func TestStreamFaults(t *testing.T) {
	s, url := start(t, Config{})
	prompts := map[string]Usage{}
	tests := []struct {
		setting string
		tokens  int64 // text tokens that arrive
		outcome Outcome
		prompt  bool // the prompt counts as served
		check   func(t *testing.T, r reply, d dialect)
	}{
		{"fault=cut after=5", 5, OutcomeFailed, true, readError(io.ErrUnexpectedEOF)},
		{"fault=cut", 5, OutcomeFailed, true, readError(io.ErrUnexpectedEOF)},
		{"fault=cut after=0", 0, OutcomeFailed, true, readError(io.ErrUnexpectedEOF)},
		{"fault=cut after=10", 10, OutcomeFailed, true, readError(io.ErrUnexpectedEOF)},
		{"fault=cut after=5 burst=3", 5, OutcomeFailed, true, readError(io.ErrUnexpectedEOF)},
		{"fault=truncate after=3", 3, OutcomeFailed, true, unended},
		{"fault=error-mid after=4", 4, OutcomeFailed, true, errorLast},
		{"fault=error-first", 0, OutcomeFailed, false, errorLast},
		{"fault=broken-json after=2", 10, OutcomeFailed, true, brokenEvent},
		{"fault=empty", 0, OutcomeFailed, false, func(t *testing.T, r reply, _ dialect) {
			if r.status != 200 || r.body != "" || r.err != nil {
				t.Errorf("%d %q %v", r.status, r.body, r.err)
			}
		}},
		{"fault=html", 0, OutcomeFailed, false, func(t *testing.T, r reply, _ dialect) {
			if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/html") || !strings.Contains(r.body, "<html>") {
				t.Errorf("%d %v %q", r.status, r.header, r.body)
			}
		}},
		{"fault=content-type", 10, OutcomeCompleted, true, func(t *testing.T, r reply, _ dialect) {
			if !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
				t.Errorf("%v", r.header)
			}
		}},
		{"fault=no-done", 10, OutcomeCompleted, true, unended},
		{"fault=no-usage", 10, OutcomeCompleted, true, func(t *testing.T, r reply, _ dialect) {
			for _, e := range events(r.body) {
				if gjson.Get(e.data, "usage").IsObject() || gjson.Get(e.data, "message.usage").Exists() {
					t.Errorf("usage in %s", e.data)
				}
			}
		}},
		{"fault=none", 10, OutcomeCompleted, true, func(t *testing.T, r reply, _ dialect) {
			if r.err != nil {
				t.Error(r.err)
			}
		}},
	}
	for _, tt := range tests {
		for path, d := range map[string]dialect{"/v1/chat/completions": openAI, "/v1/messages": anthropic} {
			t.Run(d.String()+" "+tt.setting, func(t *testing.T) {
				body := chatBody("[[tokens=10]] [["+tt.setting+"]]", streamOn)
				if d == anthropic {
					body = messagesBody("[[tokens=10]] [["+tt.setting+"]]", streamOn)
				}
				r := post(t, url+path, body)
				var text strings.Builder
				for _, e := range events(r.body) {
					text.WriteString(gjson.Get(e.data, "choices.0.delta.content").String())
					text.WriteString(gjson.Get(e.data, "delta.text").String())
				}
				if want := Text(tt.tokens, false); !strings.Contains(tt.setting, "html") && text.String() != want {
					t.Errorf("text %q, want %q", text.String(), want)
				}
				tt.check(t, r, d)
				record, _ := ended(t, s)
				if record.Outcome != tt.outcome || record.TokensSent != tt.tokens || record.Served.Output != tt.tokens ||
					(record.Served.Prompt() > 0) != tt.prompt || record.Status != 200 {
					t.Errorf("record %+v", record)
				}
				prompts[tt.setting] = record.Served
			})
		}
	}
	if len(prompts) != len(tests) {
		t.Errorf("%d settings ran, want %d", len(prompts), len(tests))
	}
}

func readError(want error) func(*testing.T, reply, dialect) {
	return func(t *testing.T, r reply, _ dialect) {
		if !errors.Is(r.err, want) {
			t.Errorf("read error %v, want %v", r.err, want)
		}
	}
}

// unended: the body is well-formed HTTP, but the dialect's last event is missing.
func unended(t *testing.T, r reply, _ dialect) {
	if r.err != nil || strings.Contains(r.body, "[DONE]") || strings.Contains(r.body, "message_stop") {
		t.Errorf("error %v body %s", r.err, r.body)
	}
}

func errorLast(t *testing.T, r reply, d dialect) {
	all := events(r.body)
	last := all[len(all)-1]
	if !gjson.Get(last.data, "error.message").Exists() || (d == anthropic) != (last.name == "error") {
		t.Errorf("last event %+v", last)
	}
}

func brokenEvent(t *testing.T, r reply, _ dialect) {
	broken := 0
	for _, e := range events(r.body) {
		if !gjson.Valid(e.data) && e.data != "[DONE]" {
			broken++
		}
	}
	if broken != 1 {
		t.Errorf("%d broken events in %s", broken, r.body)
	}
}

func TestGzipFault(t *testing.T) {
	_, url := start(t, Config{})
	for name, more := range map[string]string{"stream": streamOn, "JSON": ""} {
		t.Run(name, func(t *testing.T) {
			r := post(t, url+"/v1/chat/completions", chatBody("[[fault=gzip tokens=4]]", more))
			if r.header.Get("Content-Encoding") != "gzip" {
				t.Fatalf("header %v", r.header)
			}
			z, err := gzip.NewReader(strings.NewReader(r.body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil || !strings.Contains(string(plain), "amber") {
				t.Errorf("%v: %s", err, plain)
			}
		})
	}
}

func TestResetFault(t *testing.T) {
	s, url := start(t, Config{})
	// The reset may overtake data that is still in the client's socket, so only the error is certain.
	r := post(t, url+"/v1/chat/completions", chatBody("[[fault=reset after=3]]", streamOn))
	if !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("read error %v, want a reset", r.err)
	}
	if record, _ := ended(t, s); record.Outcome != OutcomeFailed || record.TokensSent != 3 {
		t.Errorf("record %+v", record)
	}
	_, err := try(t.Context(), url+"/v1/chat/completions", chatBody("[[fault=reset after=head]]", streamOn))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v, want a reset", err)
	}
	_, err = try(t.Context(), url+"/v1/messages", messagesBody("[[fault=cut after=head]]", ""))
	if !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want EOF", err)
	}
	if record, _ := ended(t, s); record.Outcome != OutcomeFailed || record.Status != 0 || record.Served != (Usage{}) {
		t.Errorf("record %+v", record)
	}
}

func TestJSONFaults(t *testing.T) {
	s, url := start(t, Config{})
	tests := []struct {
		setting string
		outcome Outcome
		output  int64 // served
		check   func(r reply) bool
	}{
		{"fault=cut", OutcomeFailed, 16, func(r reply) bool { return errors.Is(r.err, io.ErrUnexpectedEOF) && r.body != "" }},
		{"fault=truncate", OutcomeFailed, 16, func(r reply) bool { return r.err == nil && !gjson.Valid(r.body) && r.body != "" }},
		{"fault=broken-json", OutcomeFailed, 16, func(r reply) bool { return r.err == nil && !gjson.Valid(r.body) && r.body != "" }},
		{"fault=error-first", OutcomeFailed, 0, func(r reply) bool { return r.status == 200 && r.json().Get("error.message").Exists() }},
		{"fault=empty", OutcomeFailed, 0, func(r reply) bool { return r.status == 200 && r.body == "" }},
		{"fault=html", OutcomeFailed, 0, func(r reply) bool { return r.status == 200 && strings.HasPrefix(r.body, "<!DOCTYPE") }},
		{"fault=content-type", OutcomeCompleted, 16, func(r reply) bool { return strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") }},
		{"fault=no-usage", OutcomeCompleted, 16, func(r reply) bool { return !r.json().Get("usage").Exists() && gjson.Valid(r.body) }},
		{"fault=no-done", OutcomeCompleted, 16, func(r reply) bool { return r.json().Get("usage").Exists() }},
	}
	for _, tt := range tests {
		for path, make := range map[string]func(string, string) string{"/v1/chat/completions": chatBody, "/v1/messages": messagesBody} {
			t.Run(path+" "+tt.setting, func(t *testing.T) {
				r := post(t, url+path, make("[["+tt.setting+"]]", ""))
				record, _ := ended(t, s)
				if !tt.check(r) || record.Outcome != tt.outcome || record.Served.Output != tt.output {
					t.Errorf("%d %v %q record %+v", r.status, r.err, r.body, record)
				}
			})
		}
	}
	if r := post(t, url+"/v1/chat/completions", chatBody("[[fault=json]]", streamOn)); r.json().Get("object").String() != "chat.completion" {
		t.Errorf("JSON for a stream: %s", r.body)
	}
}

// TestCancel closes the client at every place where the provider can stand, and measures how soon it is noticed.
func TestCancel(t *testing.T) {
	tests := []struct {
		name   string
		body   string
		path   string
		tokens int64 // that the client waits for before it leaves
		prompt bool
	}{
		{"hang before the head", chatBody("[[fault=hang]]", streamOn), "/v1/chat/completions", 0, false},
		{"hang after the head", chatBody("[[fault=hang after=0]]", streamOn), "/v1/chat/completions", 0, true},
		{"hang midstream", chatBody("[[fault=hang after=3]]", streamOn), "/v1/chat/completions", 3, true},
		{"slow first token", messagesBody("[[first=1h]]", streamOn), "/v1/messages", 0, true},
		{"between tokens", messagesBody("[[tokens=4 gap=1h]]", streamOn), "/v1/messages", 1, true},
		{"JSON answer", messagesBody("[[first=1h]]", ""), "/v1/messages", 0, false},
		{"embedding", `{"model":"m","input":"[[first=1h]]"}`, "/v1/embeddings", 0, false},
		{"slow refusal", chatBody("[[status=503 first=1h]]", ""), "/v1/chat/completions", 0, false},
	}
	s, url := start(t, Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The best of a few: on a busy machine one measurement says more about the scheduler.
			best := time.Hour
			for range 5 {
				best = min(best, cancelOnce(t, s, url+tt.path, tt.body, tt.tokens, tt.prompt))
			}
			if best > 50*time.Millisecond {
				t.Errorf("the close was seen after %s, want 50ms at most", best)
			}
		})
	}
}

func cancelOnce(t *testing.T, s *Server, url, body string, tokens int64, prompt bool) time.Duration {
	t.Helper()
	s.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := open(ctx, url, body); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	waitFor(t, s, func(w Snapshot) bool {
		var decided int64
		for _, second := range w.Timeline {
			decided += second.Admitted + second.Refused
		}
		return w.Open == 1 && decided == 1 && w.Records[0].TokensSent == tokens && (w.Records[0].Status == 200) == prompt
	})
	left := time.Now().UnixNano()
	cancel()
	record, w := ended(t, s)
	<-done
	if record.Outcome != OutcomeCancelled || record.Served.Output != tokens || record.TokensSent != tokens ||
		(record.Served.Prompt() > 0) != prompt || w.Totals.Cancelled != 1 || record.CloseSeenNS == 0 {
		t.Errorf("record %+v", record)
	}
	return time.Duration(record.CloseSeenNS - left)
}
