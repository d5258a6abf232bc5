// Package anthropic lets OpenAI-dialect callers use Anthropic's Messages API: it turns their request into a Messages
// request, and the message or the event stream that comes back into a chat completion.
package anthropic

import (
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	path = "/messages"
	// version is the API version that still accepts temperature and top_p.
	version = "2023-06-01"
	// outputDefault is the cap told to the provider when neither the caller nor the alias has one: the API wants a
	// cap, and every model takes this one.
	outputDefault = 4096
)

// Codes of the failures made here.
const (
	codeUnsupported = "unsupported_parameter"
	codeInvalid     = "invalid_value"
)

// Adapter speaks the Messages API. It has no state.
type Adapter struct{}

var _ adapter.Adapter = (*Adapter)(nil)

// New returns the adapter.
func New() *Adapter { return &Adapter{} }

// Request builds the provider's request. A field that Anthropic has no counterpart for fails with FailUnsupported, a
// malformed one with FailRequest; Param is its path, such as messages[2].content[0]. Fields that only tune caching or
// bookkeeping are dropped.
func (*Adapter) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	if r.Operation == exchange.Embeddings {
		return adapter.Call{}, unsupported("model", "Anthropic has no embeddings")
	}
	body, f := translate(r, d.Model)
	if f != nil {
		return adapter.Call{}, f
	}
	call := adapter.Call{Path: path, Body: body, Header: []adapter.Field{
		{Name: "content-type", Value: "application/json"},
		{Name: "anthropic-version", Value: version},
	}}
	if len(secret) > 0 {
		call.Header = append(call.Header, adapter.Field{Name: "x-api-key", Value: string(secret)})
	}
	return call, nil
}

// Response turns a complete message into a chat completion.
func (*Adapter) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	return respond(r, body, a)
}

// Stream starts translating an event stream.
func (*Adapter) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return newStream(r, a)
}

// Failure classifies a non-2xx answer.
func (*Adapter) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return classify(status, h, body)
}

func unsupported(param, message string) *exchange.Failure {
	return &exchange.Failure{
		Kind: exchange.FailUnsupported, Type: "invalid_request_error", Code: codeUnsupported, Param: param,
		Message: message,
	}
}

func invalid(param, message string) *exchange.Failure {
	return &exchange.Failure{
		Kind: exchange.FailRequest, Type: "invalid_request_error", Code: codeInvalid, Param: param, Message: message,
	}
}
