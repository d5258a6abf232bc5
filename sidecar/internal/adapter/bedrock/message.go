package bedrock

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

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
	add := func(role string) func(block []byte, cached bool) {
		return func(block []byte, cached bool) { t.turns.Block(role, withCachePoint(block, cached)) }
	}
	switch m.Get("role").Str {
	case "system", "developer":
		return t.parts(at, m.Get("content"), false, textOnly, func(block []byte, cached bool) {
			t.system = append(comma(t.system, 0), withCachePoint(block, cached)...)
		})
	case "user":
		return t.parts(at, m.Get("content"), false, anyPart, add("user"))
	case "assistant":
		return t.assistant(at, m, add("assistant"))
	case "tool":
		return t.toolResult(at, m)
	case "function":
		return unsupported(at.String()+".role", "function messages are not translated: use tool messages")
	}
	return invalid(at.String()+".role", "the role must be developer, system, user, assistant or tool")
}

// withCachePoint puts a cache point behind a block that ends what is to be cached.
func withCachePoint(block []byte, cached bool) []byte {
	if cached {
		return append(block, `,{"cachePoint":{"type":"default"}}`...)
	}
	return block
}

func (t *translation) assistant(at place, m gjson.Result, add func(block []byte, cached bool)) *exchange.Failure {
	for _, name := range [...]string{"audio", "function_call"} {
		if m.Get(name).Type != gjson.Null {
			return unsupported(at.String()+"."+name, "Bedrock has no counterpart for "+name)
		}
	}
	thinking, f := thoughts(at, m)
	if f != nil {
		return f
	}
	for _, block := range thinking {
		add(block, false) // the provider wants them first
	}
	if f := t.parts(at, m.Get("content"), true, textOrRefusal, add); f != nil {
		return f
	}
	switch refusal := m.Get("refusal"); {
	case refusal.Type == gjson.Null:
	case refusal.Type != gjson.String:
		return invalid(at.String()+".refusal", "refusal must be a string")
	case refusal.Str != "":
		add(textBlock(refusal.Raw), false)
	}
	calls := m.Get("tool_calls")
	if calls.Type == gjson.Null {
		return nil
	}
	if !calls.IsArray() {
		return invalid(at.String()+".tool_calls", "tool_calls must be an array")
	}
	for j, call := range calls.Array() {
		block, f := t.toolUse(fmt.Sprintf("%s.tool_calls[%d]", at, j), call)
		if f != nil {
			return f
		}
		add(block, false)
	}
	return nil
}

// toolUse turns a call that the model made earlier back into its block.
func (t *translation) toolUse(at string, call gjson.Result) ([]byte, *exchange.Failure) {
	if !call.IsObject() {
		return nil, invalid(at, "a tool call must be an object")
	}
	if call.Get("type").Str == "custom" {
		return nil, unsupported(at, "Bedrock has no custom tools")
	}
	id, name, args := call.Get("id"), call.Get("function.name"), call.Get("function.arguments")
	switch {
	case id.Type != gjson.String || id.Str == "":
		return nil, invalid(at+".id", "a tool call must have an id")
	case name.Type != gjson.String || name.Str == "":
		return nil, invalid(at+".function.name", "a tool call must name its function")
	case args.Type != gjson.String && args.Type != gjson.Null:
		return nil, invalid(at+".function.arguments", "arguments must be a string of JSON")
	}
	input := strings.TrimSpace(args.Str)
	if input == "" {
		input = "{}"
	}
	if input[0] != '{' || !json.Valid([]byte(input)) {
		return nil, invalid(at+".function.arguments", "arguments must be a JSON object")
	}
	t.answered = true
	if !slices.Contains(t.called, name.Str) {
		t.called = append(t.called, name.Str)
	}
	b := appendString([]byte(`{"toolUse":{"toolUseId":`), t.toolID(id.Str))
	b = append(append(b, `,"name":`...), name.Raw...)
	b = append(append(b, `,"input":`...), input...)
	return append(b, `}}`...), nil
}

func (t *translation) toolResult(at place, m gjson.Result) *exchange.Failure {
	id := m.Get("tool_call_id")
	if id.Type != gjson.String || id.Str == "" {
		return invalid(at.String()+".tool_call_id", "a tool message must have a tool_call_id")
	}
	t.answered = true
	b := appendString([]byte(`{"toolResult":{"toolUseId":`), t.toolID(id.Str))
	b = append(b, `,"content":[`...)
	from, cached := len(b), false
	f := t.parts(at, m.Get("content"), false, textOrImage, func(block []byte, c bool) {
		b, cached = append(comma(b, from), block...), cached || c
	})
	if f != nil {
		return f
	}
	t.turns.Result(withCachePoint(append(b, `]}}`...), cached)) // there can be none inside of a result
	return nil
}
