package sse

import (
	"bytes"
	"strings"
)

// Done is the event that ends a stream in the OpenAI dialect.
const Done = "data: [DONE]\n\n"

// KeepAlive is a comment that shows a waiting reader that the stream lives.
const KeepAlive = ": keep-alive\n\n"

// AppendData appends one event without a name. data is normally one line of JSON; line ends in it become further
// data lines, so that no content can end the event early.
func AppendData(dst, data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 { // nearly always, and faster than IndexAny
		return append(appendLine(dst, data), '\n')
	}
	for {
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			break
		}
		dst = appendLine(dst, data[:i])
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
	return append(appendLine(dst, data), '\n')
}

// AppendEvent appends one named event; an empty name is left out. A name holds no line end: anything else is a BUG
// panic.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		mustBeOneLine(name)
		dst = append(dst, "event: "...)
		dst = append(dst, name...)
		dst = append(dst, '\n')
	}
	return AppendData(dst, data)
}

// AppendComment appends a comment, which readers ignore. A text with a line end is a BUG panic.
func AppendComment(dst []byte, text string) []byte {
	mustBeOneLine(text)
	dst = append(dst, ": "...)
	dst = append(dst, text...)
	return append(dst, "\n\n"...)
}

func appendLine(dst, line []byte) []byte {
	dst = append(dst, "data: "...)
	dst = append(dst, line...)
	return append(dst, '\n')
}

func mustBeOneLine(s string) {
	if strings.IndexByte(s, '\n') >= 0 || strings.IndexByte(s, '\r') >= 0 {
		panic("BUG: sse: line end inside a field")
	}
}
