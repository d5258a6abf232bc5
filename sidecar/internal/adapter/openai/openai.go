// Package openai is the OpenAI dialect towards providers: OpenAI itself and the many servers that speak it
// (vLLM, llama.cpp, Ollama, SGLang, Mistral, Groq, DeepSeek, xAI, OpenRouter …). Bodies pass as they are, the model's
// name aside; what servers do differently is put right on the way back.
package openai

import (
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

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

// Request implements adapter.Adapter. Everything but the members named here is the caller's, byte for byte.
func (*Adapter) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	body, err := sjson.SetBytes(r.Body, "model", d.Model)
	path := "/embeddings"
	if err == nil && r.Operation == exchange.Chat {
		path = "/chat/completions"
		body, err = chatBody(body, r, d)
	}
	if err != nil {
		return adapter.Call{}, &exchange.Failure{Kind: exchange.FailRequest, Code: "invalid_json", Message: "the body cannot be edited: " + err.Error()}
	}
	call := adapter.Call{Path: path, Body: body, Header: []adapter.Field{{Name: "Content-Type", Value: "application/json"}}}
	if len(secret) > 0 {
		call.Header = append(call.Header, adapter.Field{Name: "Authorization", Value: "Bearer " + string(secret)})
	}
	return call, nil
}

func chatBody(body []byte, r *exchange.Request, d *exchange.Deployment) ([]byte, error) {
	var err error
	if r.Stream {
		// Usage is always asked for; it is hidden from a caller that did not ask.
		if opts := gjson.GetBytes(body, "stream_options"); opts.Exists() && !opts.IsObject() {
			body, err = sjson.SetRawBytes(body, "stream_options", []byte(`{"include_usage":true}`))
		} else {
			body, err = sjson.SetBytes(body, "stream_options.include_usage", true)
		}
	} else if gjson.GetBytes(body, "stream_options").Exists() {
		body, err = sjson.DeleteBytes(body, "stream_options") // OpenAI refuses it without stream
	}
	if err != nil {
		return nil, err
	}
	const old, now = "max_tokens", "max_completion_tokens"
	name := old
	if d.Provider == strict {
		name = now
		if v := gjson.GetBytes(body, old); v.Exists() {
			if !gjson.GetBytes(body, now).Exists() {
				if body, err = sjson.SetRawBytes(body, now, []byte(v.Raw)); err != nil {
					return nil, err
				}
			}
			if body, err = sjson.DeleteBytes(body, old); err != nil {
				return nil, err
			}
		}
	}
	if r.MaxOutput == 0 && r.DefaultOutput > 0 {
		return sjson.SetBytes(body, name, r.DefaultOutput)
	}
	return body, nil
}

// Response implements adapter.Adapter.
func (*Adapter) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	none := exchange.Usage{Source: exchange.FromEstimate}
	if !adapter.Valid(body) {
		f := invalid("the provider's answer is not JSON")
		f.Type, f.Code = "upstream_invalid_response", "invalid_content_type"
		return nil, none, f
	}
	doc := gjson.ParseBytes(body)
	if !doc.IsObject() {
		return nil, none, invalid("the provider's answer is not a JSON object")
	}
	if f := inBand(doc); f != nil {
		return nil, none, f
	}
	usage := usageOf(doc)
	var err error
	if r.Operation == exchange.Embeddings {
		if !doc.Get("data").IsArray() {
			return nil, usage, invalid("the provider's answer has no data")
		}
		body, err = encodeVectors(r.Body, body, doc)
	} else {
		if len(doc.Get("choices").Array()) == 0 {
			return nil, usage, invalid("the provider's answer has no choices")
		}
		for _, c := range doc.Get("choices").Array() {
			if reason := c.Get("finish_reason").Str; broken(reason) {
				return nil, usage, brokeOff(reason)
			}
		}
		body, err = mendChoices(body, doc)
	}
	if err == nil {
		body, err = sjson.SetBytes(body, "model", r.Model)
	}
	if err == nil && doc.Get("error").Exists() {
		body, err = sjson.DeleteBytes(body, "error") // null: clients take its presence for a failure
	}
	if err == nil {
		body, err = sjson.SetRawBytes(body, "x_gateway", a(nil, usage))
	}
	if err != nil {
		return nil, usage, invalid("the provider's answer cannot be edited: " + err.Error())
	}
	return body, usage, nil
}

// mendChoices puts right what servers do differently from OpenAI in a complete answer.
func mendChoices(body []byte, doc gjson.Result) ([]byte, error) {
	var err error
	for i, c := range doc.Get("choices").Array() {
		at := "choices." + itoa(i)
		set := func(path string, raw []byte) {
			if err == nil {
				body, err = sjson.SetRawBytes(body, at+path, raw)
			}
		}
		m := c.Get("message")
		calls := m.Get("tool_calls").Array()
		if reason, mend := mendFinish(c.Get("finish_reason"), len(calls) > 0); mend {
			set(".finish_reason", []byte(reason))
		}
		if v := m.Get("content"); v.IsArray() {
			if t := thinking(v); t != "" && !m.Get("reasoning_content").Exists() {
				set(".message.reasoning_content", quote(t))
			}
			set(".message.content", quote(flatten(v)))
		}
		if v := m.Get("reasoning"); v.Type == gjson.String && !m.Get("reasoning_content").Exists() {
			set(".message.reasoning_content", []byte(v.Raw))
		}
		for j, t := range calls {
			to := ".message.tool_calls." + itoa(j)
			if v := t.Get("function.arguments"); v.IsObject() {
				set(to+".function.arguments", quote(v.Get("@ugly").Raw))
			}
			if t.Get("id").Str == "" {
				set(to+".id", quote(callID(doc.Get("id").Str, i, j)))
			}
			if t.Get("type").Str == "" {
				set(to+".type", []byte(`"function"`))
			}
		}
	}
	return body, err
}

// inBand finds an error that came with status 200.
func inBand(doc gjson.Result) *exchange.Failure {
	e := doc.Get("error")
	switch {
	case e.IsObject(), e.Type == gjson.String && e.Str != "":
	case !e.Exists() && doc.Get("code").Exists() && !doc.Get("choices").Exists() && !doc.Get("data").Exists():
		e = doc // xAI: {"code": …, "error": …} and bare {"code": …}
	default:
		return nil
	}
	status := int(e.Get("code").Int())
	if status < 400 || status > 599 {
		status = int(e.Get("status").Int())
	}
	f := failureOf(status, func(string) string { return "" }, []byte(doc.Raw))
	if f.Kind == exchange.FailInvalid || status == 0 {
		f.Kind = kindOfType(e.Get("type").Str, f.Code)
	}
	// Inside an answer the provider's own word for the type goes on: the caller sees it beside what was delivered.
	switch f.Type = e.Get("type").Str; {
	case f.Type != "":
	case doc.Get("error").IsObject():
		f.Type = "upstream_error"
	default:
		f.Type = "server_error"
	}
	return f
}

// brokeOff is the failure behind a finish reason that means one.
func brokeOff(reason string) *exchange.Failure {
	f := invalid("the provider broke off: " + reason)
	f.Type, f.Code = "upstream_error", reason
	if reason == "error" {
		f.Code = "finish_reason_error"
	}
	return f
}

func invalid(message string) *exchange.Failure {
	return &exchange.Failure{Kind: exchange.FailInvalid, Message: message}
}
