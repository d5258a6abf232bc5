package adapter

import (
	"encoding/json"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// ForeignMark begins the signatures of thinking blocks that the gateway makes for callers of the Messages API out of
// what other vendors' models think. Their own providers get back what stands behind it; Claude would refuse it.
const ForeignMark = "sluice1."

// MessagesPing is the Messages API's event that says nothing. Its clients give a silent stream up.
const MessagesPing = "event: ping\ndata: {\"type\": \"ping\"}\n\n"

// MessagesError is what an error event of the Messages API says.
type MessagesError struct {
	Message, Type, Code string
	Delivered           int64 // bytes
}

// AppendMessagesError appends the event that tells a caller of the Messages API that its stream broke. It says how much
// was delivered and whether asking again may help.
func AppendMessagesError(dst []byte, f *exchange.Failure, e MessagesError) []byte {
	kind := "api_error"
	switch f.Kind {
	case exchange.FailOverloaded:
		kind = "overloaded_error"
	case exchange.FailRateLimited:
		kind = "rate_limit_error"
	case exchange.FailTimeout:
		kind = "timeout_error"
	}
	type details struct {
		Code      string  `json:"error_code,omitempty"`
		Type      string  `json:"type"`
		Param     *string `json:"param"`
		Delivered int64   `json:"delivered_bytes"`
		Retryable bool    `json:"retryable"`
	}
	d := details{Code: e.Code, Type: e.Type, Delivered: e.Delivered, Retryable: f.Kind.Failover() && !f.Final}
	if f.Param != "" {
		d.Param = &f.Param
	}
	type body struct {
		Type    string  `json:"type"`
		Message string  `json:"message"`
		Details details `json:"details"`
	}
	b, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error body   `json:"error"`
	}{"error", body{kind, e.Message, d}})
	if err != nil {
		panic("BUG: adapter: " + err.Error())
	}
	return append(append(append(dst, "event: error\ndata: "...), b...), "\n\n"...)
}
