package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestFailure(t *testing.T) {
	body := func(kind, code string) string {
		return `{"error":{"message":"m","type":"` + kind + `","param":null,"code":` + code + `}}`
	}
	const request, limit, server = "invalid_request_error", "rate_limit_error", "server_error"
	for name, c := range map[string]struct {
		status int
		body   string
		want   exchange.Failure
	}{
		"request":                {400, body(request, `null`), exchange.Failure{Kind: exchange.FailRequest, Type: request}},
		"too large":              {413, ``, exchange.Failure{Kind: exchange.FailRequest, Type: request}},
		"context":                {400, body(request, `"context_length_exceeded"`), exchange.Failure{Kind: exchange.FailContext, Type: request, Code: "context_length_exceeded"}},
		"content":                {400, body(request, `"content_filter"`), exchange.Failure{Kind: exchange.FailPolicy, Type: request, Code: "content_filter"}},
		"quota, not a rate":      {429, body("insufficient_quota", `"insufficient_quota"`), exchange.Failure{Kind: exchange.FailCredential, Type: "insufficient_quota", Code: "insufficient_quota", Final: true}},
		"quota by type":          {429, body("insufficient_quota", `null`), exchange.Failure{Kind: exchange.FailCredential, Type: "insufficient_quota", Final: true}},
		"rate":                   {429, body(limit, `"rate_limit_exceeded"`), exchange.Failure{Kind: exchange.FailRateLimited, Type: limit, Code: "rate_limit_exceeded"}},
		"key":                    {401, body(request, `"invalid_api_key"`), exchange.Failure{Kind: exchange.FailCredential, Type: request, Code: "invalid_api_key"}},
		"money":                  {402, ``, exchange.Failure{Kind: exchange.FailCredential, Type: "insufficient_quota"}},
		"forbidden":              {403, ``, exchange.Failure{Kind: exchange.FailCredential, Type: "permission_error"}},
		"model":                  {404, ``, exchange.Failure{Kind: exchange.FailNotFound, Type: request, Code: "model_not_found", Param: "model"}},
		"a failed call":          {400, body(request, `"tool_use_failed"`), exchange.Failure{Kind: exchange.FailInvalid, Type: request, Code: "tool_use_failed"}},
		"timeout":                {408, ``, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"flat":                   {500, `{"message":"m","code":7}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server, Code: "7"}},
		"text":                   {503, `{"error":"busy"}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"page":                   {502, `<html>host-7</html>`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"not built in":           {501, `{"error":{"code":501,"message":"m","type":"not_supported_error"}}`, exchange.Failure{Kind: exchange.FailUnsupported, Type: request}},
		"what a filter found":    {400, `{"error":{"message":"m","type":null,"param":"prompt","code":"content_filter","innererror":{"code": "ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true}}}}}`, exchange.Failure{Kind: exchange.FailPolicy, Type: request, Code: "content_filter", Param: "prompt", Inner: `{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true}}}`}},
		"a member Google lacks":  {400, `[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"logit_bias\": Cannot find field.","status":"INVALID_ARGUMENT"}}]`, exchange.Failure{Kind: exchange.FailUnsupported, Type: request, Code: "unsupported_parameter", Param: "logit_bias"}},
		"too large for a minute": {413, body("tokens", `"rate_limit_exceeded"`), exchange.Failure{Kind: exchange.FailRateLimited, Type: "tokens", Code: "rate_limit_exceeded", Final: true}},
		"dependency":             {424, ``, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"no such method":         {405, ``, exchange.Failure{Kind: exchange.FailNotFound, Type: request, Code: "model_not_found", Param: "model"}},
		"moderated":              {403, `{"error":{"code":403,"message":"flagged","metadata":{"reasons":["x"],"flagged_input":"y"}}}`, exchange.Failure{Kind: exchange.FailPolicy, Type: request, Code: "content_policy_violation"}},
		"page in JSON":           {502, `{"error":{"message":"<!DOCTYPE html><html>host-7","type":"<html>","code":"<html>","param":"<body>"}}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"page in a text":         {502, `{"error":"x <HTML>host-7"}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"too deep":               {500, strings.Repeat("[", 32<<20), exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
	} {
		t.Run(name, func(t *testing.T) {
			f := New().Failure(c.status, http.Header{}.Get, []byte(c.body))
			if f.Message == "" || strings.Contains(f.Message, "<") || f.Status != c.status {
				t.Errorf("message %q, status %d", f.Message, f.Status)
			}
			got := exchange.Failure{Kind: f.Kind, Type: f.Type, Code: f.Code, Param: f.Param, Final: f.Final, Inner: f.Inner}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestFailureByText: some faults have no code, and a status that others share.
func TestFailureByText(t *testing.T) {
	long := strings.Repeat("x", phraseBytes) + " maximum context length"
	for name, c := range map[string]struct {
		status  int
		message string
		param   string
		want    exchange.FailureKind
		final   bool
	}{
		"vLLM":                 {400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", "", exchange.FailContext, false},
		"vLLM, by field":       {400, "'max_tokens' is too large: 9000. This model's maximum context length is 8192 tokens", "max_tokens", exchange.FailContext, false},
		"SGLang":               {400, "The input (9000 tokens) is longer than the model's context length (8192 tokens).", "", exchange.FailContext, false},
		"llama.cpp":            {400, "the request exceeds the available context size. try increasing the context size", "", exchange.FailContext, false},
		"xAI":                  {400, "This model's maximum prompt length is 131072 but the request contains 200000 tokens.", "", exchange.FailContext, false},
		"Groq":                 {400, "Please reduce the length of the messages or completion.", "messages", exchange.FailContext, false},
		"Mistral":              {400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "", exchange.FailContext, false},
		"another limit":        {400, "max_tokens is too large: 99999. This model supports at most 16384 completion tokens", "max_tokens", exchange.FailRequest, false},
		"quoted by the caller": {400, long, "", exchange.FailRequest, false},
		"xAI, key":             {400, "Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai.", "", exchange.FailCredential, false},
		"key of a field":       {400, "Invalid value: 'incorrect api key'", "messages[0].content", exchange.FailRequest, false},
		"balance":              {400, "Your credit balance is too low to access the API.", "", exchange.FailCredential, true},
		"xAI, credits":         {403, "Your team has either used all available credits or reached its monthly spending limit.", "", exchange.FailCredential, true},
		"Moonshot":             {429, "Your account is suspended, please check your account balance", "", exchange.FailCredential, true},
		"a plain rate":         {429, "Rate limit reached, try again in 7.66s", "", exchange.FailRateLimited, false},
		"a server's own fault": {500, "maximum context length", "", exchange.FailOverloaded, false},
		"a word alone":         {400, "context is required", "", exchange.FailRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(map[string]any{"error": map[string]any{"message": c.message, "type": "invalid_request_error", "param": c.param}})
			if err != nil {
				t.Fatal(err)
			}
			f := New().Failure(c.status, http.Header{}.Get, body)
			if f.Kind != c.want || f.Final != c.final || (f.Code == "context_length_exceeded") != (c.want == exchange.FailContext) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestErrorsInAnswers: an error under status 200 is classified by what it says of itself.
func TestErrorsInAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want exchange.FailureKind
	}{
		"a status as code":     {`{"error":{"message":"m","code":429}}`, exchange.FailRateLimited},
		"a status as text":     {`{"error":{"message":"m","code":"400"}}`, exchange.FailRequest},
		"a quota":              {`{"error":{"message":"m","code":"insufficient_quota"}}`, exchange.FailCredential},
		"a context":            {`{"error":{"message":"maximum context length is 5","type":"BadRequestError"}}`, exchange.FailContext},
		"a key":                {`{"error":{"message":"m","type":"authentication_error"}}`, exchange.FailCredential},
		"a text":               {`{"error":"model runner has crashed"}`, exchange.FailOverloaded},
		"a sign":               {`{"error":true,"message":"m"}`, exchange.FailOverloaded},
		"flat":                 {`{"object":"error","message":"m","type":"BadRequestError","code":400}`, exchange.FailRequest},
		"flat, without a code": {`{"object":"error","message":"m"}`, exchange.FailOverloaded},
		"typed":                {`{"type":"error","code":"rate_limit_exceeded","message":"m"}`, exchange.FailRateLimited},
		"empty":                {`{"error":{}}`, exchange.FailOverloaded},
		"beside a choice":      {`{"error":{"code":502,"message":"m"},"choices":[{"index":0,"delta":{"content":"x"}}]}`, exchange.FailOverloaded},
		"in an array":          {`[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]`, exchange.FailOverloaded},
		"a page":               {`{"error":{"message":"<html>host-7</html>"}}`, exchange.FailOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			st := New().Stream(ask(true), note)
			_, p := st.Event(nil, nil, []byte(c.data))
			if p.Failure == nil || p.Failure.Kind != c.want || p.Failure.Message == "" || isPage(p.Failure.Message) {
				t.Errorf("in a stream: %+v", p.Failure)
			}
			_, _, f := New().Response(ask(false), []byte(c.data), note)
			if f == nil || f.Kind != c.want {
				t.Errorf("in an answer: %+v", f)
			}
		})
	}
}

// TestErrorsStick: after an error nothing of the stream is a success.
func TestErrorsStick(t *testing.T) {
	for name, broken := range map[string]struct{ name, data string }{
		"error":     {"", `{"error":{"message":"m"}}`},
		"event":     {"error", `{"message":"m"}`},
		"no JSON":   {"", `{"choices":[`},
		"by finish": {"", strings.Replace(finished, "stop", "error", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			st := New().Stream(ask(true), note)
			out, _ := st.Event(nil, nil, []byte(delta(`"content":"a"`)))
			_, first := st.Event(nil, []byte(broken.name), []byte(broken.data))
			for _, next := range []string{delta(`"content":"b"`), finished, counted, done} {
				got, p := st.Event(nil, nil, []byte(next))
				if len(got) > 0 || p.Real || p.Done || p.Failure == nil || p.Failure != first.Failure {
					t.Errorf("%s after the error: %q, %+v", next, got, p)
				}
			}
			if got, f := st.End(nil); len(got) > 0 || f == nil || len(out) == 0 || st.Delivered().Bytes != 1 {
				t.Errorf("end: %q, %+v, %d delivered", got, f, st.Delivered().Bytes)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	const date = "Sun, 29 Nov 2026 10:00:00 GMT" // 1795946400
	for name, c := range map[string]struct {
		h    map[string]string
		want time.Duration
	}{
		"none":              {nil, 0},
		"seconds":           {map[string]string{"Retry-After": "7"}, 7 * time.Second},
		"fraction":          {map[string]string{"Retry-After": "1.5"}, 1500 * time.Millisecond},
		"milliseconds win":  {map[string]string{"Retry-After": "7", "Retry-After-Ms": "250"}, 250 * time.Millisecond},
		"date":              {map[string]string{"Retry-After": "Sun, 29 Nov 2026 10:00:30 GMT", "Date": date}, 30 * time.Second},
		"date in the past":  {map[string]string{"Retry-After": "Sun, 29 Nov 2026 09:00:00 GMT", "Date": date}, 0},
		"date without Date": {map[string]string{"Retry-After": date}, 0},
		"negative":          {map[string]string{"Retry-After": "-3"}, 0},
		"no number":         {map[string]string{"Retry-After": "NaN"}, 0},
		"infinite":          {map[string]string{"Retry-After": "Inf"}, adapter.WaitMax},
		"absurd":            {map[string]string{"Retry-After": "1e300"}, adapter.WaitMax},
		"duration":          {map[string]string{"Retry-After": "2m59.56s"}, 179560 * time.Millisecond},
		"epoch":             {map[string]string{"Retry-After": "1795946405", "Date": date}, 5 * time.Second},
		"epoch, no Date":    {map[string]string{"Retry-After": "1795946405"}, 0},
		"reset in a moment": {map[string]string{"X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "12ms", "X-Ratelimit-Reset-Requests": "6m0s"}, 12 * time.Millisecond},
		"reset of both":     {map[string]string{"X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Tokens": "7.66s", "X-Ratelimit-Reset-Requests": "6m0s"}, 6 * time.Minute},
		"reset of neither":  {map[string]string{"X-Ratelimit-Remaining-Tokens": "5", "X-Ratelimit-Reset-Tokens": "7s"}, 0},
		"reset, bare":       {map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "9"}, 9 * time.Second},
		"reset, RFC 3339":   {map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "2026-11-29T10:00:04Z", "Date": date}, 4 * time.Second},
		"reset, epoch":      {map[string]string{"X-Ratelimit-Reset": "1795946403", "Date": date}, 3 * time.Second},
		"reset, epoch ms":   {map[string]string{"X-Ratelimit-Reset": "1795946402500", "Date": date}, 2500 * time.Millisecond},
		"retry-after wins":  {map[string]string{"Retry-After": "1", "X-Ratelimit-Reset": "1795946403", "Date": date}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for k, v := range c.h {
				h.Set(k, v)
			}
			if f := New().Failure(429, h.Get, nil); f.RetryAfter != c.want || f.Kind != exchange.FailRateLimited || f.Final {
				t.Errorf("%+v", f)
			}
		})
	}
	if f := New().Failure(503, http.Header{"X-Should-Retry": {"false"}}.Get, nil); !f.Final {
		t.Error("x-should-retry is not obeyed")
	}
	named := `{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded"}}`
	if f := New().Failure(429, http.Header{"X-Ratelimit-Reset-Tokens": {"3s"}}.Get, []byte(named)); f.RetryAfter != 3*time.Second {
		t.Errorf("the limit the error names: %+v", f)
	}
}

func TestResponseFailures(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind exchange.FailureKind
	}{
		"empty":      {``, exchange.FailInvalid},
		"page":       {`<html>`, exchange.FailInvalid},
		"cut":        {`{"choices":[`, exchange.FailInvalid},
		"array":      {`[]`, exchange.FailInvalid},
		"no choices": {`{"id":"x","choices":[]}`, exchange.FailInvalid},
		"too deep":   {`{"choices":` + strings.Repeat("[", 32<<20), exchange.FailInvalid},
		"error":      {`{"error":{"message":"m","type":"server_error"}}`, exchange.FailOverloaded},
		"rate":       {`{"error":{"message":"m","code":429}}`, exchange.FailRateLimited},
		"broke off":  {`{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"error"}]}`, exchange.FailInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			out, u, f := New().Response(ask(false), []byte(c.body), note)
			if f == nil || f.Kind != c.kind || f.Message == "" || out != nil || u != (exchange.Usage{Source: exchange.FromEstimate}) {
				t.Errorf("got %q, %+v, %+v", out, u, f)
			}
		})
	}
}

func TestAbort(t *testing.T) {
	for name, c := range map[string]struct {
		f    exchange.Failure
		want string
	}{
		"overloaded": {
			exchange.Failure{Kind: exchange.FailOverloaded, Type: "server_error", Message: "O\n\"k"},
			`{"message":"O\n\"k","type":"server_error","param":null,"code":"upstream_overloaded","delivered_bytes":3,"retryable":true}`,
		},
		"rate, final": {
			exchange.Failure{Kind: exchange.FailRateLimited, Message: "m", Final: true},
			`{"message":"m","type":"server_error","param":null,"code":"upstream_rate_limited","delivered_bytes":3,"retryable":false}`,
		},
		"credential stays inside": {
			exchange.Failure{Kind: exchange.FailCredential, Type: "t", Code: "c", Param: "p", Message: "key sk-1"},
			`{"message":"the provider refused the gateway's configuration","type":"server_error","param":null,"code":"upstream_misconfigured","delivered_bytes":3,"retryable":true}`,
		},
		"cut": {
			exchange.Failure{Kind: exchange.FailCut},
			`{"message":"the provider's stream broke","type":"server_error","param":null,"code":"stream_truncated","delivered_bytes":3,"retryable":true}`,
		},
		"request": {
			exchange.Failure{Kind: exchange.FailRequest, Type: "invalid_request_error", Param: "top_p", Code: "c", Message: "m"},
			`{"message":"m","type":"invalid_request_error","param":"top_p","code":"c","delivered_bytes":3,"retryable":false}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := New().Stream(ask(true), note)
			st.Event(nil, nil, []byte(`{"choices":[{"index":0,"delta":{"content":"h\u00e9"}}]}`))
			if got := string(st.Abort(nil, &c.f)); got != `data: {"error":`+c.want+"}\n\n" {
				t.Error(got)
			}
		})
	}
}
