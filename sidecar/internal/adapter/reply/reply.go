// Package reply writes what callers of chat read, completions and streams of chunks, for the adapters of providers that
// speak another dialect. It is the counterpart of package prompt: texts come and go escaped, as they stood in the
// provider's answer.
package reply

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Object reads a provider's answer, which must be one JSON object.
func Object(body []byte) (gjson.Result, *exchange.Failure) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' || !adapter.Valid(body) {
		return gjson.Result{}, adapter.InvalidAnswer("the provider's answer is not a JSON object")
	}
	return gjson.ParseBytes(body), nil
}

// AppendHead appends the first members of a completion, without the brace, up to the alias as its model. Providers state
// no time, and there is no clock here: it is the request's.
func AppendHead(dst []byte, r *exchange.Request, id string) []byte {
	return appendHead(append(dst, '{'), r, id, "chat.completion")
}

func appendHead(dst []byte, r *exchange.Request, id, object string) []byte {
	dst = adapter.AppendString(append(dst, `"id":`...), id)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = strconv.AppendInt(dst, r.CreatedUnix, 10)
	return adapter.AppendString(append(dst, `,"model":`...), r.Model)
}

// AppendUsage appends a usage object: the prompt's tokens with the cached ones.
func AppendUsage(dst []byte, t exchange.Tokens) []byte {
	dst = AppendInt(dst, `{"prompt_tokens":`, t.Prompt())
	dst = AppendInt(dst, `,"completion_tokens":`, t.Completion())
	dst = AppendInt(dst, `,"total_tokens":`, t.Total())
	dst = AppendInt(dst, `,"prompt_tokens_details":{"cached_tokens":`, t.CacheRead)
	dst = AppendInt(dst, `,"cache_write_tokens":`, t.CacheWrite5m+t.CacheWrite1h)
	dst = AppendInt(dst, `},"completion_tokens_details":{"reasoning_tokens":`, t.Reasoning)
	return append(dst, "}}"...)
}

// AppendInt appends a number behind what stands before it.
func AppendInt(dst []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(dst, before...), n, 10)
}

// AppendTier appends the service_tier member, nothing when the provider named none.
func AppendTier(dst []byte, tier string) []byte {
	if tier == "" {
		return dst
	}
	return adapter.AppendString(append(dst, `,"service_tier":`...), tier)
}

// AppendCall appends the members of a tool call from its id to its arguments, and leaves it open.
func AppendCall(dst []byte, id, name, arguments string) []byte {
	dst = adapter.AppendString(append(dst, `"id":`...), id)
	dst = adapter.AppendString(append(dst, `,"type":"function","function":{"name":`...), name)
	return append(adapter.AppendString(append(dst, `,"arguments":`...), arguments), '}')
}

// Arguments are those of a call as the text that callers expect; providers send an object, and some the text itself.
func Arguments(v gjson.Result) string {
	switch {
	case v.IsObject(), v.IsArray():
		return adapter.Compact(v)
	case v.Str != "":
		return v.Str
	}
	return "{}"
}

// Message is the assistant's message of a complete answer.
type Message struct {
	Text, Thinking []byte // escaped
	// Of annotations, reasoning_details, images and tool_calls, comma separated.
	Annotations, Details, Images, Calls []byte
}

// Append appends the message.
func (m *Message) Append(dst []byte) []byte {
	dst = append(dst, `{"role":"assistant","content":`...)
	if len(m.Text) == 0 && len(m.Calls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, '"'), m.Text...), '"')
	}
	dst = append(dst, `,"refusal":null`...)
	if len(m.Annotations) > 0 {
		dst = append(append(append(dst, `,"annotations":[`...), m.Annotations...), ']')
	}
	if len(m.Thinking) > 0 {
		dst = append(append(append(dst, `,"reasoning_content":"`...), m.Thinking...), '"')
	}
	if len(m.Details) > 0 {
		dst = append(append(append(dst, `,"reasoning_details":[`...), m.Details...), ']')
	}
	if len(m.Images) > 0 {
		dst = append(append(append(dst, `,"images":[`...), m.Images...), ']')
	}
	if len(m.Calls) > 0 {
		dst = append(append(append(dst, `,"tool_calls":[`...), m.Calls...), ']')
	}
	return append(dst, '}')
}
