package gemini

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func (t *translation) messages(v gjson.Result) *exchange.Failure {
	if !v.IsArray() {
		return invalid("messages", "messages must be an array")
	}
	var f *exchange.Failure
	i := 0
	v.ForEach(func(_, m gjson.Result) bool {
		f = t.message(place{message: i, part: -1}, m)
		i++
		return f == nil
	})
	return f
}

// place is where in the messages something stands. Its text is only made for a failure.
type place struct {
	message int
	part    int // of content, -1 for none
}

func (p place) String() string {
	if p.part < 0 {
		return fmt.Sprintf("messages[%d]", p.message)
	}
	return fmt.Sprintf("messages[%d].content[%d]", p.message, p.part)
}

func (t *translation) message(at place, m gjson.Result) *exchange.Failure {
	if !m.IsObject() {
		return invalid(at.String(), "a message must be an object")
	}
	switch m.Get("role").Str {
	case "system", "developer":
		return t.parts(at, m.Get("content"), textOnly, func(part []byte) {
			t.system = append(appendComma(t.system), part...)
		})
	case "user":
		return t.parts(at, m.Get("content"), anyPart, func(part []byte) { t.turns.part(turnUser, part) })
	case "assistant":
		return t.assistant(at, m)
	case "tool":
		return t.toolResult(at, m)
	case "function":
		return unsupported(at.String()+".role", "function messages are not translated: use tool messages")
	}
	return invalid(at.String()+".role", "the role must be developer, system, user, assistant or tool")
}

func (t *translation) assistant(at place, m gjson.Result) *exchange.Failure {
	for _, name := range [...]string{"audio", "function_call"} {
		if m.Get(name).Type != gjson.Null {
			return unsupported(at.String()+"."+name, "Gemini has no counterpart for "+name)
		}
	}
	signature, signed, f := signatures(at, m)
	if f != nil {
		return f
	}
	if f := t.said(at, m, signature); f != nil {
		return f
	}
	calls := m.Get("tool_calls")
	if calls.Type == gjson.Null {
		return nil
	}
	if !calls.IsArray() {
		return invalid(at.String()+".tool_calls", "tool_calls must be an array")
	}
	for j, call := range calls.Array() {
		if f := t.toolCall(fmt.Sprintf("%s.tool_calls[%d]", at, j), call, signed); f != nil {
			return f
		}
	}
	return nil
}

// said adds the text of an assistant's message. A signature, which is raw JSON or "", goes with the last of it.
func (t *translation) said(at place, m gjson.Result, signature string) *exchange.Failure {
	var last []byte
	add := func(part []byte) {
		if last != nil {
			t.turns.part(turnModel, last)
		}
		last = part
	}
	if content := m.Get("content"); content.Type != gjson.Null {
		if f := t.parts(at, content, textOrRefusal, add); f != nil {
			return f
		}
	}
	switch refusal := m.Get("refusal"); refusal.Type {
	case gjson.Null:
	case gjson.String:
		if refusal.Str != "" {
			add(textPart(refusal.Raw))
		}
	default:
		return invalid(at.String()+".refusal", "refusal must be a string")
	}
	if signature != "" {
		if last == nil {
			last = textPart(`""`) // it came so
		}
		last = append(append(last[:len(last)-1], `,"thoughtSignature":`+signature...), '}')
	}
	if last != nil {
		t.turns.part(turnModel, last)
	}
	return nil
}

// toolCall turns a call that the model made earlier back into its part.
func (t *translation) toolCall(at string, call gjson.Result, signed map[string]string) *exchange.Failure {
	if !call.IsObject() {
		return invalid(at, "a tool call must be an object")
	}
	if call.Get("type").Str == "custom" {
		return unsupported(at, "Gemini has no custom tools")
	}
	id, name, args := call.Get("id"), call.Get("function.name"), call.Get("function.arguments")
	switch {
	case id.Type != gjson.String || id.Str == "":
		return invalid(at+".id", "a tool call must have an id")
	case name.Type != gjson.String || name.Str == "":
		return invalid(at+".function.name", "a tool call must name its function")
	case args.Type != gjson.String && args.Type != gjson.Null:
		return invalid(at+".function.arguments", "arguments must be a string of JSON")
	}
	object := strings.TrimSpace(args.Str)
	if object == "" {
		object = "{}"
	}
	if !isObject(object) {
		return invalid(at+".function.arguments", "arguments must be a JSON object")
	}
	signature := call.Get("extra_content.google.thought_signature").Str
	if signature == "" {
		signature = signed[id.Str]
	}
	t.turns.call(id.Str, name.Raw, object, signature)
	return nil
}

// isObject reports whether a text is one JSON object.
func isObject(text string) bool {
	return strings.HasPrefix(text, "{") && adapter.Valid([]byte(text))
}

// toolResult adds what came of a call. The provider wants an object: what is none is wrapped into one.
func (t *translation) toolResult(at place, m gjson.Result) *exchange.Failure {
	id := m.Get("tool_call_id")
	if id.Type != gjson.String || id.Str == "" {
		return invalid(at.String()+".tool_call_id", "a tool message must have a tool_call_id")
	}
	call, ok := t.turns.calls[id.Str]
	if !ok {
		return invalid(at.String()+".tool_call_id", "no message before this one has a tool call of that id")
	}
	content := m.Get("content")
	if content.Type == gjson.String {
		t.turns.result(call, response(content.Str, content.Raw), nil)
		return nil
	}
	var text strings.Builder
	var pictures []byte
	f := t.parts(at, content, textOrImage, func(part []byte) {
		if s := gjson.GetBytes(part, "text"); s.Exists() {
			text.WriteString(s.Str)
			return
		}
		pictures = append(appendComma(pictures), part...)
	})
	if f != nil {
		return f
	}
	if len(pictures) > 0 && t.how != mindLevel {
		return unsupported(at.String()+".content", "this model takes no images in the results of tools")
	}
	t.turns.result(call, response(text.String(), string(appendString(nil, text.String()))), pictures)
	return nil
}

// response is the object that holds a result's text, which raw is as JSON.
func response(text, raw string) []byte {
	if trimmed := strings.TrimSpace(text); isObject(trimmed) {
		return []byte(trimmed)
	}
	return []byte(`{"output":` + raw + `}`)
}
