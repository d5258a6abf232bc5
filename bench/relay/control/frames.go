package control

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// AWS's frames begin with their length, that of their headers, and a checksum of both; they end with a checksum of all
// before it.
const (
	preludeBytes = 12
	trailerBytes = 4
)

// TranslateFrames is Translate for AWS's framing. Both checksums of a frame are checked. Its headers say what it is: they
// are searched for the one kind that brings a delta.
func (l *Loop) TranslateFrames(dst, p []byte) []byte {
	if l.Broken {
		return dst
	}
	if len(l.part) > 0 {
		l.part = append(l.part, p...)
		p = l.part
	}
	for {
		frame, sound := first(p)
		if !sound {
			l.Broken = true
			return dst
		}
		if frame == nil {
			break
		}
		l.Events++
		end := preludeBytes + binary.BigEndian.Uint32(frame[4:])
		if payload := frame[end : len(frame)-trailerBytes]; bytes.Contains(frame[preludeBytes:end], l.event) {
			dst = l.chunk(dst, payload)
		} else {
			l.look(payload)
		}
		p = p[len(frame):]
	}
	l.part = append(l.part[:0], p...)
	return dst
}

// first is the frame that p begins with, nil when its end is not in p.
func first(p []byte) (frame []byte, sound bool) {
	if len(p) < preludeBytes {
		return nil, true
	}
	n, headers := int64(binary.BigEndian.Uint32(p)), int64(binary.BigEndian.Uint32(p[4:]))
	if crc32.ChecksumIEEE(p[:8]) != binary.BigEndian.Uint32(p[8:]) || n < preludeBytes+trailerBytes+headers {
		return nil, false
	}
	if int64(len(p)) < n {
		return nil, true
	}
	end := n - trailerBytes
	return p[:n], crc32.ChecksumIEEE(p[:end]) == binary.BigEndian.Uint32(p[end:])
}
