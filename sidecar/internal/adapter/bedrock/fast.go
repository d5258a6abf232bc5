package bedrock

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Nearly all events of a stream are deltas of one block, which differ in nothing but their text and their padding. Those
// are not read once more: see adapter.Form.

// fast translates a delta that is of the form of the newest one. ok is false, and nothing was done, for anything else.
func (s *conversation) fast(dst, name, data []byte) (out []byte, ok bool) {
	if string(name) != deltaEvent || !s.form.Match(data) {
		return dst, false
	}
	text := s.form.In[0]
	escaped := data[text.From:text.To]
	switch {
	case len(escaped) == 0:
		return dst, false
	case s.formThink:
		return s.think(dst, escaped, int64(text.N), s.formBlock), true
	}
	return s.say(dst, escaped, int64(text.N)), true
}

// learn remembers the form of a delta that says or thinks something.
func (s *conversation) learn(data []byte, ev gjson.Result) {
	d := ev.Get("delta")
	v, thinks := d.Get("text"), false
	if v.Str == "" {
		v, thinks = d.Get("reasoningContent").Get("text"), true
	}
	text, ok := adapter.HoleIn(data, v)
	if !ok || v.Str == "" {
		return
	}
	holes := []adapter.Hole{text}
	if padding, ok := adapter.HoleIn(data, ev.Get("p")); ok && padding.From > text.From {
		holes = append(holes, padding)
	}
	s.form.Learn(data, holes)
	s.formThink, s.formBlock = thinks, ev.Get("contentBlockIndex").Int()
}
