package openai

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// This file walks JSON in place. All of it needs a document that adapter.Valid has accepted.

// span is doc[from:to] of the document at hand. A JSON value is never empty, so the empty span is none.
type span struct{ from, to int }

func (s span) is() bool { return s.to > s.from }

// cursor goes over the members of an object or the elements of an array.
type cursor struct {
	doc   []byte
	prev  int  // where the one before ends
	item  int  // where this one begins, its name included
	key   span // the name without its quotes, as it stands; none in arrays
	value span
}

// enter begins at the object or array v. Anything else has nothing inside.
func enter(doc []byte, v span) cursor {
	if !v.is() || doc[v.from] != '{' && doc[v.from] != '[' {
		return cursor{}
	}
	return cursor{doc: doc[:v.to], value: span{v.from, v.from + 1}}
}

func (c *cursor) next() bool {
	if c.doc == nil {
		return false
	}
	i := c.follow()
	if i == len(c.doc)-1 {
		return false // the closing bracket
	}
	c.prev, c.item = c.value.to, i
	if c.object() {
		end := pastText(c.doc, i)
		c.key = span{i + 1, end - 1}
		i = pastBlank(c.doc, pastBlank(c.doc, end)+1)
	}
	c.value = span{i, pastValue(c.doc, i)}
	return true
}

// object tells by the closing bracket whether the items have names.
func (c *cursor) object() bool { return c.doc[len(c.doc)-1] == '}' }

// follow is where the next item begins, or the closing bracket stands.
func (c *cursor) follow() int {
	i := pastBlank(c.doc, c.value.to)
	if c.doc[i] == ',' {
		i = pastBlank(c.doc, i+1)
	}
	return i
}

// name is the member's name, its escapes resolved.
func (c *cursor) name() []byte {
	k := c.doc[c.key.from:c.key.to]
	if bytes.IndexByte(k, '\\') >= 0 {
		return []byte(text(c.doc, span{c.key.from - 1, c.key.to + 1}))
	}
	return k
}

// find is the value of the object v's first member of that name.
func find(doc []byte, v span, name string) span {
	if v.is() && doc[v.from] == '{' {
		for c := enter(doc, v); c.next(); {
			if string(c.name()) == name {
				return c.value
			}
		}
	}
	return span{}
}

func isText(doc []byte, v span) bool   { return v.is() && doc[v.from] == '"' }
func isNull(doc []byte, v span) bool   { return v.is() && doc[v.from] == 'n' }
func isObject(doc []byte, v span) bool { return v.is() && doc[v.from] == '{' }
func isArray(doc []byte, v span) bool  { return v.is() && doc[v.from] == '[' }

// hasText says that v is a text, and not the empty one.
func hasText(doc []byte, v span) bool { return isText(doc, v) && v.to > v.from+2 }

// text is the text v with its escapes resolved, "" when it is none.
func text(doc []byte, v span) string {
	if !isText(doc, v) {
		return ""
	}
	if bytes.IndexByte(doc[v.from:v.to], '\\') < 0 {
		return string(doc[v.from+1 : v.to-1])
	}
	return gjson.ParseBytes(doc[v.from:v.to]).Str
}

// textBytes is how many bytes text would return.
func textBytes(doc []byte, v span) int {
	if to, n := adapter.TextEnd(doc, v.from+1); to >= 0 {
		return n
	}
	return len(text(doc, v)) // it has half a surrogate pair
}

// whole is the document's own value: the span of all but the space around it.
func whole(doc []byte) span {
	from := pastBlank(doc, 0)
	return span{from, pastValue(doc, from)}
}

func pastBlank(doc []byte, i int) int {
	for i < len(doc) && doc[i] <= ' ' {
		i++
	}
	return i
}

// pastText is behind the closing quote of the text that begins at i.
func pastText(doc []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(doc[i:], '"')
		slashes := 0
		for doc[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// pastValue is behind the value that begins at i.
func pastValue(doc []byte, i int) int {
	switch doc[i] {
	case '"':
		return pastText(doc, i)
	case '{', '[':
		for depth := 0; ; {
			switch doc[i] {
			case '"':
				i = pastText(doc, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(doc) && doc[i] > ' ' && doc[i] != ',' && doc[i] != '}' && doc[i] != ']' {
		i++
	}
	return i
}
