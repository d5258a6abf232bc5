package openai

import (
	"github.com/tidwall/gjson"
)

// callsMax bounds the tool calls of one choice.
const callsMax = 1024

// call is one tool call of a choice; its place in the list is the index the caller sees.
type call struct {
	key       string // the provider's index, "" when it sends none
	id        string
	arguments int // bytes so far
}

// toolCalls rewrites the tool_calls of a delta: dense indexes from 0, id, type and name once, arguments as text.
// nil when nothing is left to say.
func (s *stream) toolCalls(st *choice, index int64, list gjson.Result) []byte {
	out := []byte{'['}
	for _, t := range list.Array() {
		at, fresh := st.find(t)
		if at < 0 {
			continue
		}
		c := st.calls[at]
		if t.Get("custom").Exists() {
			out = s.customCall(out, c, at, fresh, t)
			continue
		}
		arguments := t.Get("function.arguments")
		raw := arguments.Raw
		size := len(arguments.Str)
		if arguments.IsObject() || arguments.IsArray() {
			text := arguments.Get("@ugly").Raw
			raw, size = string(quote(text)), len(text)
		} else if arguments.Type != gjson.String {
			raw = `""`
		}
		if !fresh && size == 0 {
			continue
		}
		c.arguments += size
		s.delivered += int64(size)
		out = open(out, at)
		if fresh {
			if c.id = t.Get("id").Str; c.id == "" {
				c.id = callID(s.id, int(index), at)
			}
			out = append(out, `,"id":`...)
			out = gjson.AppendJSONString(out, c.id)
			out = append(out, `,"type":"function","function":{"name":`...)
			out = gjson.AppendJSONString(out, t.Get("function.name").Str)
			s.delivered += int64(len(t.Get("function.name").Str))
			out = append(out, `,"arguments":`...)
		} else {
			out = append(out, `,"function":{"arguments":`...)
		}
		out = append(append(out, raw...), '}')
		if extra := t.Get("extra_content"); extra.Exists() { // Gemini wants its thought signature back
			out = append(append(out, `,"extra_content":`...), extra.Raw...)
		}
		out = append(out, '}')
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, ']')
}

func open(out []byte, at int) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	out = append(out, `{"index":`...)
	return append(out, itoa(at)...)
}

// customCall passes a custom tool's call, its index aside.
func (s *stream) customCall(out []byte, c *call, at int, fresh bool, t gjson.Result) []byte {
	out = open(out, at)
	t.ForEach(func(k, v gjson.Result) bool {
		if k.Str != "index" && (fresh || k.Str == "custom") {
			out = appendMember(out, k, v)
		}
		return true
	})
	if fresh {
		c.id = t.Get("id").Str
	}
	s.delivered += int64(len(t.Get("custom.input").Str)) + int64(len(t.Get("custom.name").Str))
	return append(out, '}')
}

// find decides which call a delta belongs to; fresh says that it begins one. -1 drops it: there are too many.
//
// A new id at a used index begins a call (Ollama sends all with index 0). Without an index the id decides, and without
// either a name does, since the servers that send neither send whole calls (Gemini's and xAI's).
func (st *choice) find(t gjson.Result) (at int, fresh bool) {
	id, name := t.Get("id").Str, t.Get("function.name").Str+t.Get("custom.name").Str
	key := ""
	if v := t.Get("index"); v.Type == gjson.Number {
		key = v.Raw
	}
	for i := len(st.calls) - 1; i >= 0; i-- {
		c := st.calls[i]
		switch {
		case key != "":
			if c.key != key {
				continue
			}
			if id != "" && c.id != id {
				return st.begin(key)
			}
			return i, false
		case id != "":
			if c.id == id {
				return i, false
			}
		case name == "":
			return i, false // a fragment of the newest call
		}
	}
	return st.begin(key)
}

func (st *choice) begin(key string) (int, bool) {
	if len(st.calls) >= callsMax {
		return -1, false
	}
	st.calls = append(st.calls, &call{key: key})
	return len(st.calls) - 1, true
}
