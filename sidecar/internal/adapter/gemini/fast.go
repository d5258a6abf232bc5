package gemini

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Nearly all events of a stream bring a text of one candidate, and differ in nothing but it and the tokens so far. Those
// are not read once more: see adapter.Form. Of what they count the newest is kept as it stands, until somebody asks.

// fast translates an event that is of the form of the newest one. ok is false, and nothing was done, for anything else.
func (s *stream) fast(dst, data []byte) (out []byte, ok bool) {
	if !s.form.Match(data) {
		return dst, false
	}
	text := s.form.In[0]
	escaped := data[text.From:text.To]
	if len(escaped) == 0 {
		return dst, false
	}
	if s.formCount {
		s.unread = append(s.unread[:0], data[s.form.In[1].From:s.form.Last().To]...)
	}
	if s.formThink {
		return s.think(dst, s.formOf, escaped, text.N), true
	}
	return s.say(dst, s.formOf, escaped, text.N), true
}

// count takes in what was not read.
func (s *stream) count() {
	if len(s.unread) > 0 {
		s.counts.update(gjson.ParseBytes(s.unread))
		s.unread = s.unread[:0]
	}
}

// learn remembers the form of an event that has been told, if it brought a text of its only candidate and nothing else.
func (s *stream) learn(data []byte, answer gjson.Result, c *choice, candidate gjson.Result) {
	list := candidate.Get("content.parts")
	parts := list.Array()
	if !list.IsArray() || len(parts) != 1 || candidate.Get("finishReason").Str != "" ||
		candidate.Get("logprobsResult").Exists() || candidate.Get("citationMetadata").Exists() {
		return
	}
	p := parts[0]
	text, ok := adapter.HoleIn(data, p.Get("text"))
	if !ok || text.From == text.To || p.Get("functionCall").Exists() || p.Get("inlineData").Exists() || p.Get("thoughtSignature").Exists() {
		return
	}
	holes := []adapter.Hole{text}
	u := answer.Get("usageMetadata")
	if u.IsObject() {
		if u.Index < text.To {
			return // no server puts it there
		}
		holes = adapter.HolesOf(holes, data, u)
	}
	s.form.Learn(data, holes)
	s.formThink, s.formCount, s.formOf = p.Get("thought").Bool(), len(holes) > 1, c
}
