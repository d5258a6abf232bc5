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
	// messageMax is how many bytes of a provider's text are passed on.
	messageMax = 2_000
	// innerMax is how long an innererror may be to be passed on, in bytes.
	innerMax = 4 << 10
)

// Failure implements adapter.Adapter.
func (*Adapter) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return failureOf(status, h, body)
}

func noHeader(string) string { return "" }

func failureOf(status int, h adapter.Header, body []byte) *exchange.Failure {
	f := &exchange.Failure{Status: status}
	if adapter.Valid(body) {
		describe(f, gjson.ParseBytes(body))
	}
	if d := retryAfter(h); d > 0 {
		f.RetryAfter = d
	}
	if f.RetryAfter == 0 && status == http.StatusTooManyRequests {
		f.RetryAfter = untilReset(h, f.Type)
	}
	f.Kind = kindOf(status, f)
	switch {
	case f.Message != "":
	case status > 0:
		f.Message = "the provider answered " + strconv.Itoa(status)
	default:
		f.Message = "the provider reported an error"
	}
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
	case "400", "413", "422", "501": // the status over again
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
	case exchange.FailRequest, exchange.FailUnsupported, exchange.FailContext, exchange.FailPolicy, exchange.FailNotFound:
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
	if v := e.Get("innererror"); v.IsObject() && len(v.Raw) <= innerMax {
		f.Inner = v.Get("@ugly").Raw
	}
	if loc := e.Get("detail.0.loc"); loc.IsArray() { // FastAPI
		f.Message = clip(e.Get("detail.0.msg").String())
		f.Param = strings.TrimPrefix(join(loc), "body.")
	}
	if loc := e.Get("message.detail.0.loc"); loc.IsArray() { // Mistral
		f.Param = strings.TrimPrefix(join(loc), "body.")
	}
	if e.Get("metadata.reasons").IsArray() { // OpenRouter's moderation
		f.Code = "content_policy_violation"
	}
	for _, d := range e.Get("details").Array() {
		f.RetryAfter = max(f.RetryAfter, adapter.Until(d.Get("retryDelay").Str, time.Time{}))
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

// clip makes a provider's text fit to be passed on. Pages of proxies are not: they tell of hosts and are no message.
func clip(s string) string {
	if isPage(s) {
		return ""
	}
	if len(s) > messageMax {
		s = strings.ToValidUTF8(s[:messageMax], "")
	}
	return s
}

// inBand finds an error that came with status 200.
func inBand(doc gjson.Result) *exchange.Failure {
	if doc.IsArray() {
		doc = doc.Get("0") // Google wraps it
	}
	e := doc.Get("error")
	switch {
	case e.Exists() && truthy([]byte(e.Raw)):
		if !e.IsObject() {
			e = doc // xAI: {"code": …, "error": …}, Ollama: {"error": …}
		}
	case doc.Get("choices").Exists(), doc.Get("data").Exists():
		return nil
	case doc.Get("code").Exists(), doc.Get("object").Str == "error", doc.Get("type").Str == "error":
		e = doc
	default:
		return nil
	}
	status := int(e.Get("code").Int())
	if status < 400 || status > 599 {
		status = int(e.Get("status").Int())
	}
	if status < 400 || status > 599 {
		status = 0
	}
	f := failureOf(status, noHeader, []byte(doc.Raw))
	if f.Kind == exchange.FailNone {
		f.Kind = kindOfType(e.Get("type").Str, f)
	}
	// Inside an answer the provider's own word for the type goes on: the caller sees it beside what was delivered.
	switch f.Type = clip(e.Get("type").Str); {
	case f.Type != "" && f.Type != "error":
	case doc.Get("error").IsObject():
		f.Type = "upstream_error"
	default:
		f.Type = "server_error"
	}
	return f
}

// truthy says that an error member means an error: anything that a client would not take for nothing.
func truthy(raw []byte) bool {
	switch string(raw) {
	case "null", "false", "0", `""`:
		return false
	}
	return true
}

// brokeOff is the failure behind a finish reason that means one.
func brokeOff(reason string) *exchange.Failure {
	f := invalid("the provider broke off: " + reason)
	f.Type, f.Code = "upstream_error", reason
	if reason == "error" {
		f.Code = "finish_reason_error"
	}
	return f
}

func invalid(message string) *exchange.Failure {
	return &exchange.Failure{Kind: exchange.FailInvalid, Message: message}
}
