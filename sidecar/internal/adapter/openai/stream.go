package openai

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// choicesMax bounds the choices of one stream: OpenAI's bound on n.
const choicesMax = 128

// Stream implements adapter.Adapter.
func (*Adapter) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return &stream{r: r, note: a, choices: map[int64]*choice{}, usage: exchange.Usage{Source: exchange.FromEstimate}}
}

type stream struct {
	r         *exchange.Request
	note      adapter.Annotate
	usage     exchange.Usage
	delivered int64
	choices   map[int64]*choice
	done      bool // [DONE] was seen
	failed    bool // an error was seen: nothing that follows makes it a success

	// id and created are those of the first chunk with a choice: some servers change them in mid-stream.
	id, created string // raw JSON
	twin        twin
}

// choice is what is known of one choice so far.
type choice struct {
	role     bool // the role has been sent
	finished bool
	calls    []*call
}

// Event implements adapter.Stream.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	data = bytes.TrimSpace(data)
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		s.done = true
		return dst, adapter.Progress{Done: !s.failed}
	}
	if len(data) == 0 {
		return dst, adapter.Progress{}
	}
	if out, text, ok := s.twin.translate(dst, data); ok {
		s.delivered += int64(text)
		return out, adapter.Progress{Real: text > 0}
	}
	if !adapter.Valid(data) {
		s.failed = true
		return dst, adapter.Progress{Failure: invalid("a chunk of the provider is not JSON")}
	}
	data = oneLine(data)
	doc := gjson.ParseBytes(data)
	if doc.IsArray() {
		doc = doc.Get("0")
	}
	if f := inBand(doc); f != nil || string(name) == "error" {
		s.failed = true
		if f == nil { // an event named error without an error member: the whole of it is one
			f = failureOf(0, func(string) string { return "" }, data)
			f.Kind = kindOfType(doc.Get("type").Str, f.Code)
		}
		return dst, adapter.Progress{Failure: f}
	}
	if u := usageOf(doc); u.Source == exchange.FromProvider {
		s.usage = u
	}
	return s.chunk(dst, data, doc)
}

// chunk rewrites one chunk. What has no choice left is not sent on: usage chunks go out at the end, and the filter
// annotations of Azure's asynchronous mode have nothing for the caller.
func (s *stream) chunk(dst, data []byte, doc gjson.Result) ([]byte, adapter.Progress) {
	list := doc.Get("choices").Array()
	if len(list) == 0 {
		return dst, adapter.Progress{}
	}
	s.pin(doc)
	before, beforeDelivered := len(dst), s.delivered
	dst = append(dst, `data: {"id":`...)
	dst = append(dst, s.id...)
	dst = append(dst, `,"object":"chat.completion.chunk","created":`...)
	dst = append(dst, s.created...)
	dst = append(dst, `,"model":`...)
	dst = gjson.AppendJSONString(dst, s.r.Model)
	doc.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "id", "object", "created", "model", "choices", "usage", "error", "x_groq":
		default:
			dst = appendMember(dst, k, v)
		}
		return true
	})
	dst = append(dst, `,"choices":[`...)
	sent := 0
	for _, c := range list {
		var f *exchange.Failure
		var any bool
		if dst, any, f = s.choice(dst, c, sent > 0); f != nil {
			s.failed = true
			return dst[:before], adapter.Progress{Failure: f}
		}
		if any {
			sent++
		}
	}
	if sent == 0 {
		return dst[:before], adapter.Progress{}
	}
	dst = append(dst, ']')
	if s.r.IncludeUsage {
		dst = append(dst, `,"usage":null`...)
	}
	dst = append(dst, "}\n\n"...)
	s.twin.learn(data, dst[before:])
	return dst, adapter.Progress{Real: s.delivered > beforeDelivered}
}

// pin settles id and created, once, for the whole stream. A server that states none gets the request's own.
func (s *stream) pin(doc gjson.Result) {
	if s.id != "" {
		return
	}
	s.id, s.created = string(quote(s.r.ID)), strconv.FormatInt(s.r.CreatedUnix, 10)
	if v := doc.Get("id"); v.Type == gjson.String && v.Str != "" {
		s.id = v.Raw
	}
	if v := doc.Get("created"); v.Type == gjson.Number && v.Num > 0 {
		s.created = v.Raw
	}
}

func appendMember(dst []byte, k, v gjson.Result) []byte {
	dst = append(dst, ',')
	dst = append(dst, k.Raw...)
	dst = append(dst, ':')
	return append(dst, v.Raw...)
}

// choice appends one choice; any is false when it has nothing for the caller.
func (s *stream) choice(dst []byte, c gjson.Result, comma bool) (out []byte, any bool, f *exchange.Failure) {
	index := c.Get("index").Int()
	st := s.choices[index]
	if st == nil {
		if len(s.choices) >= choicesMax {
			return dst, false, invalid("the provider sent too many choices")
		}
		st = &choice{}
		s.choices[index] = st
	}
	finish := c.Get("finish_reason")
	if broken(finish.Str) {
		return dst, false, brokeOff(finish.Str)
	}
	hasDelta := c.Get("delta").Exists()
	ends := finish.Type == gjson.String && finish.Str != ""
	if !hasDelta && !ends {
		return dst, false, nil
	}
	before := len(dst)
	if comma {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"index":`...)
	dst = append(dst, itoa(int(index))...)
	dst = append(dst, `,"delta":`...)
	dst, content := s.delta(dst, st, index, c.Get("delta"))
	reason := "null"
	if ends {
		reason, _ = mendFinish(finish, len(st.calls) > 0)
	}
	if !content && !ends && st.finished {
		return dst[:before], false, nil // keep-alive chunks after the finish
	}
	st.finished = st.finished || ends
	c.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "index", "delta", "finish_reason", "message":
		default:
			dst = appendMember(dst, k, v)
		}
		return true
	})
	dst = append(dst, `,"finish_reason":`...)
	return append(append(dst, reason...), '}'), true, nil
}

// delta appends a delta; content says that it has a member at all.
func (s *stream) delta(dst []byte, st *choice, index int64, d gjson.Result) (out []byte, content bool) {
	dst = append(dst, '{')
	first := true
	put := func(name string, raw []byte) { // both as JSON
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, name...), ':')
		dst = append(dst, raw...)
	}
	text := func(name string, v gjson.Result) {
		put(name, []byte(v.Raw))
		if v.Type == gjson.String {
			s.delivered += int64(len(v.Str))
		}
	}
	if !st.role {
		st.role = true
		put(`"role"`, []byte(`"assistant"`))
	}
	if !d.IsObject() { // null, mostly
		return append(dst, '}'), !first
	}
	reasoning := d.Get("reasoning_content").Exists()
	d.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "role":
		case "content":
			if v.IsArray() {
				if t := thinking(v); t != "" {
					put(`"reasoning_content"`, quote(t))
					s.delivered += int64(len(t))
				}
				t := flatten(v)
				put(`"content"`, quote(t))
				s.delivered += int64(len(t))
				return true
			}
			text(k.Raw, v)
		case "reasoning":
			if !reasoning && v.Type == gjson.String {
				text(`"reasoning_content"`, v)
			}
		case "reasoning_content", "refusal":
			text(k.Raw, v)
		case "tool_calls":
			if raw := s.toolCalls(st, index, v); raw != nil {
				put(k.Raw, raw)
			}
		case "function_call":
			put(k.Raw, []byte(v.Raw))
			s.delivered += int64(len(v.Get("arguments").Str))
		default:
			put(k.Raw, []byte(v.Raw))
		}
		return true
	})
	return append(dst, '}'), !first
}

// End implements adapter.Stream.
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	if f := s.incomplete(); f != nil {
		return dst, f
	}
	if s.r.IncludeUsage {
		dst = append(dst, `data: {"id":`...)
		dst = append(dst, s.id...)
		dst = append(dst, `,"object":"chat.completion.chunk","created":`...)
		dst = append(dst, s.created...)
		dst = append(dst, `,"model":`...)
		dst = gjson.AppendJSONString(dst, s.r.Model)
		dst = append(dst, `,"choices":[],"usage":`...)
		dst = appendUsage(dst, s.usage.Tokens)
		dst = append(dst, `,"x_gateway":`...)
		dst = s.note(dst, s.usage)
		dst = append(dst, "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...), nil
}

// incomplete says why the stream did not come to a finish, nil when it did. [DONE] is the provider's word that it is
// complete; without it every choice that began must have finished.
func (s *stream) incomplete() *exchange.Failure {
	cut := &exchange.Failure{Kind: exchange.FailCut, Code: codeCut, Message: "the provider's stream ended before it was complete"}
	if s.failed || len(s.choices) == 0 {
		return cut
	}
	for _, c := range s.choices {
		if !c.finished && !s.done {
			return cut
		}
	}
	return nil
}

// Usage implements adapter.Stream.
func (s *stream) Usage() exchange.Usage { return s.usage }

// Delivered implements adapter.Stream.
func (s *stream) Delivered() int64 { return s.delivered }
