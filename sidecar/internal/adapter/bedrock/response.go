package bedrock

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// respond turns a complete answer of Converse into a chat completion.
func respond(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	none := exchange.Usage{Source: exchange.FromEstimate}
	body = bytes.TrimSpace(body)
	if !adapter.Valid(body) || len(body) == 0 || body[0] != '{' {
		return nil, none, invalidAnswer("the provider's answer is not a JSON object")
	}
	doc := gjson.ParseBytes(body)
	use := usageOf(doc.Get("usage"), doc.Get("serviceTier"))
	stop := doc.Get("stopReason").Str
	if f := malformed(stop); f != nil {
		return nil, use, f
	}
	content := doc.Get("output.message.content")
	if !content.IsArray() {
		return nil, use, invalidAnswer("the provider's answer has no content")
	}
	dst := make([]byte, 0, len(body)+512)
	dst = appendString(append(dst, `{"id":`...), r.ID)
	// The provider states no time, and there is no clock here.
	dst = strconv.AppendInt(append(dst, `,"object":"chat.completion","created":`...), r.CreatedUnix, 10)
	dst = appendString(append(dst, `,"model":`...), r.Model)
	dst = appendTier(dst, use.ServiceTier)
	dst = append(dst, `,"choices":[{"index":0,"message":`...)
	dst = appendMessage(dst, content)
	dst = appendFinish(append(dst, `,"logprobs":null,`...), stop)
	dst = append(dst, `}],"usage":`...)
	own, use := a(nil, use, adapter.Delivered{Bytes: int64(len(content.Raw))})
	dst = append(appendUsage(dst, use.Tokens), `,"x_gateway":`...)
	return append(append(dst, own...), '}'), use, nil
}

// appendMessage appends the assistant's message made of the content blocks. Blocks of other kinds are left out.
func appendMessage(dst []byte, content gjson.Result) []byte {
	var text, thinking, details, calls []byte
	thoughts := 0
	content.ForEach(func(_, b gjson.Result) bool {
		text = append(text, inside(b.Get("text"))...)
		b.Get("citationsContent.content").ForEach(func(_, part gjson.Result) bool {
			text = append(text, inside(part.Get("text"))...)
			return true
		})
		if v := b.Get("reasoningContent"); v.IsObject() {
			thinking = append(thinking, inside(v.Get("reasoningText.text"))...)
			details = appendDetail(comma(details, 0), v, thoughts)
			thoughts++
		}
		if v := b.Get("toolUse"); v.IsObject() {
			calls = appendCall(comma(calls, 0), v)
		}
		return true
	})
	dst = append(dst, `{"role":"assistant","content":`...)
	if len(text) == 0 && len(calls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, '"'), text...), '"')
	}
	dst = append(dst, `,"refusal":null`...)
	if len(thinking) > 0 {
		dst = append(append(append(dst, `,"reasoning_content":"`...), thinking...), '"')
	}
	if len(details) > 0 {
		dst = append(append(append(dst, `,"reasoning_details":[`...), details...), ']')
	}
	if len(calls) > 0 {
		dst = append(append(append(dst, `,"tool_calls":[`...), calls...), ']')
	}
	return append(dst, '}')
}

func appendCall(dst []byte, use gjson.Result) []byte {
	dst = appendString(append(dst, `{"id":`...), use.Get("toolUseId").Str)
	dst = appendString(append(dst, `,"type":"function","function":{"name":`...), use.Get("name").Str)
	input := "{}"
	if v := use.Get("input"); v.IsObject() || v.IsArray() {
		input = compact(v)
	}
	dst = appendString(append(dst, `,"arguments":`...), input)
	return append(dst, "}}"...)
}
