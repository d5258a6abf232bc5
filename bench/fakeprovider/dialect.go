package fakeprovider

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// dialect names the two error and header forms.
type dialect int

const (
	openAI dialect = iota
	anthropic
)

func (d dialect) String() string {
	if d == anthropic {
		return "anthropic"
	}
	return "openai"
}

// streamer writes one stream in a dialect. Each method appends whole events to dst; none blocks or keeps dst.
type streamer interface {
	open(dst []byte) []byte
	token(dst []byte, p piece) []byte
	broken(dst []byte) []byte // an event with half a JSON object
	fail(dst []byte) []byte   // an error event
	close(dst []byte, final Usage) []byte
}

// frame is how events become bytes.
type frame struct{ style Style }

// event appends one event; name may be empty.
func (f frame) event(dst []byte, name, data string) []byte {
	end, colon := "\n", ": "
	if f.style.CRLF {
		end = "\r\n"
	}
	if f.style.NoSpace {
		colon = ":"
	}
	if f.style.Comment {
		dst = append(dst, ": comment"+end+end...)
	}
	if name != "" {
		dst = append(dst, "event"...)
		dst = append(dst, colon...)
		dst = append(dst, name...)
		dst = append(dst, end...)
	}
	dst = append(dst, "data"...)
	dst = append(dst, colon...)
	dst = append(dst, data...)
	dst = append(dst, end...)
	return append(dst, end...)
}

// errorBody is an error answer in the dialect.
func (d dialect) errorBody(id string, e refusal) string {
	kind, code := d.errorNames(e.status)
	if e.code != "" {
		code = e.code
	}
	if d == anthropic {
		details := ""
		if e.code != "" {
			details = `,"details":{"error_code":` + quote(e.code) + `}`
		}
		return fmt.Sprintf(`{"type":"error","error":{"type":%s,"message":%s%s},"request_id":%s}`,
			quote(kind), quote(e.message), details, quote(id))
	}
	return fmt.Sprintf(`{"error":{"message":%s,"type":%s,"param":%s,"code":%s}}`,
		quote(e.message), quote(kind), orNull(e.param), orNull(code))
}

func orNull(text string) string {
	if text == "" {
		return "null"
	}
	return quote(text)
}

// errorNames gives the error type, and for OpenAI the code, that belong to a status.
func (d dialect) errorNames(status int) (kind, code string) {
	if d == anthropic {
		switch status {
		case 401:
			return "authentication_error", ""
		case 402:
			return "billing_error", ""
		case 403:
			return "permission_error", ""
		case 404:
			return "not_found_error", ""
		case 409:
			return "conflict_error", ""
		case 413:
			return "request_too_large", ""
		case 429:
			return "rate_limit_error", ""
		case 504:
			return "timeout_error", ""
		case 503, 529:
			return "overloaded_error", ""
		}
		if status >= 500 {
			return "api_error", ""
		}
		return "invalid_request_error", ""
	}
	switch status {
	case 401:
		return "invalid_request_error", "invalid_api_key"
	case 404:
		return "invalid_request_error", "model_not_found"
	case 429:
		return "requests", "rate_limit_exceeded"
	case 503, 529:
		return "service_unavailable_error", "server_is_overloaded"
	}
	if status >= 500 {
		return "server_error", "server_error"
	}
	return "invalid_request_error", ""
}

// setRateHeaders writes the rate limits that are set. now is for Anthropic's reset, which is a point in time.
func (d dialect) setRateHeaders(h http.Header, r RateHeaders, now time.Time) {
	number := func(name string, n int64) {
		if n >= 0 {
			h.Set(name, strconv.FormatInt(n, 10))
		}
	}
	reset := func(name string, in time.Duration) {
		switch {
		case in < 0:
		case d == anthropic:
			h.Set(name, now.Add(in).UTC().Format(time.RFC3339))
		default:
			h.Set(name, in.String())
		}
	}
	if d == anthropic {
		number("anthropic-ratelimit-requests-limit", r.LimitRequests)
		number("anthropic-ratelimit-requests-remaining", r.RemainingRequests)
		number("anthropic-ratelimit-tokens-limit", r.LimitTokens)
		number("anthropic-ratelimit-tokens-remaining", r.RemainingTokens)
		reset("anthropic-ratelimit-requests-reset", r.ResetRequests)
		reset("anthropic-ratelimit-tokens-reset", r.ResetTokens)
		return
	}
	number("x-ratelimit-limit-requests", r.LimitRequests)
	number("x-ratelimit-remaining-requests", r.RemainingRequests)
	number("x-ratelimit-limit-tokens", r.LimitTokens)
	number("x-ratelimit-remaining-tokens", r.RemainingTokens)
	reset("x-ratelimit-reset-requests", r.ResetRequests)
	reset("x-ratelimit-reset-tokens", r.ResetTokens)
}

// emptyBucket fills what a 429 needs and the behaviour left open.
func (r RateHeaders) emptyBucket(retry time.Duration) RateHeaders {
	fill := func(n *int64, v int64) {
		if *n < 0 {
			*n = v
		}
	}
	fill(&r.LimitRequests, 60)
	fill(&r.RemainingRequests, 0)
	fill(&r.LimitTokens, 100_000)
	fill(&r.RemainingTokens, 0)
	if r.ResetRequests < 0 {
		r.ResetRequests = max(retry, 0)
	}
	if r.ResetTokens < 0 {
		r.ResetTokens = max(retry, 0)
	}
	return r
}

// presentedKey is the secret a request shows: a bearer token, or x-api-key. Both dialects accept both.
func presentedKey(h http.Header) string {
	if scheme, token, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return h.Get("X-Api-Key")
}

// halfJSON is the first half of a JSON object, on one line and never valid by itself.
func halfJSON(whole string) string { return strings.TrimRight(whole[:len(whole)/2], "}") }

// splitMiddle cuts a write in two, inside a multi-byte character if it has one.
func splitMiddle(data []byte) (head, tail []byte) {
	if i := bytes.IndexFunc(data, func(r rune) bool { return r > 0x7f }); i >= 0 {
		return data[:i+1], data[i+1:]
	}
	return data[:len(data)/2], data[len(data)/2:]
}
