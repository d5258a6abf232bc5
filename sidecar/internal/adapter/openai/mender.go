package openai

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	// choicesMax bounds the choices of one answer: OpenAI's bound on n.
	choicesMax = 128
	// audioShare: that many bytes of base64 count as one byte of text. 50 ms of PCM are 3,200 of them and one token,
	// which is about four bytes of text.
	audioShare = 800
	// editBytesMax is how much buffer a stream keeps between chunks. One huge chunk must not make it hold its size.
	editBytesMax = 16 << 10
)

// mender collects the edits one answer or chunk needs. What servers do as OpenAI does needs none.
type mender struct {
	data      []byte
	edits     edits
	delivered int64 // bytes of text, tool arguments and reasoning

	// For templates: the texts that pass, and whether the next chunk of the kind will be mended in the same way.
	holes  []hole
	steady bool
}

// begin starts on a document.
func (m *mender) begin(data []byte) {
	m.data, m.holes, m.steady = data, m.holes[:0], true
	m.edits.reset()
}

// end lets go of the document.
func (m *mender) end() {
	m.data = nil
	if cap(m.edits.text) > editBytesMax {
		m.edits = edits{}
	}
}

// raw is a value as it stands.
func (m *mender) raw(v span) []byte { return m.data[v.from:v.to] }

// say counts the text v, which the caller gets as it is.
func (m *mender) say(v span, to *call) {
	m.delivered += int64(textBytes(m.data, v))
	m.hole(v, to, true)
}

// sayThought counts the reasoning v, which has some text, as say does. Which member is reasoning depends on that.
func (m *mender) sayThought(v span) {
	m.say(v, nil)
	if n := len(m.holes); m.steady {
		m.holes[n-1].some = true
	}
}

func (m *mender) hole(v span, to *call, count bool) {
	if len(m.holes) == holesMax {
		m.steady = false
		return
	}
	m.holes = append(m.holes, hole{span: inside(v), call: to, count: count})
}

// replaced counts a text that the gateway puts in itself.
func (m *mender) replaced(s string) []byte {
	m.delivered += int64(len(s))
	m.steady = false
	return quote(s)
}

// place says whose speech is mended.
type place struct {
	answer string // the answer's id, for ids of calls that came without one
	index  int    // the choice's
	st     *choice
}

// speech mends the object v: a delta, or a message when p.st is nil. content says that something in it is not empty.
func (m *mender) speech(v span, p place) (content bool, f *exchange.Failure) {
	kept := false
	for c := enter(m.data, v); c.next(); {
		keep := true
		switch val := c.value; string(c.name()) {
		case "role":
			keep = m.role(val, p.st)
		case "content":
			m.content(&c, v)
		case "refusal":
			if isText(m.data, val) {
				m.say(val, nil)
			}
		case "reasoning_content":
			switch {
			case hasText(m.data, val):
				m.sayThought(val)
			case thoughts(m.data, v) != "":
				keep = false // the reasoning comes from elsewhere, under this name
			}
		case "reasoning":
			switch {
			case !hasText(m.data, val):
			case thoughts(m.data, v) == "reasoning":
				m.edits.set(c.key, "reasoning_content")
				m.sayThought(val)
			default:
				keep = false // it is said under the name that callers know
			}
		case "reasoning_details":
			if thoughts(m.data, v) == "reasoning_details" {
				m.think(&c, details(gjson.ParseBytes(m.raw(val))))
			}
		case "tool_calls":
			if p.st == nil {
				m.wholeCalls(val, p)
			} else if f := m.deltaCalls(val, p); f != nil {
				return false, f
			}
		case "function_call":
			if a := find(m.data, val, "arguments"); isText(m.data, a) {
				m.say(a, nil)
			}
		case "audio":
			m.audio(val)
		case "images":
			m.images(val)
		}
		if !keep {
			m.edits.drop(&c, kept)
			continue
		}
		kept = true
		switch m.data[c.value.from] {
		case 'n':
		case '"':
			content = content || c.value.to > c.value.from+2
		default:
			content = true
		}
	}
	if p.st != nil && !p.st.role {
		m.firstRole(v, kept, p.st)
	}
	return content, nil
}

// role says whether a role stays: once in a stream, however often a server repeats it.
func (m *mender) role(v span, st *choice) bool {
	if st == nil {
		return true
	}
	if st.role {
		return false
	}
	st.role, m.steady = true, false
	if !hasText(m.data, v) {
		m.edits.set(v, `"assistant"`)
	}
	return true
}

// firstRole puts the role into the first delta of a choice.
func (m *mender) firstRole(v span, kept bool, st *choice) {
	st.role, m.steady = true, false
	comma := ""
	if kept {
		comma = ","
	}
	m.edits.front(v, `"role":"assistant"`, comma)
}

// content mends a content of parts (Mistral's) into a text and, before it, the reasoning among the parts.
func (m *mender) content(c *cursor, v span) {
	switch {
	case isText(m.data, c.value):
		m.say(c.value, nil)
	case isArray(m.data, c.value):
		parts := gjson.ParseBytes(m.raw(c.value))
		if thoughts(m.data, v) == "content" {
			m.think(c, thinking(parts))
		}
		m.edits.set(c.value, string(m.replaced(flatten(parts))))
	}
}

// think puts reasoning before the member in hand, under the name that callers know.
func (m *mender) think(c *cursor, s string) {
	m.edits.set(span{c.item, c.item}, `"reasoning_content":`, string(m.replaced(s)), ",")
}

// thoughts is the member that holds the reasoning of a delta or message, "" for none. Servers state it under several
// names, and some under two at once.
func thoughts(doc []byte, v span) string {
	best := ""
	for c := enter(doc, v); c.next(); {
		switch name := string(c.name()); name {
		case "reasoning_content":
			if hasText(doc, c.value) {
				return name
			}
		case "reasoning":
			if hasText(doc, c.value) {
				best = name
			}
		case "content":
			if best == "" && isArray(doc, c.value) && thinking(gjson.ParseBytes(doc[c.value.from:c.value.to])) != "" {
				best = name
			}
		case "reasoning_details":
			if best == "" && isArray(doc, c.value) && details(gjson.ParseBytes(doc[c.value.from:c.value.to])) != "" {
				best = name
			}
		}
	}
	return best
}

// audio counts spoken output: its transcript, and its sound as the text it would be.
func (m *mender) audio(v span) {
	if t := find(m.data, v, "transcript"); isText(m.data, t) {
		m.say(t, nil)
	}
	if d := find(m.data, v, "data"); hasText(m.data, d) {
		m.delivered += int64((d.to-d.from)/audioShare + 1)
		m.steady = false
	}
}

// images counts what was drawn.
func (m *mender) images(v span) {
	for c := enter(m.data, v); c.next(); {
		m.delivered += adapter.DrawnBytes
		m.steady = false
	}
}

// finish mends the finish_reason v of a choice. A server's own word for it stays beside it, under the name that
// OpenRouter has for that.
func (m *mender) finish(choice, v span, calls bool) {
	reason, differs := mendFinish(gjson.ParseBytes(m.raw(v)), calls)
	if !differs {
		return
	}
	m.edits.set(v, reason)
	own := text(m.data, v)
	if finishReasons[own] == own || find(m.data, choice, nativeFinish).is() { // none, too, is its own word
		return
	}
	m.edits.back(choice, `,"`+nativeFinish+`":`, string(quote(clip(own))))
}

const nativeFinish = "native_finish_reason"
