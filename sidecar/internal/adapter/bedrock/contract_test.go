package bedrock

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

func TestFixtures(t *testing.T) { adaptertest.Play(t, "testdata", New(), ofNova) }

var ofNova = &exchange.Deployment{Provider: "bedrock", Model: nova, Region: "us-east-1"}

func chat(stream bool) *exchange.Request { return adaptertest.Chat(stream) }

func note(dst []byte, u exchange.Usage, delivered adapter.Delivered) ([]byte, exchange.Usage) {
	return adaptertest.Note(dst, u, delivered)
}

// play sends a stream, in pieces, as a provider would, and relays it.
func play(t *testing.T, pieces ...[]byte) adaptertest.Relayed {
	t.Helper()
	return adaptertest.Relay(t, New(), ofNova, chat(true), pieces...)
}

// TestTruncated: a stream cut anywhere before its stop reason never looks complete.
func TestTruncated(t *testing.T) {
	raw := adaptertest.Read(t, "testdata/converse-stream-tools.bin")
	stop := bytes.Index(raw, []byte("stopReason"))
	for n := bytes.Index(raw, []byte("\r\n\r\n")) + 4; n < len(raw); n += 3 {
		p := play(t, slices.Collect(slices.Chunk(raw[:n], 64))...)
		whole := p.Outcome != nil && strings.Contains(string(p.Body), "[DONE]")
		if whole && n < stop || whole && p.Outcome.Status != relay.StatusOK {
			t.Fatalf("cut at %d of %d: %s", n, stop, p.Body)
		}
		if !whole && (p.Failure == nil || p.Outcome != nil && p.Failure.Kind != exchange.FailCut) {
			t.Fatalf("cut at %d: %+v", n, p.Failure)
		}
	}
}
