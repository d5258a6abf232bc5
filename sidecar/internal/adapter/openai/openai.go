// Package openai is the OpenAI dialect towards providers: OpenAI itself and the many servers that speak it
// (vLLM, llama.cpp, Ollama, SGLang, Mistral, Groq, DeepSeek, xAI, OpenRouter …). Bodies pass as they are, the model's
// name aside; what servers do differently is put right on the way back, by changing those bytes and no others.
package openai

import (
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Adapter implements adapter.Adapter.
type Adapter struct{}

// New makes the adapter.
func New() *Adapter { return &Adapter{} }

// Request implements adapter.Adapter. Everything but the members that the server has otherwise is the caller's, byte for
// byte. The body is valid JSON and has no member twice: the gateway sees to that.
func (*Adapter) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	path := "/embeddings"
	if r.Operation == exchange.Chat {
		path = "/chat/completions"
	}
	v := whole(r.Body)
	if !isObject(r.Body, v) {
		return adapter.Call{}, &exchange.Failure{Kind: exchange.FailRequest, Code: "invalid_json", Message: "the body is no JSON object"}
	}
	var body []byte
	var f *exchange.Failure
	if ollamaOwn(d) {
		path, body, f = ollamaCall(r, d)
	} else {
		body, f = outgoing(r, d, v)
	}
	if f != nil {
		return adapter.Call{}, f
	}
	call := adapter.Call{
		Path: path, Body: body, Header: []adapter.Field{{Name: "Content-Type", Value: "application/json"}},
	}
	switch {
	case d.Provider == azureProvider: // its credentials are put there later
		call.Path = azurePath(d, path)
	case len(secret) > 0:
		call.Header = append(call.Header, adapter.Field{Name: "Authorization", Value: "Bearer " + string(secret)})
	}
	return call, nil
}
