package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestPatience: a stream without a token becomes the caller's after so much silence, and goes on as if it had been held
// back: same bytes, first token noted, its own deadline for that. One that must be decoded is held to its token.
func TestPatience(t *testing.T) {
	gzipHead := strings.Replace(sseHead, "Transfer", "Content-Encoding: gzip\r\nTransfer", 1)
	waits := virtual
	waits.FirstToken = 100 * time.Second
	for _, tc := range []struct {
		name    string
		gzip    bool
		token   time.Duration // of the provider; 0 for none
		waiting time.Duration // of the caller, before this attempt
		opened  time.Duration
		beats   int
	}{
		{"a token in time", false, 40 * time.Second, 0, 40 * time.Second, 0},
		{"a late token", false, 80 * time.Second, 0, 45 * time.Second, 2},
		{"the caller has waited before", false, 38 * time.Second, 35 * time.Second, 10 * time.Second, 1},
		{"the caller has waited too long", false, 40 * time.Second, time.Minute, 0, 2},
		{"gzip", true, 80 * time.Second, 0, 80 * time.Second, 0},
		{"no token", false, 0, 0, 45 * time.Second, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bubbled) {
				before, after := role, hello+finish+done
				c := inMemory(b, Config{}, func(p *peer) {
					if p.request() == nil {
						return
					}
					head, first, rest := sseHead, part(before), part(after)+lastPart
					if tc.gzip {
						flushed, all := flushedGzip(before), gzipTwo(before, after)
						head, first, rest = gzipHead, part(flushed), part(all[len(flushed):])+lastPart
					}
					p.send(head + first)
					if tc.token > 0 {
						pass(tc.token)
						p.send(rest)
					}
					p.gone()
				})
				pass(tc.waiting)
				start := time.Now()
				r := &exchange.Request{Operation: exchange.Chat, Stream: true, IncludeUsage: true, Body: []byte("{}")}
				up := Upstream{BaseURL: "http://provider", Timeouts: waits, Waiting: start.Add(-tc.waiting)}
				ans, f := c.Open(&Canceller{}, up, newCall(), true, dialect{}, r, noNote)
				if f != nil {
					t.Fatalf("got %+v", f)
				}
				if d := time.Since(start); d != tc.opened {
					t.Errorf("the caller's after %v, want %v", d, tc.opened)
				}
				got := play(ans.Stream)
				if n := strings.Count(got.text, ": keep-alive\n\n"); n != tc.beats {
					t.Errorf("%d keep-alives, want %d: %q", n, tc.beats, got.text)
				}
				text := strings.ReplaceAll(got.text, ": keep-alive\n\n", "")
				if tc.token == 0 {
					wantKind(t, got.final.Failure, exchange.FailTimeout, "first-token deadline")
					if d := time.Since(start); got.err != nil || !got.final.Early || !strings.HasPrefix(text, role+`data: {"error":`) || d != waits.FirstToken {
						t.Errorf("got %+v after %v", got, d)
					}
					return
				}
				if got.final.Status != StatusOK || got.final.Early || got.final.FirstToken != tc.token ||
					text != role+hello+finish+event(`{"usage":0}`)+done {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}
