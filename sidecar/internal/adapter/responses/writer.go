package responses

import (
	"encoding/json"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// writer makes a response out of chat's deltas, and the events that tell of it. One reasoning or message is open at a
// time; calls stay open to the end, since chat may come back to each of them.
type writer struct {
	head
	custom  map[string]bool // names of custom tools
	seq     int64           // of the next event
	begun   bool
	open    *item             // a reasoning or a message
	calls   []*item           // by chat's index
	output  []json.RawMessage // by output_index; nil while an item is open
	extra   map[string]json.RawMessage
	size    int               // of what was said, in bytes
	weighs  bool              // the caller wants logprobs
	chances list              // logprobs of a text that has not begun
	weight  int               // of all logprobs, in bytes
	cites   []json.RawMessage // annotations of a text that has not begun
	finish  string
	newest  *item // the one that began last
	ended   bool  // nothing more is said
	tier    json.RawMessage
	gateway json.RawMessage
}

// item is an output item that is not done.
type item struct {
	kind, id     string
	index        int
	at           string    // its place, as its events name it
	parts        []piece   // of a message; the last one is open
	said         []byte    // a summary, or arguments; escaped
	thoughts     []thought // of a reasoning
	callID, name string    // of a call, raw
	input        freeform  // what a custom tool is told
	read         int       // of said, into input
}

// The kinds of items, and how they end.
const (
	kindMessage   = "message"
	kindReasoning = "reasoning"

	statusDone = "completed"
	statusCut  = "incomplete"
)

// status is how an item ends: what was being said when the model had to stop is incomplete.
func (w *writer) status(it *item) string {
	if w.ended && it == w.newest && w.cutShort() != "" {
		return statusCut
	}
	return statusDone
}

// cutShort says why an answer is not complete, "" when it is.
func (w *writer) cutShort() string {
	switch w.finish {
	case "length":
		return "max_output_tokens"
	case "content_filter":
		return "content_filter"
	}
	return ""
}

// event appends an event of some members.
func (w *writer) event(dst []byte, kind string, members ...string) []byte {
	dst = w.eventHead(dst, kind)
	for _, m := range members {
		dst = append(append(dst, ','), m...)
	}
	return append(dst, "}\n\n"...)
}

func (w *writer) eventHead(dst []byte, kind string) []byte {
	dst = append(append(append(append(dst, "event: "...), kind...), "\ndata: {\"type\":\""...), kind...)
	dst = strconv.AppendInt(append(dst, `","sequence_number":`...), w.seq, 10)
	w.seq++
	return dst
}

// openDelta appends an event with a piece of what an item says, escaped, up to what may follow it. Nearly all events are
// of this sort: it makes no garbage.
func (w *writer) openDelta(dst []byte, kind string, it *item, escaped []byte) []byte {
	dst = append(append(w.eventHead(dst, kind), ','), it.at...)
	if it.kind == kindMessage {
		dst = strconv.AppendInt(append(dst, `,"content_index":`...), int64(len(it.parts)-1), 10)
	} else {
		dst = append(dst, ","+firstSummary...)
	}
	return append(append(append(dst, `,"delta":"`...), escaped...), '"')
}

// begin appends the first events, once.
func (w *writer) begin(dst []byte) []byte {
	if w.begun {
		return dst
	}
	w.begun = true
	response := `"response":` + string(w.object("in_progress", nil).raw())
	return w.event(w.event(dst, "response.created", response), "response.in_progress", response)
}

// delta takes in what a choice says next. false: it is more than an answer may hold.
func (w *writer) delta(dst []byte, d gjson.Result) ([]byte, bool) {
	if v := adapter.Inside(d.Get("reasoning_content")); v != "" {
		dst = w.summary(dst, []byte(v))
	}
	d.Get("reasoning_details").ForEach(func(_, detail gjson.Result) bool {
		dst = w.reasoning(dst)
		w.open.thoughts = think(w.open.thoughts, detail)
		w.size += len(detail.Raw)
		return true
	})
	for _, name := range [...]string{"content", "refusal"} {
		if v := adapter.Inside(d.Get(name)); v != "" {
			dst = w.text(dst, name == "refusal", []byte(v))
		}
	}
	dst = w.cite(dst, d.Get("annotations"))
	d.Get("images").ForEach(func(_, image gjson.Result) bool {
		dst = w.drawn(dst, image.Get("image_url.url").Str)
		return true
	})
	ok := true
	next := int64(0) // a complete message has no indices
	adapter.Calls(w.id, d).ForEach(func(_, c gjson.Result) bool {
		index := next
		if v := c.Get("index"); v.Type == gjson.Number {
			index = v.Int()
		}
		next = index + 1
		dst, ok = w.call(dst, index, c)
		return ok
	})
	return dst, ok && w.fits()
}

// fits reports whether an answer can hold what has been said.
func (w *writer) fits() bool { return w.size <= textMax && w.weight <= weightMax }

// start opens an item of a kind; its members as it begins follow its id and type.
func (w *writer) start(dst []byte, kind, prefix string, members object) ([]byte, *item) {
	index := len(w.output)
	w.output = append(w.output, nil)
	it := &item{kind: kind, index: index, id: prefix + "_" + w.id + strconv.Itoa(index)}
	w.newest = it
	it.at = `"item_id":"` + it.id + `","output_index":` + strconv.Itoa(index)
	members["id"], members["type"] = it.id, kind
	return w.event(dst, "response.output_item.added", it.place(), `"item":`+string(members.raw())), it
}

func (it *item) place() string { return `"output_index":` + strconv.Itoa(it.index) }

// finished ends an item with its final form.
func (w *writer) finished(dst []byte, it *item, members object) []byte {
	members["id"], members["type"] = it.id, it.kind
	w.output[it.index] = members.raw()
	return w.event(dst, "response.output_item.done", it.place(), `"item":`+string(w.output[it.index]))
}

// reasoning makes sure that a reasoning item is open.
func (w *writer) reasoning(dst []byte) []byte {
	if w.open != nil && w.open.kind == kindReasoning {
		return dst
	}
	dst, w.open = w.start(w.closeOpen(dst), kindReasoning, "rs", object{"summary": []any{}})
	return dst
}

const firstSummary = `"summary_index":0`

func (w *writer) summary(dst, escaped []byte) []byte {
	dst = w.reasoning(dst)
	if len(w.open.said) == 0 {
		dst = w.event(dst, "response.reasoning_summary_part.added", w.open.at, firstSummary, `"part":{"type":"summary_text","text":""}`)
	}
	w.open.said = append(w.open.said, escaped...)
	w.size += len(escaped) + len(`""`)
	return append(w.openDelta(dst, "response.reasoning_summary_text.delta", w.open, escaped), "}\n\n"...)
}

// closeOpen ends the reasoning or message that is open.
func (w *writer) closeOpen(dst []byte) []byte {
	it := w.open
	w.open = nil
	switch {
	case it == nil:
		return dst
	case it.kind == kindMessage:
		dst = w.closePart(dst, it)
		content := make([]object, len(it.parts))
		for i := range it.parts {
			content[i] = it.parts[i].object()
		}
		return w.finished(dst, it, object{"status": w.status(it), "role": "assistant", "content": content})
	}
	summary := []object{}
	if len(it.said) > 0 {
		part := object{"type": "summary_text", "text": json.RawMessage(quoted(it.said))}
		summary = append(summary, part)
		dst = w.event(dst, "response.reasoning_summary_text.done", it.at, firstSummary, `"text":`+quoted(it.said))
		dst = w.event(dst, "response.reasoning_summary_part.done", it.at, firstSummary, `"part":`+string(part.raw()))
	}
	done := object{"summary": summary}
	if status := w.status(it); status != statusDone {
		done["status"] = status
	}
	var s sealed
	for i := range it.thoughts {
		s.Details = append(s.Details, it.thoughts[i].raw())
	}
	if !s.empty() {
		done["encrypted_content"] = s.seal()
	}
	return w.finished(dst, it, done)
}

// end appends what is owed when nothing more is said: the end of every open item.
func (w *writer) end(dst []byte) []byte {
	dst, w.ended = w.begin(dst), true
	dst = w.closeOpen(dst)
	for _, it := range w.calls {
		dst = w.closeCall(dst, it)
	}
	if len(w.extra) > 0 {
		var it *item
		dst, it = w.start(dst, kindReasoning, "rs", object{"summary": []any{}})
		dst = w.finished(dst, it, object{"summary": []any{}, "encrypted_content": sealed{Calls: w.extra}.seal()})
	}
	return dst
}

// result is the complete response, and its status.
func (w *writer) result(used object) (object, string) {
	status, reason := statusDone, w.cutShort()
	if reason != "" {
		status = statusCut
	}
	o := w.object(status, w.output)
	if reason != "" {
		o["incomplete_details"] = object{"reason": reason}
	}
	o["usage"] = used
	if w.tier != nil {
		o["service_tier"] = w.tier
	}
	if w.gateway != nil {
		o["x_gateway"] = w.gateway
	}
	return o, status
}
