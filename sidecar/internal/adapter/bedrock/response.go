package bedrock

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// respond turns a complete answer of Converse into a chat completion.
func respond(r *exchange.Request, body []byte, format string, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	none := exchange.Usage{Source: exchange.FromEstimate}
	doc, f := reply.Object(body)
	if f != nil {
		return nil, none, f
	}
	use := usageOf(doc.Get("usage"), doc.Get("serviceTier"))
	stop := doc.Get("stopReason").Str
	if f := malformed(stop); f != nil {
		return nil, use, f
	}
	content := doc.Get("output.message.content")
	if !content.IsArray() {
		return nil, use, adapter.InvalidAnswer("the provider's answer has no content")
	}
	dst := make([]byte, 0, len(body)+512)
	dst = reply.AppendHead(dst, r, r.ID)
	dst = reply.AppendTier(dst, use.ServiceTier)
	dst = append(dst, `,"choices":[{"index":0,"message":`...)
	dst, calls := appendMessage(dst, r.ID, format, content)
	dst = appendFinish(append(dst, `,"logprobs":null,`...), stop, calls)
	dst = append(dst, `}],"usage":`...)
	own, use := a(nil, use, adapter.Delivered{Bytes: int64(len(content.Raw))})
	dst = append(reply.AppendUsage(dst, use.Tokens), `,"x_gateway":`...)
	return append(append(dst, own...), '}'), use, nil
}

// appendMessage appends the assistant's message made of an answer's content blocks. Blocks of other kinds are left out.
// calls is how many there are.
func appendMessage(dst []byte, answer, format string, content gjson.Result) (out []byte, calls int) {
	var m reply.Message
	thoughts := 0
	content.ForEach(func(_, b gjson.Result) bool {
		m.Text = append(m.Text, adapter.Inside(b.Get("text"))...)
		b.Get("citationsContent.content").ForEach(func(_, part gjson.Result) bool {
			m.Text = append(m.Text, adapter.Inside(part.Get("text"))...)
			return true
		})
		if v := b.Get("reasoningContent"); v.IsObject() {
			m.Thinking = append(m.Thinking, adapter.Inside(v.Get("reasoningText.text"))...)
			m.Details = appendDetail(adapter.Comma(m.Details, 0), format, v, thoughts)
			thoughts++
		}
		if v := b.Get("toolUse"); v.IsObject() {
			m.Calls = append(adapter.Comma(m.Calls, 0), '{')
			m.Calls = append(reply.AppendCall(m.Calls, cmp.Or(v.Get("toolUseId").Str, adapter.CallID(answer, 0, calls)), v.Get("name").Str, reply.Arguments(v.Get("input"))), '}')
			calls++
		}
		return true
	})
	return m.Append(dst), calls
}

// appendDetail appends the entry of reasoning_details for a block of thinking.
func appendDetail(dst []byte, format string, reasoning gjson.Result, index int) []byte {
	text, data := reasoning.Get("reasoningText"), reasoning.Get("redactedContent")
	t := prompt.Thought{Text: adapter.Inside(text.Get("text")), Signature: adapter.Inside(text.Get("signature"))}
	if t.Redacted = data.Exists(); t.Redacted {
		t.Text = adapter.Inside(data)
	}
	return reply.AppendThought(dst, format, index, t)
}
