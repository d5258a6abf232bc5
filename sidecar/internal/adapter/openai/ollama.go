package openai

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Ollama speaks OpenAI's dialect under /v1 and its own under /api. A deployment with the latter as its base URL is spoken
// to in that: it knows tool calls without ids, thinking, and the size of the prompt.

// ollamaOwn reports whether a deployment is spoken to in Ollama's own dialect.
func ollamaOwn(d *exchange.Deployment) bool {
	return d.Vendor == "ollama" && strings.HasSuffix(d.BaseURL, "/api")
}

// ollamaOptions are the members that stand among Ollama's options, by their names there.
var ollamaOptions = map[string]string{
	"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "seed": "seed", "stop": "stop",
	"frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty",
}

// ollamaCall is the caller's request in Ollama's dialect.
func ollamaCall(r *exchange.Request, d *exchange.Deployment) (path string, body []byte, f *exchange.Failure) {
	b := append([]byte(`{"model":`), quote(d.Model)...)
	doc := gjson.ParseBytes(r.Body)
	if r.Operation == exchange.Embeddings {
		b = append(append(b, `,"input":`...), doc.Get("input").Raw...)
		if n := doc.Get("dimensions"); n.Type == gjson.Number {
			b = append(append(b, `,"dimensions":`...), n.Raw...)
		}
		return "/embed", append(b, '}'), nil
	}
	var options []string
	limit := newLimit(r, "num_predict")
	if limit.value != "" {
		options = append(options, `"num_predict":`+limit.value)
	}
	doc.ForEach(func(k, v gjson.Result) bool {
		switch name := k.Str; {
		case v.Type == gjson.Null, name == "model", name == "stream", name == "stream_options", name == oldCap, name == newCap,
			slices.Contains(bookkeeping, name):
		case ollamaOptions[name] != "":
			options = append(options, `"`+ollamaOptions[name]+`":`+v.Raw)
		case name == "messages":
			b, f = ollamaMessages(append(b, `,"messages":`...), v)
		case name == "tools":
			b, f = ollamaTools(b, v, slices.Contains(r.AllowDropped, name))
		case name == "reasoning_effort":
			b = append(append(b, `,"think":`...), ollamaThink(v.Str)...)
		case name == "response_format" && v.Get("type").Str == "json_object":
			b = append(b, `,"format":"json"`...)
		case name == "response_format" && v.Get("json_schema.schema").IsObject():
			b = append(append(b, `,"format":`...), v.Get("json_schema.schema").Raw...)
		case adapter.Harmless(name, v), adapter.MayDrop(r.AllowDropped, name):
		default:
			f = refuse(name)
		}
		return f == nil
	})
	b = strconv.AppendBool(append(b, `,"stream":`...), r.Stream)
	if len(options) > 0 {
		b = append(b, `,"options":{`+strings.Join(options, ",")+`}`...)
	}
	return "/chat", append(b, '}'), f
}

// ollamaTools appends the tools, all of which must be functions. Others go where they may be dropped.
func ollamaTools(dst []byte, v gjson.Result, drop bool) ([]byte, *exchange.Failure) {
	var list []string
	for i, tool := range v.Array() {
		switch kind := tool.Get("type").Str; {
		case kind == "" || kind == "function":
			list = append(list, tool.Raw)
		case !drop:
			return dst, refuse(fmt.Sprintf("tools[%d].type", i))
		}
	}
	return append(dst, `,"tools":[`+strings.Join(list, ",")+`]`...), nil
}

// ollamaThink is how much a model should think: Ollama knows three words, and yes and no.
func ollamaThink(effort string) string {
	switch effort {
	case "none", "minimal":
		return "false"
	case "low", "medium":
		return `"` + effort + `"`
	}
	return `"high"`
}

// ollamaMessages appends the conversation. A tool's result names the tool there, not the call.
func ollamaMessages(b []byte, list gjson.Result) ([]byte, *exchange.Failure) {
	names := map[string]string{} // of tools, by the ids of calls
	var voices adapter.Voices
	for _, m := range list.Array() {
		role := m.Get("role").Str
		voices.Meet(role, adapter.Voice(role, m.Get("name").Str))
	}
	b = append(b, '[')
	for i, m := range list.Array() {
		if i > 0 {
			b = append(b, ',')
		}
		role := m.Get("role").Str
		if role == "developer" {
			role = "system"
		}
		if name := ollamaUnread(m); name != "" {
			return b, refuse(fmt.Sprintf("messages[%d].%s", i, name))
		}
		text, images, no := ollamaContent(m.Get("content"), i)
		if no != nil {
			return b, no
		}
		if text != "" || len(images) > 0 {
			said := m.Get("role").Str
			text = voices.Introduce(said, adapter.Voice(said, m.Get("name").Str)) + text
		}
		b = append(append(append(b, `{"role":`...), quote(role)...), `,"content":`...)
		b = append(b, quote(text)...)
		if len(images) > 0 {
			b = append(b, `,"images":[`+strings.Join(images, ",")+`]`...)
		}
		if s := m.Get("reasoning_content").Str; s != "" {
			b = append(append(b, `,"thinking":`...), quote(s)...)
		}
		if calls := m.Get("tool_calls").Array(); len(calls) > 0 {
			b = append(b, `,"tool_calls":[`...)
			for j, c := range calls {
				name, arguments := c.Get("function.name").Str, c.Get("function.arguments").Str
				names[c.Get("id").Str] = name
				switch {
				case strings.TrimSpace(arguments) == "":
					arguments = "{}"
				case !gjson.Parse(arguments).IsObject() || !adapter.Valid([]byte(arguments)):
					return b, refuse(fmt.Sprintf("messages[%d].tool_calls[%d].function.arguments", i, j))
				}
				if j > 0 {
					b = append(b, ',')
				}
				b = append(append(b, `{"function":{"name":`...), quote(name)...)
				b = append(append(append(b, `,"arguments":`...), arguments...), "}}"...)
			}
			b = append(b, ']')
		}
		if name := names[m.Get("tool_call_id").Str]; name != "" {
			b = append(append(b, `,"tool_name":`...), quote(name)...)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// ollamaUnread is the member of a message that Ollama cannot honour, "" for none.
func ollamaUnread(m gjson.Result) (unread string) {
	m.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "role", "content", "refusal", "name", "tool_calls", "tool_call_id":
		default:
			if adapter.Unread(k.Str, v) {
				unread = k.Str
			}
		}
		return unread == ""
	})
	return unread
}

// ollamaContent is the text of a message, and its images as JSON texts of base64.
func ollamaContent(content gjson.Result, message int) (text string, images []string, f *exchange.Failure) {
	if !content.IsArray() {
		return content.Str, nil, nil
	}
	for i, p := range content.Array() {
		switch p.Get("type").Str {
		case "text", "refusal":
			text += p.Get("text").Str + p.Get("refusal").Str
		case "image_url":
			head, data, _ := strings.Cut(p.Get("image_url.url").Str, ",")
			if strings.HasPrefix(head, "data:") && strings.HasSuffix(head, ";base64") {
				images = append(images, string(quote(data)))
				continue
			}
			fallthrough
		default:
			return "", nil, refuse(fmt.Sprintf("messages[%d].content[%d]", message, i))
		}
	}
	return text, images, nil
}

// fromOllama turns an answer of Ollama's own dialect, or a piece of a stream of it, into OpenAI's dialect. What is none comes back
// as it is.
func fromOllama(data []byte, r *exchange.Request, piece bool) []byte {
	if !bytes.Contains(data, []byte(`"done"`)) && !bytes.Contains(data, []byte(`"embeddings"`)) {
		return data // seen without taking it apart
	}
	doc := gjson.ParseBytes(data)
	if list := doc.Get("embeddings"); list.IsArray() && !doc.Get("data").Exists() {
		return ollamaVectors(doc, list)
	}
	message, ended := doc.Get("message"), doc.Get("done")
	if !message.IsObject() || !ended.IsBool() || doc.Get("choices").Exists() {
		return data
	}
	b := []byte(`{"choices":[{"index":0,"delta":{"role":"assistant","content":`)
	if !piece {
		b = append(append([]byte(`{"id":`), quote(r.ID)...), `,"object":"chat.completion","created":`...)
		b = append(strconv.AppendInt(b, r.CreatedUnix, 10), `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	}
	b = append(b, quote(message.Get("content").Str)...)
	if s := message.Get("thinking").Str; s != "" {
		b = append(append(b, `,"reasoning_content":`...), quote(s)...)
	}
	if calls := message.Get("tool_calls"); calls.IsArray() {
		b = append(append(b, `,"tool_calls":`...), calls.Raw...)
	}
	b = append(b, `},"finish_reason":`...)
	if !ended.Bool() {
		return append(b, "null}]}"...)
	}
	reason := doc.Get("done_reason").Str
	if reason != "length" {
		reason = "stop" // load and unload too
	}
	b = append(append(b, quote(reason)...), "}]"...)
	in, out := doc.Get("prompt_eval_count"), doc.Get("eval_count")
	if in.Type == gjson.Number && out.Type == gjson.Number {
		b = append(b, `,"usage":{"prompt_tokens":`+in.Raw+`,"completion_tokens":`+out.Raw+`,"total_tokens":`...)
		b = append(strconv.AppendInt(b, in.Int()+out.Int(), 10), '}')
	}
	return append(b, '}')
}

func ollamaVectors(doc, list gjson.Result) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, v := range list.Array() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(strconv.AppendInt(append(b, `{"object":"embedding","index":`...), int64(i), 10), `,"embedding":`...), v.Raw...)
		b = append(b, '}')
	}
	b = append(b, ']')
	if n := doc.Get("prompt_eval_count"); n.Type == gjson.Number {
		b = append(b, `,"usage":{"prompt_tokens":`+n.Raw+`,"total_tokens":`+n.Raw+`}`...)
	}
	return append(b, '}')
}
