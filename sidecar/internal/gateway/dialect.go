package gateway

import (
	"strconv"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/valyala/fasthttp"
)

// dialect is the language in which a caller understands a refusal.
type dialect uint8

const (
	openAIDialect dialect = iota
	anthropicDialect
)

// dialectOf is the dialect of a request. The path decides, where it can; where it is of both (models) or of none, what
// Anthropic's clients send and OpenAI's do not.
func dialectOf(h *fasthttp.RequestHeader) dialect {
	path := string(pathOf(h.RequestURI()))
	switch {
	case path == "/v1/messages", strings.HasPrefix(path, "/v1/messages/"):
		return anthropicDialect
	case serves(path) && !strings.HasPrefix(path, "/v1/models"), strings.HasPrefix(path, pathResponses+"/"):
		return openAIDialect
	case len(h.Peek("anthropic-version")) > 0, len(h.Peek("x-api-key")) > 0:
		return anthropicDialect
	}
	return openAIDialect
}

// appendOpenAI appends the error in OpenAI's dialect. The object has all four of OpenAI's members; ours come after.
func (r *refusal) appendOpenAI(b []byte) []byte {
	b = appendString(append(b, `{"error":{"message":`...), r.message)
	b = appendString(append(b, `,"type":`...), r.kind)
	b = append(b, `,"param":`...)
	if r.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, r.param)
	}
	b = appendString(append(b, `,"code":`...), r.code)
	return append(r.appendDetails(b), "}}"...)
}

// appendAnthropic appends the error in Anthropic's dialect: what its type does not say stands in details.
func (r *refusal) appendAnthropic(b []byte, requestID string) []byte {
	b = appendString(append(b, `{"type":"error","error":{"type":`...), r.anthropicType())
	b = appendString(append(b, `,"message":`...), r.message)
	b = appendString(append(b, `,"details":{"error_code":`...), r.code)
	if r.param != "" {
		b = appendString(append(b, `,"param":`...), r.param)
	}
	b = append(r.appendDetails(b), `}},"request_id":`...)
	return append(appendString(b, requestID), '}')
}

func (r *refusal) anthropicType() string {
	switch r.status {
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 408, 504:
		return "timeout_error"
	}
	if r.code == "upstream_overloaded" {
		return "overloaded_error"
	}
	if r.status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// appendDetails appends the members that are ours in both dialects, each with a leading comma.
func (r *refusal) appendDetails(b []byte) []byte {
	if r.scope != "" {
		b = appendString(append(b, `,"scope":`...), r.scope)
	}
	if r.numbers {
		b = r.appendAmount(append(b, `,"left":`...), r.left)
		b = r.appendAmount(append(b, `,"needed":`...), r.needed)
		b = r.appendAmount(append(b, `,"limit":`...), r.limit)
		b = appendString(append(b, `,"unit":`...), r.unit)
	}
	if !r.resetsAt.IsZero() {
		b = appendString(append(b, `,"resets_at":`...), r.resetsAt.UTC().Format(time.RFC3339))
	}
	if r.inner != "" {
		b = append(append(b, `,"innererror":`...), r.inner...)
	}
	if len(r.attempts) == 0 {
		return b
	}
	b = append(b, `,"attempts":[`...)
	for i, a := range r.attempts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"deployment":`...), a.Deployment)
		b = appendString(append(b, `,"failure":`...), kindName(a.Kind))
		b = strconv.AppendInt(append(b, `,"status":`...), int64(a.Status), 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendAmount writes money as an exact decimal number of dollars, other amounts as whole numbers.
func (r *refusal) appendAmount(b []byte, n int64) []byte {
	if r.unit == "usd" {
		return appendUSD(b, exchange.NanoUSD(n))
	}
	return strconv.AppendInt(b, n, 10)
}
