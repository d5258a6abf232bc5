package adaptertest

import (
	"slices"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Translate gives a stream the data of events, one after another, up to its end or its failure. After each, what it says
// of its progress must be what it did.
func Translate(t testing.TB, st adapter.Stream, events ...string) (out []byte, f *exchange.Failure) {
	t.Helper()
	for _, data := range events {
		next, p := Step(t, st, out, Event{Data: data})
		if out = next; p.Failure != nil {
			return out, p.Failure
		}
		if p.Done {
			break
		}
	}
	before := len(out)
	out, f = st.End(out)
	if f != nil && len(out) > before {
		t.Fatalf("an end that failed wrote %q", out[before:])
	}
	return out, f
}

// Step gives a stream one event.
func Step(t testing.TB, st adapter.Stream, dst []byte, ev Event) ([]byte, adapter.Progress) {
	t.Helper()
	was, before := st.Delivered(), slices.Clone(dst)
	dst, p := st.Event(dst, []byte(ev.Name), []byte(ev.Data))
	now := st.Delivered()
	wrote := len(dst) - len(before)
	if p.Real != (now.Bytes > was.Bytes) || p.Real != (now.Pieces == was.Pieces+1) || !p.Real && now != was ||
		p.Real && wrote == 0 || p.Failure != nil && wrote > 0 {
		t.Fatalf("%+v: %+v became %+v and %q was written for %q", p, was, now, dst[len(before):], ev.Data)
	}
	return dst, p
}
