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
	later := t.turns.Any() && takesSystemLater(t.base)
	for i := range m.Parts {
		if p := &m.Parts[i]; later {
			t.later = append(t.later, p)
		} else {
			t.hoist(p)
		}
	}
	return nil
}

// hoist puts a system text before the conversation.
func (t *translation) hoist(p *prompt.Part) {
	t.system = appendText(adapter.Comma(t.system, 0), p)
}

// placeLater finds the place of system texts that came between the turns. They may stand behind a user's turn that the
// model answers next, or that is the last, and nowhere else (Claude API docs: Mid-conversation system messages; AWS has
// the same rules). So they wait for the model's next turn, and go before the conversation when no user's turn came first.
func (t *translation) placeLater() {
	user := t.turns.Role() == "user"
	for _, p := range t.later {
		if user {
			t.turns.Keep(appendText(t.turns.Begin("system"), p))
		} else {
			t.hoist(p)
		}
	}
	t.later = t.later[:0]
}

// parts adds a message's parts to a turn.
func (t *translation) parts(role string, m *prompt.Message) *exchange.Failure {
	for i := range m.Parts {
		if f := t.Undrawn(&m.Parts[i]); f != nil {
			return f
		}
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
	thoughts := m.Thoughts("anthropic")
	if len(thoughts)+len(m.Parts)+len(m.Calls) > 0 {
		t.placeLater()
	}
	for _, th := range thoughts {
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
