package relay

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// pinger is a dialect with an event that says nothing.
type pinger struct{ dialect }

func (p pinger) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return pings{p.dialect.Stream(r, a)}
}

type pings struct{ adapter.Stream }

func (pings) Ping() string { return "event: ping\n\n" }

// TestPing: a caller whose dialect has a ping gets that in a long silence, and no comment.
func TestPing(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		c := inMemory(b, Config{}, func(p *peer) {
			if p.request() == nil {
				return
			}
			p.send(sseHead, part(hello))
			pass(29 * time.Second) // idle is 30 s
			p.send(part(world+finish+done) + lastPart)
			p.gone()
		})
		r := &exchange.Request{Stream: true, IncludeUsage: true}
		ans, f := c.Open(&Canceller{}, Upstream{BaseURL: "http://up/v1", Timeouts: virtual}, newCall(), true, pinger{}, r, noNote)
		if f != nil {
			t.Fatal(f)
		}
		var all bytes.Buffer
		if _, err := ans.Stream.WriteTo(&all); err != nil {
			t.Fatal(err)
		}
		_ = ans.Stream.Close()
		if got := all.String(); !strings.HasPrefix(got, hello+"event: ping\n\n"+world) || strings.Contains(got, ": keep") {
			t.Errorf("got %q", got)
		}
	})
}
