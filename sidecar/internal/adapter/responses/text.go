package responses

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// piece is a part of a message.
type piece struct {
	refusal bool
	said    []byte // escaped
	chances list   // logprobs of its tokens
	told    int    // bytes of them that its deltas have told
	cites   list   // annotations
	cited   int
}

// list is a JSON array in the making, without its brackets.
type list []byte

func (l *list) add(raw string) {
	if raw = strings.TrimSpace(raw); raw == "" {
		return
	}
	if len(*l) > 0 {
		*l = append(*l, ',')
	}
	*l = append(*l, raw...)
}

func (l list) raw() json.RawMessage { return json.RawMessage("[" + string(l) + "]") }

// part is the part of the open message that is open, nil if there is none with a text.
func (w *writer) part() *piece {
	if w.open == nil || w.open.kind != kindMessage || len(w.open.parts) == 0 {
		return nil
	}
	if p := &w.open.parts[len(w.open.parts)-1]; !p.refusal {
		return p
	}
	return nil
}

// weigh takes in the logprobs of a choice. They may come before the text they belong to, with it, or behind it.
func (w *writer) weigh(v gjson.Result) {
	tokens := v.Get("content")
	if !w.weighs || !tokens.IsArray() {
		return
	}
	to := &w.chances
	if p := w.part(); p != nil {
		to = &p.chances
	}
	to.add(tokens.Raw[1 : len(tokens.Raw)-1])
	w.weight += len(tokens.Raw)
}

// cite appends what the text cites: chat's annotations, as this API has them.
func (w *writer) cite(dst []byte, annotations gjson.Result) []byte {
	annotations.ForEach(func(_, a gjson.Result) bool {
		if kind := a.Get("type").Str; kind == "url_citation" {
			flat := object{"type": kind}
			a.Get(kind).ForEach(func(k, v gjson.Result) bool {
				flat.set(k.Str, v)
				return true
			})
			w.cites = append(w.cites, flat.raw())
			w.size += len(a.Raw)
		}
		return true
	})
	p := w.part()
	if p == nil {
		return dst
	}
	for _, raw := range w.cites {
		p.cites.add(string(raw))
		dst = w.event(dst, "response.output_text.annotation.added", w.open.at, w.open.last(),
			`"annotation_index":`+strconv.Itoa(p.cited), `"annotation":`+string(raw))
		p.cited++
	}
	w.cites = nil
	return dst
}

func (w *writer) text(dst []byte, refusal bool, escaped []byte) []byte {
	if w.open == nil || w.open.kind != kindMessage {
		dst, w.open = w.start(w.closeOpen(dst), kindMessage, "msg",
			object{"status": "in_progress", "role": "assistant", "content": []any{}})
	}
	it := w.open
	if n := len(it.parts); n == 0 || it.parts[n-1].refusal != refusal {
		dst = w.closePart(dst, it)
		it.parts = append(it.parts, piece{refusal: refusal})
		dst = w.event(dst, "response.content_part.added", it.at, it.last(), `"part":`+string(it.parts[n].object().raw()))
	}
	p := &it.parts[len(it.parts)-1]
	p.said = append(p.said, escaped...)
	w.size += len(escaped) + len(`""`)
	if refusal {
		return append(w.openDelta(dst, "response.refusal.delta", it, escaped), "}\n\n"...)
	}
	if len(w.chances) > 0 {
		p.chances.add(string(w.chances))
		w.chances = nil
	}
	return w.say(dst, it, p, escaped)
}

// say appends a piece of a text, escaped, with the logprobs that were not told yet.
func (w *writer) say(dst []byte, it *item, p *piece, escaped []byte) []byte {
	dst = append(w.openDelta(dst, "response.output_text.delta", it, escaped), `,"logprobs":[`...)
	dst = append(dst, bytes.TrimPrefix(p.chances[p.told:], comma)...)
	p.told = len(p.chances)
	return append(dst, "]}\n\n"...)
}

var comma = []byte(",")

// last is the place of the last part.
func (it *item) last() string { return `"content_index":` + strconv.Itoa(len(it.parts)-1) }

func (p *piece) object() object {
	if p.refusal {
		return object{"type": "refusal", "refusal": json.RawMessage(quoted(p.said))}
	}
	return object{
		"type": "output_text", "text": json.RawMessage(quoted(p.said)), "annotations": p.cites.raw(), "logprobs": p.chances.raw(),
	}
}

func (w *writer) closePart(dst []byte, it *item) []byte {
	if len(it.parts) == 0 {
		return dst
	}
	p := &it.parts[len(it.parts)-1]
	if p.refusal {
		dst = w.event(dst, "response.refusal.done", it.at, it.last(), `"refusal":`+quoted(p.said))
	} else {
		if p.told < len(p.chances) {
			dst = w.say(dst, it, p, nil)
		}
		dst = w.event(dst, "response.output_text.done", it.at, it.last(), `"text":`+quoted(p.said), `"logprobs":`+string(p.chances.raw()))
	}
	return w.event(dst, "response.content_part.done", it.at, it.last(), `"part":`+string(p.object().raw()))
}
