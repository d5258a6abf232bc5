package anthropic

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
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
	dst = appendMessage(dst, content)
	dst = append(dst, `,"logprobs":null,"finish_reason":"`...)
	dst = append(dst, finishReason(m.Get("stop_reason").Str)...)
	dst = append(appendStop(append(dst, '"'), m), `}]`...)
	dst = append(appendTier(dst, c.tier), `,"usage":`...)
	own, use := a(nil, use, adapter.Delivered{Bytes: int64(len(content.Raw))})
	dst = append(reply.AppendUsage(dst, use.Tokens), `,"x_gateway":`...)
	return append(append(dst, own...), '}'), use, nil
}

// appendStop appends to a choice what its finish_reason does not say of the end, in the provider's words: the caller may
// have to send a paused turn again, for example. m has the stop reason.
func appendStop(dst []byte, m gjson.Result) []byte {
	switch reason := m.Get("stop_reason").Str; reason {
	case "", "end_turn", "max_tokens", "tool_use":
		return dst
	default:
		dst = adapter.AppendString(append(dst, `,"stop_reason":`...), adapter.Trimmed(reason))
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

// appendMessage appends the assistant's message made of the content blocks. Blocks of other kinds, such as those of
// tools the provider runs itself, are left out.
func appendMessage(dst []byte, content gjson.Result) []byte {
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
			m.Calls = append(reply.AppendCall(m.Calls, b.Get("id").Str, b.Get("name").Str, arguments(b)), '}')
		}
		return true
	})
	return m.Append(dst)
}

// appendDetail appends the entry of reasoning_details for a block of thinking.
func appendDetail(dst []byte, b gjson.Result, index int) []byte {
	member := func(name, value string) {
		dst = append(append(append(append(dst, `,"`...), name...), `":"`...), value...)
		dst = append(dst, '"')
	}
	if b.Get("type").Str == "redacted_thinking" {
		dst = append(dst, detailEncrypted+detailFormat+`,"index":`...)
		dst = strconv.AppendInt(dst, int64(index), 10)
		member("data", adapter.Inside(b.Get("data")))
		return append(dst, '}')
	}
	dst = append(dst, detailText+detailFormat+`,"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	member("text", adapter.Inside(b.Get("thinking")))
	member("signature", adapter.Inside(b.Get("signature")))
	return append(dst, '}')
}

// arguments is a tool_use block's input as the text the caller expects.
func arguments(b gjson.Result) string {
	if input := b.Get("input"); input.IsObject() {
		return adapter.Compact(input)
	}
	return "{}"
}

// appendIndex appends {"index":N of a tool call in a stream.
func appendIndex(dst []byte, n int) []byte {
	return strconv.AppendInt(append(dst, `{"index":`...), int64(n), 10)
}
