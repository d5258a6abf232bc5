package openai

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Stream implements adapter.Adapter.
func (native) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return &nativeStream{r: r, note: a, usage: exchange.Usage{Source: exchange.FromEstimate}, model: string(quote(r.Model)), heard: map[int64]bool{}}
}

// heardMax bounds the items that are told apart. Of more, what they say at their end is not counted again.
const heardMax = 1024

// nativeStream passes the events of the Responses API as they come, with the model renamed.
type nativeStream struct {
	r         *exchange.Request
	note      adapter.Annotate
	usage     exchange.Usage
	delivered adapter.Delivered
	model     string
	edits     edits
	templates templates
	holes     []hole
	broken    *exchange.Failure
	failed    []byte         // the failed response that reported it, nil when the caller may not see it
	last      []byte         // the response that is complete, which waits for what it cost; nil for none
	lastName  string         // of its event
	heard     map[int64]bool // items that spoke before they ended, by output_index

	id  string // of the response
	seq int64  // of the next event
}

// eventMembers are those of an event that are read.
type eventMembers struct{ kind, sequence, response, delta, item, index, image, padding span }

// Event implements adapter.Stream.
func (s *nativeStream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if s.broken != nil {
		return dst, adapter.Progress{Failure: s.broken}
	}
	data = bytes.TrimSpace(data)
	if s.last == nil {
		if out, got, ok := s.templates.translate(dst, name, data); ok {
			s.seq = got.number + 1
			s.delivered.Bytes += int64(got.text)
			if got.text > 0 {
				s.delivered.Pieces++
			}
			return out, adapter.Progress{Real: got.text > 0}
		}
	}
	if len(data) == 0 || bytes.HasPrefix(data, []byte("[DONE]")) { // the API has no [DONE], but servers do
		return dst, adapter.Progress{Done: s.last != nil}
	}
	if !adapter.Valid(data) {
		s.broken = invalid("an event of the provider is not JSON")
		return dst, adapter.Progress{Failure: s.broken}
	}
	m := readEvent(data)
	kind := text(data, m.kind)
	if kind == "" {
		kind = string(name)
	}
	if f := s.fault(kind, data, m); f != nil {
		s.broken = f
		return dst, adapter.Progress{Failure: f}
	}
	s.follow(data, m)
	before := s.delivered.Bytes
	real := s.tap(kind, data, m)
	if s.delivered.Bytes > before {
		real = true
	}
	if real {
		s.delivered.Pieces++
	}
	if s.last != nil {
		s.lastName = string(name)
		return dst, adapter.Progress{Real: real, Done: true}
	}
	at := len(dst)
	dst = s.pass(dst, name, data, m.response, nil)
	s.remember(name, data, m, dst[at:])
	return dst, adapter.Progress{Real: real}
}

// remember lets the deltas that are like this one take the fast path: those of the same item, with another text, number
// and padding. That the item has been heard stays true.
func (s *nativeStream) remember(name, data []byte, m eventMembers, event []byte) {
	if m.response.is() || m.image.is() || !hasText(data, m.delta) || !bytes.HasSuffix(data[m.kind.from:m.kind.to], []byte(`.delta"`)) ||
		!m.sequence.is() || bytes.ContainsAny(data, "\r\n") {
		return
	}
	holes := append(s.holes[:0], hole{span: m.sequence, number: true}, hole{span: inside(m.delta), count: true})
	if isText(data, m.padding) {
		holes = append(holes, hole{span: inside(m.padding)})
	}
	slices.SortFunc(holes, func(a, b hole) int { return a.from - b.from })
	s.holes = holes
	s.templates.next().learn(name, data, span{0, len(data)}, event, len(event)-len(data)-len("\n\n"), &s.edits, holes)
}

func inside(text span) span { return span{text.from + 1, text.to - 1} }

func readEvent(data []byte) (m eventMembers) {
	for c := enter(data, span{0, len(data)}); c.next(); {
		if !c.object() {
			return m
		}
		switch string(c.name()) {
		case "type":
			m.kind = c.value
		case "sequence_number":
			m.sequence = c.value
		case "response":
			m.response = c.value
		case "delta":
			m.delta = c.value
		case "item":
			m.item = c.value
		case "output_index":
			m.index = c.value
		case "partial_image_b64":
			m.image = c.value
		case "obfuscation":
			m.padding = c.value
		}
	}
	return m
}

// follow keeps what the gateway's own last events would need.
func (s *nativeStream) follow(data []byte, m eventMembers) {
	s.seq++
	if m.sequence.is() {
		s.seq = gjson.ParseBytes(data[m.sequence.from:m.sequence.to]).Int() + 1
	}
	if s.id == "" {
		s.id = text(data, find(data, m.response, "id"))
	}
}

// fault is the failure that an event reports.
func (s *nativeStream) fault(kind string, data []byte, m eventMembers) *exchange.Failure {
	doc := gjson.ParseBytes(data)
	switch {
	case kind == "response.failed":
		doc = gjson.ParseBytes(data[m.response.from:m.response.to])
		if u := responseUsage(doc); u.Source == exchange.FromProvider {
			s.usage = u
		}
	case kind == "error", !m.kind.is() && truthyMember(doc):
	default:
		return nil
	}
	f := responseFault(doc)
	if f == nil {
		f = responseFault(gjson.Parse(`{"type":"error"}`))
	}
	if kind == "response.failed" && f.Kind != exchange.FailCredential && f.Kind != exchange.FailNotFound { // their texts may quote the key
		s.failed = s.pass(nil, []byte(kind), data, m.response, nil)
	}
	return f
}

// truthyMember says that a document without a type, as servers behind a proxy send it, is an error.
func truthyMember(doc gjson.Result) bool {
	e := doc.Get("error")
	return e.Exists() && truthy([]byte(e.Raw))
}

// tap counts what an event delivers, and reads the usage of the last one. real is set for work that has no text.
func (s *nativeStream) tap(kind string, data []byte, m eventMembers) (real bool) {
	index := gjson.ParseBytes(data[m.index.from:m.index.to]).Int()
	hear := func(n int64) {
		if s.delivered.Bytes += n; n > 0 && len(s.heard) < heardMax {
			s.heard[index] = true
		}
	}
	switch kind {
	case "response.completed", "response.incomplete":
		doc := gjson.ParseBytes(data[m.response.from:m.response.to])
		s.usage, s.last = responseUsage(doc), bytes.Clone(data)
		if s.delivered.Bytes == 0 {
			s.delivered.Bytes = spokenIn(doc.Get("output"))
		}
	case "response.output_item.added":
		if name := find(data, m.item, "name"); isText(data, name) { // a call begins
			hear(int64(textBytes(data, name)))
		}
	case "response.output_item.done":
		item := gjson.ParseBytes(data[m.item.from:m.item.to])
		if !s.heard[index] {
			hear(spokenItem(item))
		}
		switch item.Get("type").Str {
		case "message", "reasoning", "function_call", "custom_tool_call":
		default:
			return true // a tool that the provider ran
		}
	default:
		if strings.HasSuffix(kind, ".delta") && isText(data, m.delta) {
			hear(int64(textBytes(data, m.delta)))
		}
		return hasText(data, m.image)
	}
	return false
}

// pass appends an event as it came, with the response's model renamed, and with own as its x_gateway.
func (s *nativeStream) pass(dst, name, data []byte, response span, own []byte) []byte {
	s.edits.reset()
	signResponse(&s.edits, data, response, s.model, own)
	if len(name) > 0 {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	dst = append(dst, dataField...)
	return append(s.edits.apply(dst, oneLine(data), span{0, len(data)}), "\n\n"...)
}

// End implements adapter.Stream.
func (s *nativeStream) End(dst []byte) ([]byte, *exchange.Failure) {
	switch {
	case s.broken != nil:
		return dst, s.broken
	case s.last == nil:
		return dst, &exchange.Failure{
			Kind: exchange.FailCut, Code: adapter.CodeCut, Message: "the provider's stream ended before it was complete",
		}
	}
	own, u := s.note(nil, s.usage, s.delivered)
	s.usage = u
	return s.pass(dst, []byte(s.lastName), s.last, readEvent(s.last).response, own), nil
}

// Abort implements adapter.Stream. The provider's own word for what broke comes first.
func (s *nativeStream) Abort(dst []byte, f *exchange.Failure) []byte {
	if s.failed != nil {
		return append(dst, s.failed...)
	}
	c := adapter.Told(f)
	return responses.AppendBroken(dst, s.r, responses.Broken{
		Response: s.id, Sequence: s.seq, Code: c.Code, Message: c.Message, Delivered: s.delivered.Bytes,
		Retryable: f.Kind.Failover() && !f.Final,
	})
}

// Usage implements adapter.Stream.
func (s *nativeStream) Usage() exchange.Usage { return s.usage }

// Delivered implements adapter.Stream.
func (s *nativeStream) Delivered() adapter.Delivered { return s.delivered }
