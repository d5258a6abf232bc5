package responses

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// stream turns the chunks of an inner stream into the events of the Responses API.
type stream struct {
	adapter.Retold
	writer
	r *exchange.Request
}

// Event implements adapter.Stream.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	return s.Pass(dst, name, data, s)
}

// End implements adapter.Stream. The API has no [DONE]: the response itself is the last event.
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	dst, f := s.Finish(dst, s)
	if f != nil {
		return dst, f
	}
	if s.head.id == "" { // not one chunk
		s.name(s.r, "")
	}
	dst = s.end(dst)
	response, status := s.result(usage(s.Usage().Tokens))
	return s.event(dst, "response."+status, `"response":`+string(response.raw())), nil
}

// Say implements adapter.Teller.
func (s *stream) Say(dst, escaped []byte, thought bool) ([]byte, *exchange.Failure) {
	before := len(dst)
	if thought {
		dst = s.summary(dst, escaped)
	} else {
		dst = s.text(dst, false, escaped)
	}
	if !s.fits() {
		return dst[:before], tooMuch()
	}
	return dst, nil
}

// Tell implements adapter.Teller.
func (s *stream) Tell(dst []byte, chunk gjson.Result) ([]byte, *exchange.Failure) {
	if !s.begun {
		s.name(s.r, chunk.Get("id").Str)
		dst = s.begin(dst)
	}
	s.chunk(chunk)
	choice := chunk.Get("choices.0")
	if v := choice.Get("finish_reason"); v.Type == gjson.String {
		s.finish = v.Str
	}
	s.weigh(choice.Get("logprobs"))
	dst, ok := s.delta(dst, choice.Get("delta"))
	if !ok {
		return dst, tooMuch()
	}
	return dst, nil
}

// Abort implements adapter.Stream.
func (s *stream) Abort(dst []byte, f *exchange.Failure) []byte {
	e := s.Fault(f)
	if s.head.id == "" { // not one chunk
		s.name(s.r, "")
	}
	return AppendBroken(dst, s.r, Broken{
		Response: "resp_" + s.head.id, Sequence: s.seq, Code: e.Get("code").Str, Message: cmp.Or(e.Get("message").Str, f.Message),
		Delivered: s.Delivered().Bytes, Retryable: e.Get("retryable").Bool(),
	})
}
