package responses

import (
	"bytes"
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// stream turns the chunks of an inner stream into the events of the Responses API.
type stream struct {
	adapter.Stream
	writer
	r    *exchange.Request
	chat []byte // what the inner stream appended last
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
		p.Failure = tooMuch()
		return dst[:before], p
	}
	return dst, p
}

// End implements adapter.Stream. The API has no [DONE]: the response itself is the last event.
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	var f *exchange.Failure
	if s.chat, f = s.Stream.End(s.chat[:0]); f != nil {
		return dst, f
	}
	before := len(dst)
	dst, ok := s.translate(dst)
	if !ok {
		return dst[:before], tooMuch()
	}
	if s.head.id == "" { // not one chunk
		s.name(s.r, "")
	}
	dst = s.end(dst)
	response, status := s.result(usage(s.Usage().Tokens))
	return s.event(dst, "response."+status, `"response":`+string(response.raw())), nil
}

// translate appends what becomes of the chunks in s.chat.
func (s *stream) translate(dst []byte) ([]byte, bool) {
	for rest := s.chat; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n\n"))
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok || len(data) == 0 || data[0] != '{' {
			continue // [DONE]
		}
		in := gjson.ParseBytes(data)
		if !s.begun {
			s.name(s.r, in.Get("id").Str)
			dst = s.begin(dst)
		}
		s.chunk(in)
		choice := in.Get("choices.0")
		if v := choice.Get("finish_reason"); v.Type == gjson.String {
			s.finish = v.Str
		}
		s.weigh(choice.Get("logprobs"))
		if dst, ok = s.delta(dst, choice.Get("delta")); !ok {
			return dst, false
		}
	}
	return dst, true
}

// Abort implements adapter.Stream.
func (s *stream) Abort(dst []byte, f *exchange.Failure) []byte {
	s.chat = s.Stream.Abort(s.chat[:0], f)
	e := gjson.GetBytes(bytes.TrimPrefix(s.chat, []byte("data: ")), "error")
	return AppendBroken(dst, s.r, Broken{
		Response: "resp_" + s.head.id, Sequence: s.seq, Code: e.Get("code").Str, Message: cmp.Or(e.Get("message").Str, f.Message),
		Delivered: s.Delivered().Bytes, Retryable: e.Get("retryable").Bool(),
	})
}
