package anthropic

import (
	"bytes"
	"strconv"
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
)

// Event implements adapter.Stream.
func (s *nativeStream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if p, ok := readPiece(data); ok {
		s.delivered += p.size
		return s.pass(dst, "content_block_delta", data), s.real(p.size > 0)
	}
	if len(bytes.TrimSpace(data)) == 0 || bytes.Equal(data, doneMark) {
		return dst, adapter.Progress{}
	}
	if !adapter.Valid(data) {
		return dst, s.broke(invalidAnswer("an event of the provider's stream is not JSON"))
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
		u := ev.Get("usage")
		s.counts.update(u)
		s.final = s.final || u.Get("output_tokens").Type != gjson.Null
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
	n := textSize(inside(b.Get("text"))) + textSize(inside(b.Get("thinking")))
	if strings.HasSuffix(kind, "tool_use") {
		n += textSize(inside(b.Get("name")))
		if input := compact(b.Get("input")); input != "{}" {
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
		n += textSize(inside(d.Get(name)))
	}
	s.delivered += n
	return n > 0
}

// End implements adapter.Stream. A stream that gave its stop reason is complete even if it lacks message_stop, which
// client libraries wait for.
func (s *nativeStream) End(dst []byte) ([]byte, *exchange.Failure) {
	if s.broken || s.stop == "" {
		return dst, &exchange.Failure{
			Kind: exchange.FailCut, Code: codeCut, Message: "the provider's stream ended before the answer did",
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

// Abort implements adapter.Stream.
func (s *nativeStream) Abort(dst []byte, f *exchange.Failure) []byte {
	kind, code, message := caller(f)
	return adapter.AppendMessagesError(dst, f, adapter.MessagesError{
		Message: message, Type: kind, Code: code, Delivered: s.delivered,
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

// Replay implements adapter.Replayer: the events of a message that came whole.
func (n *Native) Replay(_ *exchange.Request, body []byte, u exchange.Usage) adapter.Stream {
	return &replay{message: gjson.GetBytes(body, "@ugly"), usage: u}
}

type replay struct {
	message   gjson.Result
	usage     exchange.Usage
	delivered int64
}

// Event implements adapter.Stream: there are none.
func (p *replay) Event(dst, _, _ []byte) ([]byte, adapter.Progress) { return dst, adapter.Progress{} }

// Abort implements adapter.Stream: it cannot break.
func (p *replay) Abort(dst []byte, _ *exchange.Failure) []byte { return dst }

// Usage implements adapter.Stream.
func (p *replay) Usage() exchange.Usage { return p.usage }

// Delivered implements adapter.Stream.
func (p *replay) Delivered() adapter.Delivered { return adapter.Delivered{Bytes: p.delivered} }

// End appends the whole stream. Blocks of text, thinking and tool calls come as a start and a delta, as client libraries
// put them together; others come whole in their start.
func (p *replay) End(dst []byte) ([]byte, *exchange.Failure) {
	emit := func(kind, rest string) {
		dst = sse.AppendEvent(dst, kind, []byte(`{"type":"`+kind+`",`+rest+`}`))
	}
	head := members(p.message, func(name string) string {
		return map[string]string{"content": "[]", "stop_reason": "null", "stop_sequence": "null", "x_gateway": "-", "stop_details": "-"}[name]
	})
	emit("message_start", `"message":`+head)
	for i, b := range p.message.Get("content").Array() {
		at := `"index":` + strconv.Itoa(i)
		start, deltas := blockEvents(b)
		p.delivered += int64(len(b.Raw))
		emit("content_block_start", at+`,"content_block":`+start)
		for _, d := range deltas {
			emit("content_block_delta", at+`,"delta":`+d)
		}
		emit("content_block_stop", at)
	}
	delta := members(p.message, func(name string) string {
		switch name {
		case "stop_reason", "stop_sequence", "stop_details", "container":
			return ""
		}
		return "-"
	})
	end := `"delta":` + delta
	for _, name := range [...]string{"usage", "x_gateway"} {
		if v := p.message.Get(name); v.IsObject() {
			end += `,"` + name + `":` + v.Raw
		}
	}
	emit(eventDelta, end)
	return sse.AppendEvent(dst, eventStop, []byte(`{"type":"message_stop"}`)), nil
}

// members is an object with what change says in place of its members: "" leaves one as it is, "-" leaves it out.
func members(object gjson.Result, change func(name string) string) string {
	out := "{"
	object.ForEach(func(k, v gjson.Result) bool {
		value := change(k.Str)
		switch value {
		case "-":
			return true
		case "":
			value = v.Raw
		}
		if len(out) > 1 {
			out += ","
		}
		out += k.Raw + ":" + value
		return true
	})
	return out + "}"
}

// blockEvents are the start of a block and its deltas.
func blockEvents(b gjson.Result) (start string, deltas []string) {
	emptied := map[string]string{}
	take := func(name, empty, kind, field string) {
		v := b.Get(name)
		if v.Raw == "" || v.Raw == empty || v.Type == gjson.Null {
			return
		}
		emptied[name] = empty
		value := v.Raw
		if field == "partial_json" {
			value = string(appendString(nil, v.Raw))
		}
		deltas = append(deltas, `{"type":"`+kind+`","`+field+`":`+value+`}`)
	}
	switch kind := b.Get("type").Str; {
	case kind == "text":
		take("text", `""`, "text_delta", "text")
		for _, c := range b.Get("citations").Array() {
			emptied["citations"] = "[]"
			deltas = append(deltas, `{"type":"citations_delta","citation":`+c.Raw+`}`)
		}
	case kind == "thinking":
		take("thinking", `""`, "thinking_delta", "thinking")
		take("signature", `""`, "signature_delta", "signature")
	case strings.HasSuffix(kind, "tool_use"):
		take("input", "{}", "input_json_delta", "partial_json")
	}
	return members(b, func(name string) string { return emptied[name] }), deltas
}
