package anthropic

import "bytes"

// Nearly all events of a stream are deltas of one of three kinds, in one spelling. Those are recognised byte by byte
// and their text is copied as it is, still escaped. Whatever looks only a little different goes the long way.

const (
	deltaOpen  = `{"type":"content_block_delta","index":`
	deltaInner = `,"delta":{"type":"`
	deltaText  = `text_delta","text":"`
	deltaThink = `thinking_delta","thinking":"`
	deltaInput = `input_json_delta","partial_json":"`
)

// fast translates an ordinary delta. ok is false, and nothing was done, when data is anything else.
func (s *stream) fast(dst, data []byte) (out []byte, ok bool) {
	if s.block == blockSkipped || !has(data, 0, deltaOpen) {
		return dst, false
	}
	index, at := int64(0), len(deltaOpen)
	first := at
	for at < len(data) && data[at] >= '0' && data[at] <= '9' && at-first < 9 {
		index = index*10 + int64(data[at]-'0')
		at++
	}
	if at == first || !has(data, at, deltaInner) {
		return dst, false
	}
	at += len(deltaInner)
	var add func(dst, escaped []byte, size int64) []byte
	switch {
	case has(data, at, deltaText):
		at, add = at+len(deltaText), s.say
	case has(data, at, deltaThink):
		at, add = at+len(deltaThink), s.think
	case has(data, at, deltaInput) && s.block == blockTool && index == s.index:
		at, add = at+len(deltaInput), s.arguments
	default:
		return dst, false
	}
	end, size, ok := scanString(data, at)
	if !ok || !closes(data[end+1:]) {
		return dst, false
	}
	if end == at {
		return dst, true
	}
	return add(dst, data[at:end], size), true
}

func has(p []byte, at int, want string) bool {
	return len(p)-at >= len(want) && string(p[at:at+len(want)]) == want
}

// closes reports whether p is the two closing braces and nothing else but space. The provider pads its events.
func closes(p []byte) bool {
	if !bytes.HasPrefix(p, twoBraces) {
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

var twoBraces = []byte("}}")
