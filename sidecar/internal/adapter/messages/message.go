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
		c.add(object{"role": "system", "content": said(v)})
		return nil
	case !v.IsArray():
		return adapter.Invalid(at, at+" must be a string or an array of text blocks")
	}
	var parts []any
	for i, b := range v.Array() {
		if b.Get("type").Str != "text" {
			return unsupported(fmt.Sprintf("%s[%d]", at, i), "only text blocks are supported for the system")
		}
		parts = append(parts, textPart(said(b.Get("text"))))
		c.mark(b, parts)
	}
	if len(parts) > 0 {
		c.add(object{"role": "system", "content": parts})
	}
	return nil
}

// mark marks the last part of what a block became, where the caller wants all up to it kept in a cache. Calls, tools and what
// the model said itself cannot be marked in chat.
func (c *chat) mark(b gjson.Result, parts []any) bool {
	if !c.marks || len(parts) == 0 || !b.Get("cache_control").IsObject() {
		return false
	}
	parts[len(parts)-1].(object)["prompt_cache_breakpoint"] = object{"mode": "explicit"} //nolint:forcetypeassert // parts are objects
	return true
}

// markLast marks the last part of all, where the whole request in says so.
func (c *chat) markLast(in gjson.Result) {
	if len(c.list) == 0 {
		return
	}
	last := c.list[len(c.list)-1].(object) //nolint:forcetypeassert // add takes nothing else
	parts, several := last["content"].([]any)
	if !several {
		parts = []any{textPart(last["content"])}
	}
	if c.mark(in, parts) {
		last["content"] = parts
	}
}

func textPart(text any) object { return object{"type": "text", "text": text} }

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
			c.mark(b, more)
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
	texts := []any{}
	if b.Get("is_error").Type == gjson.True {
		texts = append(texts, textPart("The call failed:"))
	}
	content := b.Get("content")
	if content.Type == gjson.String {
		texts = append(texts, textPart(said(content)))
	}
	for j, inner := range content.Array() {
		if content.Type == gjson.String {
			break
		}
		parts, f := part(fmt.Sprintf("%s.content[%d]", at, j), inner)
		if f != nil {
			return nil, f
		}
		c.mark(inner, parts)
		for _, p := range parts {
			if p.(object)["type"] == "text" { //nolint:forcetypeassert // part makes nothing else
				texts = append(texts, p)
				continue
			}
			rest = append(rest, textPart("From the result of call "+id+":"), p)
		}
	}
	caches := c.mark(b, texts)
	m := object{"role": "tool", "tool_call_id": id, "content": texts}
	switch {
	case len(texts) == 0:
		m["content"] = ""
	case len(texts) == 1 && content.Type == gjson.String && !caches:
		m["content"] = said(content)
	}
	c.add(m)
	return rest, nil
}

// part translates a block that a user, or a tool, may send.
func part(at string, b gjson.Result) ([]any, *exchange.Failure) {
	switch kind := b.Get("type").Str; kind {
	case "text":
		return []any{textPart(said(b.Get("text")))}, nil
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
		return append(parts, textPart(said(content))), nil
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
	var calls, images []any
	thoughts := memory{extras: map[string]any{}}
	for i, b := range blocks {
		switch kind := b.Get("type").Str; kind {
		case "text":
			text.WriteString(adapter.Inside(b.Get("text")))
		case "tool_use":
			arguments := b.Get("input").Raw
			if arguments == "" {
				arguments = "{}"
			}
			calls = append(calls, object{"id": idIn(b.Get("id").Str), "type": "function", "function": object{
				"name": b.Get("name").Str, "arguments": arguments,
			}})
		case "thinking", "redacted_thinking":
			thoughts.recall(b)
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
		if extra := thoughts.extras[call["id"].(string)]; extra != nil {
			call["extra_content"] = extra
		}
	}
	if text.Len() > 0 || len(calls) == 0 {
		m["content"] = escaped(text.String())
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	if len(images) > 0 {
		m["images"] = images
	}
	switch {
	case len(thoughts.details) > 0:
		m["reasoning_details"] = thoughts.details
	case thoughts.text.Len() > 0:
		m["reasoning_content"] = escaped(thoughts.text.String())
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
		"text": said(b.Get("thinking")), "signature": b.Get("signature").Str,
	}
}
