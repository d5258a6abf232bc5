package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
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
		return parts(at, m.Get("content"), false, textOnly, func(block []byte) {
			if t.turns.Any() && takesSystemLater(t.base) {
				t.turns.Block("system", block)
				return
			}
			if len(t.system) > 0 {
				t.system = append(t.system, ',')
			}
			t.system = append(t.system, block...)
		})
	case "user":
		return parts(at, m.Get("content"), false, anyPart, func(block []byte) { t.turns.Block("user", block) })
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
			return unsupported(at.String()+"."+name, "Anthropic has no counterpart for "+name)
		}
	}
	add := func(block []byte) { t.turns.Block("assistant", block) }
	thinking, f := thoughts(at, m)
	if f != nil {
		return f
	}
	for _, block := range thinking {
		add(block) // the provider wants them first
	}
	if f := parts(at, m.Get("content"), true, textOrRefusal, add); f != nil {
		return f
	}
	switch refusal := m.Get("refusal"); refusal.Type {
	case gjson.Null:
	case gjson.String:
		if refusal.Str != "" {
			add(textBlock(refusal.Raw, false))
		}
	default:
		return invalid(at.String()+".refusal", "refusal must be a string")
	}
	calls := m.Get("tool_calls")
	if calls.Type == gjson.Null {
		return nil
	}
	if !calls.IsArray() {
		return invalid(at.String()+".tool_calls", "tool_calls must be an array")
	}
	for j, call := range calls.Array() {
		block, f := toolUse(fmt.Sprintf("%s.tool_calls[%d]", at, j), call)
		if f != nil {
			return f
		}
		add(block)
	}
	return nil
}

// toolUse turns a call that the model made earlier back into its block.
func toolUse(at string, call gjson.Result) ([]byte, *exchange.Failure) {
	if !call.IsObject() {
		return nil, invalid(at, "a tool call must be an object")
	}
	if call.Get("type").Str == "custom" {
		return nil, unsupported(at, "Anthropic has no custom tools")
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
	if !validJSON(input) || input[0] != '{' {
		return nil, invalid(at+".function.arguments", "arguments must be a JSON object")
	}
	b := appendString([]byte(`{"type":"tool_use","id":`), toolID(id.Str))
	b = append(append(b, `,"name":`...), name.Raw...)
	b = append(append(b, `,"input":`...), input...)
	return append(b, '}'), nil
}

// toolID makes an id of another vendor fit for Anthropic, which takes only letters, digits, _ and -. The same id
// always becomes the same, so that results still find their calls; the hash keeps different ids apart.
func toolID(id string) string {
	id = adapter.PlainCallID(id)
	fits := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if strings.IndexFunc(id, func(c rune) bool { return !fits(c) }) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	clean := strings.Map(func(c rune) rune {
		if fits(c) {
			return c
		}
		return '_'
	}, id)
	return clean + "_" + hex.EncodeToString(sum[:4])
}

func (t *translation) toolResult(at place, m gjson.Result) *exchange.Failure {
	id := m.Get("tool_call_id")
	if id.Type != gjson.String || id.Str == "" {
		return invalid(at.String()+".tool_call_id", "a tool message must have a tool_call_id")
	}
	b := appendString([]byte(`{"type":"tool_result","tool_use_id":`), toolID(id.Str))
	content := m.Get("content")
	if content.Type == gjson.String {
		if content.Str != "" {
			b = append(append(b, `,"content":`...), content.Raw...)
		}
		t.turns.Result(append(b, '}'))
		return nil
	}
	n := 0
	f := parts(at, content, false, textOrImage, func(block []byte) {
		if n == 0 {
			b = append(b, `,"content":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, block...)
		n++
	})
	if f != nil {
		return f
	}
	if n > 0 {
		b = append(b, ']')
	}
	t.turns.Result(append(b, '}'))
	return nil
}
