package gateway

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestKnown: what the provider stated stands, zero too; the rest is estimated once, and what the caller was told of it
// is what is settled, however much is learned in between.
func TestKnown(t *testing.T) {
	g := &Gateway{Estimate: estimate.New()}
	f := &flow{
		req: exchange.Request{Operation: exchange.Chat}, target: &exchange.Deployment{ID: "d"},
		input: estimate.Input{Bytes: 4200, Extra: 7},
	}
	zero := exchange.Usage{Source: exchange.FromProvider}
	if got := g.known(f, zero, adapter.Delivered{Bytes: 4200}); got != zero {
		t.Errorf("the provider's zero became %+v", got)
	}
	told := g.known(f, exchange.Usage{Source: exchange.FromEstimate}, adapter.Delivered{Bytes: 420})
	if told.Source != exchange.FromEstimate || told.Input != 1007 || told.Output != 100 {
		t.Errorf("estimated %+v", told)
	}
	// A token a piece, as most servers send: more than the text alone would say, but no more than it can hold.
	for pieces, want := range map[int64]int64{50: 100, 150: 150, 5000: 300} {
		got := g.known(f, exchange.Usage{Source: exchange.FromEstimate}, adapter.Delivered{Bytes: 420, Pieces: pieces})
		if got.Output != want {
			t.Errorf("%d tokens in %d pieces of 420 bytes, want %d", got.Output, pieces, want)
		}
	}
	searched := exchange.Usage{Source: exchange.FromEstimate, Tokens: exchange.Tokens{WebSearches: 2}}
	if got := g.known(f, searched, adapter.Delivered{Bytes: 420}); got.WebSearches != 2 || got.Output != 100 {
		t.Errorf("searches that were seen became %+v", got)
	}
	g.Estimate.LearnInput("d", estimate.Input{Bytes: 1000}, 900)
	if got := g.known(f, told, adapter.Delivered{Bytes: 420}); got != told {
		t.Errorf("told %+v, settled %+v", told, got)
	}
	f.req.Operation = exchange.Embeddings
	if got := g.known(f, exchange.Usage{Source: exchange.FromEstimate}, adapter.Delivered{Bytes: 9000}); got.Output != 0 || got.Input == 0 {
		t.Errorf("vectors count as output: %+v", got)
	}
}
