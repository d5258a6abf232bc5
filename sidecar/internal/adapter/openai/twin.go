package openai

import "bytes"

// twin is the fast path. In a stream of text the chunks differ in nothing but the text: what stood before and behind
// it in the last chunk, and what it became, is remembered, and a chunk that is its twin is translated by copying.
// Anything else takes the long way, so the fast path needs no knowledge of what a chunk may hold.
type twin struct {
	in, out struct{ head, tail []byte }
}

var textDelta = []byte(`"delta":{"content":"`)

// split finds the text of a chunk whose one delta is {"content":"…"}: data[from:to] is the escaped text.
func split(data []byte) (from, to int, ok bool) {
	at := bytes.Index(data, textDelta)
	if at < 0 {
		return 0, 0, false
	}
	from = at + len(textDelta)
	for to = from; ; to++ {
		n := bytes.IndexByte(data[to:], '"')
		if n < 0 {
			return 0, 0, false
		}
		to += n
		slashes := 0
		for i := to - 1; i >= from && data[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			break
		}
	}
	return from, to, to+1 < len(data) && data[to+1] == '}'
}

// learn remembers a chunk and its translation (with "data: " and the blank line) when both are of the simple kind.
func (t *twin) learn(data, out []byte) {
	t.in.head = t.in.head[:0]
	if bytes.Count(data, textDelta) != 1 || bytes.Count(out, textDelta) != 1 {
		return // which of them is the text is not for split to say
	}
	from, to, ok := split(data)
	if !ok {
		return
	}
	outFrom, outTo, ok := split(out)
	if !ok || !bytes.Equal(data[from:to], out[outFrom:outTo]) {
		return
	}
	t.in.head, t.in.tail = append(t.in.head, data[:from]...), append(t.in.tail[:0], data[to:]...)
	t.out.head, t.out.tail = append(t.out.head[:0], out[:outFrom]...), append(t.out.tail[:0], out[outTo:]...)
}

// translate appends the translation of a twin of the last chunk; text is the length of its text in bytes, unescaped.
func (t *twin) translate(dst, data []byte) (out []byte, text int, ok bool) {
	if len(t.in.head) == 0 || len(data) < len(t.in.head)+len(t.in.tail) ||
		!bytes.HasPrefix(data, t.in.head) || !bytes.HasSuffix(data, t.in.tail) {
		return dst, 0, false
	}
	from, to, ok := split(data)
	if !ok || from != len(t.in.head) || len(data)-to != len(t.in.tail) {
		return dst, 0, false
	}
	if text, ok = plain(data[from:to]); !ok {
		return dst, 0, false
	}
	dst = append(dst, t.out.head...)
	dst = append(dst, data[from:to]...)
	return append(dst, t.out.tail...), text, true
}

// plain reports whether escaped text holds no escapes but those of one letter and no control bytes, so that copying it
// cannot carry broken JSON to the caller. size is its length unescaped.
func plain(b []byte) (size int, ok bool) {
	size = len(b)
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] < ' ':
			return 0, false
		case b[i] == '\\':
			i++
			if i >= len(b) || bytes.IndexByte([]byte(`"\/bfnrt`), b[i]) < 0 {
				return 0, false
			}
			size--
		}
	}
	return size, true
}
