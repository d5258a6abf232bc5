package bedrock

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// conversation translates one stream of Converse. Blocks do not interleave, so one open block is all there is to
// remember. Only calls have a start; other blocks begin with their first delta.
type conversation struct {
	reply.Single

	tool     bool   // the open block is a call
	index    int64  // upstream's, of the open call
	callArgs bool   // the open call's arguments were begun
	block    int64  // upstream's index of the last block of thinking
	format   string // of what the model thinks
	thoughts int    // blocks of thinking so far
	detailed bool   // the entry of the open one has begun

	form      adapter.Form // of the newest delta of a text
	formThink bool         // which was thought
	formBlock int64        // upstream's index of its block

	stop  string         // upstream's stop reason, "" while there is none
	usage exchange.Usage // what the provider stated; of its tokens or its tier
}

func newConversation(r *exchange.Request, format string, a adapter.Annotate) *conversation {
	return &conversation{Single: reply.NewSingle(r, a), format: format, block: -1, usage: exchange.Usage{Source: exchange.FromEstimate}}
}

const deltaEvent = "contentBlockDelta"

// Event takes one upstream event.
func (s *conversation) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if out, ok := s.fast(dst, name, data); ok {
		s.Sent.Pieces++
		return out, adapter.Progress{Real: true}
	}
	if f := exception(name, data); f != nil {
		return dst, s.Broke(f)
	}
	if !known(name) {
		return dst, adapter.Progress{}
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
	case deltaEvent:
		dst, f = s.delta(dst, ev)
		s.learn(data, ev)
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

// known reports whether an event is one of those that are read. Others may hold anything, or nothing.
func known(name []byte) bool {
	switch string(name) {
	case "contentBlockStart", deltaEvent, "contentBlockStop", "messageStop", "metadata":
		return true
	}
	return false
}

// open begins a call.
func (s *conversation) open(dst []byte, ev gjson.Result) []byte {
	dst = s.closeCall(dst)
	use := ev.Get("start.toolUse")
	if !use.IsObject() {
		return dst
	}
	s.tool, s.callArgs, s.index = true, false, ev.Get("contentBlockIndex").Int()
	return s.Call(dst, use.Get("toolUseId").Str, use.Get("name").Str)
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
	if text := d.Get("text"); text.Str != "" {
		return s.say(dst, []byte(adapter.Inside(text)), int64(len(text.Str))), nil
	}
	if reasoning := d.Get("reasoningContent"); reasoning.IsObject() {
		return s.reason(dst, reasoning, index), nil
	}
	input := d.Get("toolUse.input")
	if input.IsObject() { // whole, and not as a text
		input = gjson.ParseBytes(adapter.AppendString(nil, adapter.Compact(input)))
	}
	fragment := adapter.Inside(input)
	switch {
	case fragment == "":
		return dst, nil
	case !s.tool || index != s.index:
		return dst, adapter.InvalidAnswer("the provider's stream has arguments of no call that is open")
	}
	return s.arguments(dst, fragment, int64(len(input.Str))), nil
}

// say appends a chunk with a piece of text, given escaped and with its decoded size.
func (s *conversation) say(dst, escaped []byte, size int64) []byte {
	dst = append(s.Delta(s.closeCall(dst)), `"content":"`...)
	s.Sent.Bytes += size
	return s.Done(append(append(dst, escaped...), '"'))
}

// reason appends a chunk with a piece of thinking, or with what signs it.
func (s *conversation) reason(dst []byte, reasoning gjson.Result, index int64) []byte {
	if text := reasoning.Get("text"); text.Str != "" {
		return s.think(dst, []byte(adapter.Inside(text)), int64(len(text.Str)), index)
	}
	member, value := "data", adapter.Inside(reasoning.Get("redactedContent"))
	if value == "" {
		member, value = "signature", adapter.Inside(reasoning.Get("signature"))
	}
	dst = s.closeCall(dst)
	s.enter(index)
	if value == "" {
		return dst
	}
	dst = s.detail(append(s.Delta(dst), `"reasoning_details":[`...), member == "data")
	return s.Done(append(reply.AppendEscaped(dst, member, value), `}]`...))
}

// think appends a chunk with a piece of thinking: as text, and as a piece of its block.
func (s *conversation) think(dst, escaped []byte, size, index int64) []byte {
	s.enter(index)
	dst = append(s.Delta(s.closeCall(dst)), `"reasoning_content":"`...)
	dst = s.detail(append(append(dst, escaped...), `","reasoning_details":[`...), false)
	s.Sent.Bytes += size
	return s.Done(append(reply.AppendEscaped(dst, "text", escaped), `}]`...))
}

// enter notes that a block of thinking goes on, or begins.
func (s *conversation) enter(index int64) {
	if index != s.block {
		s.block, s.detailed = index, false
		s.thoughts++
	}
}

// detail begins a piece of the open block of thinking.
func (s *conversation) detail(dst []byte, redacted bool) []byte {
	format := s.format
	if s.detailed {
		format = ""
	}
	s.detailed = true
	return reply.OpenThought(dst, format, s.thoughts-1, redacted)
}

// arguments appends a chunk with a piece of the last call's arguments.
func (s *conversation) arguments(dst []byte, escaped string, size int64) []byte {
	s.callArgs = true
	return s.Arguments(dst, []byte(escaped), size)
}

// End appends the finish chunk, the usage chunk if it was asked for, and [DONE].
func (s *conversation) End(dst []byte) ([]byte, *exchange.Failure) {
	if f := malformed(s.stop); f != nil {
		return dst, f
	}
	if f := s.Cut(s.stop != ""); f != nil {
		return dst, f
	}
	dst = s.Begin(s.closeCall(dst))
	tier := string(reply.AppendTier(nil, s.usage.ServiceTier))
	dst = append(append(s.Open(dst), tier...), `,"choices":[{"index":0,"delta":{},`...)
	dst = s.Close(append(appendFinish(dst, s.stop, s.Calls()), "}]"...))
	return s.Single.End(dst, s.usage, tier, reply.AppendUsage), nil
}

// Usage is what the provider has stated: it comes last, all at once.
func (s *conversation) Usage() exchange.Usage {
	if u, ok := s.Told(); ok {
		return u
	}
	return s.usage
}
