package adapter

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Codes of the failures that adapters make of a request.
const (
	CodeUnsupported = "unsupported_parameter"
	CodeInvalid     = "invalid_value"
)

// Unsupported is the failure of what this provider cannot honour. Another may. A member without a name is told as "".
func Unsupported(param, message string) *exchange.Failure {
	if param == "" {
		param = `""`
	}
	return &exchange.Failure{
		Kind: exchange.FailUnsupported, Type: "invalid_request_error", Code: CodeUnsupported, Param: param,
		Message: message,
	}
}

// Invalid is the failure of what nobody can honour.
func Invalid(param, message string) *exchange.Failure {
	return &exchange.Failure{
		Kind: exchange.FailRequest, Type: "invalid_request_error", Code: CodeInvalid, Param: param, Message: message,
	}
}

// InvalidAnswer is the failure of an answer that is none.
func InvalidAnswer(message string) *exchange.Failure {
	return &exchange.Failure{Kind: exchange.FailInvalid, Message: message}
}

// MayDrop reports whether an alias that allows some members to be dropped lets go what cannot be honoured at param, such
// as tools[0].function: that goes by its top-level member. Without what it asks, a request is none.
func MayDrop(allowed []string, param string) bool {
	if end := strings.IndexAny(param, ".["); end >= 0 {
		param = param[:end]
	}
	return param != "messages" && param != "input" && slices.Contains(allowed, param)
}

// EachMember takes the members of a request that are not null, which means absent, up to the first that fails. What cannot
// be honoured goes where the alias lets it. body is a valid JSON object without a member twice.
func EachMember(body []byte, allowed []string, take func(name string, v gjson.Result) *exchange.Failure) *exchange.Failure {
	var f *exchange.Failure
	gjson.ParseBytes(body).ForEach(func(k, v gjson.Result) bool {
		if v.Type == gjson.Null {
			return true
		}
		if f = take(k.Str, v); f != nil && f.Kind == exchange.FailUnsupported && MayDrop(allowed, k.Str) {
			f = nil
		}
		return f == nil
	})
	return f
}
