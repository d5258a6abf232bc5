package adapter

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Codes of answers that fail.
const (
	CodeCut           = "stream_truncated"          // it ended before it was complete
	CodeInvalidAnswer = "upstream_invalid_response" // nothing is missing, but nobody can read it
)

// AppendAbort appends the error event of a broken stream of chat chunks. It says how much was delivered and whether asking
// again may help.
func AppendAbort(dst []byte, f *exchange.Failure, delivered int64) []byte {
	c := Told(f)
	dst = gjson.AppendJSONString(append(dst, `data: {"error":{"message":`...), c.Message)
	dst = gjson.AppendJSONString(append(dst, `,"type":`...), c.Type)
	dst = appendOptional(append(dst, `,"param":`...), c.Param)
	dst = appendOptional(append(dst, `,"code":`...), c.Code)
	dst = strconv.AppendInt(append(dst, `,"delivered_bytes":`...), delivered, 10)
	dst = strconv.AppendBool(append(dst, `,"retryable":`...), f.Kind.Failover() && !f.Final)
	return append(dst, "}}\n\n"...)
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return gjson.AppendJSONString(dst, s)
}

// Told is what of a failure the caller may see. A failure of our credentials or configuration is not described: the
// provider's text may quote the key.
func Told(f *exchange.Failure) exchange.Failure {
	if f.Kind == exchange.FailCredential || f.Kind == exchange.FailNotFound {
		return exchange.Failure{
			Type: "server_error", Code: "upstream_misconfigured",
			Message: "the provider refused the gateway's configuration",
		}
	}
	c := exchange.Failure{Type: f.Type, Code: f.Code, Param: f.Param, Message: f.Message}
	if c.Type == "" {
		c.Type = "server_error"
	}
	if c.Message == "" {
		c.Message = "the provider's stream broke"
	}
	if c.Code != "" {
		return c
	}
	switch f.Kind {
	case exchange.FailRateLimited:
		c.Code = "upstream_rate_limited"
	case exchange.FailOverloaded:
		c.Code = "upstream_overloaded"
	case exchange.FailTimeout:
		c.Code = "upstream_timeout"
	case exchange.FailCut, exchange.FailConnect:
		c.Code = CodeCut
	case exchange.FailInvalid:
		c.Code = CodeInvalidAnswer
	}
	return c
}
