package messages

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// FuzzFast: a chunk is told in the same bytes, and leaves the same state, whether its form is known or not.
func FuzzFast(f *testing.F) {
	adaptertest.AddChunks(f)
	f.Fuzz(func(t *testing.T, first, second, text string, order uint16) {
		start := func() *stream {
			r := &exchange.Request{Model: "alias", ID: "r1", Native: []byte(`{"stop_sequences":["a"]}`)}
			return Face{}.Translate(r, &adaptertest.Chunked{Last: `{"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}]}`}).(*stream)
		}
		fast, slow := start(), start()
		forget := func() { slow.Retold = adapter.Retold{Stream: slow.Retold.Stream} }
		adaptertest.Alike(t, fast, slow, forget, "", adaptertest.Likes(first, second, text, order)...)
	})
}
