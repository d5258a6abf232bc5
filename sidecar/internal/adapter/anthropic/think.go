package anthropic

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// reasoningEffort turns the caller's word into what the model understands: a word of its own, or a number of tokens.
func (t *translation) reasoningEffort(v gjson.Result) *exchange.Failure {
	const name = "reasoning_effort"
	how := mindOf(t.base)
	if v.Str == "none" {
		if how != mindNone {
			t.thinking = `{"type":"disabled"}`
		}
		return nil
	}
	tokens := adapter.ThinkingTokens(v.Str)
	switch {
	case tokens == 0:
		return invalid(name, "reasoning_effort must be none, minimal, low, medium, high, xhigh or max")
	case how == mindNone:
		return unsupported(name, "this model cannot think before it answers")
	case how == mindBudget:
		t.budget(tokens)
	case v.Str == "minimal":
		t.thinking, t.effort = `{"type":"adaptive"}`, "low" // the least there is
	default:
		t.thinking, t.effort = `{"type":"adaptive"}`, v.Str
	}
	t.thinks = true
	return nil
}

// budget has the model think up to so many tokens. They are part of the output: the cap must be above them, and
// something must be left for the answer.
func (t *translation) budget(tokens int64) {
	switch {
	case t.limit == 0:
		t.limit = outputDefault + tokens
	case t.limit < adapter.ThinkingRoom:
		t.limit = adapter.ThinkingRoom
	}
	tokens = max(adapter.ThinkingLeast, min(tokens, t.limit-adapter.ThinkingLeast))
	t.thinking = fmt.Sprintf(`{"type":"enabled","budget_tokens":%d}`, tokens)
}

// sampling keeps temperature or top_p for later. 1 is the default of both and is not sent: models that know the member
// no more refuse it whatever it says.
func (t *translation) sampling(name string, v gjson.Result, most float64, to *string) *exchange.Failure {
	switch {
	case v.Type != gjson.Number || !(v.Num >= 0 && v.Num <= most):
		return invalid(name, fmt.Sprintf("%s must be a number from 0 to %g", name, most))
	case v.Num > 1:
		return unsupported(name, fmt.Sprintf("Anthropic's %s goes from 0 to 1", name))
	case v.Num == 1:
	case t.strict:
		return unsupported(name, fmt.Sprintf("Anthropic's API has no %s any more", name))
	default:
		*to = v.Raw
	}
	return nil
}

// reconcile refuses what a model that thinks cannot do.
func (t *translation) reconcile() *exchange.Failure {
	if !t.thinks {
		return nil
	}
	for _, m := range [...]struct {
		name  string
		value *string
	}{{"temperature", &t.temperature}, {"top_p", &t.topP}} {
		if *m.value != "" && !t.mayDrop(m.name) {
			return unsupported(m.name, fmt.Sprintf("Anthropic models that think take no %s", m.name))
		}
		*m.value = ""
	}
	if t.tools.forced() {
		if !t.mayDrop("tool_choice") {
			return unsupported("tool_choice", "Anthropic models that think cannot be forced to call a tool")
		}
		t.tools.mode = ""
	}
	return nil
}

// The caller sees the model's thinking as text in reasoning_content, and once more in reasoning_details, with the
// signature and in the blocks it came in. Sent back, these become the same blocks again. The shape is OpenRouter's:
//
//	{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"...","signature":"..."}
//	{"type":"reasoning.encrypted","format":"anthropic-claude-v1","index":1,"data":"..."}
//
// In a stream an entry comes in pieces of the same index. The format stands in the first piece alone, since client
// libraries put pieces together by joining their strings.
const (
	detailText      = `{"type":"reasoning.text"`
	detailEncrypted = `{"type":"reasoning.encrypted"`
	detailFormat    = `,"format":"` + adapter.ThinkingFormat + `"`
)

// thought is one block of thinking as a caller sends it back. Its texts are still escaped.
type thought struct {
	index           gjson.Result
	redacted        bool
	text, signature string // of data when redacted
}

// thoughts are the thinking blocks of an assistant's message. What has no signature cannot be sent back to anyone and
// is left out, and so is what another vendor's model thought.
func thoughts(at place, m gjson.Result) ([][]byte, *exchange.Failure) {
	const details, blocks = "reasoning_details", "thinking_blocks" // the latter is LiteLLM's word
	var list []thought
	for _, name := range [...]string{details, blocks} {
		v := m.Get(name)
		if v.Type == gjson.Null {
			continue
		}
		if !v.IsArray() {
			return nil, invalid(at.String()+"."+name, name+" must be an array")
		}
		v.ForEach(func(_, e gjson.Result) bool {
			list = gather(list, e)
			return true
		})
		if len(list) > 0 {
			break
		}
	}
	var out [][]byte
	for _, th := range list {
		switch {
		case th.redacted && th.text != "":
			out = append(out, []byte(`{"type":"redacted_thinking","data":"`+th.text+`"}`))
		case th.signature != "":
			out = append(out, []byte(`{"type":"thinking","thinking":"`+th.text+`","signature":"`+th.signature+`"}`))
		}
	}
	return out, nil
}

// gather adds an entry to the thoughts before it. Pieces of one entry may come one by one, as they were streamed.
func gather(list []thought, e gjson.Result) []thought {
	if f := e.Get("format"); f.Type == gjson.String && !strings.HasPrefix(f.Str, "anthropic") {
		return list
	}
	th := thought{index: e.Get("index"), signature: inside(e.Get("signature"))}
	switch e.Get("type").Str {
	case "reasoning.text":
		th.text = inside(e.Get("text"))
	case "thinking":
		th.text = inside(e.Get("thinking"))
	case "reasoning.encrypted", "redacted_thinking":
		th.redacted, th.text = true, inside(e.Get("data"))
	default:
		return list
	}
	if n := len(list); n > 0 && th.index.Exists() && list[n-1].index.Raw == th.index.Raw && list[n-1].redacted == th.redacted {
		list[n-1].text += th.text
		list[n-1].signature += th.signature
		return list
	}
	return append(list, th)
}
