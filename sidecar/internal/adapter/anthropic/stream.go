package anthropic

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// blockKind is what the open content block means to the caller.
type blockKind uint8

const (
	blockNone    blockKind = iota // none is open: deltas are taken by their own type
	blockSpeech                   // text or thinking
	blockTool                     // a call of one of the caller's tools
	blockSkipped                  // all else, also kinds that do not exist yet
)

// stream translates one event stream. Blocks do not interleave, so one open block is all there is to remember.
type stream struct {
	reply.Single

	usual     pieces
	block     blockKind
	index     int64  // upstream's, of the open block
	callArgs  bool   // the open call's arguments were begun
	callInput string // arguments that came with the open call's start
	thoughts  int    // blocks of thinking so far
	detailed  bool   // the entry of the open one has begun

	stop     string // upstream's stop reason, "" while there is none
	stopNote []byte // what else is to be said of it, see appendStop
	ended    bool   // End succeeded
	final    bool   // message_delta stated the output tokens
	counts   counts
}

func newStream(r *exchange.Request, a adapter.Annotate) *stream {
	return &stream{Single: reply.NewSingle(r, a)}
}

// Event takes one upstream event.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	dst, p := s.event(dst, name, data)
	if p.Real {
		s.Sent.Pieces++
	}
	return dst, p
}

func (s *stream) event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if out, ok := s.fast(dst, data); ok {
		return out, adapter.Progress{Real: len(out) > len(dst)}
	}
	if len(bytes.TrimSpace(data)) == 0 || bytes.Equal(data, doneMark) {
		return dst, adapter.Progress{} // proxies that think this is OpenAI's dialect append it
	}
	if !adapter.Valid(data) {
		out, p, ok := adapter.Glued(dst, data, func(dst, line []byte) ([]byte, adapter.Progress) { return s.event(dst, nil, line) })
		if !ok {
			p = s.Broke(adapter.InvalidAnswer("an event of the provider's stream is not JSON"))
		}
		return out, p
	}
	ev := gjson.ParseBytes(data)
	kind := ev.Get("type").Str
	if kind == "" {
		kind = string(name)
	}
	if detail := ev.Get("error"); kind == "error" || detail.IsObject() {
		return dst, s.Broke(reported(detail))
	}
	before, delivered := len(dst), s.Sent.Bytes
	var f *exchange.Failure
	switch kind {
	case "message_start":
		s.start(ev.Get("message"))
	case "content_block_start":
		dst = s.open(dst, ev)
	case "content_block_delta":
		dst, f = s.delta(dst, ev)
	case "content_block_stop":
		dst = s.closeBlock(dst)
	case "message_delta":
		if reason := ev.Get("delta.stop_reason"); reason.Type == gjson.String && reason.Str != "" {
			s.stop = reason.Str
			s.stopNote = appendStop(nil, ev.Get("delta"))
		}
		s.final = s.counts.last(ev.Get("usage")) || s.final
	case "message_stop":
		return dst, adapter.Progress{Done: true}
	}
	if f != nil {
		return dst[:before], s.Broke(f)
	}
	// A signature or encrypted thinking alone is nothing that a caller would miss.
	return dst, adapter.Progress{Real: s.Sent.Bytes > delivered}
}

func (s *stream) start(m gjson.Result) {
	s.counts.update(m.Get("usage"))
	s.Name(m.Get("id").Str)
}

// open begins a block. Some servers put the first text, or the whole input of a call, into its start.
func (s *stream) open(dst []byte, ev gjson.Result) []byte {
	dst = s.closeBlock(dst)
	b := ev.Get("content_block")
	s.index = ev.Get("index").Int()
	switch b.Get("type").Str {
	case "text":
		s.block = blockSpeech
		dst = add(dst, b.Get("text"), s.say)
	case "thinking":
		s.block, s.detailed = blockSpeech, false
		s.thoughts++
		dst = add(dst, b.Get("thinking"), s.think)
		dst = s.sign(dst, b.Get("signature"))
	case "redacted_thinking":
		s.block = blockSkipped // it comes whole
		s.thoughts++
		dst = append(s.Delta(dst), `"reasoning_details":[`...)
		dst = appendDetail(dst, b, s.thoughts-1)
		dst = s.Done(append(dst, ']'))
	case "tool_use":
		s.block, s.callArgs, s.callInput = blockTool, false, reply.Arguments(b.Get("input"))
		dst = s.Call(dst, b.Get("id").Str, b.Get("name").Str)
	default:
		s.block = blockSkipped
	}
	return dst
}

// closeBlock ends the open block. A call without any argument bytes has no arguments, which is {} and not "".
func (s *stream) closeBlock(dst []byte) []byte {
	if s.block == blockTool && !s.callArgs {
		escaped := adapter.AppendString(nil, s.callInput)
		dst = s.arguments(dst, escaped[1:len(escaped)-1], int64(len(s.callInput)))
	}
	s.block = blockNone
	return dst
}

func (s *stream) delta(dst []byte, ev gjson.Result) ([]byte, *exchange.Failure) {
	if s.block == blockSkipped {
		return dst, nil
	}
	d := ev.Get("delta")
	switch d.Get("type").Str {
	case "text_delta":
		return add(dst, d.Get("text"), s.say), nil
	case "thinking_delta":
		return add(dst, d.Get("thinking"), s.think), nil
	case "signature_delta":
		return s.sign(dst, d.Get("signature")), nil
	case "input_json_delta":
		v := d.Get("partial_json")
		if v.IsObject() { // whole, and not as a text
			v = gjson.ParseBytes(adapter.AppendString(nil, adapter.Compact(v)))
		}
		if textSize(v) == 0 {
			return dst, nil
		}
		if index := ev.Get("index"); s.block != blockTool || index.Exists() && index.Int() != s.index {
			return dst, adapter.InvalidAnswer("the provider's stream has arguments of no call that is open")
		}
		return s.arguments(dst, []byte(adapter.Inside(v)), textSize(v)), nil
	}
	return dst, nil
}

// add appends a chunk with text or thinking, nothing for an empty text.
func add(dst []byte, v gjson.Result, with func(dst, escaped []byte, size int64) []byte) []byte {
	escaped := adapter.Inside(v)
	if escaped == "" {
		return dst
	}
	return with(dst, []byte(escaped), textSize(v))
}

// say appends a chunk with a piece of text, given escaped and with its decoded size.
func (s *stream) say(dst, escaped []byte, size int64) []byte {
	dst = append(s.Delta(dst), `"content":"`...)
	s.Sent.Bytes += size
	return s.Done(append(append(dst, escaped...), '"'))
}

// think appends a chunk with a piece of thinking: as text, and as a piece of its block.
func (s *stream) think(dst, escaped []byte, size int64) []byte {
	dst = append(s.Delta(dst), `"reasoning_content":"`...)
	dst = append(append(dst, escaped...), `","reasoning_details":[`...)
	dst = reply.AppendEscaped(s.detail(dst), "text", escaped)
	s.Sent.Bytes += size
	return s.Done(append(dst, `}]`...))
}

// sign appends a chunk with the signature of the open block of thinking, nothing for an empty one.
func (s *stream) sign(dst []byte, v gjson.Result) []byte {
	escaped := adapter.Inside(v)
	if escaped == "" {
		return dst
	}
	dst = append(s.Delta(dst), `"reasoning_details":[`...)
	dst = reply.AppendEscaped(s.detail(dst), "signature", escaped)
	return s.Done(append(dst, `}]`...))
}

// detail begins a piece of the open block of thinking.
func (s *stream) detail(dst []byte) []byte {
	format := adapter.ThinkingFormat
	if s.detailed {
		format = ""
	}
	s.detailed = true
	return reply.OpenThought(dst, format, max(s.thoughts-1, 0), false)
}

// arguments appends a chunk with a piece of the last call's arguments.
func (s *stream) arguments(dst, escaped []byte, size int64) []byte {
	s.callArgs = true
	return s.Arguments(dst, escaped, size)
}

// End appends the finish chunk, the usage chunk if it was asked for, and [DONE].
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	if f := s.Cut(s.stop != ""); f != nil {
		return dst, f
	}
	s.ended = true
	dst = s.Begin(s.closeBlock(dst))
	dst = append(s.Open(dst), `,"choices":[{"index":0,"delta":{},"finish_reason":"`...)
	dst = append(append(dst, finishReason(s.stop, s.Calls())...), '"')
	dst = append(append(dst, s.stopNote...), `}]`...)
	dst = s.Close(appendTier(dst, s.counts.tier))
	return s.Single.End(dst, s.Usage(), "", reply.AppendUsage), nil
}

// Usage is what the provider has stated so far. The start states one or so output tokens, which stands for a broken
// stream only: one that ended well without a final count is estimated instead.
func (s *stream) Usage() exchange.Usage {
	if u, ok := s.Told(); ok {
		return u
	}
	if !s.counts.stated || s.ended && !s.final {
		return exchange.Usage{Source: exchange.FromEstimate}
	}
	return s.counts.usage()
}

var doneMark = []byte("[DONE]")
