package bedrock

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// conversation translates one stream of Converse. Blocks do not interleave, so one open block is all there is to
// remember. Only calls have a start; other blocks begin with their first delta.
type conversation struct {
	reply.Chunks

	// head and tail stand around every delta; they are made once, for they are most of every chunk.
	head, tail []byte

	tool     bool  // the open block is a call
	index    int64 // upstream's, of the open call
	calls    int   // so far
	callArgs bool  // the open call's arguments were begun
	block    int64 // upstream's index of the last block of thinking
	thoughts int   // blocks of thinking so far
	detailed bool  // the entry of the open one has begun

	begun bool           // the role chunk was appended
	stop  string         // upstream's stop reason, "" while there is none
	usage exchange.Usage // what the provider stated; of its tokens or its tier
}

func newConversation(r *exchange.Request, a adapter.Annotate) *conversation {
	s := &conversation{Chunks: reply.NewChunks(r, a), block: -1, usage: exchange.Usage{Source: exchange.FromEstimate}}
	s.head = append(s.Open(nil), `,"choices":[{"index":0,"delta":{`...)
	s.tail = s.Close([]byte(`},"finish_reason":null}]`))
	return s
}

// Event takes one upstream event.
func (s *conversation) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if f := exception(name, data); f != nil {
		return dst, s.Broke(f)
	}
	if !adapter.Valid(data) {
		return dst, s.Broke(adapter.InvalidAnswer("an event of the provider's stream is not JSON"))
	}
	ev := gjson.ParseBytes(data)
	before, delivered := len(dst), s.Sent.Bytes
	var f *exchange.Failure
	switch string(name) {
	case "contentBlockStart":
		dst = s.open(dst, ev)
	case "contentBlockDelta":
		dst, f = s.delta(dst, ev)
	case "contentBlockStop":
		dst = s.closeCall(dst)
	case "messageStop":
		if s.stop = ev.Get("stopReason").Str; s.stop == "" {
			s.stop = "end_turn"
		}
	case "metadata": // the last
		s.usage = usageOf(ev.Get("usage"), ev.Get("serviceTier"))
		return dst, adapter.Progress{Done: s.stop != ""}
	}
	if f != nil {
		return dst[:before], s.Broke(f)
	}
	// A signature or encrypted thinking alone is nothing that a caller would miss.
	if s.Sent.Bytes > delivered {
		s.Sent.Pieces++
		return dst, adapter.Progress{Real: true}
	}
	return dst, adapter.Progress{}
}

// open begins a call.
func (s *conversation) open(dst []byte, ev gjson.Result) []byte {
	dst = s.closeCall(dst)
	use := ev.Get("start.toolUse")
	if !use.IsObject() {
		return dst
	}
	s.tool, s.callArgs, s.index = true, false, ev.Get("contentBlockIndex").Int()
	dst = strconv.AppendInt(append(append(s.begin(dst), s.head...), `"tool_calls":[{"index":`...), int64(s.calls), 10)
	dst = reply.AppendCall(append(dst, ','), use.Get("toolUseId").Str, use.Get("name").Str, "")
	dst = append(append(dst, `}]`...), s.tail...)
	s.Sent.Bytes += int64(len(use.Get("name").Str))
	s.calls++
	return dst
}

// closeCall ends the open call, if there is one. One without any argument bytes has no arguments, which is {} and not "".
func (s *conversation) closeCall(dst []byte) []byte {
	if s.tool && !s.callArgs {
		dst = s.arguments(dst, "{}", 2)
	}
	s.tool = false
	return dst
}

func (s *conversation) delta(dst []byte, ev gjson.Result) ([]byte, *exchange.Failure) {
	index, d := ev.Get("contentBlockIndex").Int(), ev.Get("delta")
	if text := d.Get("text"); text.Exists() {
		return s.say(s.closeCall(dst), text), nil
	}
	if reasoning := d.Get("reasoningContent"); reasoning.IsObject() {
		return s.think(s.closeCall(dst), reasoning, index), nil
	}
	input := d.Get("toolUse.input")
	fragment := adapter.Inside(input)
	switch {
	case fragment == "":
		return dst, nil
	case !s.tool || index != s.index:
		return dst, adapter.InvalidAnswer("the provider's stream has arguments of no call that is open")
	}
	return s.arguments(dst, fragment, int64(len(input.Str))), nil
}

// say appends a chunk with a piece of text, nothing for an empty one.
func (s *conversation) say(dst []byte, text gjson.Result) []byte {
	if text.Str == "" {
		return dst
	}
	dst = append(append(s.begin(dst), s.head...), `"content":"`...)
	dst = append(append(append(dst, adapter.Inside(text)...), '"'), s.tail...)
	s.Sent.Bytes += int64(len(text.Str))
	return dst
}

// think appends a chunk with a piece of thinking: as text, and as a piece of its block, with what signs it.
func (s *conversation) think(dst []byte, reasoning gjson.Result, index int64) []byte {
	if index != s.block {
		s.block, s.detailed = index, false
		s.thoughts++
	}
	text, data := reasoning.Get("text"), reasoning.Get("redactedContent")
	member, value := "text", adapter.Inside(text)
	switch {
	case value != "":
		dst = append(append(append(s.begin(dst), s.head...), `"reasoning_content":"`...), value...)
		dst = append(dst, `",`...)
		s.Sent.Bytes += int64(len(text.Str))
	case adapter.Inside(data) != "":
		member, value = "data", adapter.Inside(data)
		dst = append(s.begin(dst), s.head...)
	default:
		if member, value = "signature", adapter.Inside(reasoning.Get("signature")); value == "" {
			return dst
		}
		dst = append(s.begin(dst), s.head...)
	}
	dst = append(dst, `"reasoning_details":[`...)
	if member == "data" {
		dst = append(dst, detailEncrypted...)
	} else {
		dst = append(dst, detailText...)
	}
	if !s.detailed {
		s.detailed = true
		dst = append(dst, detailFormat...)
	}
	dst = strconv.AppendInt(append(dst, `,"index":`...), int64(s.thoughts-1), 10)
	dst = append(append(append(append(dst, `,"`...), member...), `":"`...), value...)
	return append(append(dst, `"}]`...), s.tail...)
}

// arguments appends a chunk with a piece of the last call's arguments.
func (s *conversation) arguments(dst []byte, escaped string, size int64) []byte {
	s.callArgs = true
	dst = strconv.AppendInt(append(append(s.begin(dst), s.head...), `"tool_calls":[{"index":`...), int64(s.calls-1), 10)
	dst = append(append(dst, `,"function":{"arguments":"`...), escaped...)
	s.Sent.Bytes += size
	return append(append(dst, `"}}]`...), s.tail...)
}

// begin appends the role chunk, once.
func (s *conversation) begin(dst []byte) []byte {
	if s.begun {
		return dst
	}
	s.begun = true
	return append(append(append(dst, s.head...), `"role":"assistant","content":""`...), s.tail...)
}

// End appends the finish chunk, the usage chunk if it was asked for, and [DONE].
func (s *conversation) End(dst []byte) ([]byte, *exchange.Failure) {
	if f := malformed(s.stop); f != nil {
		return dst, f
	}
	if f := s.Cut(s.stop != ""); f != nil {
		return dst, f
	}
	dst = s.begin(s.closeCall(dst))
	tier := string(reply.AppendTier(nil, s.usage.ServiceTier))
	dst = append(append(s.Open(dst), tier...), `,"choices":[{"index":0,"delta":{},`...)
	dst = s.Close(append(appendFinish(dst, s.stop), "}]"...))
	return s.Chunks.End(dst, s.usage, tier, reply.AppendUsage), nil
}

// Usage is what the provider has stated: it comes last, all at once.
func (s *conversation) Usage() exchange.Usage {
	if u, ok := s.Told(); ok {
		return u
	}
	return s.usage
}
