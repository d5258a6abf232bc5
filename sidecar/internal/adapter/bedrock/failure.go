package bedrock

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// classify says what a non-2xx answer means. The front layer may leave out the name of the error.
func classify(status int, h adapter.Header, body []byte) *exchange.Failure {
	var doc gjson.Result
	if adapter.Valid(body) {
		doc = gjson.ParseBytes(body)
	}
	name := h("x-amzn-errortype")
	if name == "" {
		name = doc.Get("__type").Str
	}
	f := failureOf(status, name, messageOf(doc))
	f.RetryAfter = adapter.Until(strings.TrimSpace(h("retry-after")), adapter.Date(h))
	return f
}

// exception is the failure that an event of a 200 reports, nil for an event that reports none.
func exception(name, data []byte) *exchange.Failure {
	kind, ok := bytes.CutPrefix(name, []byte("exception:"))
	if !ok {
		if kind, ok = bytes.CutPrefix(name, []byte("error:")); !ok {
			return nil
		}
	}
	var doc gjson.Result
	if adapter.Valid(data) {
		doc = gjson.ParseBytes(data)
	}
	return failureOf(statusOf(string(kind)), string(kind), messageOf(doc))
}

// statusOf is the HTTP status of an exception that came inside a 200.
func statusOf(name string) int {
	switch strings.ToLower(name) {
	case "validationexception":
		return 400
	case "accessdeniedexception":
		return 403
	case "modeltimeoutexception":
		return 408
	case "modelstreamerrorexception", "modelerrorexception":
		return 424
	case "throttlingexception", "modelnotreadyexception":
		return 429
	case "serviceunavailableexception":
		return 503
	}
	return 500
}

// messageOf reads the text of an error, which some layers spell with a capital letter.
func messageOf(doc gjson.Result) string {
	for _, name := range [...]string{"message", "Message"} {
		if v := doc.Get(name); v.Type == gjson.String && v.Str != "" {
			return v.Str
		}
	}
	return ""
}

// failureOf makes the failure of a status, the error's name as the wire has it, and its text.
func failureOf(status int, name, message string) *exchange.Failure {
	name, _, _ = strings.Cut(name, ":") // a URL may follow
	if i := strings.LastIndexByte(name, '#'); i >= 0 {
		name = name[i+1:] // a namespace may stand before
	}
	f := &exchange.Failure{Status: status, Code: adapter.Trimmed(strings.TrimSpace(name)), Message: adapter.Trimmed(message)}
	f.Kind, f.Type = adapter.KindOf(status), typeOf(status)
	if status == 424 { // the model broke, not the service
		f.Kind = exchange.FailInvalid
	}
	switch strings.ToLower(f.Code) {
	case "modelnotreadyexception": // a 429 that is no limit: the model is being loaded
		f.Kind, f.Type = exchange.FailOverloaded, "server_error"
	case "servicequotaexceededexception": // a 400 that is one
		f.Kind, f.Type = exchange.FailRateLimited, "rate_limit_error"
	}
	if f.Kind == exchange.FailRequest {
		refine(f)
	}
	if f.Message == "" {
		f.Message = fmt.Sprintf("the provider answered with status %d", status)
	}
	return f
}

// typeOf is the type of an error with that status. The provider has none.
func typeOf(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 402, status == 403:
		return "permission_error"
	case status == 404, status == 405:
		return "not_found_error"
	case status == 408:
		return "timeout_error"
	case status == 424:
		return "upstream_error"
	case status == 429:
		return "rate_limit_error"
	case status == 409, status >= 500:
		return "server_error"
	case status >= 400:
		return "invalid_request_error"
	}
	return ""
}

// refine tells apart what is reported as one ValidationException. Only the text says which it is.
func refine(f *exchange.Failure) {
	text := strings.ToLower(f.Message)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("input is too long", "prompt is too long", "exceed context limit", "too many input tokens",
		"maximum context length", "context window"):
		f.Kind, f.Param, f.Code = exchange.FailContext, "messages", "context_length_exceeded"
	case has("model identifier is invalid", "on-demand throughput", "end of its life"):
		f.Kind = exchange.FailNotFound
	case has("content filtering policy"):
		f.Kind = exchange.FailPolicy
	case has("conversation must start with a user message"): // others take it
		f.Kind, f.Param = exchange.FailUnsupported, "messages"
	case has("doesn't support", "does not support", "not supported", "not permitted", "deprecated for this model"):
		f.Kind = exchange.FailUnsupported
		for _, n := range callersNames {
			if has(n.provider) {
				f.Param = n.caller
				break
			}
		}
	case has("value at '", "value '"): // of a constraint: Value '5' at 'inferenceConfig.temperature' failed to satisfy it
		_, path, _ := strings.Cut(text, "at '")
		path, _, _ = strings.Cut(path, "'")
		for _, n := range callersNames {
			if strings.Contains(path, n.provider) {
				f.Param = n.caller
				break
			}
		}
	}
}

// callersNames are the caller's members behind the provider's words. The first that fits counts.
var callersNames = []struct{ provider, caller string }{
	{"textformat", "response_format"}, {"output_config.format", "response_format"}, {"structured output", "response_format"},
	{"effort", "reasoning_effort"}, {"thinking", "reasoning_effort"}, {"reasoning", "reasoning_effort"},
	{"toolchoice", "tool_choice"}, {"tool_choice", "tool_choice"}, {"tool", "tools"},
	{"stopsequences", "stop"}, {"stop_sequences", "stop"}, {"stop sequence", "stop"},
	{"temperature", "temperature"}, {"top_p", "top_p"}, {"topp", "top_p"}, {"max_tokens", "max_tokens"}, {"maxtokens", "max_tokens"},
	{"service tier", "service_tier"}, {"servicetier", "service_tier"},
	{"streaming", "stream"},
	{"image", "messages"}, {"document", "messages"}, {"audio", "messages"}, {"system", "messages"}, {"cache", "messages"},
}
