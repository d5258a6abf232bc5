// Package gemini lets OpenAI-dialect callers use Google's models, by the Gemini API and by Vertex AI: it turns their
// request into generateContent, and what comes back into a chat completion. Embeddings too. Anthropic's models on
// Vertex AI go by way of the anthropic adapter.
package gemini

import (
	"net/url"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Adapter speaks generateContent. It has no state.
type Adapter struct {
	vertex bool // as Vertex AI speaks it, which differs in paths, embeddings and a few members
}

var (
	_ adapter.Adapter = (*Adapter)(nil)
	_ adapter.Chooser = (*Adapter)(nil)
)

// New returns the adapter for the Gemini API.
func New() *Adapter { return &Adapter{} }

// NewVertex returns the adapter for Vertex AI.
func NewVertex() *Adapter { return &Adapter{vertex: true} }

// For returns the adapter for a deployment's model: Vertex AI also has Anthropic's, which keep their own dialect.
func (a *Adapter) For(d *exchange.Deployment) adapter.Adapter {
	if a.vertex && isClaude(d.Model) {
		return claude
	}
	return a
}

// Request builds the provider's request. A field that Gemini has no counterpart for fails with FailUnsupported, a
// malformed one with FailRequest; Param is its path, such as messages[2].content[0]. Fields that only tune caching or
// bookkeeping are dropped. The secret is put on the call by the room of credentials.
func (a *Adapter) Request(r *exchange.Request, d *exchange.Deployment, _ []byte) (adapter.Call, *exchange.Failure) {
	call := adapter.Call{Header: []adapter.Field{{Name: "content-type", Value: "application/json"}}}
	switch r.Operation {
	case exchange.Embeddings:
		var f *exchange.Failure
		call.Path, call.Body, f = a.embed(r, d)
		return call, f
	case exchange.Chat:
	default:
		return adapter.Call{}, adapter.Unsupported("model", "Gemini models do not serve this operation")
	}
	body, header, f := translate(r, d.Base(), a.vertex)
	if f != nil {
		return adapter.Call{}, f
	}
	call.Body, call.Header = body, append(call.Header, header...)
	verb := ":generateContent"
	if r.Stream {
		verb = ":streamGenerateContent?alt=sse"
	}
	call.Path = a.path(d, verb)
	return call, nil
}

// Response turns a complete answer into a chat completion, or into a list of vectors.
func (*Adapter) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	if r.Operation == exchange.Embeddings {
		return vectors(r, body, a)
	}
	return respond(r, body, a)
}

// Stream starts translating a stream of answers.
func (*Adapter) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return newStream(r, a)
}

// Failure classifies a non-2xx answer.
func (*Adapter) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return classify(status, h, body)
}

// path is where a deployment's model is asked to do something, which the verb says.
func (a *Adapter) path(d *exchange.Deployment, verb string) string {
	prefix := "/"
	if a.vertex {
		prefix = location(d)
	}
	return prefix + escaped(a.resource(d.Model)) + verb
}

// resource is a model's whole name. A deployment may have it already, such as tunedModels/x,
// publishers/google/models/x or endpoints/123.
func (a *Adapter) resource(model string) string {
	switch {
	case !a.vertex && !strings.Contains(model, "/"):
		return "models/" + model
	case a.vertex && !strings.HasPrefix(model, "publishers/") && !strings.HasPrefix(model, "endpoints/"):
		return "publishers/google/models/" + strings.TrimPrefix(model, "models/")
	}
	return model
}

// location is the part of a path on Vertex AI that stands before the model.
func location(d *exchange.Deployment) string {
	return "/projects/" + url.PathEscape(d.Project) + "/locations/" + url.PathEscape(d.Region) + "/"
}

// escaped escapes each segment of a path.
func escaped(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}
