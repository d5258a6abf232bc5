package openai

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const alias = adaptertest.Alias

var compatible = &exchange.Deployment{Provider: "compatible", Model: "real"}

func ask(stream bool) *exchange.Request { return adaptertest.Chat(stream) }

func note(dst []byte, u exchange.Usage, delivered adapter.Delivered) ([]byte, exchange.Usage) {
	return adaptertest.Note(dst, u, delivered)
}

func TestFixtures(t *testing.T) {
	adaptertest.Play(t, "testdata", New(), compatible)
}

// run is what became of one stream.
type run struct {
	out     []byte
	failure *exchange.Failure
	asked   bool
	adapter.Stream
}

// translate gives a stream its events. The caller asks for its usage or does not.
func translate(t *testing.T, asked bool, events ...string) run {
	t.Helper()
	r := ask(true)
	r.IncludeUsage = asked
	got := run{asked: asked, Stream: New().Stream(r, note)}
	got.out, got.failure = adaptertest.Translate(t, got.Stream, events...)
	return got
}

// seen is what the caller of a stream that came to its end saw of it: each byte of text that was counted.
func (r run) seen(t *testing.T) *adaptertest.Seen {
	t.Helper()
	s := adaptertest.ReadStream(t, r.out, r.asked)
	if n := r.Delivered().Bytes; s.Text != n {
		t.Errorf("%d bytes of text arrived, %d were counted", s.Text, n)
	}
	return s
}
