package eventstream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"unicode/utf8"
)

// The kinds of values a header may have.
const (
	kindTrue = iota
	kindFalse
	kindInt8
	kindInt16
	kindInt32
	kindInt64
	kindBytes
	kindString
	kindTime
	kindUUID
)

// head is the headers that say what a frame is. The others are of no use here.
type head struct {
	message   []byte // :message-type
	event     []byte
	exception []byte
	code      []byte // of an error
	text      []byte
}

// read checks a whole frame and notes what it means.
func (r *Reader) read(frame []byte) error {
	body := frame[:len(frame)-trailerBytes]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(frame[len(body):]) {
		return ErrChecksum
	}
	end := preludeBytes + int(binary.BigEndian.Uint32(frame[4:]))
	headers, payload := body[preludeBytes:end], body[end:]
	if len(headers) > 0 && bytes.Equal(headers, r.heads) { // nearly always: they are those of the event before
		r.ev.Name, r.ev.Data = r.event, payload
		return nil
	}
	h, err := readHead(headers)
	if err != nil {
		return err
	}
	switch string(h.message) {
	case "event":
		r.remember(headers, h.event)
		r.ev = Event{Name: h.event, Data: payload}
	case "exception":
		r.name = append(append(r.name[:0], "exception:"...), h.exception...)
		r.ev = Event{Name: r.name, Data: payload}
	case "error":
		r.name = append(append(r.name[:0], "error:"...), h.code...)
		r.text = append(r.text[:0], `{"message":`...)
		text, err := json.Marshal(string(h.text))
		if err != nil {
			return ErrFrame // never: any string can be marshalled
		}
		r.text = append(append(r.text, text...), '}')
		r.ev = Event{Name: r.name, Data: r.text}
	default:
		return ErrFrame
	}
	return nil
}

// remember keeps the headers of an event, and the type that they state.
func (r *Reader) remember(headers, event []byte) {
	if r.heads = r.heads[:0]; len(headers) <= headsBytesMax {
		r.heads = append(r.heads, headers...)
		r.event = append(r.event[:0], event...)
	}
}

// readHead walks the headers. Of two with one name the last counts.
func readHead(p []byte) (head, error) {
	var h head
	for len(p) > 0 {
		n := int(p[0])
		if len(p) < 1+n+1 {
			return h, ErrFrame
		}
		name, kind := p[1:1+n], p[1+n]
		p = p[n+2:]
		size, ok := valueLen(kind, p)
		if !ok || len(p) < size {
			return h, ErrFrame
		}
		value := p[:size]
		p = p[size:]
		var to *[]byte
		switch string(name) {
		case ":message-type":
			to = &h.message
		case ":event-type":
			to = &h.event
		case ":exception-type":
			to = &h.exception
		case ":error-code":
			to = &h.code
		case ":error-message":
			to = &h.text
		default:
			continue
		}
		if kind != kindString || !utf8.Valid(value[2:]) {
			return h, ErrFrame
		}
		*to = value[2:]
	}
	return h, nil
}

// valueLen is how many bytes a value takes at the start of p, its own length included.
func valueLen(kind byte, p []byte) (int, bool) {
	switch kind {
	case kindTrue, kindFalse:
		return 0, true
	case kindInt8:
		return 1, true
	case kindInt16:
		return 2, true
	case kindInt32:
		return 4, true
	case kindInt64, kindTime:
		return 8, true
	case kindUUID:
		return 16, true
	case kindBytes, kindString:
		if len(p) < 2 {
			return 0, false
		}
		return 2 + int(binary.BigEndian.Uint16(p)), true
	}
	return 0, false
}
