package relay

import (
	"errors"
	"io"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Errors inside this room are *exchange.Failure, io.EOF for a body that ended as its framing says, or one of these.
var (
	// errNoBytes says that going on would mean to wait.
	errNoBytes = errors.New("relay: nothing has arrived yet")
	// errAborted says that a body was given up by its reader.
	errAborted = errors.New("relay: body was given up")
	// ErrCallerGone is returned while writing to a caller that cannot be written to any more, or that has left.
	// fasthttp closes the caller's connection on it.
	ErrCallerGone = errors.New("relay: the caller is gone")
)

func fail(kind exchange.FailureKind, message string) *exchange.Failure {
	return &exchange.Failure{Kind: kind, Message: message}
}

// failPage says that a page came instead of an answer: of a proxy, mostly. What stands on it is for nobody.
func failPage() *exchange.Failure {
	f := fail(exchange.FailInvalid, "the provider answered with a web page")
	f.Type, f.Code = "upstream_invalid_response", "invalid_content_type"
	return f
}

func failCancelled() *exchange.Failure {
	return fail(exchange.FailCancelled, "the caller left")
}

// asFailure turns any error of a body into a failure.
func asFailure(err error) *exchange.Failure {
	var f *exchange.Failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, ErrCallerGone):
		return failCancelled()
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fail(exchange.FailCut, "the provider's answer ended early")
	}
	return fail(exchange.FailInvalid, "the provider's answer is not readable")
}

// afterToken is what a failure is once the caller has seen tokens: whatever was wrong with the bytes, the stream broke.
func afterToken(f *exchange.Failure) *exchange.Failure {
	if f.Kind != exchange.FailInvalid && f.Kind != exchange.FailConnect {
		return f
	}
	cut := *f
	cut.Kind = exchange.FailCut
	return &cut
}
