// Package sse reads and writes server-sent events. It owns no connection and no clock.
package sse

import (
	"bytes"
	"errors"
)

// ErrTooLarge is returned for an event above the reader's cap. It is final: the reader stays in this state.
var ErrTooLarge = errors.New("sse: event too large")

// Event is one server-sent event. Name is empty when the stream gave none. Data is the data lines, joined by \n.
// Both are borrowed: they are valid until the next call of Next.
type Event struct {
	Name []byte
	Data []byte
	// Bare is set for a line that was no field at all but a JSON object with an "error" member. Some servers end a
	// stream that way, without data: in front.
	Bare bool
}

// EventBytesMax is the default cap of one event, in bytes. The widest client libraries stop at the same size.
const EventBytesMax = 32 << 20

// keepBytesMax is how much buffer a reader keeps between events, in bytes. One huge event must not make a long
// stream hold its size for hours.
const keepBytesMax = 16 << 10

// usualBytesMax bounds what is looked for first, in bytes. A longer name is searched for its end each time.
const usualBytesMax = 128

// Reader cuts a byte stream, split anywhere, into events. Lines may end in LF, CRLF or CR, also mixed. An event that
// lies whole in one chunk and has one data line is not copied.
//
// Use: Feed a chunk, call Next until it reports false, feed the next chunk. At the end of the stream call End, then
// Next until it reports false: an event that no blank line closed comes out then. The zero value is ready. A Reader
// has one user at a time.
type Reader struct {
	// Max is the cap of one event in bytes; 0 means EventBytesMax.
	Max int

	p      []byte // the borrowed chunk
	pos    int    // how much of p is consumed
	lf, cr int    // the next LF and CR in p at or after pos, len(p) when there is none

	line []byte // start of a line whose end has not arrived
	name []byte // of the current event; in nameBuf or, when nameLent, in p
	data []byte // of the current event; in dataBuf or, when dataLent, in p
	has  bool   // a data line was seen, perhaps an empty one

	nameBuf, dataBuf   []byte
	nameLent, dataLent bool
	bare               []byte // a bare error line that waits behind the event before it

	usual    []byte // what stood in front of the data of the last named event: the next is nearly always named alike
	ev       Event
	fresh    bool // nothing is open: p[pos:] begins an event, and not the first one
	lent     bool // the line in hand lies whole in p
	skipLF   bool // the last chunk ended in CR: an LF here belongs to it
	began    bool // the first line, where a BOM may stand, is over
	ended    bool
	err      error
	comments int64
}

// Comments counts the comment lines seen so far. They carry nothing, but they show that the server lives.
func (r *Reader) Comments() int64 { return r.comments }

// Feed gives the reader its next bytes. p is borrowed until Next reports false.
// Feeding before that, or after End, is a bug of the caller.
func (r *Reader) Feed(p []byte) {
	if r.pos < len(r.p) || r.ended {
		panic("BUG: sse: Feed before the last chunk was used up, or after End")
	}
	r.p, r.pos, r.lf, r.cr = p, 0, -1, -1
}

// End tells the reader that the stream has ended cleanly.
func (r *Reader) End() { r.ended = true }

// Next returns the next event, valid until the next call. false means that more bytes are needed, or, after End, that
// nothing is left.
func (r *Reader) Next() (*Event, bool, error) {
	if r.fresh {
		if r.pos == len(r.p) && !r.ended {
			r.p, r.pos = nil, 0
			return nil, false, nil
		}
		if r.ordinary() {
			return &r.ev, true, nil
		}
	}
	ev, ok, err := r.any()
	r.ev, r.fresh = ev, ok && !r.skipLF && r.bare == nil // behind an event nothing else can be open
	return &r.ev, ok, err
}

// ordinary recognises an event that lies whole in the chunk and is spelled as nearly all are: perhaps a line with its
// name, one with its data, and a blank one, which end in LF. It does what any would do with it, only faster.
func (r *Reader) ordinary() bool {
	p := r.p[r.pos:]
	if len(p) > r.room() {
		return false
	}
	var name []byte
	from := len(r.usual)
	if from > 0 && bytes.HasPrefix(p, r.usual) {
		name = p[len(eventField) : from-len("\n"+dataField)]
	} else if name, from = r.ordinaryHead(p); from == 0 {
		return false
	}
	data := p[from:]
	to := bytes.IndexByte(data, '\n')
	if to < 0 || to+1 == len(data) || data[to+1] != '\n' || bytes.IndexByte(data[:to], '\r') >= 0 {
		return false
	}
	r.ev.Name, r.ev.Data, r.ev.Bare = name, data[:to], false
	r.pos += from + to + len("\n\n")
	return true
}

// ordinaryHead is what stands in front of an event's data, perhaps a line with its name, and the field; size is 0 for
// anything else.
func (r *Reader) ordinaryHead(p []byte) (name []byte, size int) {
	if begins(p, eventField) {
		to := bytes.IndexByte(p, '\n')
		if to < 0 || bytes.IndexByte(p[:to], '\r') >= 0 {
			return nil, 0
		}
		name, size = p[len(eventField):to], to+1
	}
	if !begins(p[size:], dataField) {
		return nil, 0
	}
	size += len(dataField)
	if name != nil && size <= usualBytesMax {
		r.usual = append(r.usual[:0], p[:size]...)
	}
	return name, size
}

func begins(p []byte, field string) bool {
	return len(p) >= len(field) && string(p[:len(field)]) == field
}

// any is Next for all that there is.
func (r *Reader) any() (Event, bool, error) {
	if r.err != nil {
		return Event{}, false, r.err
	}
	if r.bare != nil {
		ev := Event{Data: r.bare, Bare: true}
		r.bare = nil
		return ev, true, nil
	}
	for {
		line, ok := r.nextLine()
		if !ok {
			return r.flush()
		}
		ev, ok := r.take(line)
		if r.err != nil {
			return Event{}, false, r.err
		}
		if ok {
			return ev, true, nil
		}
	}
}

// flush is Next at the end of a chunk: what points into the chunk is saved, or, at the end of the stream, delivered.
func (r *Reader) flush() (Event, bool, error) {
	if r.err != nil {
		return Event{}, false, r.err
	}
	if !r.ended {
		r.save()
		return Event{}, false, nil
	}
	if len(r.line) > 0 {
		line := r.line
		r.line, r.lent = nil, false
		if ev, ok := r.take(line); ok {
			return ev, true, nil
		}
		if r.err != nil {
			return Event{}, false, r.err
		}
	}
	ev, ok := r.dispatch()
	return ev, ok, nil
}

// nextLine returns the next whole line without its end, valid until the next call or until the chunk goes.
func (r *Reader) nextLine() ([]byte, bool) {
	p := r.p
	if r.skipLF && r.pos < len(p) {
		r.skipLF = false
		if p[r.pos] == '\n' {
			r.pos++
		}
	}
	if r.pos >= len(p) {
		return nil, false
	}
	// Both positions are remembered, so that a byte is looked at twice at most, whatever the line ends are.
	if r.lf < r.pos {
		r.lf = index(p, r.pos, '\n')
	}
	if r.cr < r.pos {
		r.cr = index(p, r.pos, '\r')
	}
	end := min(r.lf, r.cr)
	part := p[r.pos:end]
	if end == len(p) {
		r.pos = end
		if len(r.line)+len(part) > r.room() {
			r.err = ErrTooLarge
			return nil, false
		}
		r.line = append(r.line, part...)
		return nil, false
	}
	r.pos = end + 1
	if p[end] == '\r' {
		if r.pos == len(p) {
			r.skipLF = true
		} else if p[r.pos] == '\n' {
			r.pos++
		}
	}
	r.lent = len(r.line) == 0
	if r.lent {
		return part, true
	}
	line := append(r.line, part...)
	r.line = line[:0]
	if cap(line) > keepBytesMax {
		r.line = nil
	}
	return line, true
}

// take digests one line; true when it completed an event.
func (r *Reader) take(line []byte) (Event, bool) {
	if len(line) > r.room() {
		r.err = ErrTooLarge
		return Event{}, false
	}
	if !r.began {
		r.began = true
		line = bytes.TrimPrefix(line, bom)
	}
	if len(line) == 0 {
		return r.dispatch()
	}
	switch line[0] {
	case ':':
		r.comments++
		return Event{}, false
	case '{':
		if bytes.Contains(line, errorMember) {
			return r.takeBare(line)
		}
		return Event{}, false
	}
	field, value, _ := bytes.Cut(line, colon)
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(field) {
	case "data":
		r.addData(value)
	case "event":
		if r.nameLent = r.lent; !r.lent {
			r.nameBuf = append(r.nameBuf[:0], value...)
			value = r.nameBuf
		}
		r.name = value
	}
	return Event{}, false
}

func (r *Reader) addData(value []byte) {
	switch {
	case r.has:
		r.ownData()
		r.dataBuf = append(append(r.dataBuf, '\n'), value...)
		r.data = r.dataBuf
	case r.lent:
		r.data, r.dataLent = value, true
	default:
		r.dataBuf = append(r.dataBuf[:0], value...)
		r.data, r.dataLent = r.dataBuf, false
	}
	r.has = true
}

// ownData moves the data of the current event out of the chunk.
func (r *Reader) ownData() {
	if r.dataLent {
		r.dataBuf = append(r.dataBuf[:0], r.data...)
		r.data, r.dataLent = r.dataBuf, false
	}
}

// takeBare delivers a bare error line, after the event that was still open when it came.
func (r *Reader) takeBare(line []byte) (Event, bool) {
	if ev, ok := r.dispatch(); ok {
		r.bare = bytes.Clone(line)
		return ev, true
	}
	return Event{Data: line, Bare: true}, true
}

// dispatch closes the current event. Without a data line there is none, whatever its name was.
func (r *Reader) dispatch() (Event, bool) {
	ev, ok := Event{Name: r.name, Data: r.data}, r.has
	r.name, r.data, r.has = nil, nil, false
	r.nameLent, r.dataLent = false, false
	if cap(r.dataBuf) > keepBytesMax {
		r.dataBuf = nil // ev still holds it
	}
	if cap(r.nameBuf) > keepBytesMax {
		r.nameBuf = nil
	}
	if !ok {
		return Event{}, false
	}
	return ev, true
}

// save copies what still points into the chunk, which is about to go.
func (r *Reader) save() {
	r.ownData()
	if r.nameLent {
		r.nameBuf = append(r.nameBuf[:0], r.name...)
		r.name, r.nameLent = r.nameBuf, false
	}
	r.p, r.pos = nil, 0
}

func (r *Reader) room() int {
	limit := r.Max
	if limit <= 0 {
		limit = EventBytesMax
	}
	return limit - len(r.data) - len(r.name)
}

var (
	bom         = []byte("\xef\xbb\xbf")
	colon       = []byte(":")
	errorMember = []byte(`"error"`)
)

const (
	eventField = "event: "
	dataField  = "data: "
)

// index is where c stands in p at or behind from, len(p) when it does not.
func index(p []byte, from int, c byte) int {
	if i := bytes.IndexByte(p[from:], c); i >= 0 {
		return from + i
	}
	return len(p)
}
