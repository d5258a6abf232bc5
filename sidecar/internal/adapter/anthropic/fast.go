package anthropic

import (
	"bytes"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Nearly all events of a stream are deltas of one of three kinds, in one spelling. Those are recognised byte by byte
// and their text is copied as it is, still escaped. Whatever looks only a little different goes the long way.

const (
	deltaOpen  = `{"type":"content_block_delta","index":`
	deltaInner = `,"delta":{"type":"`
	deltaText  = `text_delta","text":"`
	deltaThink = `thinking_delta","thinking":"`
	deltaInput = `input_json_delta","partial_json":"`
)

// piece is an ordinary delta: data[from:to] is its text, still escaped. It has no more fields than fit into registers.
type piece struct {
	kind     pieceKind
	index    int64 // of its block
	from, to int
}

type pieceKind uint8

const (
	pieceText pieceKind = iota
	pieceThinking
	pieceInput
)

// pieces recognises the ordinary deltas of a stream.
type pieces struct {
	head []byte // of the newest, up to its text: nearly all begin as the one before
	last piece  // which had this head
}

// read recognises an ordinary delta. size is that of its text once decoded, in bytes; ok is false when data is anything
// else.
func (s *pieces) read(data []byte) (p piece, size int64, ok bool) {
	if len(s.head) == 0 || !bytes.HasPrefix(data, s.head) {
		if p, ok = readHead(data); !ok {
			return p, 0, false
		}
		s.head, s.last = append(s.head[:0], data[:p.from]...), p
	}
	p = s.last
	to, n := adapter.TextEnd(data, p.from)
	p.to = to
	return p, int64(n), to >= 0 && closes(data[to+1:])
}

// readHead reads an ordinary delta up to its text.
func readHead(data []byte) (p piece, ok bool) {
	if !has(data, 0, deltaOpen) {
		return p, false
	}
	at, index := adapter.NumberEnd(data, len(deltaOpen))
	if at < 0 || !has(data, at, deltaInner) {
		return p, false
	}
	p.index, at = int64(index), at+len(deltaInner)
	switch {
	case has(data, at, deltaText):
		at += len(deltaText)
	case has(data, at, deltaThink):
		at, p.kind = at+len(deltaThink), pieceThinking
	case has(data, at, deltaInput):
		at, p.kind = at+len(deltaInput), pieceInput
	default:
		return p, false
	}
	p.from = at
	return p, true
}

// fast translates an ordinary delta. ok is false, and nothing was done, when data is anything else.
func (s *stream) fast(dst, data []byte) (out []byte, ok bool) {
	if s.block == blockSkipped {
		return dst, false
	}
	p, size, ok := s.usual.read(data)
	if !ok {
		return dst, false
	}
	add := s.say
	switch p.kind {
	case pieceThinking:
		add = s.think
	case pieceInput:
		if s.block != blockTool || p.index != s.index {
			return dst, false
		}
		add = s.arguments
	}
	if p.from == p.to {
		return dst, true
	}
	return add(dst, data[p.from:p.to], size), true
}

func has(p []byte, at int, want string) bool {
	return len(p)-at >= len(want) && string(p[at:at+len(want)]) == want
}

// closes reports whether p is the two closing braces and nothing else but space. The provider pads its events.
func closes(p []byte) bool {
	if !has(p, 0, "}}") {
		return false
	}
	for _, c := range p[2:] {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return false
		}
	}
	return true
}
