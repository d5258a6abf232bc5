package openai

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// callsMax bounds the tool calls of one choice.
const callsMax = 1024

// call is one tool call of a choice; its place in the list is the index the caller sees.
type call struct {
	key       string // the provider's index, "" when it sends none
	id        string // the provider's, "" while it has sent none
	name      string
	arguments jsonEnd
	list      int // which tool_calls list spoke of it last
}

// callDelta is an entry of tool_calls.
type callDelta struct {
	entry                    span
	index, id, kind          span
	function, custom         span
	name, arguments, details span // of function; details are custom's input
}

func readCall(doc []byte, entry span) callDelta {
	d := callDelta{entry: entry}
	for c := enter(doc, entry); c.next(); {
		switch string(c.name()) {
		case "index":
			d.index = c.value
		case "id":
			d.id = c.value
		case "type":
			d.kind = c.value
		case "function":
			d.function = c.value
			d.name, d.arguments = find(doc, c.value, "name"), find(doc, c.value, "arguments")
		case "custom":
			if isObject(doc, c.value) {
				d.custom = c.value
				d.name, d.details = find(doc, c.value, "name"), find(doc, c.value, "input")
			}
		}
	}
	return d
}

// deltaCalls mends the tool_calls of a delta: dense indexes from 0, id, type and name once, arguments as text.
func (m *mender) deltaCalls(list span, p place) *exchange.Failure {
	p.st.lists++
	if isObject(m.data, list) {
		if m.list(list) {
			return m.deltaCall(list, p)
		}
		return nil
	}
	kept := false
	for c := enter(m.data, list); c.next(); {
		if e := enter(m.data, c.value); !isObject(m.data, c.value) || !e.next() {
			m.edits.drop(&c, kept) // nothing is said of any call
			continue
		}
		kept = true
		if f := m.deltaCall(c.value, p); f != nil {
			return f
		}
	}
	return nil
}

// list puts a call that stands alone into the list that callers expect, and reports whether it says anything.
func (m *mender) list(call span) bool {
	m.steady = false
	if !enterable(m.data, call) {
		m.edits.set(call, "[]")
		return false
	}
	m.edits.set(span{call.from, call.from}, "[")
	m.edits.set(span{call.to, call.to}, "]")
	return true
}

func (m *mender) deltaCall(entry span, p place) *exchange.Failure {
	d := readCall(m.data, entry)
	at, fresh := p.st.find(m.data, d)
	if at < 0 {
		return invalid("the provider sent too many tool calls")
	}
	index := itoa(at)
	switch {
	case !d.index.is():
		m.edits.front(entry, `"index":`, index, ",")
	case string(m.raw(d.index)) != index:
		m.edits.set(d.index, index)
	}
	to := p.st.calls[at]
	if fresh {
		m.steady = false
		m.whole(d, to, adapter.CallID(p.answer, p.index, at))
	} else {
		m.more(entry, to)
	}
	return nil
}

// wholeCalls mends the tool_calls of a message.
func (m *mender) wholeCalls(list span, p place) {
	if isObject(m.data, list) {
		if m.list(list) {
			m.whole(readCall(m.data, list), &call{}, adapter.CallID(p.answer, p.index, 0))
		}
		return
	}
	at := 0
	for c := enter(m.data, list); c.next(); at++ {
		if e := enter(m.data, c.value); isObject(m.data, c.value) && e.next() {
			m.whole(readCall(m.data, c.value), &call{}, adapter.CallID(p.answer, p.index, at))
		}
	}
}

// whole mends a call that begins: it gets all that callers count on.
func (m *mender) whole(d callDelta, to *call, id string) {
	m.orText(d.entry, d.id, "id", id)
	if d.custom.is() {
		m.orText(d.entry, d.kind, "type", "custom")
		m.spoken(d.name)
		if isText(m.data, d.details) {
			m.say(d.details, to)
		}
		return
	}
	if hasText(m.data, d.kind) && text(m.data, d.kind) != "function" {
		return // a kind that does not exist yet passes
	}
	m.orText(d.entry, d.kind, "type", "function")
	inner := enter(m.data, d.function)
	switch filled := isObject(m.data, d.function) && inner.next(); {
	case !d.function.is():
		m.edits.back(d.entry, `,"function":{"name":"","arguments":""}`)
		return
	case !filled:
		m.edits.set(d.function, `{"name":"","arguments":""}`)
		return
	}
	if !d.name.is() {
		m.edits.front(d.function, `"name":"",`)
	}
	m.spoken(d.name)
	if !d.arguments.is() {
		m.edits.back(d.function, `,"arguments":""`)
		return
	}
	m.args(d.arguments, to)
}

// orText makes sure that an entry's member is a text that is not empty.
func (m *mender) orText(entry, v span, name, text string) {
	switch {
	case !v.is():
		m.edits.front(entry, `"`, name, `":"`, text, `",`)
	case !hasText(m.data, v):
		m.edits.set(v, `"`, text, `"`)
	}
}

// spoken counts a tool's name.
func (m *mender) spoken(name span) {
	if isText(m.data, name) {
		m.delivered += int64(textBytes(m.data, name))
	}
}

// args mends and counts arguments: an object becomes its text.
func (m *mender) args(v span, to *call) {
	switch m.data[v.from] {
	case '"':
		m.say(v, to)
		to.arguments.feed(m.data[v.from+1 : v.to-1])
	case '{', '[':
		s := gjson.ParseBytes(m.raw(v)).Get("@ugly").Raw
		quoted := m.replaced(s)
		m.edits.set(v, string(quoted))
		to.arguments.feed(quoted[1 : len(quoted)-1])
	default:
		m.edits.set(v, `""`)
	}
}

// more mends a further piece of a call. Id and type are said once, and each piece of the name: clients put together what
// they get.
func (m *mender) more(entry span, to *call) {
	kept := false
	for c := enter(m.data, entry); c.next(); {
		switch name := string(c.name()); name {
		case "id", "type":
			if isText(m.data, c.value) {
				m.edits.drop(&c, kept)
				m.steady = m.steady && (name == "type" || !hasText(m.data, c.value))
				continue
			}
		case "function", "custom":
			m.moreOf(c.value, to)
		}
		kept = true
	}
}

func (m *mender) moreOf(function span, to *call) {
	kept := false
	for c := enter(m.data, function); c.next(); {
		switch string(c.name()) {
		case "name":
			if isText(m.data, c.value) {
				if hasText(m.data, c.value) {
					m.steady = false // what it means depends on what came before
				}
				if to.name != "" && !to.unnamed(text(m.data, c.value)) || !hasText(m.data, c.value) {
					m.edits.drop(&c, kept)
					continue
				}
				to.name += text(m.data, c.value)
				m.spoken(c.value)
			}
		case "arguments":
			m.args(c.value, to)
		case "input":
			if isText(m.data, c.value) {
				m.say(c.value, to)
				to.arguments.feed(m.data[c.value.from+1 : c.value.to-1])
			}
		}
		kept = true
	}
}

// find decides which call a delta belongs to; fresh says that it begins one. -1: there are too many.
//
// The provider's index decides, or, without one, its id. But Ollama and others send every call with index 0, and
// Gemini and xAI send calls without an index, so what a delta says may show that it begins a call of its own.
func (st *choice) find(doc []byte, d callDelta) (at int, fresh bool) {
	id, key := text(doc, d.id), ""
	if d.index.is() && !isNull(doc, d.index) {
		key = strings.Trim(string(doc[d.index.from:d.index.to]), `"`) // some write it as a text
	}
	at = len(st.calls) - 1
	for i := at; i >= 0; i-- {
		if c := st.calls[i]; key != "" && c.key == key || key == "" && id != "" && c.id == id {
			at = i
			break
		}
		if key != "" && i == 0 {
			at = -1
		}
	}
	if at >= 0 && !st.begins(st.calls[at], doc, d, id) {
		c := st.calls[at]
		if c.list = st.lists; c.id == "" {
			c.id = id // it came late; the caller has been given another
		}
		return at, false
	}
	if len(st.calls) >= callsMax {
		return -1, false
	}
	st.calls = append(st.calls, &call{key: key, id: id, name: text(doc, d.name), list: st.lists})
	return len(st.calls) - 1, true
}

// begins says whether a delta that could go on with c is the beginning of another call instead.
func (st *choice) begins(c *call, doc []byte, d callDelta, id string) bool {
	switch name := text(doc, d.name); {
	case name == "": // only a beginning has a name, and some servers make an id up for every piece
		return id != "" && c.id != "" && id != c.id && d.isNovel(doc)
	case id != "" && c.id != "":
		return id != c.id
	case c.name == "":
		return false
	case c.list == st.lists:
		return true // one list does not speak twice of a call
	case name != c.name: // a piece of the name, unless a server that gives ids would have given a new call its own
		return c.id == "" || !d.index.is() || !c.unnamed(name)
	default: // the same tool again, or a server that repeats the name
		return c.arguments.reached() && (isObject(doc, d.arguments) || hasText(doc, d.arguments))
	}
}

// unnamed reports whether a name may be a further piece of c's. One that is said again is said as before, and none comes
// behind the arguments.
func (c *call) unnamed(name string) bool { return name != c.name && !c.arguments.begun }

// isNovel reports whether a delta is of a kind of calls that does not exist yet.
func (d callDelta) isNovel(doc []byte) bool {
	return hasText(doc, d.kind) && text(doc, d.kind) != "function" && text(doc, d.kind) != "custom"
}

// jsonEnd follows JSON that comes in pieces, to know when it is complete.
type jsonEnd struct {
	depth                  int32
	begun, quoted, escaped bool
}

// feed takes a piece as it stands inside a JSON text, that is, escaped once more.
func (e *jsonEnd) feed(b []byte) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' && i+1 < len(b) {
			i++
			switch c = b[i]; c {
			case 'b', 'f', 'n', 'r', 't':
				c = ' '
			case 'u':
				if i+4 < len(b) {
					c = byte(min(adapter.Hex4(b[i+1:]), 0x7f)) // beyond ASCII all are alike
				}
				i += 4
			}
		}
		e.step(c)
	}
}

func (e *jsonEnd) step(c byte) {
	switch {
	case e.escaped:
		e.escaped = false
	case e.quoted:
		e.escaped, e.quoted = c == '\\', c != '"'
	case c == '"':
		e.begun, e.quoted = true, true
	case c == '{' || c == '[':
		e.begun = true
		e.depth++
	case c == '}' || c == ']':
		e.depth--
	case c > ' ':
		e.begun = true
	}
}

// reached reports whether what came is complete.
func (e *jsonEnd) reached() bool { return e.begun && !e.quoted && e.depth <= 0 }

func itoa(n int) string { return strconv.Itoa(n) }
