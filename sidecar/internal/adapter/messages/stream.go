package messages

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// stream turns the chunks of an inner stream into Anthropic's events. One block is open at a time, as in Anthropic's
// own streams.
type stream struct {
	adapter.Retold
	r       *exchange.Request
	started bool
	open    string          // kind of the open block, "" for none
	block   int             // its index
	call    call            // the open one
	waiting []call          // for it to end
	held    int             // bytes of their arguments
	next    int64           // calls with smaller indices have begun
	extra   json.RawMessage // that came for the open call after its start
	signed  bool            // the open block of thinking has its signature
	claude  bool            // the entry of reasoning_details in hand is Claude's: its first piece says so
	entry   string          // its index
	others  []gjson.Result  // pieces of other vendors' entries, for the signature of the open block of thinking or the next
	room    int             // bytes of them
	end     ending
	tier    string
	gateway json.RawMessage
}

// Event implements adapter.Stream.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	return s.Pass(dst, name, data, s)
}

// End implements adapter.Stream.
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	dst, f := s.Finish(dst, s)
	if f != nil {
		return dst, f
	}
	dst = s.release(s.start(dst, gjson.Result{}), true)
	if len(s.others) > 0 {
		dst = s.think(dst)
	}
	dst = s.close(dst)
	delta := object{"type": "message_delta", "delta": s.end.members(), "usage": usage(s.Usage(), s.tier)}
	if s.gateway != nil {
		delta["x_gateway"] = s.gateway
	}
	return event(event(dst, "message_delta", delta), "message_stop", object{"type": "message_stop"}), nil
}

// interleaved is the failure of a stream that goes on with a call that was complete, which Anthropic's cannot say.
func interleaved() *exchange.Failure {
	return &exchange.Failure{
		Kind: exchange.FailInvalid, Code: adapter.CodeInvalidAnswer, Message: "the provider's tool calls are interleaved",
	}
}

// Ping implements adapter.Pinger.
func (s *stream) Ping() string { return adapter.MessagesPing }

// Abort implements adapter.Stream.
func (s *stream) Abort(dst []byte, f *exchange.Failure) []byte {
	e := s.Fault(f)
	return adapter.AppendMessagesError(dst, f, adapter.MessagesError{
		Message: e.Get("message").Str, Type: e.Get("type").Str, Code: e.Get("code").Str, Delivered: s.Delivered().Bytes,
	})
}

// Tell implements adapter.Teller.
func (s *stream) Tell(dst []byte, chunk gjson.Result) ([]byte, *exchange.Failure) {
	dst = s.start(dst, chunk)
	if x := chunk.Get("x_gateway"); x.Exists() {
		s.gateway = json.RawMessage(x.Raw)
	}
	if tier := chunk.Get("service_tier").Str; tier != "" {
		s.tier = tier
	}
	c := chunk.Get("choices.0")
	s.end.take(c)
	delta := c.Get("delta")
	dst = s.delta(dst, delta)
	dst, ok := s.calls(dst, adapter.Calls(chunk.Get("id").Str, delta))
	if !ok {
		return dst, interleaved()
	}
	return dst, nil
}

// Say implements adapter.Teller.
func (s *stream) Say(dst, escaped []byte, thought bool) ([]byte, *exchange.Failure) {
	if thought {
		return appendText(s.think(dst), s.block, thinkingDelta, escaped), nil
	}
	return appendText(s.speak(dst), s.block, textDelta, escaped), nil
}

// The deltas of a text, up to it.
const (
	textDelta     = `"text_delta","text":"`
	thinkingDelta = `"thinking_delta","thinking":"`

	argumentsDelta = `"input_json_delta","partial_json":"`
)

// appendText appends a delta with a piece of a text, as it stands escaped.
func appendText[T string | []byte](dst []byte, block int, delta string, escaped T) []byte {
	dst = append(dst, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	dst = append(append(strconv.AppendInt(dst, int64(block), 10), `,"delta":{"type":`...), delta...)
	return append(append(dst, escaped...), "\"}}\n\n"...)
}

// delta takes in what a delta says besides calls.
func (s *stream) delta(dst []byte, d gjson.Result) []byte {
	if text := adapter.Inside(d.Get("reasoning_content")); text != "" {
		dst = appendText(s.think(dst), s.block, thinkingDelta, text)
	}
	for _, detail := range d.Get("reasoning_details").Array() {
		dst = s.detail(dst, detail)
	}
	for _, name := range [...]string{"content", "refusal"} {
		if text := adapter.Inside(d.Get(name)); text != "" {
			s.end.refused = s.end.refused || name == "refusal"
			dst = appendText(s.speak(dst), s.block, textDelta, text)
		}
	}
	for _, a := range d.Get("annotations").Array() {
		if c := citation(a); c != nil {
			dst = s.piece(s.speak(dst), object{"type": "citations_delta", "citation": c})
		}
	}
	for _, image := range d.Get("images").Array() {
		if block := drawn(image); block != nil {
			dst = s.whole(dst, block)
		}
	}
	return dst
}

// speak opens a block of text, unless one is open.
func (s *stream) speak(dst []byte) []byte {
	if s.open == "text" {
		return dst
	}
	return s.begin(dst, "text", object{"type": "text", "text": ""})
}

// think opens a block of thinking, unless one is open that has not been signed.
func (s *stream) think(dst []byte) []byte {
	switch {
	case s.open != "thinking":
	case s.signed:
		dst = s.close(dst)
	default:
		return dst
	}
	return s.begin(dst, "thinking", object{"type": "thinking", "thinking": "", "signature": ""})
}

// detail takes a piece of an entry of reasoning_details. Its text has come as reasoning_content. What comes within a text or
// a call waits: it must not cut them in two.
func (s *stream) detail(dst []byte, d gjson.Result) []byte {
	if index := d.Get("index").Raw; index != s.entry || d.Get("format").Exists() {
		s.entry, s.claude = index, isClaude(d)
	}
	switch signature := d.Get("signature").Str; {
	case !s.claude:
		if s.room += len(d.Raw); s.room <= foreignMax {
			s.others = append(s.others, gjson.Parse(d.Raw))
		}
		if s.open == "" || s.open == "thinking" {
			dst = s.think(dst)
		}
	case d.Get("type").Str == "reasoning.encrypted":
		dst = s.whole(dst, object{"type": "redacted_thinking", "data": d.Get("data").Str})
	case signature != "":
		dst = s.piece(s.think(dst), object{"type": "signature_delta", "signature": signature})
		s.signed = true
	}
	return dst
}

// whole appends a block that comes in one piece.
func (s *stream) whole(dst []byte, block object) []byte {
	return s.close(s.begin(s.close(dst), "whole", block))
}

// start appends message_start, once.
func (s *stream) start(dst []byte, chunk gjson.Result) []byte {
	if s.started {
		return dst
	}
	s.started, s.end.sequences = true, stopSequences(s.r)
	return event(dst, "message_start", object{"type": "message_start", "message": object{
		"id": cmp.Or(chunk.Get("id").Str, s.r.ID), "type": "message", "role": "assistant", "model": s.r.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil,
		"usage": usage(exchange.Usage{Tokens: exchange.Tokens{Input: s.r.InputEstimate}}, ""),
	}})
}

// begin opens a block of a kind, unless one is open.
func (s *stream) begin(dst []byte, kind string, block object) []byte {
	if s.open == kind {
		return dst
	}
	dst = s.close(dst)
	s.open = kind
	return event(dst, "content_block_start", object{"type": "content_block_start", "index": s.block, "content_block": block})
}

func (s *stream) piece(dst []byte, delta object) []byte {
	return event(dst, "content_block_delta", object{"type": "content_block_delta", "index": s.block, "delta": delta})
}

// close ends the open block.
func (s *stream) close(dst []byte) []byte {
	if s.open == "" {
		return dst
	}
	if s.open == "thinking" && !s.signed {
		dst = s.piece(dst, object{"type": "signature_delta", "signature": foreign{Details: joined(s.others)}.signature()})
		s.others, s.room = nil, 0
	}
	dst = event(dst, "content_block_stop", object{"type": "content_block_stop", "index": s.block})
	s.open, s.signed = "", false
	s.block++
	if s.extra != nil {
		extra := gjson.ParseBytes(s.extra)
		s.extra = nil
		dst = s.whole(dst, kept(s.call.id, extra))
	}
	return dst
}

// event appends a server-sent event. Its payload is made of strings, numbers and valid JSON: it cannot fail.
func event(dst []byte, name string, payload object) []byte {
	b, err := json.Marshal(payload)
	if err != nil {
		panic("BUG: messages: " + err.Error())
	}
	return append(append(append(append(append(dst, "event: "...), name...), "\ndata: "...), b...), "\n\n"...)
}
