package messages

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

const (
	// waitingMax bounds the calls that wait for an earlier one to end. More break the stream off.
	waitingMax = 128
	// waitingBytesMax bounds what of one answer waits, in bytes. More breaks it off.
	waitingBytesMax = 16 << 20
)

// Anthropic's blocks follow each other; chat may go on with an earlier call. So a call waits while the open one is not
// complete, which it is when its arguments are an object.

// call is a tool call that has begun in chat.
type call struct {
	index     int64
	id, name  string
	extra     json.RawMessage // what its vendor wants back with it
	arguments []byte          // so far, escaped
}

func (c *call) complete() bool {
	return isObject(adapter.Said(gjson.Parse(`"` + string(c.arguments) + `"`)))
}

func isObject(text string) bool {
	return gjson.Parse(text).IsObject() && adapter.Valid([]byte(text))
}

// isBlank reports whether arguments are nothing, or white space, which says nothing.
func isBlank(text string) bool { return strings.Trim(text, " \t\r\n") == "" }

// calls takes in the pieces of calls. false: one is of a call that has ended, or too many wait.
func (s *stream) calls(dst []byte, pieces gjson.Result) ([]byte, bool) {
	for _, p := range pieces.Array() {
		index, arguments := p.Get("index").Int(), adapter.Inside(p.Get("function.arguments"))
		extra := p.Get("extra_content")
		if !extra.IsObject() || len(extra.Raw) > foreignMax {
			extra = gjson.Result{}
		}
		switch c := s.waits(index); {
		case s.open == "tool_use" && index == s.call.index:
			if p.Get("function.name").Str != "" {
				return dst, false // more of the name, and the caller has been told it
			}
			if extra.Exists() {
				s.extra = json.RawMessage(extra.Raw)
			}
			dst = s.argue(dst, arguments)
			if len(s.waiting) > 0 && s.call.complete() {
				dst = s.release(dst, false)
			}
		case c != nil:
			c.name += p.Get("function.name").Str
			c.arguments = append(c.arguments, arguments...)
			if s.held += len(arguments); s.held > waitingBytesMax {
				return dst, false
			}
			if extra.Exists() {
				c.extra = json.RawMessage(extra.Raw)
			}
		case index < s.next:
			if !isBlank(p.Get("function.arguments").Str) || extra.Exists() {
				return dst, false
			}
		default:
			c := call{index: index, id: p.Get("id").Str, name: p.Get("function.name").Str, arguments: []byte(arguments)}
			if extra.Exists() {
				c.extra = json.RawMessage(extra.Raw)
			}
			s.next = index + 1
			if len(s.waiting) > 0 || s.open == "tool_use" && !s.call.complete() {
				s.held += len(arguments)
				if s.waiting = append(s.waiting, c); len(s.waiting) > waitingMax || s.held > waitingBytesMax {
					return dst, false
				}
				continue
			}
			dst = s.begun(dst, c)
		}
	}
	return dst, true
}

// waits returns the waiting call with an index, nil if there is none.
func (s *stream) waits(index int64) *call {
	for i := range s.waiting {
		if s.waiting[i].index == index {
			return &s.waiting[i]
		}
	}
	return nil
}

// begun opens the block of a call, with what is known of its arguments.
func (s *stream) begun(dst []byte, c call) []byte {
	dst = s.close(dst)
	if c.extra != nil {
		dst = s.whole(dst, kept(c.id, gjson.ParseBytes(c.extra)))
	}
	s.end.called = true
	dst = s.begin(dst, "tool_use", object{"type": "tool_use", "id": idOut(c.id), "name": c.name, "input": object{}})
	arguments := string(c.arguments)
	c.arguments = nil
	s.call = c
	return s.argue(dst, arguments)
}

// argue appends a piece of the open call's arguments, escaped.
func (s *stream) argue(dst []byte, arguments string) []byte {
	if arguments == "" {
		return dst
	}
	if len(s.call.arguments) <= waitingBytesMax {
		s.call.arguments = append(s.call.arguments, arguments...)
	}
	return appendText(dst, s.block, argumentsDelta, arguments)
}

// release opens the calls that wait, one after the other, up to one that is not complete; all of them when there is
// nothing more to wait for.
func (s *stream) release(dst []byte, all bool) []byte {
	for len(s.waiting) > 0 {
		c := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.held -= len(c.arguments)
		dst = s.begun(dst, c)
		if !all && !s.call.complete() {
			break
		}
	}
	return dst
}
