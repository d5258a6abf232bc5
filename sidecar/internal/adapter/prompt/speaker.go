package prompt

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// speakers are the names that messages of one role have. Only chat has a member for them.
type speakers struct {
	met     bool
	first   string
	several bool
}

// named reads the name of who speaks. One that says no more than the role is none, and a tool's is known from its call.
func (p *reader) named(m *Message, in *sent) *exchange.Failure {
	switch name := in.name; {
	case name.Type == gjson.Null, in.role.Str == "tool":
	case name.Type != gjson.String:
		return adapter.Invalid(m.Place.String()+".name", "name must be a string")
	case name.Str != in.role.Str:
		m.name = name.Str
	}
	return nil
}

// meet notes who speaks in a message.
func (p *reader) meet(m *Message) {
	s := &p.speakers[m.Role]
	if !s.met {
		s.met, s.first = true, m.name
	}
	s.several = s.several || m.name != s.first
}

// introduce puts the name of who speaks before what is said, where several speak in one role: the model could not tell them
// apart. A name that all messages of a role have tells nothing, and many clients send one.
func (p *reader) introduce() {
	for i := range p.Messages {
		m := &p.Messages[i]
		if m.name == "" || len(m.Parts) == 0 || !p.speakers[m.Role].several {
			continue
		}
		name := m.name + ": "
		who := Part{Place: m.Place, Text: Text{string(adapter.AppendString(nil, name)), name}}
		m.Parts = append([]Part{who}, m.Parts...)
	}
}
