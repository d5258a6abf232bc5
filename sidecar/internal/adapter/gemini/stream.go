package gemini

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// stream translates one stream. Each of its events is an answer that holds what has come since the last one.
type stream struct {
	req     *exchange.Request
	note    adapter.Annotate
	id      string
	named   bool // id is the provider's
	choices []*choice

	broken    bool           // an error was reported
	ended     bool           // End succeeded
	told      exchange.Usage // what the usage chunk said; no Source before
	counts    counts
	delivered int64
	pieces    int64 // events that delivered something
}

// choice is what has come of one candidate.
type choice struct {
	index    int64
	begun    bool   // the role chunk was appended
	finish   string // the provider's reason, "" while there is none
	calls    int
	entries  int  // of reasoning_details
	thinking bool // the last of them is of a text that goes on
}

func newStream(r *exchange.Request, a adapter.Annotate) *stream {
	return &stream{req: r, note: a, id: r.ID}
}

// Event takes one upstream event. The provider gives them no names.
func (s *stream) Event(dst, _, data []byte) ([]byte, adapter.Progress) {
	if data = bytes.TrimSpace(data); len(data) == 0 || bytes.Equal(data, doneMark) {
		return dst, adapter.Progress{} // proxies that think this is OpenAI's dialect append it
	}
	answer, f := object(data)
	if f != nil {
		return dst, s.broke(f)
	}
	s.counts.update(answer.Get("usageMetadata"))
	if id := answer.Get("responseId").Str; id != "" && !s.named {
		s.id, s.named = id, true // the role chunk, if it went out, had none to show
	}
	list := answer.Get("candidates").Array()
	for _, c := range list { // before anything of it goes out
		if f := failed(c); f != nil {
			return dst, s.broke(f)
		}
	}
	before := s.delivered
	for _, c := range list {
		ch := s.choice(c.Get("index").Int())
		if ch == nil {
			return dst, s.broke(invalidAnswer("the provider's stream has too many candidates"))
		}
		dst = s.candidate(dst, ch, c)
	}
	if len(list) == 0 && len(s.choices) == 0 && isBlocked(answer) {
		s.choice(0).finish = blocked
	}
	real := s.delivered > before
	if real {
		s.pieces++
	}
	return dst, adapter.Progress{Real: real}
}

func (s *stream) broke(f *exchange.Failure) adapter.Progress {
	s.broken = true
	return adapter.Progress{Failure: f}
}

// choice finds a choice or makes it, nil when there are too many.
func (s *stream) choice(index int64) *choice {
	for _, c := range s.choices {
		if c.index == index {
			return c
		}
	}
	if len(s.choices) >= choicesMax {
		return nil
	}
	c := &choice{index: index}
	s.choices = append(s.choices, c)
	return c
}

// candidate appends what an event brings of one candidate.
func (s *stream) candidate(dst []byte, c *choice, v gjson.Result) []byte {
	if reason := v.Get("finishReason").Str; reason != "" {
		c.finish = reason
	}
	v.Get("content.parts").ForEach(func(_, p gjson.Result) bool {
		signature := p.Get("thoughtSignature")
		if call := p.Get("functionCall"); call.IsObject() {
			dst = s.call(dst, c, call, signature.Str)
			return true
		}
		escaped, image := inside(p.Get("text")), p.Get("inlineData")
		switch {
		case isDrawn(p, image):
			c.thinking = false
			dst = appendImage(append(s.open(dst, c), `"images":[`...), image)
			dst = s.close(append(dst, ']'))
			s.delivered += adapter.DrawnBytes
		case escaped == "":
		case p.Get("thought").Bool():
			dst = s.thought(dst, c, escaped)
		default:
			c.thinking = false
			dst = append(s.open(dst, c), `"content":"`...)
			dst = s.close(append(append(dst, escaped...), '"'))
		}
		s.delivered += int64(len(p.Get("text").Str))
		if sealed := inside(signature); sealed != "" {
			c.entries++
			c.thinking = false
			dst = append(s.open(dst, c), `"reasoning_details":[`...)
			dst = s.close(append(appendSignature(dst, c.entries-1, sealed), ']'))
		}
		return true
	})
	if probabilities := v.Get("logprobsResult"); probabilities.Get("chosenCandidates").IsArray() {
		dst = append(s.open(dst, c), `},"logprobs":`...)
		dst = append(appendLogprobs(dst, probabilities), `,"finish_reason":null}]`...)
		dst = append(append(dst, s.noUsage()...), "}\n\n"...)
	}
	return dst
}

// thought appends a chunk with a piece of what the model thought: as text, and as a piece of its entry.
func (s *stream) thought(dst []byte, c *choice, escaped string) []byte {
	if !c.thinking {
		c.thinking = true
		c.entries++
	}
	dst = append(s.open(dst, c), `"reasoning_content":"`...)
	dst = append(append(dst, escaped...), `","reasoning_details":[`...)
	return s.close(append(appendThought(dst, c.entries-1, escaped), ']'))
}

// call appends a chunk with a call, which comes whole.
func (s *stream) call(dst []byte, c *choice, call gjson.Result, signature string) []byte {
	c.thinking = false
	id := callID(call.Get("id").Str, signature, s.id, s.req.ID, c.index, c.calls)
	dst = appendInt(append(s.open(dst, c), `"tool_calls":[`...), `{"index":`, int64(c.calls))
	dst = s.close(append(appendCall(append(dst, ','), call, id, signature), ']'))
	c.calls++
	s.delivered += int64(len(call.Get("name").Str) + len(arguments(call)))
	return dst
}

// open begins a chunk up to the members of its delta, after the choice's role chunk.
func (s *stream) open(dst []byte, c *choice) []byte {
	if !c.begun {
		c.begun = true
		dst = s.close(append(s.open(dst, c), `"role":"assistant","content":""`...))
	}
	return append(appendInt(s.appendStart(dst), `,"choices":[{"index":`, c.index), `,"delta":{`...)
}

// close ends a chunk that says no more than its delta.
func (s *stream) close(dst []byte) []byte {
	dst = append(dst, `},"finish_reason":null}]`...)
	return append(append(dst, s.noUsage()...), "}\n\n"...)
}

// noUsage is the member that every chunk but the last has when the caller asked for usage.
func (s *stream) noUsage() string {
	if s.req.IncludeUsage {
		return `,"usage":null`
	}
	return ""
}

// appendStart appends a chunk up to its choices.
func (s *stream) appendStart(dst []byte) []byte {
	dst = appendString(append(dst, `data: {"id":`...), s.id)
	// The provider states no time, and there is no clock here.
	dst = appendInt(dst, `,"object":"chat.completion.chunk","created":`, s.req.CreatedUnix)
	return appendString(append(dst, `,"model":`...), s.req.Model)
}

// End appends the finish chunks, the usage chunk if it was asked for, and [DONE].
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	complete := !s.broken && len(s.choices) > 0
	for _, c := range s.choices {
		complete = complete && c.finish != ""
	}
	if !complete {
		return dst, &exchange.Failure{
			Kind: exchange.FailCut, Code: adapter.CodeCut, Message: "the provider's stream ended before the answer did",
		}
	}
	s.ended = true
	for _, c := range s.choices {
		dst = append(s.open(dst, c), "},"...)
		dst = append(appendFinish(dst, c.finish, c.calls), "}]"...)
		dst = append(append(dst, s.noUsage()...), "}\n\n"...)
	}
	if s.req.IncludeUsage {
		own, u := s.note(nil, s.Usage(), s.Delivered())
		s.told = u
		dst = append(s.appendStart(dst), `,"choices":[],"usage":`...)
		dst = append(appendUsage(dst, u.Tokens), `,"x_gateway":`...)
		dst = append(append(dst, own...), "}\n\n"...)
	}
	return append(dst, sse.Done...), nil
}

// Usage is what the provider has stated so far.
func (s *stream) Usage() exchange.Usage {
	if s.told.Source != 0 {
		return s.told
	}
	return s.counts.usage()
}

// Delivered counts the decoded bytes of text, thoughts, tool names and arguments appended so far.
func (s *stream) Delivered() adapter.Delivered {
	return adapter.Delivered{Bytes: s.delivered, Pieces: s.pieces}
}

var doneMark = []byte("[DONE]")
