package bedrock

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
	for i := range m.Parts {
		p := &m.Parts[i]
		t.system = appendCachePoint(appendText(adapter.Comma(t.system, 0), p.Text.Raw), p.Cached)
	}
	return nil
}

// appendCachePoint puts a cache point behind a block that ends what is to be cached.
func appendCachePoint(block []byte, cached bool) []byte {
	if cached {
		return append(block, `,{"cachePoint":{"type":"default"}}`...)
	}
	return block
}

// parts adds a message's parts to a turn.
func (t *translation) parts(role string, m *prompt.Message) *exchange.Failure {
	for i := range m.Parts {
		if f := t.Undrawn(&m.Parts[i]); f != nil {
			return f
		}
		p := &m.Parts[i]
		b, f := t.appendPart(t.turns.Begin(role), p)
		if f != nil {
			return f
		}
		t.turns.Keep(appendCachePoint(b, p.Cached))
	}
	return nil
}

// assistant adds an earlier answer: its thinking, which the provider wants first, its text and its calls. Models refuse the
// signatures of others.
func (t *translation) assistant(m *prompt.Message) *exchange.Failure {
	const role = "assistant"
	for _, th := range m.Thoughts(t.reads...) {
		b := append(t.turns.Begin(role), `{"reasoningContent":{`...)
		if th.Redacted {
			b = append(append(append(b, `"redactedContent":"`...), th.Text...), `"}}`...)
		} else {
			b = append(append(append(b, `"reasoningText":{"text":"`...), th.Text...), `","signature":"`...)
			b = append(append(b, th.Signature...), `"}}}`...)
		}
		t.turns.Keep(b)
	}
	if f := t.parts(role, m); f != nil {
		return f
	}
	for i := range m.Calls {
		c := &m.Calls[i]
		t.answered = true
		t.call(c.Name)
		b := adapter.AppendString(append(t.turns.Begin(role), `{"toolUse":{"toolUseId":`...), fitCallID(t.model, c.ID))
		b = append(append(b, `,"name":`...), c.Name.Raw...)
		t.turns.Keep(append(append(append(b, `,"input":`...), c.Arguments...), `}}`...))
	}
	return nil
}

// call notes that the history calls a function.
func (t *translation) call(name prompt.Text) {
	if t.known[name.Str] {
		return
	}
	if t.known == nil {
		t.known = map[string]bool{}
	}
	t.known[name.Str] = true
	t.called = append(t.called, name)
}

// result adds what came of a call.
func (t *translation) result(m *prompt.Message) *exchange.Failure {
	t.answered = true
	b := adapter.AppendString(append(t.turns.Begin("user"), `{"toolResult":{"toolUseId":`...), fitCallID(t.model, m.CallID))
	b = append(b, `,"content":[`...)
	from, cached := len(b), false
	for i := range m.Parts {
		p := &m.Parts[i]
		var f *exchange.Failure
		if b, f = t.appendPart(adapter.Comma(b, from), p); f != nil {
			return f
		}
		cached = cached || p.Cached
	}
	t.turns.KeepResult(appendCachePoint(append(b, `]}}`...), cached)) // there can be none inside of a result
	return nil
}
