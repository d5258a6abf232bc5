package relay

import (
	"errors"

	"github.com/sluice-gateway/sluice/sidecar/internal/eventstream"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/jsonseq"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// framing cuts a provider's body into events, as sse.Reader does: Feed a chunk, call Next until it reports false; at the
// end of the body call End, and Next until it reports false.
type framing interface {
	Feed(p []byte)
	End()
	Next() (*sse.Event, bool, error)
}

// jsonFraming is the one of JSON objects in an array or one a line: each is the data of an event without a name.
type jsonFraming struct {
	jsonseq.Reader
	ev sse.Event
}

// Next returns the next event.
func (r *jsonFraming) Next() (_ *sse.Event, ok bool, err error) {
	r.ev.Data, ok, err = r.Reader.Next()
	return &r.ev, ok, err
}

// awsFraming is the one of application/vnd.amazon.eventstream.
type awsFraming struct {
	eventstream.Reader
	ev sse.Event
}

// Next returns the next event.
func (r *awsFraming) Next() (*sse.Event, bool, error) {
	ev, ok, err := r.Reader.Next()
	r.ev.Name, r.ev.Data = ev.Name, ev.Data
	return &r.ev, ok, err
}

// unframed is the failure of a body that is not framed as it should be.
func unframed(err error) *exchange.Failure {
	f := fail(exchange.FailInvalid, "an event of the provider is too large")
	switch {
	case errors.Is(err, jsonseq.ErrCut), errors.Is(err, eventstream.ErrTruncated):
		return fail(exchange.FailCut, "the provider's stream ended inside an event")
	case errors.Is(err, jsonseq.ErrMalformed):
		f.Message = "the provider's stream is no sequence of JSON objects"
	case errors.Is(err, eventstream.ErrChecksum):
		f.Type, f.Code, f.Message = "upstream_stream_error", "bad_checksum", "an event of the provider was damaged on its way"
	case errors.Is(err, eventstream.ErrFrame):
		f.Type, f.Code, f.Message = "upstream_stream_error", "bad_frame", "an event of the provider is malformed"
	}
	return f
}
