package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	dataField = "data: "
	doneEvent = "data: [DONE]\n\n"
	// closingBytesMax is the longest usage chunk that is kept as it came; of a longer one the numbers stay.
	closingBytesMax = 16 << 10
)

// Stream implements adapter.Adapter.
func (*Adapter) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return &stream{
		r: r, note: a, choices: map[int64]*choice{}, usage: exchange.Usage{Source: exchange.FromEstimate},
		model: string(quote(r.Model)),
	}
}

// stream passes chunks as they come, but for what the mender and the members below change.
type stream struct {
	mender
	r       *exchange.Request
	note    adapter.Annotate
	usage   exchange.Usage
	asStood []byte // the usage object as it stood
	choices map[int64]*choice
	done    bool              // [DONE] was seen
	pieces  int64             // events that delivered something
	broken  *exchange.Failure // nothing that follows makes it a success

	// id and created are those of the first chunk with a choice: some servers change them in mid-stream.
	model, id, created string // raw JSON
	tier               string // the newest service_tier, raw JSON
	// closing is the chunk that stated the usage, which becomes the last one.
	closing   []byte
	templates templates
}

// choice is what is known of one choice so far.
type choice struct {
	role     bool // the role has been sent
	finished bool
	calls    []*call
	lists    int // tool_calls lists so far
}

// Event implements adapter.Stream.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if s.broken != nil {
		return dst, adapter.Progress{Failure: s.broken}
	}
	data = bytes.TrimSpace(data)
	if out, got, ok := s.templates.translate(dst, name, data); ok {
		s.delivered += int64(got.text)
		if got.text > 0 {
			s.pieces++
		}
		return out, adapter.Progress{Real: got.text > 0}
	}
	if s.done = s.done || bytes.HasPrefix(data, []byte("[DONE]")); s.done {
		return dst, adapter.Progress{Done: true}
	}
	if len(data) == 0 {
		return dst, adapter.Progress{}
	}
	if !adapter.Valid(data) {
		out, p, ok := adapter.Glued(dst, data, func(dst, line []byte) ([]byte, adapter.Progress) { return s.Event(dst, name, line) })
		if !ok {
			p.Failure = invalid("a chunk of the provider is not JSON")
			s.broken = p.Failure
		}
		return out, p
	}
	before, delivered := len(dst), s.delivered
	dst, f := s.event(dst, name, data)
	s.end()
	if f != nil {
		s.broken, s.delivered = f, delivered
		return dst[:before], adapter.Progress{Failure: f}
	}
	if s.delivered > delivered {
		s.pieces++
	}
	return dst, adapter.Progress{Real: s.delivered > delivered}
}

func (s *stream) event(dst, name, data []byte) ([]byte, *exchange.Failure) {
	data = oneLine(data)
	v := span{0, len(data)}
	if data[0] == '[' { // Google wraps errors in an array
		c := enter(data, v)
		if !c.next() {
			return dst, nil
		}
		v = c.value
	}
	if own := fromOllama(data, s.r, true); len(own) != len(data) {
		data, v = own, whole(own)
	}
	s.begin(data)
	if string(name) == "error" {
		return dst, errorEvent(s.raw(v))
	}
	return s.chunk(dst, name, v)
}

// errorEvent reads an event that is an error by its name: without an error member, the whole of it is one.
func errorEvent(data []byte) *exchange.Failure {
	doc := gjson.ParseBytes(data)
	if f := inBand(doc); f != nil {
		return f
	}
	f := failureOf(0, noHeader, data)
	f.Kind = kindOfType(doc.Get("type").Str, f)
	return f
}

// chunk passes the chunk v. What has no choice left is not sent on: usage chunks go out at the end, and the filter
// annotations of Azure have nothing for callers who know OpenAI.
func (s *stream) chunk(dst, name []byte, v span) ([]byte, *exchange.Failure) {
	top := s.top(v)
	usage := s.read(top) // of an error too: what was used before it
	if hasText(s.data, top.tier) && string(s.raw(top.tier)) != s.tier {
		s.tier = string(s.raw(top.tier))
		s.usage.ServiceTier = tierOf(gjson.Parse(s.tier))
	}
	if !top.choices.is() || top.problem.is() && truthy(s.raw(top.problem)) {
		if f := inBand(gjson.ParseBytes(s.raw(v))); f != nil {
			return dst, f
		}
	}
	if isText(s.data, top.padding) {
		s.hole(top.padding, nil, false)
	}
	sent, first := 0, true
	for c := enter(s.data, top.choices); c.next(); {
		if first { // not earlier: Azure's first chunk has no choice, and an empty id
			s.pin(top)
			first = false
		}
		made, holes := len(s.edits.list), len(s.holes)
		any, f := s.choice(c.value)
		if f != nil {
			return dst, f
		}
		if any {
			sent++
			continue
		}
		s.edits.list, s.holes = s.edits.list[:made], s.holes[:holes]
		s.edits.drop(&c, sent > 0)
	}
	s.keep(v, usage, sent > 0)
	if sent == 0 {
		return dst, nil
	}
	s.frame(v, top)
	switch {
	case !s.r.IncludeUsage:
	case !top.usage.is():
		s.edits.back(v, `,"usage":null`)
	case !isNull(s.data, top.usage):
		s.edits.set(top.usage, "null")
	}
	before := len(dst)
	dst = s.edits.apply(append(dst, dataField...), s.data, v)
	dst = append(dst, "\n\n"...)
	s.remember(name, v, dst[before:])
	return dst, nil
}

// remember lets chunks of this kind take the fast path, or forgets those that may not any longer.
func (s *stream) remember(name []byte, v span, event []byte) {
	if !s.steady {
		s.templates.forget()
		return
	}
	slices.SortFunc(s.holes, func(a, b hole) int { return a.from - b.from })
	s.templates.next().learn(name, s.data, v, event, len(dataField), &s.edits, s.holes)
}

// members are those of a chunk that are read.
type members struct{ id, object, created, model, choices, usage, groq, padding, problem, tier span }

// top reads a chunk's members, and drops those that are not for the caller: its usage has a chunk of its own, the
// presence of error is a failure to clients, even of null, and x_gateway is of a gateway behind this one.
func (s *stream) top(v span) (t members) {
	kept := false
	for c := enter(s.data, v); c.next(); {
		keep := true
		switch string(c.name()) {
		case "id":
			t.id = c.value
		case "object":
			t.object = c.value
		case "created":
			t.created = c.value
		case "model":
			t.model = c.value
		case "choices":
			t.choices = c.value
		case "usage":
			t.usage, keep = c.value, s.r.IncludeUsage
		case "x_groq":
			t.groq = c.value
		case "obfuscation":
			t.padding = c.value
		case "service_tier":
			t.tier = c.value
		case "error":
			t.problem, keep = c.value, false
		case "x_gateway":
			keep = false
		}
		if !keep {
			s.edits.drop(&c, kept)
		}
		kept = kept || keep
	}
	return t
}

// read takes usage from wherever a chunk has it, and returns the raw object, none when it states nothing.
func (s *stream) read(t members) span {
	for _, u := range [...]span{t.usage, find(s.data, t.groq, "usage")} {
		if !isObject(s.data, u) {
			continue
		}
		s.steady = false
		if use, ok := stated(gjson.ParseBytes(s.raw(u)), s.r); ok {
			s.usage.Source, s.usage.Tokens = use.Source, use.Tokens
			s.asStood = s.asStood[:0]
			if u.to-u.from <= rawMax {
				s.asStood = append(s.asStood, s.raw(u)...)
			}
			return u
		}
	}
	return span{}
}

// keep keeps a chunk that stated usage for the end: whole when it has no choice for the caller.
func (s *stream) keep(v, usage span, sent bool) {
	switch {
	case !usage.is() || !s.r.IncludeUsage:
	case !sent && v.to-v.from <= closingBytesMax:
		s.closing = append(s.closing[:0], s.raw(v)...)
	case usage.to-usage.from <= closingBytesMax:
		s.closing = append(s.closing[:0], `{"choices":[],"usage":`...)
		s.closing = append(append(s.closing, s.raw(usage)...), '}')
	}
}

// pin settles id and created, once, for the whole stream. A server that states none gets the request's own.
func (s *stream) pin(t members) {
	if s.id != "" {
		return
	}
	s.id, s.created = string(quote(s.r.ID)), strconv.FormatInt(s.r.CreatedUnix, 10)
	if hasText(s.data, t.id) {
		s.id = string(s.raw(t.id))
	}
	if n, err := strconv.ParseInt(string(s.raw(t.created)), 10, 64); err == nil && n > 0 {
		s.created = string(s.raw(t.created))
	}
}

// frame makes sure of the members that are the same in all chunks.
func (s *stream) frame(v span, t members) {
	for _, m := range [...]struct {
		at         span
		name, want string
	}{
		{t.id, `"id":`, s.id},
		{t.object, `"object":`, `"chat.completion.chunk"`},
		{t.created, `"created":`, s.created},
		{t.model, `"model":`, s.model},
	} {
		switch {
		case !m.at.is():
			s.edits.front(v, m.name, m.want, ",")
		case string(s.raw(m.at)) != m.want:
			s.edits.set(m.at, m.want)
		}
	}
}

// choice mends the choice v; any is false when it has nothing for the caller.
func (s *stream) choice(v span) (any bool, f *exchange.Failure) {
	var at, delta, finish span
	for c := enter(s.data, v); c.next(); {
		switch string(c.name()) {
		case "index":
			at = c.value
		case "delta":
			delta = c.value
		case "finish_reason":
			finish = c.value
		}
	}
	ends := hasText(s.data, finish)
	if ends {
		if reason := text(s.data, finish); broken(reason) {
			return false, brokeOff(reason)
		}
	}
	if !delta.is() && !ends {
		return false, nil
	}
	index := gjson.ParseBytes(s.raw(at)).Int()
	st := s.choices[index]
	if st == nil {
		if len(s.choices) >= choicesMax {
			return false, invalid("the provider sent too many choices")
		}
		st = &choice{}
		s.choices[index] = st
	}
	switch number := strconv.FormatInt(index, 10); {
	case !at.is():
		s.edits.front(v, `"index":0,`)
	case string(s.raw(at)) != number: // null, or a text
		s.edits.set(at, number)
	}
	content, f := s.delta(v, delta, place{s.id, int(index), st})
	if f != nil {
		return false, f
	}
	if st.finished && !content {
		return false, nil // keep-alives after the finish, and the finish again
	}
	switch {
	case !finish.is():
		s.edits.back(v, `,"finish_reason":null`)
	case ends && st.finished:
		s.edits.set(finish, "null")
	default:
		s.finish(v, finish, len(st.calls) > 0)
	}
	if ends {
		st.finished, s.steady = true, false
	}
	return true, nil
}

// delta mends the delta of a choice.
func (s *stream) delta(choice, delta span, p place) (content bool, f *exchange.Failure) {
	if isObject(s.data, delta) {
		return s.speech(delta, p)
	}
	empty := "{}"
	if !p.st.role {
		p.st.role, s.steady = true, false
		empty = `{"role":"assistant"}`
	}
	if delta.is() { // null, mostly
		s.edits.set(delta, empty)
	} else {
		s.edits.front(choice, `"delta":`, empty, ",")
	}
	return false, nil
}

// End implements adapter.Stream.
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	if f := s.incomplete(); f != nil {
		return dst, f
	}
	if s.r.IncludeUsage {
		dst = s.bill(dst)
	}
	return append(dst, doneEvent...), nil
}

// bill appends the usage chunk: the provider's own, if it sent one, with what the gateway knows and the provider did
// not say.
func (s *stream) bill(dst []byte) []byte {
	own, u := s.note(nil, s.Usage(), s.Delivered())
	s.usage = u
	if s.closing == nil {
		s.closing = []byte(`{"choices":[],"usage":null}`)
	}
	s.begin(s.closing)
	v := span{0, len(s.closing)}
	t := s.top(v)
	s.frame(v, t)
	switch {
	case !t.choices.is():
		s.edits.back(v, `,"choices":[]`)
	case string(s.raw(t.choices)) != "[]":
		s.edits.set(t.choices, "[]")
	}
	if t.usage.is() {
		s.edits.set(t.usage, string(mendUsage(s.raw(t.usage), u, exchange.Chat)))
	} else {
		s.edits.back(v, `,"usage":`, string(appendUsage(nil, u.Tokens, exchange.Chat)))
	}
	s.edits.back(v, `,"x_gateway":`, string(own))
	dst = s.edits.apply(append(dst, dataField...), s.data, v)
	return append(dst, "\n\n"...)
}

// incomplete says why the stream did not come to a finish, nil when it did: every choice that began must have stated
// why it ends. [DONE] alone does not say that the answer is whole; some servers send it after anything.
func (s *stream) incomplete() *exchange.Failure {
	if s.broken != nil {
		return s.broken
	}
	finished := len(s.choices) > 0
	for _, c := range s.choices {
		finished = finished && c.finished
	}
	if finished {
		return nil
	}
	return &exchange.Failure{
		Kind: exchange.FailCut, Code: adapter.CodeCut, Message: "the provider's stream ended before it was complete",
	}
}

// Usage implements adapter.Stream.
func (s *stream) Usage() exchange.Usage {
	u := s.usage
	if u.Source == exchange.FromProvider {
		u.Raw = string(s.asStood)
	} else if s.delivered > 0 && u.WebSearches == 0 {
		u.WebSearches = searches(gjson.Result{}, s.r)
	}
	return u
}

// Delivered implements adapter.Stream.
func (s *stream) Delivered() adapter.Delivered {
	return adapter.Delivered{Bytes: s.delivered, Pieces: s.pieces}
}
