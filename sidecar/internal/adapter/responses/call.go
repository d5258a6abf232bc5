package responses

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

const (
	functionCall = "function_call"
	customCall   = "custom_tool_call"
)

// call takes in a piece of the call with chat's index.
func (w *writer) call(dst []byte, index int64, c gjson.Result) ([]byte, bool) {
	switch {
	case index < 0 || index > int64(len(w.calls)) || index >= callsMax:
		return dst, false
	case index == int64(len(w.calls)):
		dst = w.startCall(w.closeOpen(dst), c)
	case c.Get("function.name").Str != "":
		return dst, false // more of the name, and the caller has been told it
	}
	it := w.calls[index]
	if extra := c.Get("extra_content"); extra.IsObject() {
		if w.extra == nil {
			w.extra = map[string]json.RawMessage{}
		}
		w.extra[gjson.Parse(it.callID).Str] = json.RawMessage(strings.Clone(extra.Raw))
		w.size += len(extra.Raw)
	}
	v := c.Get("function.arguments")
	if v.Type != gjson.String || v.Str == "" {
		return dst, true
	}
	it.said = append(it.said, adapter.Inside(v)...)
	w.size += len(v.Raw)
	if it.kind == customCall {
		n := max(settled(it.said), it.read)
		piece := it.input.more(gjson.Parse(quoted(it.said[it.read:n])).Str)
		it.read = n
		return w.customInput(dst, it, piece), true
	}
	return w.event(dst, "response.function_call_arguments.delta", it.at, `"delta":`+v.Raw), true
}

func (w *writer) startCall(dst []byte, c gjson.Result) []byte {
	name, id := c.Get("function.name"), c.Get("id")
	members := object{"status": "in_progress", "call_id": id.Str, "name": name.Str}
	kind, prefix := functionCall, "fc"
	if w.custom[name.Str] {
		kind, prefix = customCall, "ctc"
		members["input"] = ""
	} else {
		members["arguments"] = ""
	}
	dst, it := w.start(dst, kind, prefix, members)
	it.callID, it.name = string(gjson.AppendJSONString(nil, id.Str)), string(gjson.AppendJSONString(nil, name.Str))
	w.calls = append(w.calls, it)
	return dst
}

func (w *writer) closeCall(dst []byte, it *item) []byte {
	status := w.status(it)
	done := object{"status": status, "call_id": json.RawMessage(it.callID), "name": json.RawMessage(it.name)}
	if it.kind == customCall {
		dst = w.customInput(dst, it, it.input.more(gjson.Parse(quoted(it.said[it.read:])).Str))
		dst = w.customInput(dst, it, it.input.end(gjson.Parse(quoted(it.said)).Str))
		input := quoted(it.input.said)
		dst = w.event(dst, "response.custom_tool_call_input.done", it.at, `"input":`+input)
		done["input"] = json.RawMessage(input)
		return w.finished(dst, it, done)
	}
	if len(it.said) == 0 && status == statusDone { // chat's calls without arguments; callers parse what they get
		it.said = []byte("{}")
		dst = w.event(dst, "response.function_call_arguments.delta", it.at, `"delta":"{}"`)
	}
	arguments := quoted(it.said)
	dst = w.event(dst, "response.function_call_arguments.done", it.at, `"name":`+it.name, `"arguments":`+arguments)
	done["arguments"] = json.RawMessage(arguments)
	return w.finished(dst, it, done)
}

// customInput appends what a custom tool is told next, which is escaped.
func (w *writer) customInput(dst []byte, it *item, piece []byte) []byte {
	if len(piece) == 0 {
		return dst
	}
	return w.event(dst, "response.custom_tool_call_input.delta", it.at, `"delta":`+quoted(piece))
}
