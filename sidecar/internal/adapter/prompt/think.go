package prompt

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Thought is one block of what a model thought, as a caller sends it back. Its texts are still escaped.
type Thought struct {
	// Redacted: only the model can read it. Text is its data, and nothing signs it.
	Redacted        bool
	Text, Signature string
	format, index   string // of the entry, the index raw
}

// Thoughts are the blocks of thinking in an assistant's message whose format begins as one of those that are asked for. The
// caller got them as reasoning_details in OpenRouter's shape:
//
//	{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"...","signature":"..."}
//	{"type":"reasoning.encrypted","format":"anthropic-claude-v1","index":1,"data":"..."}
//
// Pieces of one index may come one by one, as they were streamed: the first tells the format, and what tells none is
// Claude's. Without any, thinking_blocks in Claude's own shape count (LiteLLM). What has no signature cannot be sent back to
// anyone and is left out, and so is what another vendor's model thought.
func (m *Message) Thoughts(formats ...string) []Thought {
	var list []Thought
	for _, raw := range [...]string{m.Details, m.blocks} {
		if raw == "" || len(list) > 0 {
			continue
		}
		gjson.Parse(raw).ForEach(func(_, e gjson.Result) bool {
			list = gather(list, e)
			return true
		})
	}
	signed := list[:0]
	for _, t := range list {
		asked := slices.ContainsFunc(formats, func(format string) bool { return strings.HasPrefix(t.format, format) })
		if asked && (t.Signature != "" || t.Redacted && t.Text != "") {
			signed = append(signed, t)
		}
	}
	return signed
}

// gather adds an entry to the thoughts before it.
func gather(list []Thought, e gjson.Result) []Thought {
	t := Thought{format: e.Get("format").Str, index: e.Get("index").Raw, Signature: adapter.Inside(e.Get("signature"))}
	switch e.Get("type").Str {
	case "reasoning.text":
		t.Text = adapter.Inside(e.Get("text"))
	case "thinking":
		t.Text = adapter.Inside(e.Get("thinking"))
	case "reasoning.encrypted", "redacted_thinking":
		t.Redacted, t.Text, t.Signature = true, adapter.Inside(e.Get("data")), ""
	default:
		return list
	}
	if n := len(list); n > 0 && t.index != "" && list[n-1].index == t.index && (t.format == "" || t.format == list[n-1].format) {
		last := &list[n-1]
		if t.format = last.format; last.Redacted == t.Redacted {
			last.Text += t.Text
			last.Signature += t.Signature
			return list
		}
	}
	t.format = cmp.Or(t.format, adapter.ThinkingFormat)
	return append(list, t)
}
