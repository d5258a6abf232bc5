package anthropic

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// respond turns a complete message into a chat completion.
func respond(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	none := exchange.Usage{Source: exchange.FromEstimate}
	m, f := reply.Object(body)
	if f != nil {
		return nil, none, f
	}
	if detail := m.Get("error"); detail.Type != gjson.Null || m.Get("type").Str == "error" {
		return nil, none, reported(detail)
	}
	content := m.Get("content")
	if content.Type == gjson.String { // as a request may have it
		content = gjson.Parse(`[{"type":"text","text":` + content.Raw + `}]`)
	}
	if !content.IsArray() {
		return nil, none, adapter.InvalidAnswer("the provider's answer has no content")
	}
	use := none
	var c counts
	if c.update(m.Get("usage")); c.hasOutput {
		use = c.usage()
	}
	id := m.Get("id").Str
	if id == "" {
		id = r.ID
	}
	dst := make([]byte, 0, len(body)+512)
	dst = reply.AppendHead(dst, r, id)
	dst = append(dst, `,"choices":[{"index":0,"message":`...)
	dst, calls := appendMessage(dst, id, content)
	dst = append(dst, `,"logprobs":null,"finish_reason":"`...)
	dst = append(dst, finishReason(m.Get("stop_reason").Str, calls)...)
	dst = append(appendStop(append(dst, '"'), m), `}]`...)
	dst = append(appendTier(dst, c.tier), `,"usage":`...)
	own, use := a(nil, use, adapter.Delivered{Bytes: int64(len(content.Raw))})
	dst = append(reply.AppendUsage(dst, use.Tokens), `,"x_gateway":`...)
	return append(append(dst, own...), '}'), use, nil
}

// appendStop appends to a choice what its finish_reason does not say of the end, in the provider's words: the caller may
// have to send a paused turn again, for example. Its reason has the name that it has for every provider, and Anthropic's.
// m has the stop reason.
func appendStop(dst []byte, m gjson.Result) []byte {
	switch reason := m.Get("stop_reason").Str; reason {
	case "", "end_turn", "max_tokens", "tool_use":
		return dst
	default:
		reason = adapter.Trimmed(reason)
		dst = adapter.AppendString(append(dst, `,"native_finish_reason":`...), reason)
		dst = adapter.AppendString(append(dst, `,"stop_reason":`...), reason)
	}
	if s := m.Get("stop_sequence"); s.Type == gjson.String {
		dst = append(append(dst, `,"stop_sequence":`...), s.Raw...)
	}
	if d := m.Get("stop_details"); d.IsObject() {
		dst = append(append(dst, `,"stop_details":`...), adapter.Compact(d)...)
	}
	return dst
}

// appendTier appends the tier that the answer was served at, by the caller's name.
func appendTier(dst []byte, tier string) []byte {
	if tier == "standard" {
		tier = "default"
	}
	return reply.AppendTier(dst, tier)
}

// appendMessage appends the assistant's message made of an answer's content blocks. Blocks of other kinds, such as those of
// tools the provider runs itself, are left out. calls is how many there are.
func appendMessage(dst []byte, answer string, content gjson.Result) (out []byte, calls int) {
	var m reply.Message
	thoughts := 0
	content.ForEach(func(_, b gjson.Result) bool {
		switch b.Get("type").Str {
		case "text":
			m.Text = append(m.Text, adapter.Inside(b.Get("text"))...)
		case "thinking", "redacted_thinking":
			m.Thinking = append(m.Thinking, adapter.Inside(b.Get("thinking"))...)
			m.Details = appendDetail(adapter.Comma(m.Details, 0), b, thoughts)
			thoughts++
		case "tool_use":
			m.Calls = append(adapter.Comma(m.Calls, 0), '{')
			m.Calls = append(reply.AppendCall(m.Calls, cmp.Or(b.Get("id").Str, adapter.CallID(answer, 0, calls)), b.Get("name").Str, reply.Arguments(b.Get("input"))), '}')
			calls++
		}
		return true
	})
	return m.Append(dst), calls
}

// appendDetail appends the entry of reasoning_details for a block of thinking.
func appendDetail(dst []byte, b gjson.Result, index int) []byte {
	t := prompt.Thought{Text: adapter.Inside(b.Get("thinking")), Signature: adapter.Inside(b.Get("signature"))}
	if t.Redacted = b.Get("type").Str == "redacted_thinking"; t.Redacted {
		t.Text = adapter.Inside(b.Get("data"))
	}
	return reply.AppendThought(dst, adapter.ThinkingFormat, index, t)
}
