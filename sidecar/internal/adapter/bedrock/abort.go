package bedrock

import (
	"strconv"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	codeCut    = "stream_truncated"
	typeServer = "server_error"
)

// Abort appends the error event of a broken stream. It says how much was delivered and whether asking again may help.
func (s *conversation) Abort(dst []byte, f *exchange.Failure) []byte {
	kind, code, message := caller(f)
	dst = appendString(append(dst, `data: {"error":{"message":`...), message)
	dst = appendString(append(dst, `,"type":`...), kind)
	dst = appendOptional(append(dst, `,"param":`...), f.Param)
	dst = appendOptional(append(dst, `,"code":`...), code)
	dst = strconv.AppendInt(append(dst, `,"delivered_bytes":`...), s.delivered.Bytes, 10)
	dst = strconv.AppendBool(append(dst, `,"retryable":`...), f.Kind.Failover() && !f.Final)
	return append(dst, "}}\n\n"...)
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// caller is what of a failure the caller may see. A failure of our credentials or configuration is not described:
// the provider's text may quote the key.
func caller(f *exchange.Failure) (kind, code, message string) {
	switch f.Kind {
	case exchange.FailCredential, exchange.FailNotFound:
		return typeServer, "upstream_misconfigured", "the provider refused the gateway's configuration"
	}
	kind, code, message = f.Type, f.Code, f.Message
	if kind == "" {
		kind = typeServer
	}
	if message == "" {
		message = "the provider's stream broke"
	}
	if code != "" {
		return kind, code, message
	}
	switch f.Kind {
	case exchange.FailRateLimited:
		code = "upstream_rate_limited"
	case exchange.FailOverloaded:
		code = "upstream_overloaded"
	case exchange.FailTimeout:
		code = "upstream_timeout"
	case exchange.FailCut, exchange.FailConnect:
		code = codeCut
	case exchange.FailInvalid:
		code = "upstream_invalid_response"
	}
	return kind, code, message
}
