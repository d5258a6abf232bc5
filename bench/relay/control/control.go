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

import "bytes"

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

	scan Scanner
	part []byte // of an event that came in several pieces
	head []byte // of a translated chunk, up to its text
	tail []byte // and behind it
}

// New begins a stream. head and tail are what stands around the text of a translated chunk.
func New(head, tail string) *Loop {
	return &Loop{scan: NewScanner(), head: []byte(head), tail: []byte(tail)}
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

// Translate appends to dst the chat chunks that become of one piece of an Anthropic stream.
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

// usageNeedle has no quote in front: with it the search is many times slower. It cannot match inside a text, where its
// quote would be escaped.
var usageNeedle = []byte(`usage":{`)

// look keeps the usage that an event states.
func (l *Loop) look(ev []byte) {
	at := bytes.Index(ev, usageNeedle)
	if at < 0 {
		return
	}
	from := at + len(usageNeedle) - 1
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

var (
	deltaNeedle = []byte(`"text_delta","text":"`)
	otherNeedle = []byte(`message_`)
)

// chunk appends the chat chunk that becomes of a delta of text: the text is copied as it stands, still escaped. Other
// events make none; those that state usage are read for it.
func (l *Loop) chunk(dst, ev []byte) []byte {
	at := bytes.Index(ev, deltaNeedle)
	if at < 0 {
		if bytes.Contains(ev, otherNeedle) {
			l.look(ev)
		}
		return dst
	}
	from := at + len(deltaNeedle)
	for i := from; i < len(ev); i++ {
		switch ev[i] {
		case '\\':
			i++
		case '"':
			dst = append(dst, l.head...)
			dst = append(dst, ev[from:i]...)
			return append(dst, l.tail...)
		}
	}
	return dst
}
