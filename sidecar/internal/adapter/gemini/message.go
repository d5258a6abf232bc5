package gemini

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// message adds a message to the system instruction or to the turns.
func (t *translation) message(m *prompt.Message) *exchange.Failure {
	switch m.Role {
	case prompt.User:
		t.show()
		return t.said(turnUser, m, "")
	case prompt.Assistant:
		t.show()
		return t.assistant(m)
	case prompt.Result:
		return t.result(m)
	}
	for i := range m.Parts {
		t.system = appendText(adapter.Comma(t.system, 0), m.Parts[i].Text.Raw)
	}
	return nil
}

func (t *translation) assistant(m *prompt.Message) *exchange.Failure {
	signature, signed := signatures(m)
	if f := t.said(turnModel, m, signature); f != nil {
		return f
	}
	for i := range m.Calls {
		c := &m.Calls[i]
		if c.Signature == "" {
			c.Signature = signed[c.ID]
		}
		t.turns.call(c)
	}
	return nil
}

// said adds a message's parts to a turn. A signature, which is raw JSON or "", goes with the last of them.
func (t *translation) said(kind string, m *prompt.Message, signature string) *exchange.Failure {
	for i := range m.Parts {
		b, f := t.appendPart(t.turns.begin(kind), &m.Parts[i])
		if f != nil {
			return f
		}
		if i == len(m.Parts)-1 {
			b = signedBy(b, signature)
		}
		t.turns.keep(b)
	}
	if len(m.Parts) == 0 && signature != "" {
		t.turns.keep(signedBy(append(t.turns.begin(kind), `{"text":""}`...), signature)) // it came so
	}
	return nil
}

// signedBy puts a signature into a part.
func signedBy(part []byte, signature string) []byte {
	if signature == "" {
		return part
	}
	return append(append(append(part[:len(part)-1], `,"thoughtSignature":`...), signature...), '}')
}

// result adds what came of a call. The provider wants an object: what is none is wrapped into one, several texts as a list.
// Models that see no images in results see them behind these, as the user's.
func (t *translation) result(m *prompt.Message) *exchange.Failure {
	call, ok := t.turns.calls[m.CallID]
	if !ok {
		return adapter.Invalid(m.Place.String()+".tool_call_id", "no message before this one has a tool call of that id")
	}
	if text, ok := m.Whole(); ok {
		t.turns.result(call, response(text), nil)
		return nil
	}
	var texts []prompt.Text
	var pictures []byte
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Kind == prompt.TextPart {
			texts = append(texts, p.Text)
			continue
		}
		var f *exchange.Failure
		if pictures, f = t.appendPart(adapter.Comma(pictures, 0), p); f != nil {
			return f
		}
	}
	if t.how != mindLevel && len(pictures) > 0 {
		t.shown = append(append(adapter.Comma(t.shown, 0), `{"text":"From the result of `...), call.name[1:]...)
		t.shown = append(append(t.shown, `},`...), pictures...)
		pictures = nil
	}
	t.turns.result(call, response(texts...), pictures)
	return nil
}

// show adds the images of the results before, if the model sees none in them.
func (t *translation) show() {
	if len(t.shown) > 0 {
		t.turns.keep(append(t.turns.begin(turnUser), t.shown...))
		t.shown = t.shown[:0]
	}
}

// response is the object that holds a result's texts.
func response(texts ...prompt.Text) string {
	switch len(texts) {
	case 0:
		return `{"output":""}`
	case 1:
		if object := strings.TrimSpace(texts[0].Str); prompt.IsObject(object) {
			return object
		}
		return `{"output":` + texts[0].Raw + `}`
	}
	var list []byte
	for _, t := range texts {
		list = append(adapter.Comma(list, 0), t.Raw...)
	}
	return `{"output":[` + string(list) + `]}`
}
