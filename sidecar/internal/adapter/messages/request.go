// Package messages is the face towards callers of Anthropic's Messages API (POST /v1/messages). It stands before the
// adapters, which speak OpenAI's dialect to callers: a request is turned into a chat request on its way in, and answers
// and streams into Anthropic's on their way out.
package messages

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Fault is what cannot be translated. Param is the member at fault, empty when the body is no JSON object.
type Fault struct{ Param, Message string }

func fault(param, format string, args ...any) *Fault {
	return &Fault{param, fmt.Sprintf(format, args...)}
}

// object is a JSON object in the making; nil values are left out by set.
type object map[string]any

func (o object) set(name string, v gjson.Result) {
	if v.Exists() && v.Type != gjson.Null {
		o[name] = json.RawMessage(v.Raw)
	}
}

// Chat turns the body of a Messages request into that of a chat request. Members that chat does not have are refused,
// hints for caches aside.
func Chat(body []byte) ([]byte, *Fault) {
	if !adapter.Valid(body) {
		return nil, fault("", "the body is not valid JSON, or is nested too deeply")
	}
	in := gjson.ParseBytes(body)
	if !in.IsObject() {
		return nil, fault("", "the body must be a JSON object")
	}
	out, list := object{}, []any{}
	var bad *Fault
	seen := map[string]bool{}
	in.ForEach(func(k, v gjson.Result) bool {
		if seen[k.Str] {
			bad = fault(k.Str, "the member %q appears twice", k.Str)
			return false
		}
		seen[k.Str] = true
		switch k.Str {
		case "model", "temperature", "top_p", "top_k", "stream":
			out.set(k.Str, v)
		case "max_tokens":
			out.set("max_completion_tokens", v)
		case "stop_sequences":
			out.set("stop", v)
		case "metadata":
			out.set("user", v.Get("user_id"))
		case "tools":
			bad = tools(out, v)
		case "tool_choice":
			bad = choice(out, v)
		case "thinking":
			bad = thinking(out, v)
		case "system", "messages", "cache_control":
		default:
			bad = fault(k.Str, "%s is not supported here", k.Str)
		}
		return bad == nil
	})
	if bad != nil {
		return nil, bad
	}
	if !in.Get("max_tokens").Exists() {
		return nil, fault("max_tokens", "max_tokens is required")
	}
	if in.Get("stream").Type == gjson.True {
		out["stream_options"] = object{"include_usage": true}
	}
	if list, bad = system(list, in.Get("system")); bad != nil {
		return nil, bad
	}
	if !in.Get("messages").IsArray() {
		return nil, fault("messages", "messages must be an array")
	}
	for i, m := range in.Get("messages").Array() {
		if list, bad = message(list, fmt.Sprintf("messages[%d]", i), m); bad != nil {
			return nil, bad
		}
	}
	out["messages"] = list
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fault("", "the body cannot be translated: %v", err)
	}
	return b, nil
}

func system(list []any, v gjson.Result) ([]any, *Fault) {
	switch {
	case !v.Exists() || v.Type == gjson.Null:
		return list, nil
	case v.Type == gjson.String:
		return append(list, object{"role": "system", "content": v.Str}), nil
	case !v.IsArray():
		return nil, fault("system", "system must be a string or an array of text blocks")
	}
	var parts []any
	for i, b := range v.Array() {
		if b.Get("type").Str != "text" {
			return nil, fault(fmt.Sprintf("system[%d]", i), "only text blocks are supported in system")
		}
		parts = append(parts, object{"type": "text", "text": b.Get("text").Str})
	}
	if len(parts) == 0 {
		return list, nil
	}
	return append(list, object{"role": "system", "content": parts}), nil
}

func message(list []any, at string, m gjson.Result) ([]any, *Fault) {
	content := m.Get("content")
	if content.Type == gjson.String {
		content = gjson.Parse(`[{"type":"text","text":` + content.Raw + `}]`)
	}
	if !content.IsArray() {
		return nil, fault(at+".content", "content must be a string or an array of blocks")
	}
	switch role := m.Get("role").Str; role {
	case "user":
		return user(list, at, content.Array())
	case "assistant":
		return assistant(list, at, content.Array())
	case "system":
		return system(list, content)
	default:
		return nil, fault(at+".role", "%q is not a role", role)
	}
}

// user adds the results of tools first, as messages of their own, and then the rest.
func user(list []any, at string, blocks []gjson.Result) ([]any, *Fault) {
	var parts []any
	for i, b := range blocks {
		here := fmt.Sprintf("%s.content[%d]", at, i)
		if b.Get("type").Str != "tool_result" {
			part, bad := part(here, b)
			if bad != nil {
				return nil, bad
			}
			parts = append(parts, part)
			continue
		}
		result := object{"role": "tool", "tool_call_id": b.Get("tool_use_id").Str}
		switch c := b.Get("content"); {
		case !c.IsArray():
			result["content"] = c.Str
		default:
			var said []any
			for j, inner := range c.Array() {
				p, bad := part(fmt.Sprintf("%s.content[%d]", here, j), inner)
				if bad != nil {
					return nil, bad
				}
				said = append(said, p)
			}
			result["content"] = said
		}
		list = append(list, result)
	}
	if len(parts) == 0 {
		return list, nil
	}
	return append(list, object{"role": "user", "content": parts}), nil
}

// part translates a block that a user, or a tool, may send.
func part(at string, b gjson.Result) (object, *Fault) {
	switch kind := b.Get("type").Str; kind {
	case "text":
		return object{"type": "text", "text": b.Get("text").Str}, nil
	case "image":
		source := b.Get("source")
		url := source.Get("url").Str
		if source.Get("type").Str == "base64" {
			url = "data:" + source.Get("media_type").Str + ";base64," + source.Get("data").Str
		}
		if url == "" {
			return nil, fault(at+".source", "the source of an image must be base64 or a url")
		}
		return object{"type": "image_url", "image_url": object{"url": url}}, nil
	default:
		return nil, fault(at+".type", "a block of type %q is not supported here", kind)
	}
}

func assistant(list []any, at string, blocks []gjson.Result) ([]any, *Fault) {
	m := object{"role": "assistant"}
	var text strings.Builder
	var calls, thoughts []any
	for i, b := range blocks {
		switch kind := b.Get("type").Str; kind {
		case "text":
			text.WriteString(b.Get("text").Str)
		case "tool_use":
			arguments := b.Get("input").Raw
			if arguments == "" {
				arguments = "{}"
			}
			calls = append(calls, object{"id": b.Get("id").Str, "type": "function", "function": object{
				"name": b.Get("name").Str, "arguments": arguments,
			}})
		case "thinking":
			thoughts = append(thoughts, object{
				"type": "reasoning.text", "format": adapter.ThinkingFormat, "index": len(thoughts),
				"text": b.Get("thinking").Str, "signature": b.Get("signature").Str,
			})
		case "redacted_thinking":
			thoughts = append(thoughts, object{
				"type": "reasoning.encrypted", "format": adapter.ThinkingFormat, "index": len(thoughts), "data": b.Get("data").Str,
			})
		default:
			return nil, fault(fmt.Sprintf("%s.content[%d].type", at, i), "a block of type %q is not supported here", kind)
		}
	}
	if text.Len() > 0 || len(calls) == 0 {
		m["content"] = text.String()
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	if len(thoughts) > 0 {
		m["reasoning_details"] = thoughts
	}
	return append(list, m), nil
}

func tools(out object, v gjson.Result) *Fault {
	if !v.IsArray() {
		return fault("tools", "tools must be an array")
	}
	var list []any
	for i, t := range v.Array() {
		if kind := t.Get("type").Str; kind != "" && kind != "custom" {
			return fault(fmt.Sprintf("tools[%d].type", i), "tools that the provider runs (%s) are not supported here", kind)
		}
		f := object{"name": t.Get("name").Str}
		f.set("description", t.Get("description"))
		f.set("parameters", t.Get("input_schema"))
		f.set("strict", t.Get("strict"))
		list = append(list, object{"type": "function", "function": f})
	}
	if len(list) > 0 {
		out["tools"] = list
	}
	return nil
}

func choice(out object, v gjson.Result) *Fault {
	switch kind := v.Get("type").Str; kind {
	case "auto", "none":
		out["tool_choice"] = kind
	case "any":
		out["tool_choice"] = "required"
	case "tool":
		out["tool_choice"] = object{"type": "function", "function": object{"name": v.Get("name").Str}}
	default:
		return fault("tool_choice.type", "%q is not auto, any, tool or none", kind)
	}
	if v.Get("disable_parallel_tool_use").Type == gjson.True {
		out["parallel_tool_calls"] = false
	}
	return nil
}

// thinking turns a budget into an effort.
func thinking(out object, v gjson.Result) *Fault {
	switch kind := v.Get("type").Str; kind {
	case "disabled", "adaptive":
	case "enabled":
		out["reasoning_effort"] = adapter.ThinkingEffort(v.Get("budget_tokens").Int())
	default:
		return fault("thinking.type", "%q is not enabled, adaptive or disabled", kind)
	}
	return nil
}
