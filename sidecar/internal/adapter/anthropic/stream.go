package anthropic

import (
	"bytes"
	"strconv"

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
	reply.Chunks

	// head and tail stand around every delta; they are made once, for they are most of every chunk.
	head, tail []byte

	block     blockKind
	index     int64  // upstream's, of the open block
	calls     int    // tool_use blocks so far
	callArgs  bool   // the open call's arguments were begun
	callInput string // arguments that came with the open call's start
	thoughts  int    // blocks of thinking so far
	detailed  bool   // the entry of the open one has begun

	begun    bool   // the role chunk was appended
	stop     string // upstream's stop reason, "" while there is none
	stopNote []byte // what else is to be said of it, see appendStop
	ended    bool   // End succeeded
	final    bool   // message_delta stated the output tokens
	counts   counts
}

func newStream(r *exchange.Request, a adapter.Annotate) *stream {
	s := &stream{Chunks: reply.NewChunks(r, a)}
	s.frame()
	return s
}

// frame makes head and tail anew.
func (s *stream) frame() {
	s.head = append(s.Open(s.head[:0]), `,"choices":[{"index":0,"delta":{`...)
	s.tail = s.Close(append(s.tail[:0], `},"finish_reason":null}]`...))
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
		return dst, s.Broke(adapter.InvalidAnswer("an event of the provider's stream is not JSON"))
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
		u := ev.Get("usage")
		s.counts.update(u)
		s.final = s.final || u.Get("output_tokens").Type != gjson.Null
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
	if id := m.Get("id").Str; id != "" && !s.begun {
		s.ID = id
		s.frame()
	}
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
		dst = append(append(s.begin(dst), s.head...), `"reasoning_details":[`...)
		dst = appendDetail(dst, b, s.thoughts-1)
		dst = append(append(dst, ']'), s.tail...)
	case "tool_use":
		s.block, s.callArgs, s.callInput = blockTool, false, arguments(b)
		dst = s.begin(dst)
		dst = appendIndex(append(append(dst, s.head...), `"tool_calls":[`...), s.calls)
		dst = reply.AppendCall(append(dst, ','), b.Get("id").Str, b.Get("name").Str, "")
		dst = append(append(dst, `}]`...), s.tail...)
		s.Sent.Bytes += int64(len(b.Get("name").Str))
		s.calls++
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
		fragment := adapter.Inside(d.Get("partial_json"))
		if s.block != blockTool || fragment == "" {
			return dst, nil
		}
		if index := ev.Get("index"); index.Exists() && index.Int() != s.index {
			return dst, adapter.InvalidAnswer("the provider's stream mixes the arguments of two calls")
		}
		return s.arguments(dst, []byte(fragment), textSize(fragment)), nil
	}
	return dst, nil
}

// add appends a chunk with text or thinking, nothing for an empty text.
func add(dst []byte, v gjson.Result, with func(dst, escaped []byte, size int64) []byte) []byte {
	escaped := adapter.Inside(v)
	if escaped == "" {
		return dst
	}
	return with(dst, []byte(escaped), textSize(escaped))
}

// say appends a chunk with a piece of text, given escaped and with its decoded size.
func (s *stream) say(dst, escaped []byte, size int64) []byte {
	dst = append(append(s.begin(dst), s.head...), `"content":"`...)
	dst = append(append(append(dst, escaped...), '"'), s.tail...)
	s.Sent.Bytes += size
	return dst
}

// think appends a chunk with a piece of thinking: as text, and as a piece of its block.
func (s *stream) think(dst, escaped []byte, size int64) []byte {
	dst = append(append(s.begin(dst), s.head...), `"reasoning_content":"`...)
	dst = append(append(dst, escaped...), `","reasoning_details":[`...)
	dst = append(append(s.detail(dst), `,"text":"`...), escaped...)
	dst = append(append(dst, `"}]`...), s.tail...)
	s.Sent.Bytes += size
	return dst
}

// sign appends a chunk with the signature of the open block of thinking, nothing for an empty one.
func (s *stream) sign(dst []byte, v gjson.Result) []byte {
	escaped := adapter.Inside(v)
	if escaped == "" {
		return dst
	}
	dst = append(append(s.begin(dst), s.head...), `"reasoning_details":[`...)
	dst = append(append(s.detail(dst), `,"signature":"`...), escaped...)
	return append(append(dst, `"}]`...), s.tail...)
}

// detail begins a piece of the open block of thinking.
func (s *stream) detail(dst []byte) []byte {
	dst = append(dst, detailText...)
	if !s.detailed {
		s.detailed = true
		dst = append(dst, detailFormat...)
	}
	return strconv.AppendInt(append(dst, `,"index":`...), int64(max(s.thoughts-1, 0)), 10)
}

// arguments appends a chunk with a piece of the last call's arguments.
func (s *stream) arguments(dst, escaped []byte, size int64) []byte {
	s.callArgs = true
	dst = s.begin(dst)
	dst = appendIndex(append(append(dst, s.head...), `"tool_calls":[`...), s.calls-1)
	dst = append(append(dst, `,"function":{"arguments":"`...), escaped...)
	dst = append(append(dst, `"}}]`...), s.tail...)
	s.Sent.Bytes += size
	return dst
}

// begin appends the role chunk, once.
func (s *stream) begin(dst []byte) []byte {
	if s.begun {
		return dst
	}
	s.begun = true
	return append(append(append(dst, s.head...), `"role":"assistant","content":""`...), s.tail...)
}

// End appends the finish chunk, the usage chunk if it was asked for, and [DONE].
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	if f := s.Cut(s.stop != ""); f != nil {
		return dst, f
	}
	s.ended = true
	dst = s.begin(s.closeBlock(dst))
	dst = append(s.Open(dst), `,"choices":[{"index":0,"delta":{},"finish_reason":"`...)
	dst = append(append(dst, finishReason(s.stop)...), '"')
	dst = append(append(dst, s.stopNote...), `}]`...)
	dst = s.Close(appendTier(dst, s.counts.tier))
	return s.Chunks.End(dst, s.Usage(), "", reply.AppendUsage), nil
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
