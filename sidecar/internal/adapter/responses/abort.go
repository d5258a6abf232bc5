package responses

import (
	"cmp"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Broken is a stream that broke after it had begun.
type Broken struct {
	Response      string // its id
	Sequence      int64  // the number that the next event has
	Code, Message string
	Delivered     int64 // bytes
	Retryable     bool
}

// AppendBroken appends both ends that the API has for a stream that broke, an error and a failed response: some clients
// wait for the one, and some for the other.
func AppendBroken(dst []byte, r *exchange.Request, b Broken) []byte {
	w := writer{head: newHead(&exchange.Request{Model: r.Model, CreatedUnix: r.CreatedUnix}), seq: b.Sequence}
	code := cmp.Or(b.Code, "server_error")
	told := object{"code": code, "message": b.Message, "delivered_bytes": b.Delivered, "retryable": b.Retryable}
	failed := w.object("failed", nil)
	failed["id"], failed["error"] = b.Response, told
	response := `"response":` + string(failed.raw())
	told["param"] = nil // an event has one
	raw := told.raw()
	dst = w.event(dst, "error", string(raw[1:len(raw)-1]))
	return w.event(dst, "response.failed", response)
}
