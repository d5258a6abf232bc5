package anthropic

import (
	"bytes"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// spaced is a stream whose events begin with a space, so that none is an ordinary delta.
type spaced struct{ adapter.Stream }

func (s spaced) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	out, p := s.Stream.Event(nil, name, append([]byte(" "), data...))
	return append(dst, bytes.ReplaceAll(out, []byte("data:  "), []byte("data: "))...), p
}

// FuzzFast: a delta gives the same bytes, counts and state whether it is recognised or read.
func FuzzFast(f *testing.F) {
	for _, delta := range []string{
		`0,"delta":{"type":"text_delta","text":"~"}}`, `1,"delta":{"type":"thinking_delta","thinking":"~"}}  `, `#,"delta":{"type":"input_json_delta","partial_json":"~"}}`,
		`0,"delta":{"type":"text_delta","text":"~"}} }`, `00,"delta":{"type":"text_delta","text":"~"}}`, `0,"delta":{"type":"signature_delta","signature":"~"}}`,
	} {
		f.Add(delta, `0,"delta":{"type":"text_delta","text":"~"}}`, adaptertest.Pieces, uint16(0x0ff0))
	}
	f.Fuzz(func(t *testing.T, first, second, text string, order uint16) {
		events := adaptertest.Likes(deltaOpen+first, deltaOpen+second, text, order)
		a, b := newStream(chat(true), note), newStream(chat(true), note)
		if order&2 == 0 {
			a.Event(nil, nil, []byte(evTool))
			b.Event(nil, nil, []byte(evTool))
		}
		adaptertest.Alike(t, a, spaced{b}, func() {}, "", events...)
		start := func() adapter.Stream { return New().Speak(exchange.MessagesDialect, nil).Stream(native(agent), note) }
		adaptertest.Alike(t, start(), spaced{start()}, func() {}, "content_block_delta", events...)
	})
}
