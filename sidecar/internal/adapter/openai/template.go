package openai

import (
	"bytes"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

const (
	// holesMax bounds what may differ between two chunks of a template.
	holesMax = 4
	// templatesMax is how many kinds of chunks a stream remembers: two, so that interleaved choices find theirs.
	templatesMax = 2
)

// hole is a text, or a number, that passes as it is: the only thing in which a chunk differs from its likes.
type hole struct {
	span         // without the quotes
	call   *call // whose arguments it is a part of, nil for none
	count  bool  // it is delivered text; otherwise it is padding
	number bool  // it is a natural number
	some   bool  // it is not empty: what is empty is mended otherwise
}

// templates are the newest ones of a stream. The zero value has none.
type templates struct {
	list   [templatesMax]template
	oldest int
}

// translate appends what becomes of an event, when it is one of the kinds.
func (t *templates) translate(dst, name, data []byte) (out []byte, got filled, ok bool) {
	for i := range t.list {
		if out, got, ok = t.list[i].translate(dst, name, data); ok {
			return out, got, true
		}
	}
	return dst, filled{}, false
}

// next is the template to learn from the next kind.
func (t *templates) next() *template {
	next := &t.list[t.oldest]
	t.oldest = (t.oldest + 1) % templatesMax
	return next
}

func (t *templates) forget() {
	for i := range t.list {
		t.list[i].form.Forget()
	}
}

// filled is what stood in the holes.
type filled struct {
	text   int   // bytes of delivered text
	number int64 // the last number
}

// template is the fast path. In a stream the chunks differ in nothing but a text or two. A chunk that the long way
// translated without learning anything is remembered with what became of it, its texts left out; the next one of its form
// is translated by copying. So the fast path needs no knowledge of what a chunk may hold.
type template struct {
	form  adapter.Form
	name  []byte // of the event
	out   []byte
	outAt [holesMax]int // where the texts were
	holes [holesMax]hole
	n     int
}

// learn remembers an event and what it became: data with the edits made, and a blank line. lead is what stands before
// that. The holes are in order, and the edits sorted.
func (t *template) learn(name, data []byte, of span, event []byte, lead int, e *edits, holes []hole) {
	var in [holesMax]adapter.Hole
	for i, h := range holes {
		in[i] = adapter.Hole{From: h.from - of.from, To: h.to - of.from}
		if h.number {
			in[i].Kind = adapter.HoleNumber
		}
	}
	if !t.form.Learn(data[of.from:of.to], in[:len(holes)]) {
		return
	}
	t.name, t.out = append(t.name[:0], name...), t.out[:0]
	out := 0
	for i, h := range holes {
		from := h.from - of.from + lead + e.shift(h.from)
		t.out = append(t.out, event[out:from]...)
		t.outAt[i], t.holes[i] = len(t.out), h
		out = from + h.to - h.from
	}
	t.out = append(t.out, event[out:]...)
	t.n = len(holes)
}

// translate appends what becomes of data when it is one of the kind.
func (t *template) translate(dst, name, data []byte) (out []byte, got filled, ok bool) {
	if !t.form.Match(data) || !bytes.Equal(name, t.name) {
		return dst, filled{}, false
	}
	for i := range t.n {
		if in := &t.form.In[i]; t.holes[i].some && in.From == in.To {
			return dst, filled{}, false
		}
	}
	from := 0
	for i := range t.n {
		h, in := &t.holes[i], &t.form.In[i]
		switch {
		case h.number:
			got.number = int64(in.N)
		case h.count:
			got.text += in.N
		}
		dst = append(append(dst, t.out[from:t.outAt[i]]...), data[in.From:in.To]...)
		from = t.outAt[i]
		if h.call != nil {
			h.call.arguments.feed(data[in.From:in.To])
		}
	}
	return append(dst, t.out[from:]...), got, true
}
