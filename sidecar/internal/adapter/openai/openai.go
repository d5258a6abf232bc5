// Package openai is the OpenAI dialect towards providers: OpenAI itself and the many servers that speak it
// (vLLM, llama.cpp, Ollama, SGLang, Mistral, Groq, DeepSeek, xAI, OpenRouter …). Bodies pass as they are, the model's
// name aside; what servers do differently is put right on the way back, by changing those bytes and no others.
package openai

import (
	"strconv"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Adapter implements adapter.Adapter.
type Adapter struct{}

// New makes the adapter.
func New() *Adapter { return &Adapter{} }

// strict is the provider name of OpenAI itself, which knows max_completion_tokens and, for newer models, refuses
// max_tokens. Other servers may know only max_tokens.
const strict = "openai"

// Request implements adapter.Adapter. Everything but the members named here is the caller's, byte for byte. The body
// is valid JSON and has no member twice: the gateway sees to that.
func (*Adapter) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	path := "/embeddings"
	if r.Operation == exchange.Chat {
		path = "/chat/completions"
	}
	v := whole(r.Body)
	if !isObject(r.Body, v) {
		return adapter.Call{}, &exchange.Failure{Kind: exchange.FailRequest, Code: "invalid_json", Message: "the body is no JSON object"}
	}
	call := adapter.Call{
		Path: path, Body: body(r, d, v), Header: []adapter.Field{{Name: "Content-Type", Value: "application/json"}},
	}
	if len(secret) > 0 {
		call.Header = append(call.Header, adapter.Field{Name: "Authorization", Value: "Bearer " + string(secret)})
	}
	return call, nil
}

const (
	oldCap = "max_tokens"
	newCap = "max_completion_tokens"
)

// body is the caller's body as the deployment gets it.
func body(r *exchange.Request, d *exchange.Deployment, v span) []byte {
	var e edits
	chat := r.Operation == exchange.Chat
	limit := newLimit(r, d)
	var model, options span
	kept := false
	for c := enter(r.Body, v); c.next(); {
		keep := true
		switch string(c.name()) {
		case "model":
			model = c.value
			e.put(c.value, func(dst []byte) []byte { return append(dst, quote(d.Model)...) })
		case "stream_options":
			if !chat {
				break
			}
			if keep = r.Stream; keep { // OpenAI refuses it without stream
				options = c.value
				askUsage(&e, r.Body, c.value)
			}
		case oldCap, newCap:
			if chat {
				keep = limit.take(&e, r.Body, &c)
			}
		}
		if !keep {
			e.drop(&c, kept)
		}
		kept = kept || keep
	}
	insert := func(parts ...string) {
		if kept {
			e.back(v, ",")
		}
		kept = true
		e.back(v, parts...)
	}
	if !model.is() {
		insert(`"model":`, string(quote(d.Model)))
	}
	if chat && r.Stream && !options.is() {
		insert(`"stream_options":{"include_usage":true}`)
	}
	if chat && limit.value != "" && !limit.stands {
		insert(`"`, limit.name, `":`, limit.value)
	}
	return e.apply(make([]byte, 0, len(r.Body)+len(e.text)), r.Body, v)
}

// askUsage makes stream_options ask for usage: always, and hidden later from a caller that did not ask.
func askUsage(e *edits, doc []byte, v span) {
	if !isObject(doc, v) {
		e.set(v, `{"include_usage":true}`)
		return
	}
	asked, filled := false, false
	for c := enter(doc, v); c.next(); filled = true {
		if string(c.name()) == "include_usage" {
			asked = true
			if doc[c.value.from] != 't' {
				e.set(c.value, "true")
			}
		}
	}
	switch {
	case asked:
	case filled:
		e.back(v, `,"include_usage":true`)
	default:
		e.set(v, `{"include_usage":true}`)
	}
}

// limit is the one cap on output tokens that the provider is told: by the name it knows, and with the value that was
// reserved. A caller may have sent both names; a server that reads the other one must not go beyond.
type limit struct {
	name   string
	value  string // "" for none
	stands bool   // the body has it
}

func newLimit(r *exchange.Request, d *exchange.Deployment) *limit {
	l := &limit{name: oldCap}
	if d.Provider == strict {
		l.name = newCap
	}
	if n := max(r.MaxOutput, 0); n > 0 || r.DefaultOutput > 0 {
		if n == 0 {
			n = r.DefaultOutput
		}
		l.value = strconv.FormatInt(n, 10)
	}
	return l
}

// take mends the cap in hand; false drops it, since another one says it.
func (l *limit) take(e *edits, doc []byte, c *cursor) bool {
	if l.stands {
		return false
	}
	if l.value == "" {
		return true // null, and there is no default
	}
	l.stands = true
	if string(c.name()) != l.name {
		e.set(c.key, l.name)
	}
	if string(doc[c.value.from:c.value.to]) != l.value {
		e.set(c.value, l.value)
	}
	return true
}
