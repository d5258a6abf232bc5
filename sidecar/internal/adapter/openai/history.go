package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// foreign are the names of members that servers put into messages and OpenAI does not know. Callers send them back with
// the conversation, which may go on elsewhere.
var foreign = [...]string{"reasoning_content", "reasoning_details", "reasoning", "extra_content"}

// messages mends the conversation v for servers that are strict with it. Most conversations hold nothing to mend, which
// is seen without taking them apart.
func (q *request) messages(v span) *exchange.Failure {
	raw := q.r.Body[v.from:v.to]
	calls := q.w.shortID && bytes.Contains(raw, []byte(`"tool_call`)) || bytes.Contains(raw, []byte(adapter.SignatureMark))
	names := q.w.nobody && bytes.Contains(raw, []byte(`"name"`))
	if !calls && !names && (!q.w.strict || !holdsForeign(raw)) {
		return nil
	}
	var voices adapter.Voices
	for m := enter(q.r.Body, v); names && m.next(); {
		voices.Meet(q.speaker(m.value))
	}
	i := -1
	for m := enter(q.r.Body, v); m.next(); {
		i++
		if !isObject(q.r.Body, m.value) {
			continue
		}
		if names {
			q.introduce(find(q.r.Body, m.value, "content"), voices.Introduce(q.speaker(m.value)))
		}
		kept := false
		for c := enter(q.r.Body, m.value); c.next(); {
			name := string(c.name())
			if q.w.strict && name == drawn && enterable(q.r.Body, c.value) {
				return refuse(fmt.Sprintf("messages[%d].%s", i, drawn))
			}
			if q.w.strict && (isForeign(name) || name == drawn) || names && name == "name" {
				q.edits.drop(&c, kept)
				continue
			}
			kept = true
			switch name {
			case "tool_call_id":
				q.shorten(c.value)
			case "tool_calls":
				for x := enter(q.r.Body, c.value); x.next(); {
					q.call(x.value)
				}
			}
		}
	}
	return nil
}

// speaker is who speaks in a message, behind the role.
func (q *request) speaker(message span) (role, who string) {
	if !isObject(q.r.Body, message) {
		return "", ""
	}
	role = text(q.r.Body, find(q.r.Body, message, "role"))
	return role, adapter.Voice(role, text(q.r.Body, find(q.r.Body, message, "name")))
}

// introduce puts who speaks before what is said.
func (q *request) introduce(content span, who string) {
	said := string(quote(who))
	switch {
	case who == "":
	case hasText(q.r.Body, content):
		q.edits.front(content, said[1:len(said)-1])
	case content.is() && q.r.Body[content.from] == '[' && enterable(q.r.Body, content):
		q.edits.front(content, `{"type":"text","text":`, said, `},`)
	}
}

// drawn is the member for images that a model made: what was said, which must not be left out. Servers that know it draw.
const drawn = "images"

// call mends a call of the conversation.
func (q *request) call(v span) {
	if !isObject(q.r.Body, v) {
		return
	}
	kept := false
	for c := enter(q.r.Body, v); c.next(); {
		name := string(c.name())
		if q.w.strict && isForeign(name) {
			q.edits.drop(&c, kept)
			continue
		}
		kept = true
		if name == "id" {
			q.shorten(c.value)
		}
	}
}

func holdsForeign(raw []byte) bool {
	return bytes.Contains(raw, []byte(`"reasoning`)) || bytes.Contains(raw, []byte(`"extra_content"`)) || bytes.Contains(raw, []byte(`"images"`))
}

func isForeign(name string) bool {
	for _, f := range foreign {
		if name == f {
			return true
		}
	}
	return false
}

// shorten takes a signature off the id of a call, and makes it fit for a server that takes nine letters and digits and
// nothing else.
func (q *request) shorten(v span) {
	id := text(q.r.Body, v)
	plain := adapter.PlainCallID(id)
	switch {
	case q.w.shortID && plain != "" && !isShort(plain):
		q.edits.set(v, `"`, shortID(plain), `"`)
	case plain != id:
		q.edits.set(v, string(quote(plain)))
	}
}

// roles makes developers' messages a system's, for servers that know no other.
func (q *request) roles(v span) {
	if !q.w.system || !bytes.Contains(q.r.Body[v.from:v.to], []byte(`"developer"`)) {
		return
	}
	for m := enter(q.r.Body, v); m.next(); {
		if role := find(q.r.Body, m.value, "role"); text(q.r.Body, role) == "developer" {
			q.edits.set(role, `"system"`)
		}
	}
}

const shortIDBytes = 9

func isShort(id string) bool {
	for i := 0; i < len(id); i++ {
		if c := id[i]; (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return len(id) == shortIDBytes
}

// shortID is the same for the same id, always: a call and its result find each other, in every turn and on every sidecar.
// Ids that are short already stay, so those that the server made itself come back to it as it knows them.
func shortID(id string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(id))
	n := binary.BigEndian.Uint64(sum[:8]) // 62^9 is less than a thousandth of what it may be: the digits are even enough
	var b [shortIDBytes]byte
	for i := range b {
		b[i] = digits[n%uint64(len(digits))]
		n /= uint64(len(digits))
	}
	return string(b[:])
}
