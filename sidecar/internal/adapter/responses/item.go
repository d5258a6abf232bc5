package responses

import (
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// conversation turns items into messages. What a model says in a row (thoughts, texts, calls) are several items and one
// message of the assistant.
type conversation struct {
	list []any
	turn *turn // the assistant's, nil while others speak
}

type turn struct {
	parts, calls []any
	images       []any // that a model drew
	thoughts     sealed
	summary      string // of thoughts that nobody signed
}

func (c *conversation) read(v gjson.Result) (f *exchange.Failure) {
	if v.Type == gjson.String {
		c.list = append(c.list, object{"role": "user", "content": v.Str})
		return nil
	}
	if !v.IsArray() {
		return malformed("input", "input must be a string or an array of items")
	}
	i := 0
	v.ForEach(func(_, item gjson.Result) bool {
		f = c.item(fmt.Sprintf("input[%d]", i), item)
		i++
		return f == nil
	})
	c.end()
	return f
}

// item takes one item. Clients leave out types, ids and states, and send null for what is empty.
func (c *conversation) item(at string, v gjson.Result) *exchange.Failure {
	switch kind := v.Get("type").Str; kind {
	case "", "message":
		return c.message(at, v)
	case "reasoning":
		t := c.assistant()
		s := unseal(v.Get("encrypted_content").Str)
		t.thoughts.Details = append(t.thoughts.Details, s.Details...)
		for id, extra := range s.Calls {
			if t.thoughts.Calls == nil {
				t.thoughts.Calls = map[string]json.RawMessage{}
			}
			t.thoughts.Calls[id] = extra
		}
		if s.empty() {
			for _, name := range [...]string{"summary", "content"} {
				for _, p := range v.Get(name).Array() {
					t.summary += p.Get("text").Str
				}
			}
		}
	case "function_call":
		c.call(v, v.Get("arguments").Str)
	case "custom_tool_call":
		c.call(v, string(object{customInput: v.Get("input").Str}.raw()))
	case "function_call_output", "custom_tool_call_output":
		return c.output(at, v)
	case kindImage:
		c.image(v)
	case "item_reference":
		return unsupported(at+".id", "answers are not stored here: send the item itself instead of a reference to it "+
			"(clients do when they ask with store: false)")
	default:
		return unsupported(at+".type", "an item of type %q is not supported here", kind)
	}
	return nil
}

func (c *conversation) message(at string, v gjson.Result) *exchange.Failure {
	role, content := v.Get("role").Str, v.Get("content")
	switch role {
	case "user", "assistant", "system":
	case "developer":
		role = "system" // the name that every server knows
	default:
		return malformed(at+".role", "%q is not a role", role)
	}
	var list []any
	switch {
	case content.Type == gjson.String:
		list = []any{object{"type": "text", "text": content.Str}}
	case given(content):
		var f *exchange.Failure
		if list, f = parts(at+".content", content); f != nil {
			return f
		}
	}
	if role == "assistant" {
		t := c.assistant()
		t.parts = append(t.parts, list...)
		return nil
	}
	c.end()
	c.list = append(c.list, object{"role": role, "content": plain(list)})
	return nil
}

// plain is a lone text as a string, which every server knows.
func plain(list []any) any {
	switch len(list) {
	case 0:
		return ""
	case 1:
		if p, ok := list[0].(object); ok && p["type"] == "text" && p[cacheMark] == nil {
			return p["text"]
		}
	}
	return list
}

func (c *conversation) call(v gjson.Result, arguments string) {
	t := c.assistant()
	t.calls = append(t.calls, object{"id": callID(v), "type": "function", "function": object{
		"name": v.Get("name").Str, "arguments": arguments,
	}})
}

// callID is what ties an output to its call; the id is the item's own.
func callID(v gjson.Result) string {
	if id := v.Get("call_id").Str; id != "" {
		return id
	}
	return v.Get("id").Str
}

func (c *conversation) output(at string, v gjson.Result) *exchange.Failure {
	c.end()
	out := object{"role": "tool", "tool_call_id": callID(v)}
	switch o := v.Get("output"); {
	case o.Type == gjson.String:
		out["content"] = o.Str
	case o.IsArray():
		list, f := parts(at+".output", o)
		if f != nil {
			return f
		}
		out["content"] = plain(list)
	default: // not by the letter, but clients send the result itself
		out["content"] = o.Raw
	}
	c.list = append(c.list, out)
	return nil
}

// assistant is the assistant's turn, begun if it is not on.
func (c *conversation) assistant() *turn {
	if c.turn == nil {
		c.turn = &turn{}
	}
	return c.turn
}

// end ends the assistant's turn.
func (c *conversation) end() {
	t := c.turn
	c.turn = nil
	if t == nil || len(t.parts) == 0 && len(t.calls) == 0 && len(t.images) == 0 {
		return // thoughts that led to nothing are not worth a message
	}
	m := object{"role": "assistant"}
	if len(t.parts) > 0 || len(t.calls) == 0 {
		m["content"] = plain(t.parts)
	}
	if len(t.calls) > 0 {
		for _, call := range t.calls {
			o := call.(object) //nolint:forcetypeassert // call made it
			if extra := t.thoughts.Calls[o["id"].(string)]; extra != nil {
				o["extra_content"] = extra
			}
		}
		m["tool_calls"] = t.calls
	}
	if len(t.images) > 0 {
		m["images"] = t.images
	}
	switch {
	case len(t.thoughts.Details) > 0:
		m["reasoning_details"] = t.thoughts.Details
	case t.summary != "":
		m["reasoning_content"] = t.summary
	}
	c.list = append(c.list, m)
}

// cacheMark says in both dialects that a prompt up to here is worth keeping.
const cacheMark = "prompt_cache_breakpoint"

// parts translates the parts of a message, or of a tool's output.
func parts(at string, v gjson.Result) (list []any, f *exchange.Failure) {
	if !v.IsArray() {
		return nil, malformed(at, "it must be a string or an array of parts")
	}
	v.ForEach(func(_, p gjson.Result) bool {
		var out object
		if out, f = part(fmt.Sprintf("%s[%d]", at, len(list)), p); f == nil {
			out.set(cacheMark, p.Get(cacheMark))
			list = append(list, out)
		}
		return f == nil
	})
	return list, f
}

func part(at string, p gjson.Result) (object, *exchange.Failure) {
	switch kind := p.Get("type").Str; kind {
	case "input_text", "output_text", "text", "summary_text":
		return object{"type": "text", "text": p.Get("text").Str}, nil
	case "refusal":
		return object{"type": "text", "text": p.Get("refusal").Str}, nil
	case "input_image":
		if given(p.Get("file_id")) {
			return nil, noFiles(at)
		}
		url := p.Get("image_url")
		if url.IsObject() { // as chat has it
			url = url.Get("url")
		}
		if url.Str == "" {
			return nil, unsupported(at+".image_url", "an image must come by its URL or as a data URL")
		}
		image := object{"url": url.Str}
		image.set("detail", p.Get("detail"))
		return object{"type": "image_url", "image_url": image}, nil
	case "input_file":
		switch {
		case given(p.Get("file_id")):
			return nil, noFiles(at)
		case given(p.Get("file_url")):
			return nil, unsupported(at+".file_url", "files are not fetched here: send the file itself in file_data")
		case !given(p.Get("file_data")):
			return nil, unsupported(at+".file_data", "a file must come with its data here")
		}
		file := object{}
		file.set("file_data", p.Get("file_data"))
		file.set("filename", p.Get("filename"))
		return object{"type": "file", "file": file}, nil
	case "input_audio":
		audio := object{}
		audio.set("data", p.Get("input_audio.data"))
		audio.set("format", p.Get("input_audio.format"))
		return object{"type": "input_audio", "input_audio": audio}, nil
	default:
		return nil, unsupported(at+".type", "a part of type %q is not supported here", kind)
	}
}

func noFiles(at string) *exchange.Failure {
	return unsupported(at+".file_id", "files are not stored here: send the file itself, as a data URL")
}
