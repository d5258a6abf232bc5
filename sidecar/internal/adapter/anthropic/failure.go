package anthropic

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// classify says what a non-2xx answer means.
func classify(status int, h adapter.Header, body []byte) *exchange.Failure {
	var detail gjson.Result
	if adapter.Valid(body) {
		detail = gjson.GetBytes(body, "error")
	}
	f := failureOf(status, detail)
	f.RetryAfter = retryAfter(h)
	if strings.EqualFold(strings.TrimSpace(h("x-should-retry")), "false") {
		f.Final = true
	}
	return f
}

// reported is the failure of an error object that came without a status of its own, inside a 200.
func reported(detail gjson.Result) *exchange.Failure {
	status, ok := map[string]int{
		"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
		"not_found_error": 404, "conflict_error": 409, "request_too_large": 413, "rate_limit_error": 429,
		"api_error": 500, "timeout_error": 504, "overloaded_error": 529,
	}[detail.Get("type").Str]
	if !ok {
		status = 500
	}
	return failureOf(status, detail)
}

// failureOf makes the failure of a status and the provider's error object, which may be missing.
func failureOf(status int, detail gjson.Result) *exchange.Failure {
	f := &exchange.Failure{
		Kind:    adapter.KindOf(status),
		Status:  status,
		Type:    adapter.Trimmed(detail.Get("type").Str),
		Code:    adapter.Trimmed(detail.Get("details.error_code").String()),
		Message: adapter.Trimmed(detail.Get("message").Str),
	}
	if f.Message == "" && detail.Type == gjson.String {
		f.Message = adapter.Trimmed(detail.Str)
	}
	if f.Message == "" {
		f.Message = fmt.Sprintf("the provider answered with status %d", status)
	}
	switch f.Code {
	case "enforced_spend_limit_reached", "contract_spend_limit_reached":
		// The status says rate limit, but waiting does not help: the account's money is spent.
		f.Kind, f.Final = exchange.FailCredential, true
	}
	if f.Kind == exchange.FailRequest {
		refineRequest(f)
	}
	return f
}

// refineRequest tells apart what the provider reports as one error type. Only the message says which it is.
func refineRequest(f *exchange.Failure) {
	has := func(part string) bool { return strings.Contains(f.Message, part) }
	switch {
	case has("prompt is too long"), has("exceed context limit"):
		f.Kind, f.Param = exchange.FailContext, "messages"
		if f.Code == "" {
			f.Code = "context_length_exceeded"
		}
	case has("credit balance is too low"), has("specified API usage limits"):
		f.Kind, f.Final = exchange.FailCredential, true
	case has("content filtering policy"):
		f.Kind = exchange.FailPolicy
	case has("temperature` and `top_p` cannot both be specified"):
		f.Kind, f.Param = exchange.FailUnsupported, "top_p"
	default:
		f.Param = paramOf(f.Message)
		// What this model has no such member for, another may have.
		if f.Param != "" && (has("Extra inputs are not permitted") || has("not supported") || has("deprecated for this model")) {
			f.Kind = exchange.FailUnsupported
		}
	}
}

// callersNames are the caller's members behind the provider's. The first that fits counts.
var callersNames = []struct{ provider, caller string }{
	{"output_config.format", "response_format"},
	{"output_config", "reasoning_effort"},
	{"thinking", "reasoning_effort"},
	{"metadata", "safety_identifier"},
	{"stop_sequences", "stop"},
	{"system", "messages"},
	{"tool_choice.disable_parallel_tool_use", "parallel_tool_calls"},
	{"tool_choice", "tool_choice"},
	{"tools", "tools"},
	{"messages", "messages"},
	{"temperature", "temperature"},
	{"top_p", "top_p"},
	{"max_tokens", "max_tokens"},
	{"model", "model"},
	{"stream", "stream"},
	{"service_tier", "service_tier"},
}

// paramOf reads the member at fault from a message such as "temperature: Extra inputs are not permitted" and names it
// as the caller does. Positions inside it are left out: the caller's messages are numbered otherwise.
func paramOf(message string) string {
	path, _, ok := strings.Cut(message, ":")
	if !ok {
		return ""
	}
	for _, n := range callersNames {
		if rest, ok := strings.CutPrefix(path, n.provider); ok && (rest == "" || rest[0] == '.') {
			return n.caller
		}
	}
	return ""
}

// retryAfterMax bounds what a provider can make us believe.
const retryAfterMax = 24 * time.Hour

// retryAfter is the wait the provider asks for, 0 when it asks for none. A date is taken relative to the answer's own
// Date, so that clocks need not agree.
func retryAfter(h adapter.Header) time.Duration {
	if d, ok := number(h("retry-after-ms"), time.Millisecond); ok {
		return d
	}
	v := strings.TrimSpace(h("retry-after"))
	if d, ok := number(v, time.Second); ok {
		return d
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h("date"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), retryAfterMax)
}

func number(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(n >= 0) {
		return 0, false
	}
	if n > float64(retryAfterMax/unit) {
		return retryAfterMax, true
	}
	return time.Duration(n * float64(unit)), true
}
