package openai

import "bytes"

const (
	// holesMax bounds what may differ between two chunks of a template.
	holesMax = 4
	// templatesMax is how many kinds of chunks a stream remembers: two, so that interleaved choices find theirs.
	templatesMax = 2
	// templateBytesMax is the longest chunk that is remembered.
	templateBytesMax = 2 << 10
)

// hole is a text, or a number, that passes as it is: the only thing in which a chunk differs from its likes.
type hole struct {
	span         // without the quotes
	call   *call // whose arguments it is a part of, nil for none
	count  bool  // it is delivered text; otherwise it is padding
	number bool  // it is a natural number
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
		t.list[i].n = 0
	}
}

// filled is what stood in the holes.
type filled struct {
	text   int   // bytes of delivered text
	number int64 // the last number
}

// template is the fast path. In a stream the chunks differ in nothing but a text or two. A chunk that the long way
// translated without learning anything is remembered with what became of it, its texts left out; the next one that
// equals it but for the texts is translated by copying. So the fast path needs no knowledge of what a chunk may hold.
type template struct {
	name        []byte // of the event
	in, out     []byte
	inAt, outAt [holesMax]int // where the texts were
	holes       [holesMax]hole
	n           int
}

// learn remembers an event and what it became: data with the edits made, and a blank line. lead is what stands before
// that. The holes are in order, and the edits sorted.
func (t *template) learn(name, data []byte, of span, event []byte, lead int, e *edits, holes []hole) {
	t.n = 0
	if len(holes) == 0 || len(event) > templateBytesMax {
		return
	}
	t.name, t.in, t.out = append(t.name[:0], name...), t.in[:0], t.out[:0]
	in, out := of.from, 0
	for i, h := range holes {
		from := h.from - of.from + lead + e.shift(h.from)
		t.in = append(t.in, data[in:h.from]...)
		t.out = append(t.out, event[out:from]...)
		t.inAt[i], t.outAt[i], t.holes[i] = len(t.in), len(t.out), h
		in, out = h.to, from+h.to-h.from
	}
	t.in, t.out = append(t.in, data[in:of.to]...), append(t.out, event[out:]...)
	t.n = len(holes)
}

// translate appends what becomes of data when it is one of the kind.
func (t *template) translate(dst, name, data []byte) (out []byte, got filled, ok bool) {
	var found [holesMax]span
	at, in := 0, 0
	for i := range t.n {
		fixed := t.in[in:t.inAt[i]]
		if !bytes.HasPrefix(data[at:], fixed) {
			return dst, filled{}, false
		}
		at, in = at+len(fixed), t.inAt[i]
		to, size := 0, 0
		if h := &t.holes[i]; h.number {
			to, got.number = natural(data, at)
		} else if to, size = plain(data, at); h.count {
			got.text += size
		}
		if to < 0 {
			return dst, filled{}, false
		}
		found[i] = span{at, to}
		at = to
	}
	if t.n == 0 || !bytes.Equal(data[at:], t.in[in:]) || !bytes.Equal(name, t.name) {
		return dst, filled{}, false
	}
	from := 0
	for i, s := range found[:t.n] {
		dst = append(append(dst, t.out[from:t.outAt[i]]...), data[s.from:s.to]...)
		from = t.outAt[i]
		if c := t.holes[i].call; c != nil {
			c.arguments.feed(data[s.from:s.to])
		}
	}
	return append(dst, t.out[from:]...), got, true
}

// natural finds the end of the natural number that begins at i, and its value; to is -1 for none, and for one that is
// spelled unusually or very long.
func natural(b []byte, i int) (to int, n int64) {
	to = i
	for ; to < len(b) && b[to] >= '0' && b[to] <= '9'; to++ {
		n = n*10 + int64(b[to]-'0')
	}
	if digits := to - i; digits == 0 || digits > 18 || digits > 1 && b[i] == '0' {
		return -1, 0
	}
	return to, n
}

// plain finds the end of the text that begins at i, behind its quote: to is where its closing quote stands, and size
// its length unescaped. It takes no control bytes, and no escapes but those of one letter, so that copying the text
// cannot carry broken JSON to the caller; to is -1 for those.
func plain(b []byte, i int) (to, size int) {
	from, escapes := i, 0
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i, i - from - escapes
		case c < ' ':
			return -1, 0
		case c == '\\':
			i++
			if i >= len(b) || bytes.IndexByte([]byte(`"\/bfnrt`), b[i]) < 0 {
				return -1, 0
			}
			escapes++
		}
	}
	return -1, 0
}
