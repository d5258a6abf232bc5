package adaptertest

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Play plays every recorded answer of a folder to chat callers.
func Play(t *testing.T, dir string, ad adapter.Adapter, d *exchange.Deployment) {
	t.Helper()
	for _, f := range Load(t, dir) {
		t.Run(f.File, func(t *testing.T) { f.Play(t, ad, d, f.Answer(t)) })
	}
}

// Play plays an answer, cut in every way, to a chat caller who asks for the usage of streams, and to one who does not.
func (f *Fixture) Play(t *testing.T, ad adapter.Adapter, d *exchange.Deployment, raw []byte) {
	t.Helper()
	play := func(asked bool) func(t *testing.T, pieces ...[]byte) {
		return func(t *testing.T, pieces ...[]byte) {
			t.Helper()
			r := Chat(f.Stream)
			r.IncludeUsage = asked
			if f.API == "embeddings" {
				r.Operation, r.Body = exchange.Embeddings, []byte(`{"model":"smart","input":"x"}`)
			}
			f.CheckChat(t, Relay(t, ad, d, r, pieces...), asked)
		}
	}
	t.Run("usage", func(t *testing.T) { CutAnywhere(t, raw, play(f.Stream)) })
	if f.Stream {
		t.Run("no usage", func(t *testing.T) { Cut(t, raw, play(false)) })
	}
}
