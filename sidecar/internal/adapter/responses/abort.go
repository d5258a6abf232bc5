package responses

import (
	"cmp"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Broken is a stream that broke after it had begun.
type Broken struct {
	Response      string // its id; empty when it broke before it had one
	Sequence      int64  // the number that the next event has
	Code, Message string
	Delivered     int64 // bytes
	Retryable     bool
}

// AppendBroken appends the failed response that ends a stream that broke. The API has error events too, but clients that
// wait for a response to end, such as Codex, see only this.
func AppendBroken(dst []byte, r *exchange.Request, b Broken) []byte {
	w := writer{head: newHead(&exchange.Request{Model: r.Model, CreatedUnix: r.CreatedUnix}), seq: b.Sequence}
	if b.Response == "" {
		w.name(r, "")
		b.Response = "resp_" + w.id
	}
	failed := w.object("failed", nil)
	failed["id"] = b.Response
	failed["error"] = object{
		"code": cmp.Or(b.Code, "server_error"), "message": b.Message, "delivered_bytes": b.Delivered, "retryable": b.Retryable,
	}
	return w.event(dst, "response.failed", `"response":`+string(failed.raw()))
}
