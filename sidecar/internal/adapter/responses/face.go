package responses

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Face is an adapter as callers of the Responses API see it. It implements adapter.Face.
type Face struct{ adapter.Adapter }

// Behind implements adapter.Face.
func (f Face) Behind() adapter.Adapter { return f.Adapter }

// Response implements adapter.Adapter.
func (f Face) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	chat, u, failure := f.Adapter.Response(r, body, a)
	if failure != nil {
		return nil, u, failure
	}
	in := gjson.ParseBytes(chat)
	w := newWriter(r)
	w.name(r, in.Get("id").Str)
	w.chunk(in)
	choice := in.Get("choices.0")
	w.finish = choice.Get("finish_reason").Str
	w.weigh(choice.Get("logprobs"))
	_, ok := w.delta(nil, choice.Get("message"))
	if !ok {
		return nil, u, tooMuch()
	}
	w.end(nil)
	o, _ := w.result(usage(u.Tokens))
	return o.raw(), u, nil
}

// Stream implements adapter.Adapter.
func (f Face) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return f.Translate(r, f.Adapter.Stream(r, a))
}

// Translate implements adapter.Face.
func (f Face) Translate(r *exchange.Request, s adapter.Stream) adapter.Stream {
	return &stream{Retold: adapter.Retold{Stream: s}, r: r, writer: newWriter(r)}
}

func newWriter(r *exchange.Request) writer {
	return writer{head: newHead(r), custom: customTools(r.Native), weighs: wantsLogprobs(gjson.GetBytes(r.Native, "include"))}
}

// chunk reads what stands beside the choices of an answer or a chunk.
func (w *writer) chunk(in gjson.Result) {
	if v := in.Get("service_tier"); v.Type == gjson.String {
		w.tier = json.RawMessage(v.Raw)
	}
	if v := in.Get("x_gateway"); v.Exists() {
		w.gateway = json.RawMessage(v.Raw)
	}
}

func tooMuch() *exchange.Failure {
	return &exchange.Failure{
		Kind: exchange.FailInvalid, Code: adapter.CodeInvalidAnswer,
		Message: "the provider's answer is too long, or its tool calls are out of order",
	}
}
