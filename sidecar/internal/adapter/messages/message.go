package messages

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func (c *chat) add(m object) { c.list = append(c.list, m) }

func (c *chat) system(at string, v gjson.Result) *exchange.Failure {
	switch {
	case !v.Exists() || v.Type == gjson.Null:
		return nil
	case v.Type == gjson.String:
		c.add(object{"role": "system", "content": v.Str})
		return nil
	case !v.IsArray():
		return adapter.Invalid(at, at+" must be a string or an array of text blocks")
	}
	var parts []any
	for i, b := range v.Array() {
		if b.Get("type").Str != "text" {
			return unsupported(fmt.Sprintf("%s[%d]", at, i), "only text blocks are supported for the system")
		}
		parts = append(parts, textPart(b.Get("text").Str))
	}
	if len(parts) > 0 {
		c.add(object{"role": "system", "content": parts})
	}
	return nil
}

func textPart(text string) object { return object{"type": "text", "text": text} }

func (c *chat) message(at string, m gjson.Result) *exchange.Failure {
	content := m.Get("content")
	if content.Type == gjson.String {
		content = gjson.Parse(`[{"type":"text","text":` + content.Raw + `}]`)
	}
	if !content.IsArray() {
		return adapter.Invalid(at+".content", "content must be a string or an array of blocks")
	}
	switch role := m.Get("role").Str; role {
	case "user":
		return c.user(at, content.Array())
	case "assistant":
		return c.assistant(at, content.Array())
	case "system":
		return c.system(at+".content", content)
	default:
		return unsupported(at+".role", "%q is not a role", role)
	}
}

// user adds the results of tools first, as messages of their own, and then the rest. Chat's results are text: a picture
// in one comes after them, with the id of its call.
func (c *chat) user(at string, blocks []gjson.Result) *exchange.Failure {
	var shown, parts []any
	for i, b := range blocks {
		here := fmt.Sprintf("%s.content[%d]", at, i)
		if b.Get("type").Str != "tool_result" {
			more, f := part(here, b)
			if f != nil {
				return f
			}
			parts = append(parts, more...)
			continue
		}
		pictures, f := c.result(here, b)
		if f != nil {
			return f
		}
		shown = append(shown, pictures...)
	}
	if parts = append(shown, parts...); len(parts) > 0 {
		c.add(object{"role": "user", "content": parts})
	}
	return nil
}

// result adds the result of a tool. It returns what of it is no text.
func (c *chat) result(at string, b gjson.Result) (rest []any, f *exchange.Failure) {
	id := idIn(b.Get("tool_use_id").Str)
	said := []any{}
	if b.Get("is_error").Type == gjson.True {
		said = append(said, textPart("The call failed:"))
	}
	content := b.Get("content")
	if content.Type == gjson.String {
		said = append(said, textPart(content.Str))
	}
	for j, inner := range content.Array() {
		if content.Type == gjson.String {
			break
		}
		parts, f := part(fmt.Sprintf("%s.content[%d]", at, j), inner)
		if f != nil {
			return nil, f
		}
		for _, p := range parts {
			if p.(object)["type"] == "text" { //nolint:forcetypeassert // part makes nothing else
				said = append(said, p)
				continue
			}
			rest = append(rest, textPart("From the result of call "+id+":"), p)
		}
	}
	m := object{"role": "tool", "tool_call_id": id, "content": said}
	switch {
	case len(said) == 0:
		m["content"] = ""
	case len(said) == 1 && content.Type == gjson.String:
		m["content"] = content.Str
	}
	c.add(m)
	return rest, nil
}

// part translates a block that a user, or a tool, may send.
func part(at string, b gjson.Result) ([]any, *exchange.Failure) {
	switch kind := b.Get("type").Str; kind {
	case "text":
		return []any{textPart(b.Get("text").Str)}, nil
	case "image":
		source := b.Get("source")
		url := source.Get("url").Str
		if source.Get("type").Str == "base64" {
			url = "data:" + source.Get("media_type").Str + ";base64," + source.Get("data").Str
		}
		if url == "" {
			return nil, unsupported(at+".source", "the source of an image must be base64 or a url")
		}
		return []any{object{"type": "image_url", "image_url": object{"url": url}}}, nil
	case "document":
		return document(at, b)
	case "search_result":
		if f := uncited(at, b); f != nil {
			return nil, f
		}
		return inText(b.Get("title").Str, b.Get("source").Str, at+".content", b.Get("content"))
	default:
		return nil, unsupported(at+".type", "a block of type %q is not supported here", kind)
	}
}

// uncited refuses blocks that the model is to cite from: chat has no such answers.
func uncited(at string, b gjson.Result) *exchange.Failure {
	if b.Get("citations.enabled").Type == gjson.True {
		return unsupported(at+".citations", "this model cannot cite from documents")
	}
	return nil
}

// document is a file when it is a PDF, and text otherwise.
func document(at string, b gjson.Result) ([]any, *exchange.Failure) {
	if f := uncited(at, b); f != nil {
		return nil, f
	}
	title, about, source := b.Get("title").Str, b.Get("context").Str, b.Get("source")
	switch kind := source.Get("type").Str; kind {
	case "text":
		return inText(title, about, at, source.Get("data"))
	case "content":
		return inText(title, about, at+".source.content", source.Get("content"))
	case "base64":
		if title == "" {
			title = "document.pdf" // OpenAI demands a name
		}
		file := object{"type": "file", "file": object{
			"filename": title, "file_data": "data:" + source.Get("media_type").Str + ";base64," + source.Get("data").Str,
		}}
		if about != "" {
			return []any{textPart(about), file}, nil
		}
		return []any{file}, nil
	default:
		return nil, unsupported(at+".source", "documents are not taken as %q here: only as text, content or base64", kind)
	}
}

// inText is what a document holds, after its title and what is said about it.
func inText(title, about, at string, content gjson.Result) (parts []any, f *exchange.Failure) {
	if head := strings.TrimSpace(title + "\n" + about); head != "" {
		parts = append(parts, textPart(head))
	}
	if content.Type == gjson.String {
		return append(parts, textPart(content.Str)), nil
	}
	for i, b := range content.Array() {
		here := fmt.Sprintf("%s[%d]", at, i)
		if kind := b.Get("type").Str; kind != "text" && kind != "image" {
			return nil, unsupported(here+".type", "a block of type %q is not supported here", kind)
		}
		inner, f := part(here, b)
		if f != nil {
			return nil, f
		}
		parts = append(parts, inner...)
	}
	return parts, nil
}

// assistant adds an earlier answer. What it cited stays in its text.
func (c *chat) assistant(at string, blocks []gjson.Result) *exchange.Failure {
	m := object{"role": "assistant"}
	var text strings.Builder
	var calls, thoughts, images []any
	extras := map[string]any{} // of calls, by id
	for i, b := range blocks {
		switch kind := b.Get("type").Str; kind {
		case "text":
			text.WriteString(b.Get("text").Str)
		case "tool_use":
			arguments := b.Get("input").Raw
			if arguments == "" {
				arguments = "{}"
			}
			calls = append(calls, object{"id": idIn(b.Get("id").Str), "type": "function", "function": object{
				"name": b.Get("name").Str, "arguments": arguments,
			}})
		case "thinking", "redacted_thinking":
			thoughts = recall(thoughts, extras, b)
		case "image": // that a model drew, see drawn
			image, f := part(fmt.Sprintf("%s.content[%d]", at, i), b)
			if f != nil {
				return f
			}
			images = append(images, image...)
		default:
			return unsupported(fmt.Sprintf("%s.content[%d].type", at, i), "a block of type %q is not supported here", kind)
		}
	}
	for _, call := range calls {
		call := call.(object) //nolint:forcetypeassert // made above
		if extra := extras[call["id"].(string)]; extra != nil {
			call["extra_content"] = extra
		}
	}
	if text.Len() > 0 || len(calls) == 0 {
		m["content"] = text.String()
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	if len(images) > 0 {
		m["images"] = images
	}
	if len(thoughts) > 0 {
		m["reasoning_details"] = thoughts
	}
	c.add(m)
	return nil
}

// own is a block of Claude's thinking as reasoning_details has it.
func own(b gjson.Result, index int) object {
	if b.Get("type").Str == "redacted_thinking" {
		return object{
			"type": "reasoning.encrypted", "format": adapter.ThinkingFormat, "index": index, "data": b.Get("data").Str,
		}
	}
	return object{
		"type": "reasoning.text", "format": adapter.ThinkingFormat, "index": index,
		"text": b.Get("thinking").Str, "signature": b.Get("signature").Str,
	}
}
