package prompt

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Role is who speaks.
type Role uint8

// The roles. A developer is a system, and a tool's message a result.
const (
	System Role = iota
	User
	Assistant
	Result
)

// Message is one message of the conversation.
type Message struct {
	Role   Role
	Place  Place
	Parts  []Part // what is said; nothing in them is empty. A refusal is a text.
	Calls  []Call // the assistant's
	CallID string // of a tool's result: the call it answers
	// Details are reasoning_details as they stand: what the assistant thought, in the words of the provider it came from. ""
	// for none.
	Details string
	blocks  string // thinking_blocks
	voice   string // "" for nobody in particular
}

// Call is a call of a function that the assistant made.
type Call struct {
	ID        string
	Name      Text
	Arguments string // a JSON object
	// Signature is the one that Gemini's models want back with the call, "" for none.
	Signature string
}

// Place is where in the messages something stands. Its text is only made for a failure.
type Place struct {
	Message int32
	Part    int32 // of content, -1 for none
}

func (p Place) String() string {
	if p.Part < 0 {
		return fmt.Sprintf("messages[%d]", p.Message)
	}
	return fmt.Sprintf("messages[%d].content[%d]", p.Message, p.Part)
}

// callPlace is where in the messages a call stands.
type callPlace struct{ message, call int32 }

func (p callPlace) String() string {
	return fmt.Sprintf("messages[%d].tool_calls[%d]", p.message, p.call)
}

// Whole is the text that is all of the content, where the content came as a string and not as a list of parts.
func (m *Message) Whole() (t Text, ok bool) {
	if len(m.Parts) == 1 && m.Parts[0].Kind == TextPart && m.Parts[0].Place.Part < 0 {
		return m.Parts[0].Text, true
	}
	return Text{}, false
}

func (p *reader) messages(v gjson.Result) *exchange.Failure {
	if !v.IsArray() {
		return adapter.Invalid("messages", "messages must be an array")
	}
	p.Messages, p.parts = p.few.messages[:0], p.few.parts[:0]
	if p.count > len(p.few.messages) {
		p.Messages, p.parts = make([]Message, 0, p.count), make([]Part, 0, p.count)
	}
	var f *exchange.Failure
	v.ForEach(func(_, m gjson.Result) bool {
		f = p.message(Place{int32(len(p.Messages)), -1}, m) // a body is shorter than that by far
		return f == nil
	})
	p.introduce()
	return f
}

// sent is the members of a message as they were sent.
type sent struct {
	role, content, name, refusal, images, calls, callID, details, blocks, audio, call, cached gjson.Result
}

func (p *reader) message(at Place, v gjson.Result) *exchange.Failure {
	if !v.IsObject() {
		return adapter.Invalid(at.String(), "a message must be an object")
	}
	var in sent
	var f *exchange.Failure
	v.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "role":
			first(&in.role, v)
		case "content":
			first(&in.content, v)
		case "refusal":
			first(&in.refusal, v)
		case "images":
			first(&in.images, v)
		case "tool_calls":
			first(&in.calls, v)
		case "tool_call_id":
			first(&in.callID, v)
		case "reasoning_details":
			first(&in.details, v)
		case "thinking_blocks":
			first(&in.blocks, v)
		case "audio":
			first(&in.audio, v)
		case "function_call":
			first(&in.call, v)
		case "name":
			first(&in.name, v)
		case "cache_control":
			first(&in.cached, v)
		default:
			f = p.unknown(at, k.Str, v)
		}
		return f == nil
	})
	if f != nil {
		return f
	}
	m := Message{Place: at}
	from, called := len(p.parts), len(p.calls)
	switch in.role.Str {
	case "system", "developer":
		f = p.content(at, in.content, textOnly)
	case "user":
		m.Role = User
		f = p.content(at, in.content, anyPart)
	case "assistant":
		m.Role = Assistant
		f = p.assistant(&m, &in)
	case "tool":
		m.Role, m.CallID = Result, in.callID.Str
		if in.callID.Type != gjson.String || m.CallID == "" {
			return adapter.Invalid(at.String()+".tool_call_id", "a tool message must have a tool_call_id")
		}
		f = p.content(at, in.content, textOrImage)
	case "function":
		return adapter.Unsupported(at.String()+".role", "function messages are not translated: use tool messages")
	default:
		return adapter.Invalid(at.String()+".role", "the role must be developer, system, user, assistant or tool")
	}
	if n := len(p.parts); n > from && in.cached.IsObject() {
		p.parts[n-1].Cached = true // LiteLLM's callers say it so of a message that is a string
	}
	m.Parts, m.Calls = p.parts[from:len(p.parts):len(p.parts)], p.calls[called:len(p.calls):len(p.calls)]
	if f == nil {
		f = p.meet(&m, in.name)
	}
	p.Messages = append(p.Messages, m)
	p.said = p.said || m.Role != System && (m.Role == Result || len(m.Parts) > 0 || len(m.Calls) > 0)
	return f
}

func (p *reader) assistant(m *Message, in *sent) *exchange.Failure {
	at := m.Place
	switch {
	case in.audio.Type != gjson.Null:
		return adapter.Unsupported(at.String()+".audio", p.vendor+" has no counterpart for audio")
	case in.call.Type != gjson.Null:
		return adapter.Unsupported(at.String()+".function_call", p.vendor+" has no counterpart for function_call")
	}
	for _, thinking := range [...]struct {
		name string
		v    *gjson.Result
		to   *string
	}{{"reasoning_details", &in.details, &m.Details}, {"thinking_blocks", &in.blocks, &m.blocks}} {
		switch {
		case thinking.v.Type == gjson.Null:
		case !thinking.v.IsArray():
			return adapter.Invalid(at.String()+"."+thinking.name, thinking.name+" must be an array")
		default:
			*thinking.to = thinking.v.Raw
		}
	}
	if in.content.Type != gjson.Null {
		if f := p.content(at, in.content, textOrRefusal); f != nil {
			return f
		}
	}
	switch {
	case in.refusal.Type == gjson.Null:
	case in.refusal.Type != gjson.String:
		return adapter.Invalid(at.String()+".refusal", "refusal must be a string")
	case in.refusal.Str != "":
		p.parts = append(p.parts, Part{Place: at, Text: text(in.refusal)})
	}
	if f := p.drawn(at, in.images); f != nil {
		return f
	}
	switch {
	case in.calls.Type == gjson.Null:
		return nil
	case !in.calls.IsArray():
		return adapter.Invalid(at.String()+".tool_calls", "tool_calls must be an array")
	}
	var f *exchange.Failure
	here := callPlace{message: at.Message}
	in.calls.ForEach(func(_, call gjson.Result) bool {
		f = p.call(here, call)
		here.call++
		return f == nil
	})
	return f
}

// call reads a call that the model made earlier.
func (p *reader) call(at callPlace, v gjson.Result) *exchange.Failure {
	if !v.IsObject() {
		return adapter.Invalid(at.String(), "a tool call must be an object")
	}
	var kind, id, function, extra, name, args gjson.Result
	v.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "type":
			first(&kind, v)
		case "id":
			first(&id, v)
		case "function":
			first(&function, v)
		case "extra_content":
			first(&extra, v)
		}
		return true
	})
	if kind.Str == "custom" {
		return adapter.Unsupported(at.String(), p.vendor+" has no custom tools")
	}
	if function.IsObject() {
		function.ForEach(func(k, v gjson.Result) bool {
			switch k.Str {
			case "name":
				first(&name, v)
			case "arguments":
				first(&args, v)
			}
			return true
		})
	}
	switch {
	case id.Type != gjson.String || id.Str == "":
		return adapter.Invalid(at.String()+".id", "a tool call must have an id")
	case name.Type != gjson.String || name.Str == "":
		return adapter.Invalid(at.String()+".function.name", "a tool call must name its function")
	case args.Type != gjson.String && args.Type != gjson.Null:
		return adapter.Invalid(at.String()+".function.arguments", "arguments must be a string of JSON")
	}
	object := strings.TrimSpace(args.Str)
	if object == "" {
		object = "{}"
	}
	if !IsObject(object) {
		return adapter.Invalid(at.String()+".function.arguments", "arguments must be a JSON object")
	}
	p.calls = append(p.calls, Call{
		ID: id.Str, Name: text(name), Arguments: object, Signature: extra.Get("google.thought_signature").Str,
	})
	return nil
}

// IsObject reports whether a text is one JSON object.
func IsObject(text string) bool {
	return strings.HasPrefix(text, "{") && adapter.Valid([]byte(text))
}
