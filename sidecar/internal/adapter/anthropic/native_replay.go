package anthropic

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// Replay implements adapter.Replayer: the events of a message that came whole.
func (n *Native) Replay(_ *exchange.Request, body []byte, u exchange.Usage) adapter.Stream {
	return &replay{message: gjson.GetBytes(body, "@ugly"), usage: u}
}

type replay struct {
	message   gjson.Result
	usage     exchange.Usage
	delivered int64
}

// Event implements adapter.Stream: there are none.
func (p *replay) Event(dst, _, _ []byte) ([]byte, adapter.Progress) { return dst, adapter.Progress{} }

// Abort implements adapter.Stream: it cannot break.
func (p *replay) Abort(dst []byte, _ *exchange.Failure) []byte { return dst }

// Usage implements adapter.Stream.
func (p *replay) Usage() exchange.Usage { return p.usage }

// Delivered implements adapter.Stream.
func (p *replay) Delivered() adapter.Delivered { return adapter.Delivered{Bytes: p.delivered} }

// End appends the whole stream. Blocks of text, thinking and tool calls come as a start and a delta, as client libraries
// put them together; others come whole in their start.
func (p *replay) End(dst []byte) ([]byte, *exchange.Failure) {
	emit := func(kind, rest string) {
		dst = sse.AppendEvent(dst, kind, []byte(`{"type":"`+kind+`",`+rest+`}`))
	}
	head := members(p.message, func(name string) string {
		return map[string]string{"content": "[]", "stop_reason": "null", "stop_sequence": "null", "x_gateway": "-", "stop_details": "-"}[name]
	})
	emit("message_start", `"message":`+head)
	for i, b := range p.message.Get("content").Array() {
		at := `"index":` + strconv.Itoa(i)
		start, deltas := blockEvents(b)
		p.delivered += int64(len(b.Raw))
		emit("content_block_start", at+`,"content_block":`+start)
		for _, d := range deltas {
			emit("content_block_delta", at+`,"delta":`+d)
		}
		emit("content_block_stop", at)
	}
	delta := members(p.message, func(name string) string {
		switch name {
		case "stop_reason", "stop_sequence", "stop_details", "container":
			return ""
		}
		return "-"
	})
	end := `"delta":` + delta
	for _, name := range [...]string{"usage", "x_gateway"} {
		if v := p.message.Get(name); v.IsObject() {
			end += `,"` + name + `":` + v.Raw
		}
	}
	emit(eventDelta, end)
	return sse.AppendEvent(dst, eventStop, []byte(`{"type":"message_stop"}`)), nil
}

// members is an object with what change says in place of its members: "" leaves one as it is, "-" leaves it out.
func members(object gjson.Result, change func(name string) string) string {
	out := "{"
	object.ForEach(func(k, v gjson.Result) bool {
		value := change(k.Str)
		switch value {
		case "-":
			return true
		case "":
			value = v.Raw
		}
		if len(out) > 1 {
			out += ","
		}
		out += k.Raw + ":" + value
		return true
	})
	return out + "}"
}

// blockEvents are the start of a block and its deltas.
func blockEvents(b gjson.Result) (start string, deltas []string) {
	emptied := map[string]string{}
	take := func(name, empty, kind, field string) {
		v := b.Get(name)
		if v.Raw == "" || v.Raw == empty || v.Type == gjson.Null {
			return
		}
		emptied[name] = empty
		value := v.Raw
		if field == "partial_json" {
			value = string(adapter.AppendString(nil, v.Raw))
		}
		deltas = append(deltas, `{"type":"`+kind+`","`+field+`":`+value+`}`)
	}
	switch kind := b.Get("type").Str; {
	case kind == "text":
		take("text", `""`, "text_delta", "text")
		for _, c := range b.Get("citations").Array() {
			emptied["citations"] = "[]"
			deltas = append(deltas, `{"type":"citations_delta","citation":`+c.Raw+`}`)
		}
	case kind == "thinking":
		take("thinking", `""`, "thinking_delta", "thinking")
		take("signature", `""`, "signature_delta", "signature")
	case strings.HasSuffix(kind, "tool_use"):
		take("input", "{}", "input_json_delta", "partial_json")
	}
	return members(b, func(name string) string { return emptied[name] }), deltas
}
