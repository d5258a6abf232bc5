package anthropic

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// nativeStream passes events on and reads along.
type nativeStream struct {
	req  *exchange.Request
	note adapter.Annotate

	usual     pieces
	counts    counts
	told      exchange.Usage // what the end said; no Source before
	stop      string         // the stop reason, "" while there is none
	final     bool           // message_delta stated the output tokens
	broken    bool
	ended     bool
	last      []byte // the newest message_delta, held back: the last one gets x_gateway. nil for none
	stopEvent []byte // message_stop as it came, nil when it did not
	delivered int64
	pieces    int64
}

func newNativeStream(r *exchange.Request, a adapter.Annotate) *nativeStream {
	return &nativeStream{req: r, note: a}
}

const (
	eventDelta = "message_delta"
	eventStop  = "message_stop"
	deltaName  = "event: content_block_delta\n"
	dataField  = "data: "
)

// Event implements adapter.Stream.
func (s *nativeStream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	p, size, ok := s.usual.read(data)
	if !ok {
		return s.read(dst, name, data)
	}
	s.delivered += size
	if s.last != nil {
		dst = s.flush(dst)
	}
	if len(data) > p.to+len(`"}}`) { // padding, which may hold line ends
		dst = sse.AppendData(append(dst, deltaName...), data)
	} else {
		dst = append(append(append(dst, deltaName+dataField...), data...), "\n\n"...)
	}
	return dst, s.real(size > 0)
}

// read takes an event that is not an ordinary delta.
func (s *nativeStream) read(dst, name, data []byte) ([]byte, adapter.Progress) {
	if len(bytes.TrimSpace(data)) == 0 || bytes.Equal(data, doneMark) {
		return dst, adapter.Progress{}
	}
	if !adapter.Valid(data) {
		out, p, ok := adapter.Glued(dst, data, func(dst, line []byte) ([]byte, adapter.Progress) { return s.Event(dst, nil, line) })
		if !ok {
			p = s.broke(adapter.InvalidAnswer("an event of the provider's stream is not JSON"))
		}
		return out, p
	}
	ev := gjson.ParseBytes(data)
	kind := ev.Get("type").Str
	if kind == "" {
		kind = strings.ToValidUTF8(string(name), "")
	}
	if detail := ev.Get("error"); kind == "error" || kind == "" && detail.IsObject() {
		return dst, s.broke(reported(detail))
	}
	said := false
	switch kind {
	case "message_start":
		s.counts.update(ev.Get("message.usage"))
		data = renamed(data, ev.Get("message.model"), s.req.Model)
	case "content_block_start":
		said = s.begins(ev.Get("content_block"))
	case "content_block_delta":
		said = s.says(ev.Get("delta"))
	case eventDelta:
		if reason := ev.Get("delta.stop_reason"); reason.Type == gjson.String && reason.Str != "" {
			s.stop = reason.Str
		}
		s.final = s.counts.last(ev.Get("usage")) || s.final
		dst = s.flush(dst)
		s.last = bytes.Clone(data)
		return dst, adapter.Progress{}
	case eventStop:
		s.stopEvent = bytes.Clone(data)
		return dst, adapter.Progress{Done: true}
	}
	return s.pass(dst, kind, data), s.real(said)
}

func (s *nativeStream) broke(f *exchange.Failure) adapter.Progress {
	s.broken = true
	return adapter.Progress{Failure: f}
}

func (s *nativeStream) real(said bool) adapter.Progress {
	if said {
		s.pieces++
	}
	return adapter.Progress{Real: said}
}

// pass appends an event as it came, and before it what was held back.
func (s *nativeStream) pass(dst []byte, kind string, data []byte) []byte {
	return appendEvent(s.flush(dst), kind, data)
}

// appendEvent appends an event of this kind. Kinds are the provider's: one that is no word goes unnamed.
func appendEvent(dst []byte, kind string, data []byte) []byte {
	if strings.ContainsAny(kind, "\r\n") {
		kind = ""
	}
	return sse.AppendEvent(dst, kind, data)
}

func (s *nativeStream) flush(dst []byte) []byte {
	if s.last != nil {
		dst = sse.AppendEvent(dst, eventDelta, s.last)
		s.last = nil
	}
	return dst
}

// begins takes the start of a block. What the provider's own tools found is as good as a token to who waits.
func (s *nativeStream) begins(b gjson.Result) bool {
	kind := b.Get("type").Str
	n := textSize(b.Get("text")) + textSize(b.Get("thinking"))
	if strings.HasSuffix(kind, "tool_use") {
		n += textSize(b.Get("name"))
		if input := adapter.Compact(b.Get("input")); input != "{}" {
			n += int64(len(input))
		}
	}
	s.delivered += n
	return n > 0 || strings.HasSuffix(kind, "_result")
}

// says takes a delta that is not of the usual spelling. A signature alone is nothing that a caller would miss.
func (s *nativeStream) says(d gjson.Result) bool {
	n := int64(0)
	for _, name := range [...]string{"text", "thinking", "partial_json", "content"} {
		n += textSize(d.Get(name))
	}
	s.delivered += n
	return n > 0
}

// textSize is how many bytes the text v has, 0 for what is none.
func textSize(v gjson.Result) int64 {
	if v.Type != gjson.String {
		return 0
	}
	return int64(len(v.Str))
}

// End implements adapter.Stream. A stream that gave its stop reason is complete even if it lacks message_stop, which
// client libraries wait for.
func (s *nativeStream) End(dst []byte) ([]byte, *exchange.Failure) {
	if s.broken || s.stop == "" {
		return dst, &exchange.Failure{
			Kind: exchange.FailCut, Code: adapter.CodeCut, Message: "the provider's stream ended before the answer did",
		}
	}
	s.ended = true
	own, u := s.note(nil, s.Usage(), s.Delivered())
	s.told = u
	if s.last != nil {
		s.last = annotated(s.last, own)
	}
	dst = s.flush(dst)
	if s.stopEvent == nil {
		s.stopEvent = []byte(`{"type":"message_stop"}`)
	}
	return sse.AppendEvent(dst, eventStop, s.stopEvent), nil
}

// Ping implements adapter.Pinger.
func (s *nativeStream) Ping() string { return adapter.MessagesPing }

// Abort implements adapter.Stream.
func (s *nativeStream) Abort(dst []byte, f *exchange.Failure) []byte {
	c := adapter.Told(f)
	return adapter.AppendMessagesError(dst, f, adapter.MessagesError{
		Message: c.Message, Type: c.Type, Code: c.Code, Delivered: s.delivered,
	})
}

// Usage implements adapter.Stream.
func (s *nativeStream) Usage() exchange.Usage {
	if s.told.Source != 0 {
		return s.told
	}
	if !s.counts.stated || s.ended && !s.final {
		return exchange.Usage{Source: exchange.FromEstimate}
	}
	return s.counts.usage()
}

// Delivered implements adapter.Stream.
func (s *nativeStream) Delivered() adapter.Delivered {
	return adapter.Delivered{Bytes: s.delivered, Pieces: s.pieces}
}
