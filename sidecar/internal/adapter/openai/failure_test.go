package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"

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
		"request":           {400, body(request, `null`), exchange.Failure{Kind: exchange.FailRequest, Type: request}},
		"too large":         {413, ``, exchange.Failure{Kind: exchange.FailRequest, Type: request}},
		"context":           {400, body(request, `"context_length_exceeded"`), exchange.Failure{Kind: exchange.FailContext, Type: request, Code: "context_length_exceeded"}},
		"content":           {400, body(request, `"content_filter"`), exchange.Failure{Kind: exchange.FailPolicy, Type: request, Code: "content_filter"}},
		"quota, not a rate": {429, body("insufficient_quota", `"insufficient_quota"`), exchange.Failure{Kind: exchange.FailCredential, Type: "insufficient_quota", Code: "insufficient_quota", Final: true}},
		"quota by type":     {429, body("insufficient_quota", `null`), exchange.Failure{Kind: exchange.FailCredential, Type: "insufficient_quota", Final: true}},
		"rate":              {429, body(limit, `"rate_limit_exceeded"`), exchange.Failure{Kind: exchange.FailRateLimited, Type: limit, Code: "rate_limit_exceeded"}},
		"key":               {401, body(request, `"invalid_api_key"`), exchange.Failure{Kind: exchange.FailCredential, Type: request, Code: "invalid_api_key"}},
		"money":             {402, ``, exchange.Failure{Kind: exchange.FailCredential, Type: "insufficient_quota"}},
		"forbidden":         {403, ``, exchange.Failure{Kind: exchange.FailCredential, Type: "permission_error"}},
		"model":             {404, ``, exchange.Failure{Kind: exchange.FailNotFound, Type: request, Code: "model_not_found", Param: "model"}},
		"a failed call":     {400, body(request, `"tool_use_failed"`), exchange.Failure{Kind: exchange.FailInvalid, Type: request, Code: "tool_use_failed"}},
		"timeout":           {408, ``, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"flat":              {500, `{"message":"m","code":7}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server, Code: "7"}},
		"text":              {503, `{"error":"busy"}`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"page":              {502, `<html>host-7</html>`, exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
		"too deep":          {500, strings.Repeat("[", 32<<20), exchange.Failure{Kind: exchange.FailOverloaded, Type: server}},
	} {
		t.Run(name, func(t *testing.T) {
			f := New().Failure(c.status, http.Header{}.Get, []byte(c.body))
			if f.Message == "" || strings.Contains(f.Message, "<") || f.Status != c.status {
				t.Errorf("message %q, status %d", f.Message, f.Status)
			}
			got := exchange.Failure{Kind: f.Kind, Type: f.Type, Code: f.Code, Param: f.Param, Final: f.Final}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	const date = "Sun, 29 Nov 2026 10:00:00 GMT"
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
		"absurd":            {map[string]string{"Retry-After": "1e300"}, retryMax},
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
