// Package anthropic lets OpenAI-dialect callers use Anthropic's Messages API: it turns their request into a Messages
// request, and the message or the event stream that comes back into a chat completion.
package anthropic

import (
	"cmp"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	// version is the API version that still accepts temperature and top_p.
	version = "2023-06-01"
	// versionStrict is the first that does not.
	versionStrict = "2026-10-21"
	// outputDefault is the cap told to the provider when neither the caller nor the alias has one: the API wants a
	// cap, and every model takes this one.
	outputDefault = 4096
)

// Adapter speaks the Messages API. It has no state.
type Adapter struct{ host Host }

var _ interface {
	adapter.Adapter
	adapter.Speaker
} = (*Adapter)(nil)

// New returns the adapter for Anthropic's own API.
func New() *Adapter { return NewAt(Host{}) }

// NewAt returns the adapter for another host of the same API.
func NewAt(h Host) *Adapter { return &Adapter{h} }

// Speak implements adapter.Speaker: callers of the Messages API are served as they are.
func (a *Adapter) Speak(dialect exchange.Dialect, _ *exchange.Deployment) adapter.Adapter {
	if dialect != exchange.MessagesDialect {
		return nil
	}
	return &Native{&a.host}
}

// Request builds the provider's request. A field that Anthropic has no counterpart for fails with FailUnsupported, a
// malformed one with FailRequest; Param is its path, such as messages[2].content[0]. Fields that only tune caching or
// bookkeeping are dropped.
func (a *Adapter) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	if r.Operation != exchange.Chat {
		return adapter.Call{}, adapter.Unsupported("model", "Anthropic has no embeddings")
	}
	body, f := a.host.translate(r, d)
	if f != nil {
		return adapter.Call{}, f
	}
	return a.host.call(a.host.path(r, d), cmp.Or(d.APIVersion, version), "", body, secret), nil
}

// Response turns a complete message into a chat completion.
func (*Adapter) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	return respond(r, body, a)
}

// Stream starts translating an event stream.
func (a *Adapter) Stream(r *exchange.Request, note adapter.Annotate) adapter.Stream {
	return a.host.unwrap(newStream(r, note))
}

// Failure classifies a non-2xx answer.
func (a *Adapter) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return a.host.classify(status, h, body)
}
