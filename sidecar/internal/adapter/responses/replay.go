package responses

import (
	"cmp"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Replay is the stream made of a complete response, for a server that ignored that a stream was asked for. It has no
// events; all comes at its end.
type Replay struct {
	body      gjson.Result
	usage     exchange.Usage
	delivered int64
}

// NewReplay makes the stream of a response that says so many bytes.
func NewReplay(body []byte, u exchange.Usage, delivered int64) *Replay {
	return &Replay{gjson.GetBytes(body, "@ugly"), u, delivered}
}

// Event implements adapter.Stream.
func (p *Replay) Event(dst, _, _ []byte) ([]byte, adapter.Progress) { return dst, adapter.Progress{} }

// Abort implements adapter.Stream.
func (p *Replay) Abort(dst []byte, _ *exchange.Failure) []byte { return dst }

// Usage implements adapter.Stream.
func (p *Replay) Usage() exchange.Usage { return p.usage }

// Delivered implements adapter.Stream.
func (p *Replay) Delivered() adapter.Delivered { return adapter.Delivered{Bytes: p.delivered} }

// End implements adapter.Stream. Items come whole; texts are said once more on the way, for clients that show them as
// they come.
func (p *Replay) End(dst []byte) ([]byte, *exchange.Failure) {
	var w writer
	begun := object{}
	p.body.ForEach(func(k, v gjson.Result) bool {
		if k.Str != "usage" && k.Str != "x_gateway" {
			begun.set(k.Str, v)
		}
		return true
	})
	begun["status"], begun["output"] = "in_progress", []any{}
	dst = w.event(dst, "response.created", `"response":`+string(begun.raw()))
	for i, item := range p.body.Get("output").Array() {
		place := `"output_index":` + strconv.Itoa(i)
		dst = w.event(dst, "response.output_item.added", place, `"item":`+item.Raw)
		if item.Get("type").Str == "message" {
			dst = w.replayText(dst, place, item)
		}
		dst = w.event(dst, "response.output_item.done", place, `"item":`+item.Raw)
	}
	status := "completed"
	if p.body.Get("status").Str == "incomplete" {
		status = "incomplete"
	}
	return w.event(dst, "response."+status, `"response":`+p.body.Raw), nil
}

func (w *writer) replayText(dst []byte, place string, item gjson.Result) []byte {
	id := `"item_id":` + string(gjson.AppendJSONString(nil, item.Get("id").Str))
	for i, part := range item.Get("content").Array() {
		at := `"content_index":` + strconv.Itoa(i)
		dst = w.event(dst, "response.content_part.added", id, place, at, `"part":`+part.Raw)
		if v := part.Get("text"); v.Type == gjson.String {
			logprobs := `"logprobs":` + cmp.Or(part.Get("logprobs").Raw, "[]")
			dst = w.event(dst, "response.output_text.delta", id, place, at, `"delta":`+v.Raw, logprobs)
			dst = w.event(dst, "response.output_text.done", id, place, at, `"text":`+v.Raw, logprobs)
		}
		dst = w.event(dst, "response.content_part.done", id, place, at, `"part":`+part.Raw)
	}
	return dst
}
