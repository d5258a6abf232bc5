// Package eventstream reads AWS event streams, application/vnd.amazon.eventstream. It owns no connection and no clock.
//
// A frame is
//
//	length of the frame      uint32, big endian, as all numbers
//	length of its headers    uint32
//	CRC-32 of these 8 bytes  uint32
//	headers, payload
//	CRC-32 of all before     uint32
package eventstream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// What is wrong with a stream. Each is final: the reader stays in this state.
var (
	ErrTooLarge  = errors.New("eventstream: frame too large")
	ErrChecksum  = errors.New("eventstream: checksum does not fit")
	ErrFrame     = errors.New("eventstream: malformed frame")
	ErrTruncated = errors.New("eventstream: ended inside a frame")
)

// Event is what one frame says. Both are borrowed: they are valid until the next call of Next.
type Event struct {
	// Name is the event's type; "exception:" and the type of an exception; or "error:" and the code of an error.
	Name []byte
	// Data is the payload; of an error, which has none, a JSON object with its message.
	Data []byte
}

// The bounds, in bytes.
const (
	// FrameBytesMax is the cap of one frame. Above it: ErrTooLarge.
	FrameBytesMax = 16 << 20
	// headerBytesMax is the cap of a frame's headers. Above it: ErrTooLarge.
	headerBytesMax = 128 << 10
	// headsBytesMax is the longest headers that are remembered. Longer ones are read each time.
	headsBytesMax = 512
	// keepBytesMax is how much buffer a reader keeps between frames. One huge frame must not make a long stream hold
	// its size for hours.
	keepBytesMax = 16 << 10
)

const (
	preludeBytes = 12
	trailerBytes = 4
	frameLeast   = preludeBytes + trailerBytes
)

// Reader cuts a byte stream, split anywhere, into events. A frame that lies whole in one chunk is not copied.
//
// Use: Feed a chunk, call Next until it reports false, feed the next chunk. At the end of the stream call End, then
// Next once more: it fails when the stream ended inside a frame. The zero value is ready. A Reader has one user at a
// time.
type Reader struct {
	p       []byte // the borrowed chunk, what of it is not consumed
	part    []byte // start of a frame whose end has not arrived
	used    bool   // part was handed out as an event
	checked bool   // the prelude in part is sound
	heads   []byte // the headers of the newest event
	event   []byte // and the type that they state
	name    []byte // of an exception or error
	text    []byte // of an error
	ev      Event
	ended   bool
	err     error
}

// Feed gives the reader its next bytes. p is borrowed until Next reports false.
// Feeding before that, or after End, is a bug of the caller.
func (r *Reader) Feed(p []byte) {
	if len(r.p) > 0 || r.ended {
		panic("BUG: eventstream: Feed before the last chunk was used up, or after End")
	}
	r.p = p
}

// End tells the reader that the stream has ended.
func (r *Reader) End() { r.ended = true }

// Next returns the next event, valid until the next call. false means that more bytes are needed, or, after End, that
// nothing is left.
func (r *Reader) Next() (*Event, bool, error) {
	if r.err != nil {
		return &r.ev, false, r.err
	}
	frame, err := r.frame()
	if err == nil && frame == nil {
		return &r.ev, false, nil
	}
	if err == nil {
		err = r.read(frame)
	}
	if err != nil {
		r.err, r.p, r.part = err, nil, nil
	}
	return &r.ev, err == nil, err
}

// frame returns the next whole frame, nil when its end has not arrived.
func (r *Reader) frame() ([]byte, error) {
	if r.used {
		r.part, r.used = r.part[:0], false
		if cap(r.part) > keepBytesMax {
			r.part = nil
		}
	}
	if len(r.p) == 0 && !r.ended {
		return nil, nil
	}
	if len(r.part) == 0 {
		n, err := frameLen(r.p)
		switch {
		case err != nil:
			return nil, err
		case n > 0 && n <= len(r.p):
			whole := r.p[:n]
			r.p = r.p[n:]
			return whole, nil
		}
		r.checked = false
	}
	r.take(preludeBytes)
	if len(r.part) < preludeBytes {
		return r.wait()
	}
	if !r.checked { // before the rest is waited for: a broken length may ask for 16 MiB
		if _, err := frameLen(r.part); err != nil {
			return nil, err
		}
		r.checked = true
	}
	n := int(binary.BigEndian.Uint32(r.part))
	r.take(n)
	if len(r.part) < n {
		return r.wait()
	}
	r.used = true
	return r.part, nil
}

// take moves bytes of the chunk to part, until that holds n.
func (r *Reader) take(n int) {
	n = min(max(n-len(r.part), 0), len(r.p))
	r.part = append(r.part, r.p[:n]...)
	r.p = r.p[n:]
}

func (r *Reader) wait() ([]byte, error) {
	if r.ended && len(r.part) > 0 {
		return nil, ErrTruncated
	}
	return nil, nil
}

// frameLen reads and checks the prelude that p begins with, 0 when p is too short for one.
func frameLen(p []byte) (int, error) {
	if len(p) < preludeBytes {
		return 0, nil
	}
	if crc32.ChecksumIEEE(p[:8]) != binary.BigEndian.Uint32(p[8:]) {
		return 0, ErrChecksum
	}
	n, headers := int64(binary.BigEndian.Uint32(p)), int64(binary.BigEndian.Uint32(p[4:]))
	switch {
	case n > FrameBytesMax || headers > headerBytesMax:
		return 0, ErrTooLarge
	case n < frameLeast || headers > n-frameLeast:
		return 0, ErrFrame
	}
	return int(n), nil
}
