package gemini

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	typeServer = "server_error"
)

// classify says what a non-2xx answer means. Its error may be wrapped in an array.
func classify(status int, h adapter.Header, body []byte) *exchange.Failure {
	f := failureOf(status, errorOf(body))
	if f.RetryAfter == 0 {
		f.RetryAfter = adapter.Until(strings.TrimSpace(h("retry-after")), adapter.Date(h))
	}
	return f
}

// errorOf is the error object of an answer.
func errorOf(body []byte) gjson.Result {
	if !adapter.Valid(body) {
		return gjson.Result{}
	}
	v := gjson.ParseBytes(body)
	if v.IsArray() {
		v = v.Get("0")
	}
	return v.Get("error")
}

// reported is the failure of an error object that came inside a 200.
func reported(detail gjson.Result) *exchange.Failure {
	status := int(detail.Get("code").Int())
	if status < 400 || status > 599 {
		status = 500
	}
	return failureOf(status, detail)
}

// failureOf makes the failure of a status and the provider's error object, which may be missing.
func failureOf(status int, detail gjson.Result) *exchange.Failure {
	f := &exchange.Failure{
		Kind: adapter.KindOf(status), Status: status, Type: typeOf(status),
		Code:    adapter.Trimmed(detail.Get("status").Str),
		Message: adapter.Trimmed(detail.Get("message").Str),
	}
	if f.Message == "" && detail.Type == gjson.String {
		f.Message = adapter.Trimmed(detail.Str)
	}
	if f.Message == "" {
		f.Message = fmt.Sprintf("the provider answered with status %d", status)
	}
	detail.Get("details").ForEach(func(_, d gjson.Result) bool {
		switch kind := d.Get("@type").Str; {
		case strings.HasSuffix(kind, ".RetryInfo"):
			f.RetryAfter = adapter.Until(d.Get("retryDelay").Str, adapter.Date(func(string) string { return "" }))
		case strings.HasSuffix(kind, ".BadRequest") && f.Param == "":
			f.Param = paramOf(d.Get("fieldViolations.0.field").Str)
		case strings.HasSuffix(kind, ".ErrorInfo") && d.Get("reason").Str != "":
			f.Code = adapter.Trimmed(d.Get("reason").Str)
		}
		return true
	})
	if status == 499 { // cancelled it was by the provider
		f.Kind = exchange.FailOverloaded
	}
	if f.Kind == exchange.FailRequest {
		refineRequest(f, detail.Get("status").Str)
	}
	return f
}

// typeOf is OpenAI's type of an error with that status. The provider has none.
func typeOf(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 429:
		return "rate_limit_error"
	case status >= 400 && status < 499:
		return "invalid_request_error"
	}
	return typeServer
}

// refineRequest tells apart what the provider reports as one status. Only reasons and messages say which it is.
func refineRequest(f *exchange.Failure, status string) {
	has := func(part string) bool { return strings.Contains(f.Message, part) }
	switch {
	case strings.HasPrefix(f.Code, "API_KEY_"):
		f.Kind = exchange.FailCredential
	case status == "FAILED_PRECONDITION": // a country or an account that is not served, or has no billing
		f.Kind = exchange.FailCredential
	case has("exceeds the maximum number of tokens"), has("input token count"):
		f.Kind, f.Param, f.Code = exchange.FailContext, "messages", "context_length_exceeded"
	case has("not enabled for"), has("not supported"), has("does not support"):
		for _, n := range callersNames {
			if has(n.provider) {
				f.Kind, f.Param = exchange.FailUnsupported, n.caller
				return
			}
		}
	}
}

// paramOf is the caller's member behind the path of one of the provider's, such as
// GenerateContentRequest.generation_config.stop_sequences; "" where there is none. Positions inside it are left out: the
// caller's messages are numbered otherwise.
func paramOf(path string) string {
	path = strings.ReplaceAll(strings.ToLower(path), "_", "")
	for _, n := range callersFields {
		if strings.Contains(path, n.provider) {
			return n.caller
		}
	}
	return ""
}

// callersFields are the caller's members behind the provider's, in lower case. The first that fits counts.
var callersFields = []struct{ provider, caller string }{
	{"contents", "messages"}, {"systeminstruction", "messages"}, {"toolconfig", "tool_choice"}, {"tools", "tools"},
	{"maxoutputtokens", "max_tokens"}, {"stopsequences", "stop"}, {"candidatecount", "n"}, {"temperature", "temperature"}, {"topp", "top_p"},
	{"topk", "top_k"}, {"seed", "seed"}, {"presencepenalty", "presence_penalty"}, {"frequencypenalty", "frequency_penalty"},
	{"generationconfig.logprobs", "top_logprobs"}, {"logprobs", "logprobs"}, {"responsemodalities", "modalities"}, {"response", "response_format"},
	{"thinking", "reasoning_effort"}, {"servicetier", "service_tier"},
}

// callersNames are the caller's members behind the provider's words for what a model cannot do. The first that fits
// counts.
var callersNames = []struct{ provider, caller string }{
	{"hinking", "reasoning_effort"},
	{"ogprobs", "logprobs"},
	{"enalty", "frequency_penalty"},
	{"ultiple candidates", "n"},
	{"unction calling", "tools"},
	{"JSON mode", "response_format"},
	{"response mime type", "response_format"},
	{"esponseJsonSchema", "response_format"},
	{"response_schema", "response_format"},
	{"eveloper instruction", "messages"},
}
