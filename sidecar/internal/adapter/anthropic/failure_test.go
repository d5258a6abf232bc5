package anthropic

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestFailure(t *testing.T) {
	body := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"}}`
	}
	rows := []struct {
		name   string
		status int
		body   string
		want   exchange.Failure
	}{
		{"too long", 400, body("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
			exchange.Failure{Kind: exchange.FailContext, Param: "messages", Code: "context_length_exceeded"}},
		{"too long with output", 400, body("invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 9 > 8"),
			exchange.Failure{Kind: exchange.FailContext, Param: "messages", Code: "context_length_exceeded"}},
		{"balance", 400, body("invalid_request_error", "Your credit balance is too low"), exchange.Failure{Kind: exchange.FailCredential, Final: true}},
		{"own spend limit", 400, body("invalid_request_error", "You have reached your specified API usage limits."), exchange.Failure{Kind: exchange.FailCredential, Final: true}},
		{"policy", 400, body("invalid_request_error", "Output blocked by content filtering policy"), exchange.Failure{Kind: exchange.FailPolicy}},
		{"path in a message", 400, body("invalid_request_error", "messages.3.content: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "messages"}},
		{"renamed member", 400, body("invalid_request_error", "stop_sequences: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "stop"}},
		{"member of ours, longest first", 400, body("invalid_request_error", "output_config.format.schema: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "response_format"}},
		{"effort", 400, body("invalid_request_error", "output_config.effort: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "reasoning_effort"}},
		{"budget", 400, body("invalid_request_error", "thinking.budget_tokens: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "reasoning_effort"}},
		{"user", 400, body("invalid_request_error", "metadata.user_id: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "safety_identifier"}},
		{"serial calls", 400, body("invalid_request_error", "tool_choice.disable_parallel_tool_use: bad"), exchange.Failure{Kind: exchange.FailRequest, Param: "parallel_tool_calls"}},
		{"no whole name", 400, body("invalid_request_error", "system_two: bad"), exchange.Failure{Kind: exchange.FailRequest}},
		{"member this model does not know", 400, body("invalid_request_error", "temperature: Extra inputs are not permitted"), exchange.Failure{Kind: exchange.FailUnsupported, Param: "temperature"}},
		{"either of two", 400, body("invalid_request_error", "`temperature` and `top_p` cannot both be specified for this model."), exchange.Failure{Kind: exchange.FailUnsupported, Param: "top_p"}},
		{"no member", 400, body("invalid_request_error", "Well: bad"), exchange.Failure{Kind: exchange.FailRequest}},
		{"contract limit", 429, `{"error":{"type":"rate_limit_error","message":"m","details":{"error_code":"contract_spend_limit_reached"}}}`,
			exchange.Failure{Kind: exchange.FailCredential, Final: true, Code: "contract_spend_limit_reached"}},
		{"ramp limit", 429, `{"error":{"type":"rate_limit_error","message":"m","details":{"error_code":"ramp_limit_exceeded"}}}`,
			exchange.Failure{Kind: exchange.FailRateLimited, Code: "ramp_limit_exceeded"}},
		{"key", 401, body("authentication_error", "m"), exchange.Failure{Kind: exchange.FailCredential}},
		{"bill", 402, body("billing_error", "m"), exchange.Failure{Kind: exchange.FailCredential}},
		{"permission", 403, body("permission_error", "m"), exchange.Failure{Kind: exchange.FailCredential}},
		{"model", 404, body("not_found_error", "m"), exchange.Failure{Kind: exchange.FailNotFound}},
		{"timeout", 408, "", exchange.Failure{Kind: exchange.FailTimeout}},
		{"conflict", 409, body("conflict_error", "m"), exchange.Failure{Kind: exchange.FailOverloaded}},
		{"unprocessable", 422, "", exchange.Failure{Kind: exchange.FailRequest}},
		{"HTML", 502, "<html>secret host</html>", exchange.Failure{Kind: exchange.FailOverloaded}},
		{"error is a string", 500, `{"error":"broken"}`, exchange.Failure{Kind: exchange.FailOverloaded}},
		{"array", 500, `[1]`, exchange.Failure{Kind: exchange.FailOverloaded}},
		{"too deep", 500, strings.Repeat("[", 32<<20), exchange.Failure{Kind: exchange.FailOverloaded}},
		{"redirect", 307, "", exchange.Failure{Kind: exchange.FailInvalid}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := New().Failure(row.status, http.Header{}.Get, []byte(row.body))
			if f.Message == "" || strings.Contains(f.Message, "<") || f.Status != row.status {
				t.Errorf("%+v", f)
			}
			got := exchange.Failure{Kind: f.Kind, Param: f.Param, Code: f.Code, Final: f.Final}
			if got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	const date = "Sun, 29 Nov 2026 10:00:00 GMT"
	rows := []struct {
		name string
		h    map[string]string
		want time.Duration
	}{
		{"none", nil, 0},
		{"seconds", map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"fraction", map[string]string{"Retry-After": " 1.5 "}, 1500 * time.Millisecond},
		{"milliseconds win", map[string]string{"Retry-After": "7", "Retry-After-Ms": "250"}, 250 * time.Millisecond},
		{"date", map[string]string{"Retry-After": "Sun, 29 Nov 2026 10:00:30 GMT", "Date": date}, 30 * time.Second},
		{"past date", map[string]string{"Retry-After": "Sun, 29 Nov 2026 09:00:00 GMT", "Date": date}, 0},
		{"date alone", map[string]string{"Retry-After": date}, 0},
		{"negative", map[string]string{"Retry-After": "-3"}, 0},
		{"not a number", map[string]string{"Retry-After": "NaN"}, 0},
		{"absurd", map[string]string{"Retry-After": "1e300"}, 24 * time.Hour},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			h := http.Header{}
			for k, v := range row.h {
				h.Set(k, v)
			}
			if f := New().Failure(429, h.Get, nil); f.RetryAfter != row.want || f.Kind != exchange.FailRateLimited || f.Final {
				t.Errorf("%+v", f)
			}
		})
	}
	if f := New().Failure(529, http.Header{"X-Should-Retry": {"false"}}.Get, nil); !f.Final {
		t.Error("x-should-retry is not obeyed")
	}
}

func TestResponseFailures(t *testing.T) {
	rows := []struct {
		name, body string
		kind       exchange.FailureKind
	}{
		{"empty", "", exchange.FailInvalid},
		{"HTML", "<html>", exchange.FailInvalid},
		{"cut", `{"content":[`, exchange.FailInvalid},
		{"array", `[]`, exchange.FailInvalid},
		{"too deep", `{"content":` + strings.Repeat("[", 32<<20), exchange.FailInvalid},
		{"no content", `{"type":"message"}`, exchange.FailInvalid},
		{"error", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, exchange.FailOverloaded},
		{"error without a type", `{"error":{"message":"m"},"content":[]}`, exchange.FailOverloaded},
		{"wrong key", `{"type":"error","error":{"type":"authentication_error","message":"m"}}`, exchange.FailCredential},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			out, u, f := New().Response(chat(false), []byte(row.body), note)
			if f == nil || f.Kind != row.kind || out != nil || u.Tokens != (exchange.Tokens{}) {
				t.Errorf("%s %+v %+v", out, u, f)
			}
		})
	}
}

func TestResponseBytes(t *testing.T) {
	const open = `{"id":"m1","object":"chat.completion","created":1700000000,"model":"smart","choices":[{"index":0,"message":{"role":"assistant",`
	const guessed = `"usage":{"prompt_tokens":40,"completion_tokens":2,"total_tokens":42,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"x_gateway":{"estimated":true}}`
	rows := []struct{ name, body, want string }{
		{"texts join, others are left out, no usage",
			`{"id":"m1","content":[{"type":"text","text":"a\n"},{"type":"server_tool_use","id":"s","name":"w","input":{}},{"type":"text","text":"\u00e9"}],"stop_reason":"pause_turn"}`,
			open + `"content":"a\né","refusal":null},"logprobs":null,"finish_reason":"stop","native_finish_reason":"pause_turn","stop_reason":"pause_turn"}],` + guessed},
		{"a stop sequence, a tier", `{"id":"m1","content":[],"stop_reason":"stop_sequence","stop_sequence":"##","usage":{"service_tier":"standard"}}`,
			open + `"content":"","refusal":null},"logprobs":null,"finish_reason":"stop","native_finish_reason":"stop_sequence","stop_reason":"stop_sequence","stop_sequence":"##"}],"service_tier":"default",` + guessed},
		{"a refusal", `{"id":"m1","content":[],"stop_reason":"refusal","stop_details":{"type":"refusal", "category":"bio"}}`,
			open + `"content":"","refusal":null},"logprobs":null,"finish_reason":"content_filter","native_finish_reason":"refusal","stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio"}}],` + guessed},
		{"call alone, total of cache writes without a split",
			`{"id":"m1","content":[{"type":"tool_use","id":"t","name":"n","input":{"a" : [1, 2]}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"cache_creation_input_tokens":5,"output_tokens":2}}`,
			open + `"content":null,"refusal":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"n","arguments":"{\"a\":[1,2]}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],` +
				`"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":5},"completion_tokens_details":{"reasoning_tokens":0}},"x_gateway":{"estimated":false}}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			out, u, f := New().Response(chat(false), []byte(row.body), note)
			want := strings.Replace(row.want, "é", `\u00e9`, 1)
			if f != nil || string(out) != want || !json.Valid(out) {
				t.Errorf("%v\ngot  %s\nwant %s", f, out, want)
			}
			if strings.Contains(row.body, "cache_creation") && u.CacheWrite5m != 5 {
				t.Errorf("%+v", u)
			}
		})
	}
}
