package bedrock

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// choose settles which tools go out, and what is said of calls. A history with calls in it must have tools: where the
// caller sent none, those that were called stand for them.
func (t *translation) choose() *exchange.Failure {
	switch {
	case t.Choice.Mode == prompt.None && t.answered:
		// Neither can Converse forbid calls, nor may the tools be left out of such a history.
		if f := t.Cannot("tool_choice", "Bedrock cannot forbid calls where there were calls before"); f != nil {
			return f
		}
	case t.Choice.Mode == prompt.None:
		t.Tools = nil // a model without tools calls none
	}
	if len(t.Tools) > 0 && t.Serial {
		return t.Cannot("parallel_tool_calls", "Bedrock cannot keep a model from calling two tools at once")
	}
	if len(t.Tools) == 0 && t.answered {
		for _, name := range t.called {
			t.Tools = append(t.Tools, prompt.Tool{Name: name})
		}
	}
	return nil
}

// appendTools appends the tools and which of them must be called. Without any, results are of nothing: the provider says
// what is wrong.
func (t *translation) appendTools(b []byte) []byte {
	if len(t.Tools) == 0 {
		return b
	}
	b = append(b, `,"toolConfig":{"tools":[`...)
	from := len(b)
	for i := range t.Tools {
		tool := &t.Tools[i]
		b = append(append(adapter.Comma(b, from), `{"toolSpec":{"name":`...), tool.Name.Raw...)
		if tool.Description.Str != "" { // an empty one is refused upstream
			b = append(append(b, `,"description":`...), tool.Description.Raw...)
		}
		b = append(tool.AppendSchema(append(b, `,"inputSchema":{"json":`...)), '}')
		if tool.Strict {
			b = append(b, `,"strict":true`...)
		}
		b = append(b, `}}`...)
	}
	b = append(b, ']')
	switch t.Choice.Mode {
	case prompt.Auto:
		b = append(b, `,"toolChoice":{"auto":{}}`...)
	case prompt.Required:
		b = append(b, `,"toolChoice":{"any":{}}`...)
	case prompt.Named:
		b = append(adapter.AppendString(append(b, `,"toolChoice":{"tool":{"name":`...), t.Choice.Name), `}}`...)
	}
	return append(b, '}')
}

// fitCallID makes the id of a call, which may be another vendor's, one that the model takes. Mistral's want nine letters
// and digits.
func fitCallID(model, id string) string {
	const short = 9
	if !strings.Contains(model, "mistral.") {
		return adapter.FitCallID(id)
	}
	if id = adapter.PlainCallID(id); len(id) == short && adapter.IsPlain(id) && !strings.ContainsAny(id, "_-") {
		return id
	}
	return adapter.CallIDHash(id)[:short]
}
