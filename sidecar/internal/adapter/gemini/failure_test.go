package gemini_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestFailure(t *testing.T) {
	body := func(status, message string) string {
		return `{"error":{"code":400,"message":"` + message + `","status":"` + status + `"}}`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		want   exchange.Failure
	}{
		"request":      {400, body("INVALID_ARGUMENT", "bad"), exchange.Failure{Kind: exchange.FailRequest, Type: "invalid_request_error", Code: "INVALID_ARGUMENT"}},
		"too long":     {400, body("INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."), exchange.Failure{Kind: exchange.FailContext, Type: "invalid_request_error", Code: "context_length_exceeded", Param: "messages"}},
		"no billing":   {400, body("FAILED_PRECONDITION", "User location is not supported for the API use."), exchange.Failure{Kind: exchange.FailCredential, Type: "invalid_request_error", Code: "FAILED_PRECONDITION"}},
		"no penalties": {400, body("INVALID_ARGUMENT", "Penalty is not enabled for this model"), exchange.Failure{Kind: exchange.FailUnsupported, Type: "invalid_request_error", Code: "INVALID_ARGUMENT", Param: "frequency_penalty"}},
		"no thinking":  {400, body("INVALID_ARGUMENT", "Thinking level is not supported for this model."), exchange.Failure{Kind: exchange.FailUnsupported, Type: "invalid_request_error", Code: "INVALID_ARGUMENT", Param: "reasoning_effort"}},
		"a stop": {400, `{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest",` +
			`"fieldViolations":[{"field":"generation_config.stop_sequences","description":"d"}]}]}}`, exchange.Failure{Kind: exchange.FailRequest, Type: "invalid_request_error", Code: "INVALID_ARGUMENT", Param: "stop"}},
		"a result": {400, `{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest",` +
			`"fieldViolations":[{"field":"contents[2].parts[0].function_response.response"}]}]}}`, exchange.Failure{Kind: exchange.FailRequest, Type: "invalid_request_error", Code: "INVALID_ARGUMENT", Param: "messages"}},
		"no right":  {403, body("PERMISSION_DENIED", "m"), exchange.Failure{Kind: exchange.FailCredential, Type: "permission_error", Code: "PERMISSION_DENIED"}},
		"no model":  {404, body("NOT_FOUND", "m"), exchange.Failure{Kind: exchange.FailNotFound, Type: "invalid_request_error", Code: "NOT_FOUND"}},
		"cancelled": {499, body("CANCELLED", "m"), exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error", Code: "CANCELLED"}},
		"internal":  {500, body("INTERNAL", "m"), exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error", Code: "INTERNAL"}},
		"late":      {504, body("DEADLINE_EXCEEDED", "m"), exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error", Code: "DEADLINE_EXCEEDED"}},
		"HTML":      {502, "<html>secret host</html>", exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error"}},
		"empty":     {503, "", exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error"}},
		"text":      {500, `{"error":"broken"}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error"}},
		"too deep":  {500, strings.Repeat("[", 32<<20), exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error"}},
		"redirect":  {307, "", exchange.Failure{Kind: exchange.FailInvalid, Type: "server_error"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := gemini.New().Failure(c.status, http.Header{}.Get, []byte(c.body))
			if f.Message == "" || strings.Contains(f.Message, "<") || f.Status != c.status {
				t.Errorf("%+v", f)
			}
			if got := (exchange.Failure{Kind: f.Kind, Type: f.Type, Code: f.Code, Param: f.Param}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	h := http.Header{"Retry-After": {"7"}}
	if f := gemini.New().Failure(503, h.Get, nil); f.RetryAfter != 7*time.Second {
		t.Errorf("%+v", f)
	}
}

// TestClaudeFailure: Anthropic's refusals are read as such, and those of Google before it as Google's.
func TestClaudeFailure(t *testing.T) {
	claude := gemini.NewVertex().For(&exchange.Deployment{Model: "claude-mid"})
	for body, want := range map[string]string{
		`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`:     "overloaded_error",
		`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]`:   "rate_limit_error",
		`{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}`: "rate_limit_error",
	} {
		if f := claude.Failure(429, http.Header{}.Get, []byte(body)); f.Type != want || f.Kind != exchange.FailRateLimited {
			t.Errorf("%s: %+v", body, f)
		}
	}
}

// TestClaudeCounts: callers of the Messages API are served as they are, and tokens are counted by a model of its own name.
func TestClaudeCounts(t *testing.T) {
	d := &exchange.Deployment{Model: "claude-mid", Project: "p", Region: "eu"}
	claude, ok := gemini.NewVertex().For(d).(adapter.Speaker)
	if !ok {
		t.Fatal("it speaks chat alone")
	}
	r := &exchange.Request{
		Operation: exchange.CountTokens, Dialect: exchange.MessagesDialect, Model: "smart",
		Native: []byte(`{"model":"smart","messages":[]}`),
	}
	call, f := claude.Speak(exchange.MessagesDialect, d).Request(r, d, nil)
	if f != nil || call.Path != "/projects/p/locations/eu/publishers/anthropic/models/count-tokens:rawPredict" ||
		!strings.Contains(string(call.Body), `"model":"claude-mid"`) {
		t.Errorf("%+v, %s %s", f, call.Path, call.Body)
	}
}

// TestAbort: a caller is told that its stream broke, and nothing of a key.
func TestAbort(t *testing.T) {
	for name, c := range map[string]struct {
		f    exchange.Failure
		want string
	}{
		"key":  {exchange.Failure{Kind: exchange.FailCredential, Message: "key AIza is bad"}, `{"error":{"message":"the provider refused the gateway's configuration","type":"server_error","param":null,"code":"upstream_misconfigured","delivered_bytes":0,"retryable":true}}`},
		"cut":  {exchange.Failure{Kind: exchange.FailCut}, `{"error":{"message":"the provider's stream broke","type":"server_error","param":null,"code":"stream_truncated","delivered_bytes":0,"retryable":true}}`},
		"idle": {exchange.Failure{Kind: exchange.FailTimeout, Message: "m", Final: true}, `{"error":{"message":"m","type":"server_error","param":null,"code":"upstream_timeout","delivered_bytes":0,"retryable":false}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(gemini.New().Stream(chat("{}", true), note).Abort(nil, &c.f))
			if got != "data: "+c.want+"\n\n" {
				t.Errorf("%s", got)
			}
		})
	}
}
