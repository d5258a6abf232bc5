package anthropic

import (
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// message adds a message to the system texts or to the turns.
func (t *translation) message(m *prompt.Message) *exchange.Failure {
	switch m.Role {
	case prompt.User:
		return t.parts("user", m)
	case prompt.Assistant:
		return t.assistant(m)
	case prompt.Result:
		return t.result(m)
	}
	if t.turns.Any() && takesSystemLater(t.model) {
		return t.parts("system", m)
	}
	for i := range m.Parts {
		t.system = appendText(adapter.Comma(t.system, 0), &m.Parts[i])
	}
	return nil
}

// parts adds a message's parts to a turn.
func (t *translation) parts(role string, m *prompt.Message) *exchange.Failure {
	for i := range m.Parts {
		b, f := t.appendPart(t.turns.Begin(role), &m.Parts[i])
		if f != nil {
			return f
		}
		t.turns.Keep(b)
	}
	return nil
}

// assistant adds an earlier answer: its thinking, which the provider wants first, its text and its calls.
func (t *translation) assistant(m *prompt.Message) *exchange.Failure {
	const role = "assistant"
	for _, th := range m.Thoughts() {
		b := t.turns.Begin(role)
		if th.Redacted {
			b = append(append(append(b, `{"type":"redacted_thinking","data":"`...), th.Text...), `"}`...)
		} else {
			b = append(append(append(b, `{"type":"thinking","thinking":"`...), th.Text...), `","signature":"`...)
			b = append(append(b, th.Signature...), `"}`...)
		}
		t.turns.Keep(b)
	}
	if f := t.parts(role, m); f != nil {
		return f
	}
	for i := range m.Calls {
		c := &m.Calls[i]
		b := adapter.AppendString(append(t.turns.Begin(role), `{"type":"tool_use","id":`...), adapter.FitCallID(c.ID))
		b = append(append(b, `,"name":`...), c.Name.Raw...)
		t.turns.Keep(append(append(append(b, `,"input":`...), c.Arguments...), '}'))
	}
	return nil
}

// result adds what came of a call.
func (t *translation) result(m *prompt.Message) *exchange.Failure {
	b := adapter.AppendString(append(t.turns.Begin("user"), `{"type":"tool_result","tool_use_id":`...), adapter.FitCallID(m.CallID))
	if text, ok := m.Whole(); ok {
		b = append(append(b, `,"content":`...), text.Raw...)
	} else if len(m.Parts) > 0 {
		b = append(b, `,"content":[`...)
		from := len(b)
		for i := range m.Parts {
			var f *exchange.Failure
			if b, f = t.appendPart(adapter.Comma(b, from), &m.Parts[i]); f != nil {
				return f
			}
		}
		b = append(b, ']')
	}
	t.turns.KeepResult(append(b, '}'))
	return nil
}
