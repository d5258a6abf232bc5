package prompt

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

var roleNames = [...]string{System: "system", User: "user", Assistant: "assistant", Result: "tool"}

// meet reads the name of who speaks in a message.
func (p *reader) meet(m *Message, name gjson.Result) *exchange.Failure {
	if name.Type != gjson.Null && name.Type != gjson.String {
		return adapter.Invalid(m.Place.String()+".name", "name must be a string")
	}
	role := roleNames[m.Role]
	m.voice = adapter.Voice(role, name.Str)
	p.voices.Meet(role, m.voice)
	return nil
}

// introduce puts the name of who speaks before what is said, where it tells somebody apart. Only chat has a member for it.
func (p *reader) introduce() {
	for i := range p.Messages {
		m := &p.Messages[i]
		who := p.voices.Introduce(roleNames[m.Role], m.voice)
		if who == "" || len(m.Parts) == 0 {
			continue
		}
		part := Part{Place: m.Place, Text: Text{string(adapter.AppendString(nil, who)), who}}
		m.Parts = append([]Part{part}, m.Parts...)
	}
}

// unknown is the failure of a member of a message or a part that is not read, unless its value asks for nothing.
func (p *reader) unknown(at Place, name string, v gjson.Result) *exchange.Failure {
	if !adapter.Unread(name, v) {
		return nil
	}
	return adapter.Unsupported(at.String()+"."+name, p.vendor+" cannot honour "+adapter.Printable(name))
}
