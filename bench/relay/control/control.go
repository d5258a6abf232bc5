// Package control is the yardstick for the relay: the least that a gateway must do with a chunk, written plainly. It
// imports nothing of the gateway, so that no cleverness or slowness of the one is also the other's.
//
// The recipe: bytes go to the caller as they arrive. Beside that, a resumable scanner finds where events end, however the
// bytes are split and whatever ends their lines, and each event is searched for usage. Only to translate is an event put
// together and written anew.
//
// What a gateway owes beyond the recipe is not in here, and so counts against the product: giving each chunk the alias
// for a model's name, keeping id and created the same, leaving out usage that nobody asked for, counting what was
// delivered, refusing what is no JSON.
package control

import (
	"bytes"
	"strconv"
)

// Scanner finds the ends of server-sent events in bytes that are split anywhere. Lines end in LF, CRLF or CR.
type Scanner struct {
	blank bool // nothing stands on the current line yet
	cr    bool // the last byte was a CR: an LF is a part of the same line end
}

// NewScanner stands at the start of a stream.
func NewScanner() Scanner { return Scanner{blank: true} }

// Next returns how many bytes of p belong to the current event; ok is false when its end is not in p.
func (s *Scanner) Next(p []byte) (n int, ok bool) {
	i := 0
	if s.cr && len(p) > 0 {
		s.cr = false
		if p[0] == '\n' {
			i = 1
		}
	}
	for i < len(p) {
		to := lineEnd(p[i:])
		if to < 0 {
			s.blank = false
			return len(p), false
		}
		ends := s.blank && to == 0
		i += to
		s.blank = true
		if p[i] == '\r' {
			if i+1 == len(p) {
				s.cr = true
			} else if p[i+1] == '\n' {
				i++
			}
		}
		if i++; ends {
			return i, true
		}
	}
	return len(p), false
}

// lineEnd is where the first line of p ends, -1 when it does not.
func lineEnd(p []byte) int {
	lf := bytes.IndexByte(p, '\n')
	if lf < 0 {
		return bytes.IndexByte(p, '\r')
	}
	if cr := bytes.IndexByte(p[:lf], '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// Loop is one stream. The zero value is not ready: see New.
type Loop struct {
	// Usage is the newest usage object that an event stated, as it stood.
	Usage []byte
	// Events counts the events.
	Events int

	// Broken is set where a frame's checksum is wrong: nothing is read behind it.
	Broken bool

	scan   Scanner
	part   []byte // of an event that came in several pieces
	event  []byte // needles
	text   []byte
	usage  []byte
	apart  bool
	head   []byte // of a translated chunk, up to its text or number
	middle []byte // between the two
	tail   []byte // and behind the text
	number int64
}

// Wire is how a provider spells what a translation looks for. Needles have no quote in front: with one the search is many
// times slower. They cannot match inside a text, where their quotes would be escaped.
type Wire struct {
	Event string // stands in the headers of frames that bring a delta; for those alone
	Text  string // stands before the text of a delta
	Usage string // stands before a usage object, its brace included
	Apart bool   // an event with a text states no usage, and need not be searched for it
}

// Chunk is what stands around the text of a translated chunk.
type Chunk struct {
	Head, Tail string
	Middle     string // stands between the chunk's number and its text; "" for chunks without a number
	Number     int64  // of the first one
}

// New begins a stream that is passed through.
func New() *Loop { return &Loop{scan: NewScanner(), usage: []byte(`usage":{`)} }

// NewTranslation begins a stream that is translated.
func NewTranslation(from Wire, to Chunk) *Loop {
	return &Loop{
		scan: NewScanner(), event: []byte(from.Event), text: []byte(from.Text), usage: []byte(from.Usage), apart: from.Apart,
		head: []byte(to.Head), middle: []byte(to.Middle), tail: []byte(to.Tail), number: to.Number,
	}
}

// Pass appends to dst what the caller gets of one piece: the piece.
func (l *Loop) Pass(dst, p []byte) []byte {
	dst = append(dst, p...)
	for len(p) > 0 {
		n, ok := l.scan.Next(p)
		if ev := l.whole(p[:n], ok); ev != nil {
			l.look(ev)
		}
		p = p[n:]
	}
	return dst
}

// Translate appends to dst the chunks that become of one piece.
func (l *Loop) Translate(dst, p []byte) []byte {
	for len(p) > 0 {
		n, ok := l.scan.Next(p)
		if ev := l.whole(p[:n], ok); ev != nil {
			dst = l.chunk(dst, ev)
		}
		p = p[n:]
	}
	return dst
}

// whole is the event that ends with p, nil when it does not end there. It is copied only if it came in pieces.
func (l *Loop) whole(p []byte, ends bool) []byte {
	switch {
	case !ends:
		l.part = append(l.part, p...)
		return nil
	case len(l.part) > 0:
		p = append(l.part, p...)
		l.part = p[:0]
	}
	l.Events++
	return p
}

// look keeps the usage that an event states.
func (l *Loop) look(ev []byte) {
	at := bytes.Index(ev, l.usage)
	if at < 0 {
		return
	}
	from := at + len(l.usage) - 1
	depth := 0
	for i := from; i < len(ev); i++ { // usage holds numbers and objects: no text with a brace in it
		switch ev[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				l.Usage = append(l.Usage[:0], ev[from:i+1]...)
				return
			}
		}
	}
}

// chunk appends the chunk that becomes of a delta of text: the text is copied as it stands, still escaped. Other events
// make none.
func (l *Loop) chunk(dst, ev []byte) []byte {
	at := bytes.Index(ev, l.text)
	if at < 0 || !l.apart {
		l.look(ev)
	}
	if at < 0 {
		return dst
	}
	from := at + len(l.text)
	for i := from; i < len(ev); i++ {
		switch ev[i] {
		case '\\':
			i++
		case '"':
			dst = append(dst, l.head...)
			if len(l.middle) > 0 {
				dst = append(strconv.AppendInt(dst, l.number, 10), l.middle...)
				l.number++
			}
			dst = append(dst, ev[from:i]...)
			return append(dst, l.tail...)
		}
	}
	return dst
}
