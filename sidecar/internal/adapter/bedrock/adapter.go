// Package bedrock lets OpenAI-dialect callers use AWS Bedrock. Models that are known to be Claude are invoked in
// Anthropic's own dialect, which can say more; all others are spoken to through Converse.
package bedrock

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Adapter speaks Bedrock's runtime API. It has no state.
type Adapter struct {
	format string // of what the models think that Converse serves
}

var _ interface {
	adapter.Adapter
	adapter.Chooser
	adapter.Speaker
	adapter.Marker
} = (*Adapter)(nil)

// New returns the adapter.
func New() *Adapter { return &Adapter{format: hiddenFormat} }

// For implements adapter.Chooser: what models think is told apart by their makers.
func (*Adapter) For(d *exchange.Deployment) adapter.Adapter {
	return &Adapter{format: thoughtFormat(d.Base())}
}

// Speak implements adapter.Speaker: Claude's own dialect is spoken by Claude alone.
func (*Adapter) Speak(dialect exchange.Dialect, d *exchange.Deployment) adapter.Adapter {
	if !isClaude(d.Base()) {
		return nil
	}
	return claude().Speak(dialect, d)
}

// Marks implements adapter.Marker: Nova keeps a prompt up to a cache point (AWS docs: Prompt caching).
func (*Adapter) Marks(d *exchange.Deployment) bool { return isNova(d.Base()) }

// Request builds the provider's request, without the credentials. A field that Bedrock has no counterpart for fails with
// FailUnsupported, a malformed one with FailRequest; Param is its path, such as messages[2].content[0]. Fields that only
// tune caching or bookkeeping are dropped.
func (*Adapter) Request(r *exchange.Request, d *exchange.Deployment, _ []byte) (adapter.Call, *exchange.Failure) {
	if r.Operation != exchange.Chat {
		return adapter.Call{}, adapter.Unsupported("model", "Bedrock is asked for chats alone")
	}
	if isClaude(d.Base()) {
		return claude().Request(r, d, nil)
	}
	body, f := translate(r, d.Base())
	if f != nil {
		return adapter.Call{}, f
	}
	verb := "converse"
	if r.Stream {
		verb = "converse-stream"
	}
	return adapter.Call{Path: path(d.Model, verb), Body: body, Header: []adapter.Field{
		{Name: "content-type", Value: "application/json"},
	}}, nil
}

// Response turns a complete answer into a chat completion. It tells by itself which of the two dialects it is in.
func (a *Adapter) Response(r *exchange.Request, body []byte, note adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	if isMessage(body) {
		return claude().Response(r, body, note)
	}
	return respond(r, body, a.format, note)
}

// Stream starts translating an event stream.
func (a *Adapter) Stream(r *exchange.Request, note adapter.Annotate) adapter.Stream {
	return &stream{Stream: newConversation(r, a.format, note), r: r, note: note}
}

// Failure classifies a non-2xx answer.
func (*Adapter) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return classify(status, h, body)
}

// path is where a verb of a model is. Model ids hold colons, and those that are ARNs slashes.
func path(model, verb string) string {
	const hex = "0123456789ABCDEF"
	b := []byte("/model/")
	for i := range len(model) {
		switch c := model[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.', c == '~':
			b = append(b, c)
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(append(append(b, '/'), verb...))
}

// isNova reports whether a model's id tells that it is one of Amazon's Nova.
func isNova(base string) bool { return strings.Contains(base, "amazon.nova") }
