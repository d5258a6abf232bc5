package openai

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	messageMax = 2_000 // bytes of a provider's text that are passed on
	retryMax   = time.Hour
)

// Failure implements adapter.Adapter.
func (*Adapter) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return failureOf(status, h, body)
}

func failureOf(status int, h adapter.Header, body []byte) *exchange.Failure {
	f := &exchange.Failure{Status: status}
	f.RetryAfter = retryAfter(h)
	if adapter.Valid(body) {
		describe(f, gjson.ParseBytes(body))
	}
	if f.Message == "" {
		f.Message = "the provider answered " + strconv.Itoa(status)
	}
	f.Kind = kindOf(status, f)
	f.Final = f.Final || h("x-should-retry") == "false"
	rename(f)
	return f
}

// openAITypes are the words OpenAI itself has for the type of an error. Others are replaced by the one that fits.
var openAITypes = map[string]bool{
	"invalid_request_error": true, "authentication_error": true, "permission_error": true, "rate_limit_error": true,
	"server_error": true, "insufficient_quota": true, "service_unavailable_error": true, "requests": true, "tokens": true,
	"billing_error": true, "upstream_error": true, "upstream_invalid_response": true,
}

// rename puts type, code and param into OpenAI's words, so that callers need to know one dialect.
func rename(f *exchange.Failure) {
	if f.Kind == exchange.FailNotFound {
		f.Code, f.Param = "model_not_found", "model"
	}
	if f.Kind == exchange.FailContext {
		f.Code = "context_length_exceeded"
	}
	if f.Status == 402 && f.Code == "invalid_request_error" {
		f.Code = ""
	}
	switch f.Code {
	case "429", "RateLimitReached":
		f.Code = "rate_limit_exceeded"
	case "400", "413", "422": // the status over again
		f.Code = ""
	case "401":
		f.Code = "invalid_api_key"
	}
	if !openAITypes[f.Type] || f.Status == 402 {
		f.Type = typeOf(f)
	}
}

func typeOf(f *exchange.Failure) string {
	switch f.Kind {
	case exchange.FailRequest, exchange.FailContext, exchange.FailPolicy, exchange.FailNotFound:
		return "invalid_request_error"
	case exchange.FailRateLimited:
		return "rate_limit_error"
	case exchange.FailCredential:
		switch {
		case f.Status == 402 || f.Final:
			return "insufficient_quota"
		case f.Status == 400: // Google says so of a wrong key
			return "invalid_request_error"
		case f.Status == 403:
			return "permission_error"
		}
		return "authentication_error"
	case exchange.FailOverloaded:
		if f.Status > 0 {
			return "server_error"
		}
	}
	return "upstream_error"
}

// describe reads the many shapes of error bodies.
func describe(f *exchange.Failure, doc gjson.Result) {
	if doc.IsArray() {
		doc = doc.Get("0") // Google wraps it
	}
	e := doc.Get("error")
	if !e.IsObject() {
		if e.Type == gjson.String {
			f.Message = clip(e.Str)
		}
		e = doc // flat: Mistral, SGLang, Azure's front, FastAPI
	}
	text := func(to *string, names ...string) {
		for _, n := range names {
			if v := e.Get(n); *to == "" && v.Exists() && v.Type != gjson.Null {
				*to = clip(v.String())
			}
		}
	}
	text(&f.Message, "message", "Message", "detail", "error_description")
	text(&f.Type, "type")
	if v := e.Get("status"); v.Type == gjson.String { // Google: the number stands in code
		f.Code = clip(v.Str)
	}
	text(&f.Code, "code", "status", "statusCode")
	text(&f.Param, "param")
	if loc := e.Get("detail.0.loc"); loc.IsArray() { // FastAPI
		f.Message = clip(e.Get("detail.0.msg").String())
		f.Param = strings.TrimPrefix(join(loc), "body.")
	}
	if loc := e.Get("message.detail.0.loc"); loc.IsArray() { // Mistral
		f.Param = strings.TrimPrefix(join(loc), "body.")
	}
	for _, d := range e.Get("details").Array() {
		if v, err := time.ParseDuration(d.Get("retryDelay").Str); err == nil && v > 0 {
			f.RetryAfter = min(v, retryMax)
		}
		if d.Get("reason").Str == "API_KEY_INVALID" {
			f.Code = "API_KEY_INVALID"
		}
	}
}

func join(a gjson.Result) string {
	var parts []string
	for _, v := range a.Array() {
		parts = append(parts, v.String())
	}
	return strings.Join(parts, ".")
}

func clip(s string) string {
	if len(s) > messageMax {
		s = strings.ToValidUTF8(s[:messageMax], "")
	}
	return s
}

// kindOf decides by the code first: providers use one status for different things.
func kindOf(status int, f *exchange.Failure) exchange.FailureKind {
	switch f.Code {
	case "insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached", "billing_not_active":
		f.Final = true
		return exchange.FailCredential
	case "API_KEY_INVALID", "invalid_api_key":
		return exchange.FailCredential
	case "context_length_exceeded":
		return exchange.FailContext
	case "content_policy_violation", "content_filter":
		return exchange.FailPolicy
	case "tool_use_failed": // Groq: the model's fault, another try may do
		return exchange.FailInvalid
	}
	if f.Type == "insufficient_quota" {
		f.Final = true
		return exchange.FailCredential
	}
	if f.Type == "exceed_context_size_error" {
		return exchange.FailContext
	}
	switch {
	case status == 400, status == 413, status == 422:
		return exchange.FailRequest
	case status == 401, status == 402, status == 403:
		return exchange.FailCredential
	case status == 404:
		return exchange.FailNotFound
	case status == 429:
		return exchange.FailRateLimited
	case status == 408, status == 409, status == 498, status == 499, status >= 500:
		return exchange.FailOverloaded
	case status >= 300 && status < 400:
		return exchange.FailNotFound // a redirect is not followed: it would carry the key elsewhere
	}
	return exchange.FailInvalid
}

// kindOfType classifies an error that came inside a 200 answer, without a status of its own.
func kindOfType(kind, code string) exchange.FailureKind {
	switch {
	case strings.Contains(kind, "rate_limit"), strings.Contains(code, "rate_limit"), code == "429":
		return exchange.FailRateLimited
	case kind == "invalid_request_error" && code != "":
		return exchange.FailRequest
	case strings.Contains(kind, "authentication"), code == "401", code == "403":
		return exchange.FailCredential
	}
	return exchange.FailOverloaded
}

// retryAfter reads retry-after-ms, then retry-after as seconds or as an HTTP date counted from the answer's own Date.
func retryAfter(h adapter.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h("retry-after-ms"), 64); err == nil && ms > 0 {
		return min(time.Duration(min(ms, 1e9))*time.Millisecond, retryMax)
	}
	v := h("retry-after")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return min(time.Duration(min(s, 1e6)*float64(time.Second)), retryMax)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	from, err := http.ParseTime(h("date"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(from), 0), retryMax)
}
