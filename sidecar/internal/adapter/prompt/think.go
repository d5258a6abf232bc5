package prompt

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Thought is one block of what Claude thought, as a caller sends it back. Its texts are still escaped.
type Thought struct {
	// Redacted: only Claude can read it. Text is its data, and nothing signs it.
	Redacted        bool
	Text, Signature string
	index           string // raw, of the entry
}

// Thoughts are the blocks of Claude's thinking in an assistant's message. The caller got them as reasoning_details in
// OpenRouter's shape:
//
//	{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"...","signature":"..."}
//	{"type":"reasoning.encrypted","format":"anthropic-claude-v1","index":1,"data":"..."}
//
// Pieces of one index may come one by one, as they were streamed. Without any, thinking_blocks in Claude's own shape count
// (LiteLLM). What has no signature cannot be sent back to anyone and is left out, and so is what another vendor's model
// thought.
func (m *Message) Thoughts() []Thought {
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
		if t.Signature != "" || t.Redacted && t.Text != "" {
			signed = append(signed, t)
		}
	}
	return signed
}

// gather adds an entry to the thoughts before it.
func gather(list []Thought, e gjson.Result) []Thought {
	if f := e.Get("format"); f.Type == gjson.String && !strings.HasPrefix(f.Str, "anthropic") {
		return list
	}
	t := Thought{index: e.Get("index").Raw, Signature: adapter.Inside(e.Get("signature"))}
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
	if n := len(list); n > 0 && t.index != "" && list[n-1].index == t.index && list[n-1].Redacted == t.Redacted {
		list[n-1].Text += t.Text
		list[n-1].Signature += t.Signature
		return list
	}
	return append(list, t)
}
