// Package jsonseq reads streams of JSON objects that are not server-sent events: the elements of one array, or objects
// one after another, as a rule one a line. It owns no connection and no clock.
package jsonseq

import "errors"

// What a Reader's error may be. Each is final: the reader stays in this state.
var (
	// ErrTooLarge says that an object is above the reader's cap.
	ErrTooLarge = errors.New("jsonseq: object too large")
	// ErrMalformed says that something else than an object stands where one is due.
	ErrMalformed = errors.New("jsonseq: not a sequence of JSON objects")
	// ErrCut says that the stream ended inside an object.
	ErrCut = errors.New("jsonseq: the stream ends inside an object")
)

// ObjectBytesMax is the default cap of one object, in bytes: that of a server-sent event.
const ObjectBytesMax = 32 << 20

// keepBytesMax is how much buffer a reader keeps between objects, in bytes.
const keepBytesMax = 16 << 10

// Reader cuts a byte stream, split anywhere, into JSON objects. Whether they are the elements of an array shows at the
// first byte. Only what is needed to find their ends is checked: whether they are JSON is for their reader to say. An
// object that lies whole in one chunk is not copied.
//
// Use: Feed a chunk, call Next until it reports false, feed the next chunk. At the end of the stream call End, then
// Next once more. An array need not be closed at the end of the stream. The zero value is ready. A Reader has one user
// at a time.
type Reader struct {
	// Max is the cap of one object in bytes; 0 means ObjectBytesMax.
	Max int

	p   []byte // the borrowed chunk
	pos int    // how much of p is consumed
	buf []byte // start of an object whose end has not arrived

	place   place
	array   bool
	depth   int // of brackets open in the object, 0 between objects
	quoted  bool
	escaped bool
	ended   bool
	err     error
}

// place is where in the sequence the reader is.
type place uint8

const (
	atStart place = iota
	atObject
	atEnd // the array is closed
)

// Feed gives the reader its next bytes. p is borrowed until Next reports false.
// Feeding before that, or after End, is a bug of the caller.
func (r *Reader) Feed(p []byte) {
	if r.pos < len(r.p) || r.ended {
		panic("BUG: jsonseq: Feed before the last chunk was used up, or after End")
	}
	r.p, r.pos = p, 0
}

// End tells the reader that the stream has ended cleanly.
func (r *Reader) End() { r.ended = true }

// Next returns the next object, valid until the next call. false means that more bytes are needed, or, after End, that
// nothing is left.
func (r *Reader) Next() ([]byte, bool, error) {
	if r.err != nil {
		return nil, false, r.err
	}
	if r.depth == 0 {
		r.clear()
		if r.err = r.between(); r.err != nil {
			return nil, false, r.err
		}
	}
	start := r.pos
	over := r.inside()
	part := r.p[start:r.pos]
	switch {
	case len(r.buf)+len(part) > r.max():
		r.err = ErrTooLarge
	case over && len(r.buf) == 0:
		return part, true, nil
	case over:
		r.buf = append(r.buf, part...)
		return r.buf, true, nil
	default:
		r.buf = append(r.buf, part...)
		if r.ended && r.depth > 0 {
			r.err = ErrCut
		}
	}
	return nil, false, r.err
}

// clear forgets the object before.
func (r *Reader) clear() {
	if r.buf = r.buf[:0]; cap(r.buf) > keepBytesMax {
		r.buf = nil
	}
}

// between moves to the first byte of the next object, or to the end of the chunk.
func (r *Reader) between() error {
	for ; r.pos < len(r.p); r.pos++ {
		switch c := r.p[r.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case r.place == atEnd:
			return ErrMalformed
		case c == '{':
			r.place = atObject
			return nil
		case c == '[' && r.place == atStart:
			r.place, r.array = atObject, true
		case c == ',' && r.array:
		case c == ']' && r.array:
			r.place = atEnd
		default:
			return ErrMalformed
		}
	}
	return nil
}

// inside moves behind the end of the object, or to the end of the chunk; true for the first.
func (r *Reader) inside() bool {
	for r.pos < len(r.p) {
		c := r.p[r.pos]
		r.pos++
		switch {
		case r.escaped:
			r.escaped = false
		case r.quoted && c == '\\':
			r.escaped = true
		case c == '"':
			r.quoted = !r.quoted
		case r.quoted:
		case c == '{' || c == '[':
			r.depth++
		case c == '}' || c == ']':
			if r.depth--; r.depth == 0 {
				return true
			}
		}
	}
	return false
}

func (r *Reader) max() int {
	if r.Max > 0 {
		return r.Max
	}
	return ObjectBytesMax
}
