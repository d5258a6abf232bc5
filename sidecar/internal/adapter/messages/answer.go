package messages

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Face is an adapter as callers of the Messages API see it. It implements adapter.Face.
type Face struct{ adapter.Adapter }

// Behind implements adapter.Face.
func (f Face) Behind() adapter.Adapter { return f.Adapter }

// Translate implements adapter.Face.
func (f Face) Translate(r *exchange.Request, s adapter.Stream) adapter.Stream {
	return &stream{Stream: s, r: r, call: -1}
}

// Response implements adapter.Adapter.
func (f Face) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	chat, u, failure := f.Adapter.Response(r, body, a)
	if failure != nil {
		return nil, u, failure
	}
	in := gjson.ParseBytes(chat)
	m := in.Get("choices.0.message")
	content := []any{}
	for _, d := range m.Get("reasoning_details").Array() {
		switch d.Get("type").Str {
		case "reasoning.text":
			content = append(content, object{
				"type": "thinking", "thinking": d.Get("text").Str, "signature": d.Get("signature").Str,
			})
		case "reasoning.encrypted":
			content = append(content, object{"type": "redacted_thinking", "data": d.Get("data").Str})
		}
	}
	if len(content) == 0 && m.Get("reasoning_content").Str != "" {
		content = append(content, object{"type": "thinking", "thinking": m.Get("reasoning_content").Str, "signature": ""})
	}
	for _, name := range [...]string{"content", "refusal"} {
		if text := m.Get(name).Str; text != "" {
			content = append(content, object{"type": "text", "text": text})
		}
	}
	for _, c := range m.Get("tool_calls").Array() {
		content = append(content, object{
			"type": "tool_use", "id": c.Get("id").Str, "name": c.Get("function.name").Str,
			"input": input(c.Get("function.arguments").Str),
		})
	}
	out, err := json.Marshal(object{
		"id": in.Get("id").Str, "type": "message", "role": "assistant", "model": r.Model, "content": content,
		"stop_reason": stopReason(in.Get("choices.0.finish_reason").Str), "stop_sequence": nil, "usage": usage(u.Tokens),
		"x_gateway": json.RawMessage(in.Get("x_gateway").Raw),
	})
	if err != nil {
		return nil, u, &exchange.Failure{Kind: exchange.FailInvalid, Message: "the provider's answer cannot be translated"}
	}
	return out, u, nil
}

// Stream implements adapter.Adapter.
func (f Face) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return f.Translate(r, f.Adapter.Stream(r, a))
}

// input is the arguments of a call as the object Anthropic's callers want. Models may write what is none.
func input(arguments string) json.RawMessage {
	if gjson.Parse(arguments).IsObject() && adapter.Valid([]byte(arguments)) {
		return json.RawMessage(arguments)
	}
	return json.RawMessage("{}")
}

func stopReason(finish string) string {
	switch finish {
	case "length":
		return "max_tokens"
	case "tool_calls", "function_call":
		return "tool_use"
	case "content_filter":
		return "refusal"
	}
	return "end_turn"
}

// usage is in Anthropic's terms: input without what caches held.
func usage(t exchange.Tokens) object {
	return object{
		"input_tokens": t.Input, "output_tokens": t.Output, "cache_read_input_tokens": t.CacheRead,
		"cache_creation_input_tokens": t.CacheWrite5m + t.CacheWrite1h,
	}
}
