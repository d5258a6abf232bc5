package anthropic

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
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
	req  *exchange.Request
	note adapter.Annotate

	// head and tail stand around every delta; they are made once, for they are most of every chunk.
	head, tail []byte
	id         string

	block     blockKind
	index     int64  // upstream's, of the open block
	calls     int    // tool_use blocks so far
	callArgs  bool   // the open call's arguments were begun
	callInput string // arguments that came with the open call's start
	thoughts  int    // blocks of thinking so far
	detailed  bool   // the entry of the open one has begun

	begun     bool           // the role chunk was appended
	stop      string         // upstream's stop reason, "" while there is none
	stopNote  []byte         // what else is to be said of it, see appendStop
	broken    bool           // an error was reported
	ended     bool           // End succeeded
	final     bool           // message_delta stated the output tokens
	told      exchange.Usage // what the usage chunk said; no Source before
	counts    counts
	delivered int64
	pieces    int64 // events that delivered something
}

func newStream(r *exchange.Request, a adapter.Annotate) *stream {
	s := &stream{req: r, note: a, id: r.ID}
	s.frame()
	return s
}

// frame makes head and tail anew.
func (s *stream) frame() {
	s.head = append(s.appendStart(s.head[:0]), `,"choices":[{"index":0,"delta":{`...)
	s.tail = append(s.tail[:0], `},"finish_reason":null}]`...)
	s.tail = append(s.tail, s.noUsage()...)
	s.tail = append(s.tail, "}\n\n"...)
}

// noUsage is the member that every chunk but the last has when the caller asked for usage.
func (s *stream) noUsage() string {
	if s.req.IncludeUsage {
		return `,"usage":null`
	}
	return ""
}

// appendStart appends the event up to the members that differ between chunks.
func (s *stream) appendStart(dst []byte) []byte {
	dst = adapter.AppendString(append(dst, `data: {"id":`...), s.id)
	// The provider states no time, and there is no clock here.
	dst = strconv.AppendInt(append(dst, `,"object":"chat.completion.chunk","created":`...), s.req.CreatedUnix, 10)
	return adapter.AppendString(append(dst, `,"model":`...), s.req.Model)
}

// Event takes one upstream event.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	dst, p := s.event(dst, name, data)
	if p.Real {
		s.pieces++
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
		return dst, s.broke(adapter.InvalidAnswer("an event of the provider's stream is not JSON"))
	}
	ev := gjson.ParseBytes(data)
	kind := ev.Get("type").Str
	if kind == "" {
		kind = string(name)
	}
	if detail := ev.Get("error"); kind == "error" || detail.IsObject() {
		return dst, s.broke(reported(detail))
	}
	before, delivered := len(dst), s.delivered
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
		return dst[:before], s.broke(f)
	}
	// A signature or encrypted thinking alone is nothing that a caller would miss.
	return dst, adapter.Progress{Real: s.delivered > delivered}
}

func (s *stream) broke(f *exchange.Failure) adapter.Progress {
	s.broken = true
	return adapter.Progress{Failure: f}
}

func (s *stream) start(m gjson.Result) {
	s.counts.update(m.Get("usage"))
	if id := m.Get("id").Str; id != "" && !s.begun {
		s.id = id
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
		dst = adapter.AppendString(append(dst, `,"id":`...), b.Get("id").Str)
		dst = adapter.AppendString(append(dst, `,"type":"function","function":{"name":`...), b.Get("name").Str)
		dst = append(append(dst, `,"arguments":""}}]`...), s.tail...)
		s.delivered += int64(len(b.Get("name").Str))
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
	s.delivered += size
	return dst
}

// think appends a chunk with a piece of thinking: as text, and as a piece of its block.
func (s *stream) think(dst, escaped []byte, size int64) []byte {
	dst = append(append(s.begin(dst), s.head...), `"reasoning_content":"`...)
	dst = append(append(dst, escaped...), `","reasoning_details":[`...)
	dst = append(append(s.detail(dst), `,"text":"`...), escaped...)
	dst = append(append(dst, `"}]`...), s.tail...)
	s.delivered += size
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
	s.delivered += size
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
	if s.broken || s.stop == "" {
		return dst, &exchange.Failure{
			Kind: exchange.FailCut, Code: adapter.CodeCut, Message: "the provider's stream ended before the answer did",
		}
	}
	s.ended = true
	dst = s.begin(s.closeBlock(dst))
	dst = append(s.appendStart(dst), `,"choices":[{"index":0,"delta":{},"finish_reason":"`...)
	dst = append(append(dst, finishReason(s.stop)...), '"')
	dst = append(append(dst, s.stopNote...), `}]`...)
	dst = append(append(appendTier(dst, s.counts.tier), s.noUsage()...), "}\n\n"...)
	if s.req.IncludeUsage {
		own, u := s.note(nil, s.Usage(), s.Delivered())
		s.told = u
		dst = append(s.appendStart(dst), `,"choices":[],"usage":`...)
		dst = append(appendUsage(dst, u.Tokens), `,"x_gateway":`...)
		dst = append(append(dst, own...), "}\n\n"...)
	}
	return append(dst, sse.Done...), nil
}

// Usage is what the provider has stated so far. The start states one or so output tokens, which stands for a broken
// stream only: one that ended well without a final count is estimated instead.
func (s *stream) Usage() exchange.Usage {
	if s.told.Source != 0 {
		return s.told
	}
	if !s.counts.stated || s.ended && !s.final {
		return exchange.Usage{Source: exchange.FromEstimate}
	}
	return s.counts.usage()
}

// Delivered counts the decoded bytes of text, thinking, tool names and arguments appended so far.
func (s *stream) Delivered() adapter.Delivered {
	return adapter.Delivered{Bytes: s.delivered, Pieces: s.pieces}
}

var doneMark = []byte("[DONE]")
