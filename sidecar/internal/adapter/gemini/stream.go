package gemini

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// stream translates one stream. Each of its events is an answer that holds what has come since the last one.
type stream struct {
	reply.Chunks
	request string // the id of what is answered
	named   bool   // ID is the provider's
	choices []*choice
	counts  counts
	ended   bool // End succeeded

	form      adapter.Form // of the newest event that brought a text and nothing else
	formThink bool         // which was thought
	formCount bool         // it had usageMetadata
	formOf    *choice
	unread    []byte // the newest usageMetadata of the events of the form
}

// choice is what has come of one candidate.
type choice struct {
	index    int64
	begun    bool   // the role chunk was appended
	finish   string // the provider's reason, "" while there is none
	calls    int
	entries  int  // of reasoning_details
	thinking bool // the last of them is of a text that goes on
	cited    citations
}

func newStream(r *exchange.Request, a adapter.Annotate) *stream {
	return &stream{Chunks: reply.NewChunks(r, a), request: r.ID}
}

// Event takes one upstream event. The provider gives them no names.
func (s *stream) Event(dst, _, data []byte) ([]byte, adapter.Progress) {
	if data = bytes.TrimSpace(data); len(data) == 0 || bytes.Equal(data, doneMark) {
		return dst, adapter.Progress{} // proxies that think this is OpenAI's dialect append it
	}
	if out, ok := s.fast(dst, data); ok {
		s.Sent.Pieces++
		return out, adapter.Progress{Real: true}
	}
	s.count()
	answer, f := object(data)
	if f != nil {
		return dst, s.Broke(f)
	}
	s.counts.update(answer.Get("usageMetadata"))
	if id := answer.Get("responseId").Str; id != "" && !s.named {
		s.named = true
		s.Name(id) // the role chunk, if it went out, had none to show
	}
	list := answer.Get("candidates").Array()
	for _, c := range list { // before anything of it goes out
		if f := failed(c); f != nil {
			return dst, s.Broke(f)
		}
	}
	before := s.Sent.Bytes
	for _, c := range list {
		ch := s.choice(c.Get("index").Int())
		if ch == nil {
			return dst, s.Broke(adapter.InvalidAnswer("the provider's stream has too many candidates"))
		}
		dst = s.candidate(dst, ch, c)
		if len(list) == 1 {
			s.learn(data, answer, ch, c)
		}
	}
	if len(list) == 0 && len(s.choices) == 0 && isBlocked(answer) {
		s.choice(0).finish = blocked
	}
	real := s.Sent.Bytes > before
	if real {
		s.Sent.Pieces++
	}
	return dst, adapter.Progress{Real: real}
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
	if reason := v.Get("finishReason").Str; reason != "" && reason != "FINISH_REASON_UNSPECIFIED" {
		c.finish = reason
	}
	v.Get("content.parts").ForEach(func(_, p gjson.Result) bool {
		signature := p.Get("thoughtSignature")
		if call := p.Get("functionCall"); call.IsObject() {
			dst = s.call(dst, c, call, signature.Str)
			return true
		}
		text, image := p.Get("text"), p.Get("inlineData")
		switch {
		case isDrawn(p, image):
			c.thinking = false
			dst = appendImage(append(s.open(dst, c), `"images":[`...), image)
			dst = s.close(append(dst, ']'))
			s.Sent.Bytes += adapter.DrawnBytes
			s.Sent.Bytes += int64(len(text.Str))
		case text.Str == "":
		case p.Get("thought").Bool():
			dst = s.think(dst, c, []byte(adapter.Inside(text)), len(text.Str))
		default:
			dst = s.say(dst, c, []byte(adapter.Inside(text)), len(text.Str))
		}
		if sealed := adapter.Inside(signature); sealed != "" {
			c.entries++
			c.thinking = false
			dst = append(s.open(dst, c), `"reasoning_details":[`...)
			dst = s.close(append(appendSignature(dst, c.entries-1, sealed), ']'))
		}
		return true
	})
	if annotations := c.cited.append(nil, v); len(annotations) > 0 {
		dst = append(append(s.open(dst, c), `"annotations":[`...), annotations...)
		dst = s.close(append(dst, ']'))
	}
	if probabilities := v.Get("logprobsResult"); probabilities.Get("chosenCandidates").IsArray() {
		dst = append(s.open(dst, c), `},"logprobs":`...)
		dst = s.Close(append(appendLogprobs(dst, probabilities), `,"finish_reason":null}]`...))
	}
	return dst
}

// say appends a chunk with a piece of text, given escaped and with its decoded size.
func (s *stream) say(dst []byte, c *choice, escaped []byte, size int) []byte {
	c.thinking = false
	c.cited.say(escaped)
	dst = append(s.open(dst, c), `"content":"`...)
	s.Sent.Bytes += int64(size)
	return s.close(append(append(dst, escaped...), '"'))
}

// think appends a chunk with a piece of what the model thought: as text, and as a piece of its entry.
func (s *stream) think(dst []byte, c *choice, escaped []byte, size int) []byte {
	if !c.thinking {
		c.thinking = true
		c.entries++
	}
	dst = append(s.open(dst, c), `"reasoning_content":"`...)
	dst = append(append(dst, escaped...), `","reasoning_details":[`...)
	s.Sent.Bytes += int64(size)
	return s.close(append(appendThought(dst, c.entries-1, escaped), ']'))
}

// call appends a chunk with a call, which comes whole.
func (s *stream) call(dst []byte, c *choice, call gjson.Result, signature string) []byte {
	c.thinking = false
	id := callID(call.Get("id").Str, signature, s.ID, s.request, c.index, c.calls)
	dst = reply.AppendInt(append(s.open(dst, c), `"tool_calls":[`...), `{"index":`, int64(c.calls))
	dst = s.close(append(appendCall(append(dst, ','), call, id, signature), ']'))
	c.calls++
	s.Sent.Bytes += int64(len(call.Get("name").Str) + len(reply.Arguments(call.Get("args"))))
	return dst
}

// open begins a chunk up to the members of its delta, after the choice's role chunk.
func (s *stream) open(dst []byte, c *choice) []byte {
	if !c.begun {
		c.begun = true
		dst = s.close(append(s.open(dst, c), `"role":"assistant","content":""`...))
	}
	return append(reply.AppendInt(s.Open(dst), `,"choices":[{"index":`, c.index), `,"delta":{`...)
}

// close ends a chunk that says no more than its delta.
func (s *stream) close(dst []byte) []byte {
	return s.Close(append(dst, `},"finish_reason":null}]`...))
}

// End appends the finish chunks, the usage chunk if it was asked for, and [DONE].
func (s *stream) End(dst []byte) ([]byte, *exchange.Failure) {
	complete := len(s.choices) > 0
	for _, c := range s.choices {
		complete = complete && c.finish != ""
	}
	if f := s.Cut(complete); f != nil {
		return dst, f
	}
	for _, c := range s.choices {
		dst = append(s.open(dst, c), "},"...)
		dst = s.Close(append(appendFinish(dst, c.finish, c.calls), "}]"...))
	}
	s.ended = true
	return s.Chunks.End(dst, s.Usage(), "", appendUsage), nil
}

// Usage is what the provider has stated so far.
func (s *stream) Usage() exchange.Usage {
	s.count()
	if u, ok := s.Told(); ok {
		return u
	}
	if s.ended {
		return s.counts.usage(s.Sent.Bytes)
	}
	return s.counts.usage(0)
}

var doneMark = []byte("[DONE]")
