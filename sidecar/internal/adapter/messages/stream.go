package messages

import (
	"bytes"
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// stream turns the chunks of an inner stream into Anthropic's events. One block is open at a time, as in Anthropic's
// own streams.
type stream struct {
	adapter.Stream
	r       *exchange.Request
	chat    []byte // what the inner stream appended last
	started bool
	open    string // kind of the open block, "" for none
	block   int    // its index
	call    int64  // index of the open tool call in the chunks
	stop    string
	gateway json.RawMessage
}

// Event implements adapter.Stream.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	var p adapter.Progress
	s.chat, p = s.Stream.Event(s.chat[:0], name, data)
	if p.Failure != nil {
		return dst, p
	}
	before := len(dst)
	dst, ok := s.translate(dst)
	if !ok {
		p.Failure = interleaved()
		return dst[:before], p
	}
	return dst, p
}

// End implements adapter.Stream.
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	var f *exchange.Failure
	if s.chat, f = s.Stream.End(s.chat[:0]); f != nil {
		return dst, f
	}
	before := len(dst)
	dst, ok := s.translate(dst)
	if !ok {
		return dst[:before], interleaved()
	}
	dst = s.close(s.start(dst, gjson.Result{}))
	delta := object{
		"type": "message_delta", "delta": object{"stop_reason": stopReason(s.stop), "stop_sequence": nil},
		"usage": usage(s.Usage().Tokens),
	}
	if s.gateway != nil {
		delta["x_gateway"] = s.gateway
	}
	return event(event(dst, "message_delta", delta), "message_stop", object{"type": "message_stop"}), nil
}

// interleaved is the failure of a stream that goes back to an earlier call, which Anthropic's cannot say.
func interleaved() *exchange.Failure {
	return &exchange.Failure{Kind: exchange.FailInvalid, Message: "the provider's tool calls are interleaved"}
}

// Abort implements adapter.Stream.
func (s *stream) Abort(dst []byte, f *exchange.Failure) []byte {
	s.chat = s.Stream.Abort(s.chat[:0], f)
	e := gjson.GetBytes(bytes.TrimPrefix(s.chat, []byte("data: ")), "error")
	kind := "api_error"
	switch f.Kind {
	case exchange.FailOverloaded:
		kind = "overloaded_error"
	case exchange.FailRateLimited:
		kind = "rate_limit_error"
	case exchange.FailTimeout:
		kind = "timeout_error"
	}
	return event(dst, "error", object{"type": "error", "error": object{
		"type": kind, "message": e.Get("message").Str, "details": json.RawMessage(e.Raw),
	}})
}

// translate appends what becomes of the chunks in s.chat.
func (s *stream) translate(dst []byte) ([]byte, bool) {
	for rest := s.chat; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n\n"))
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok || data[0] != '{' {
			continue // [DONE]
		}
		chunk := gjson.ParseBytes(data)
		dst = s.start(dst, chunk)
		if x := chunk.Get("x_gateway"); x.Exists() {
			s.gateway = json.RawMessage(x.Raw)
		}
		c := chunk.Get("choices.0")
		if finish := c.Get("finish_reason").Str; finish != "" {
			s.stop = finish
		}
		if dst, ok = s.delta(dst, c.Get("delta")); !ok {
			return dst, false
		}
	}
	return dst, true
}

func (s *stream) delta(dst []byte, d gjson.Result) ([]byte, bool) {
	if text := d.Get("reasoning_content").Str; text != "" {
		dst = s.piece(s.begin(dst, "thinking", object{"type": "thinking", "thinking": "", "signature": ""}),
			object{"type": "thinking_delta", "thinking": text})
	}
	for _, detail := range d.Get("reasoning_details").Array() {
		switch {
		case detail.Get("type").Str == "reasoning.encrypted":
			dst = s.begin(s.close(dst), "redacted_thinking", object{"type": "redacted_thinking", "data": detail.Get("data").Str})
			dst = s.close(dst)
		case detail.Get("signature").Str != "":
			dst = s.piece(s.begin(dst, "thinking", object{"type": "thinking", "thinking": "", "signature": ""}),
				object{"type": "signature_delta", "signature": detail.Get("signature").Str})
		}
	}
	for _, name := range [...]string{"content", "refusal"} {
		if text := d.Get(name).Str; text != "" {
			dst = s.piece(s.begin(dst, "text", object{"type": "text", "text": ""}), object{"type": "text_delta", "text": text})
		}
	}
	for _, c := range d.Get("tool_calls").Array() {
		if index := c.Get("index").Int(); s.open != "tool_use" || index != s.call {
			if index <= s.call {
				return dst, false
			}
			s.call = index
			dst = s.begin(s.close(dst), "tool_use", object{
				"type": "tool_use", "id": c.Get("id").Str, "name": c.Get("function.name").Str, "input": object{},
			})
		}
		if arguments := c.Get("function.arguments").Str; arguments != "" {
			dst = s.piece(dst, object{"type": "input_json_delta", "partial_json": arguments})
		}
	}
	return dst, true
}

// start appends message_start, once.
func (s *stream) start(dst []byte, chunk gjson.Result) []byte {
	if s.started {
		return dst
	}
	s.started = true
	return event(dst, "message_start", object{"type": "message_start", "message": object{
		"id": chunk.Get("id").Str, "type": "message", "role": "assistant", "model": s.r.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": usage(exchange.Tokens{}),
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
	dst = event(dst, "content_block_stop", object{"type": "content_block_stop", "index": s.block})
	s.open = ""
	s.block++
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
