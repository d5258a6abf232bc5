package openai

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const codeCut = "stream_truncated"

// Abort implements adapter.Stream. The event says how much was delivered and whether asking again may help.
func (s *stream) Abort(dst []byte, f *exchange.Failure) []byte {
	c := told(f)
	dst = gjson.AppendJSONString(append(dst, `data: {"error":{"message":`...), c.Message)
	dst = gjson.AppendJSONString(append(dst, `,"type":`...), c.Type)
	dst = appendOptional(append(dst, `,"param":`...), c.Param)
	dst = appendOptional(append(dst, `,"code":`...), c.Code)
	dst = strconv.AppendInt(append(dst, `,"delivered_bytes":`...), s.delivered, 10)
	dst = strconv.AppendBool(append(dst, `,"retryable":`...), f.Kind.Failover() && !f.Final)
	return append(dst, "}}\n\n"...)
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return gjson.AppendJSONString(dst, s)
}

// told is what of a failure the caller may see. A failure of our credentials or configuration is not described: the
// provider's text may quote the key.
func told(f *exchange.Failure) exchange.Failure {
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
		c.Code = codeCut
	case exchange.FailInvalid:
		c.Code = "upstream_invalid_response"
	}
	return c
}
