package gemini

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// object reads an answer, which may be wrapped in an array, and the error it may be.
func object(body []byte) (gjson.Result, *exchange.Failure) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || !adapter.Valid(body) {
		return gjson.Result{}, adapter.InvalidAnswer("the provider's answer is not JSON")
	}
	v := gjson.ParseBytes(body)
	if v.IsArray() {
		v = v.Get("0")
	}
	if !v.IsObject() {
		return gjson.Result{}, adapter.InvalidAnswer("the provider's answer is not a JSON object")
	}
	if detail := v.Get("error"); detail.Type != gjson.Null {
		return gjson.Result{}, reported(detail)
	}
	return v, nil
}

// respond turns a complete answer into a chat completion.
func respond(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	answer, f := object(body)
	if f != nil {
		return nil, exchange.Usage{Source: exchange.FromEstimate}, f
	}
	var c counts
	c.update(answer.Get("usageMetadata"))
	use := c.usage(0)
	list := answer.Get("candidates").Array()
	refused := len(list) == 0 && isBlocked(answer)
	if len(list) == 0 && !refused || len(list) > choicesMax {
		return nil, use, adapter.InvalidAnswer("the provider's answer has no candidates")
	}
	id := answer.Get("responseId").Str
	if id == "" {
		id = r.ID
	}
	dst := make([]byte, 0, len(body)+512)
	dst = reply.AppendHead(dst, r, id)
	dst = append(dst, `,"choices":[`...)
	if refused {
		dst = append(dst, `{"index":0,"message":{"role":"assistant","content":"","refusal":null},"logprobs":null,`...)
		dst = append(appendFinish(dst, blocked, 0), '}')
	}
	var delivered int64
	for i, candidate := range list {
		if f := failed(candidate); f != nil {
			return nil, use, f
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		m := message{answer: id, request: r.ID, choice: candidate.Get("index").Int()}
		m.read(candidate.Get("content.parts"))
		cited := citations{text: m.said.Text}
		m.said.Annotations = cited.append(nil, candidate)
		delivered += m.size
		dst = reply.AppendInt(dst, `{"index":`, m.choice)
		dst = m.said.Append(append(dst, `,"message":`...))
		dst = appendLogprobs(append(dst, `,"logprobs":`...), candidate.Get("logprobsResult"))
		dst = append(appendFinish(append(dst, ','), finishOf(candidate), m.calls), '}')
	}
	dst = append(dst, `],"usage":`...)
	own, use := a(nil, c.usage(delivered), adapter.Delivered{Bytes: delivered})
	dst = append(appendUsage(dst, use.Tokens), `,"x_gateway":`...)
	return append(append(dst, own...), '}'), use, nil
}

// finishOf is the finish reason of a candidate that is complete.
func finishOf(candidate gjson.Result) string {
	if reason := candidate.Get("finishReason").Str; reason != "" {
		return reason
	}
	return "STOP"
}

// message is the assistant's message in the making.
type message struct {
	answer, request string // that ids are made of
	choice          int64
	said            reply.Message
	entries, calls  int
	size            int64 // of what the caller reads, decoded
}

// read takes a candidate's parts. Parts of other kinds, such as those of tools the provider runs itself, are left out.
func (m *message) read(parts gjson.Result) {
	parts.ForEach(func(_, p gjson.Result) bool {
		signature := p.Get("thoughtSignature")
		if call := p.Get("functionCall"); call.IsObject() {
			id := callID(call.Get("id").Str, signature.Str, m.answer, m.request, m.choice, m.calls)
			m.said.Calls = appendCall(append(adapter.Comma(m.said.Calls, 0), '{'), call, id, signature.Str)
			m.size += int64(len(call.Get("name").Str) + len(reply.Arguments(call.Get("args"))))
			m.calls++
			return true
		}
		escaped, image := adapter.Inside(p.Get("text")), p.Get("inlineData")
		m.size += int64(len(p.Get("text").Str))
		switch {
		case isDrawn(p, image):
			m.said.Images = appendImage(adapter.Comma(m.said.Images, 0), image)
			m.size += adapter.DrawnBytes
		case escaped == "":
		case p.Get("thought").Bool():
			m.said.Thinking = append(m.said.Thinking, escaped...)
			m.said.Details = appendThought(adapter.Comma(m.said.Details, 0), m.entries, escaped)
			m.entries++
		default:
			m.said.Text = append(m.said.Text, escaped...)
		}
		if sealed := adapter.Inside(signature); sealed != "" {
			m.said.Details = appendSignature(adapter.Comma(m.said.Details, 0), m.entries, sealed)
			m.entries++
		}
		return true
	})
}
