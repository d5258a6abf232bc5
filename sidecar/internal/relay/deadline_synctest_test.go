package relay

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// bubbled is what runs in a bubble beside the test itself.
type bubbled struct {
	ctx context.Context
	wg  sync.WaitGroup
}

// bubble runs f in a bubble, and ends what f started there.
func bubble(t *testing.T, f func(t *testing.T, b *bubbled)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		b := &bubbled{ctx: ctx}
		defer b.wg.Wait()
		defer stop()
		f(t, b)
	})
}

// inMemory returns a client whose connections are pipes to handle.
func inMemory(b *bubbled, cfg Config, handle func(p *peer)) *Client {
	n := 0
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
		mine, theirs := net.Pipe()
		p := &peer{Conn: theirs, br: bufio.NewReader(theirs), n: n}
		n++
		b.wg.Go(func() {
			defer theirs.Close()
			handle(p)
		})
		return mine, nil
	}
	c := NewClient(cfg)
	b.wg.Go(func() { _ = c.Run(b.ctx) })
	synctest.Wait()
	return c
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

var virtual = exchange.Timeouts{
	Connect: 2 * time.Second, FirstToken: 20 * time.Second, Idle: 30 * time.Second, Total: 5 * time.Minute,
}

func openAt(c *Client, stream bool, t exchange.Timeouts) (*Answer, *exchange.Failure) {
	r := &exchange.Request{Stream: stream, IncludeUsage: true}
	return c.Open(&Canceller{}, Upstream{BaseURL: "http://up/v1", Timeouts: t}, newCall(), stream, dialect{}, r, noNote)
}

// drip sends s every so often until the other side is gone.
func (p *peer) drip(s string, every time.Duration) {
	for {
		pass(every)
		if _, err := io.WriteString(p, s); err != nil {
			return
		}
	}
}

func TestDeadlinesBeforeTheToken(t *testing.T) {
	short := virtual
	short.Total = 7 * time.Second
	for _, tc := range []struct {
		name   string
		stream bool
		t      exchange.Timeouts
		script func(p *peer)
		after  time.Duration
		text   string
	}{
		{"no head", true, virtual, func(p *peer) {}, 20 * time.Second, "first-token"},
		{"half a head", true, virtual, func(p *peer) { p.send("HTTP/1.1 200 OK\r\nX") }, 20 * time.Second, "first-token"},
		{"head alone", true, virtual, func(p *peer) { pass(15 * time.Second); p.send(sseHead) }, 20 * time.Second, "first-token"},
		{"role alone", true, virtual, func(p *peer) { pass(9 * time.Second); p.send(sseHead, part(role)) }, 20 * time.Second, "first-token"},
		{"comments without end", true, virtual, func(p *peer) { p.send(sseHead); p.drip(part(": wait\n\n"), time.Second) }, 20 * time.Second, "first-token"},
		{"blank lines without end", true, virtual, func(p *peer) {
			p.send(label2("application/json")[:len(label2("application/json"))-len(lastPart)])
			p.drip(part("\n"), time.Second)
		}, 20 * time.Second, "first-token"},
		{"total before first token", true, short, func(p *peer) {}, 7 * time.Second, "total"},
		{"no head, no stream", false, virtual, func(p *peer) {}, 5 * time.Minute, "total"},
		{"silent body, no stream", false, virtual, func(p *peer) { pass(time.Minute); p.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{") }, 90 * time.Second, "idle"},
		{"silent a moment later, no stream", false, virtual, func(p *peer) {
			p.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
			pass(2 * time.Second)
			p.send(" ")
		}, 32 * time.Second, "idle"},
		{"slow body, no stream", false, virtual, func(p *peer) {
			p.send("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
			p.drip("\n", 20*time.Second)
		}, 5 * time.Minute, "total"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bubbled) {
				c := inMemory(b, Config{}, func(p *peer) {
					if p.request() != nil {
						tc.script(p)
						p.gone()
					}
				})
				start := time.Now()
				_, f := openAt(c, tc.stream, tc.t)
				wantKind(t, f, exchange.FailTimeout, tc.text+" deadline")
				if got := time.Since(start); got != tc.after {
					t.Fatalf("failed after %v, want %v", got, tc.after)
				}
			})
		})
	}
}

func TestConnectDeadline(t *testing.T) {
	long := virtual
	long.Connect = time.Hour
	for _, tc := range []struct {
		name  string
		t     exchange.Timeouts
		after time.Duration
		text  string
	}{
		{"connect", virtual, 2 * time.Second, "connect deadline"},
		{"first token is earlier", long, 20 * time.Second, "first-token deadline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bubbled) {
				c := NewClient(Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}})
				start := time.Now()
				ans, f := openAt(c, true, tc.t)
				wantKind(t, f, exchange.FailTimeout, tc.text)
				if got := time.Since(start); got != tc.after || ans.Sent {
					t.Fatalf("failed after %v, sent %v", got, ans.Sent)
				}
			})
		})
	}
}

func TestCancelWhileConnecting(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		c := NewClient(Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		cancel := &Canceller{}
		time.AfterFunc(time.Second, cancel.Cancel)
		start := time.Now()
		_, f := c.Open(cancel, Upstream{BaseURL: "http://up", Timeouts: virtual}, newCall(), true, dialect{}, &exchange.Request{}, noNote)
		wantKind(t, f, exchange.FailCancelled, "left")
		if got := time.Since(start); got != time.Second {
			t.Fatalf("ended after %v", got)
		}
	})
}

func TestARequestThatIsNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		stop := make(chan bool)
		c := inMemory(b, Config{}, func(p *peer) { <-stop })
		start := time.Now()
		_, f := openAt(c, true, virtual)
		wantKind(t, f, exchange.FailTimeout, "first-token deadline")
		if got := time.Since(start); got != 20*time.Second {
			t.Fatalf("failed after %v", got)
		}
		close(stop)
	})
}

func TestDeadlinesAfterTheToken(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script func(p *peer)
		after  time.Duration
		text   string
	}{
		{"silence", func(p *peer) {}, 30 * time.Second, "idle"},
		{"silence a moment later", func(p *peer) { pass(2 * time.Second); p.send(part(world)) }, 32 * time.Second, "idle"},
		{"silence later", func(p *peer) { pass(29 * time.Second); p.send(part(world)) }, 59 * time.Second, "idle"},
		{"silence inside a chunk", func(p *peer) { pass(10 * time.Second); p.send("ff\r\nda") }, 40 * time.Second, "idle"},
		{"comments count as life", func(p *peer) { p.drip(part(": here\n\n"), 25*time.Second) }, 5 * time.Minute, "total"},
		{"without end", func(p *peer) { p.drip(part(world), time.Second) }, 5 * time.Minute, "total"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bubbled) {
				// The heartbeat shares the read deadline with the others and must not shift them.
				c := inMemory(b, Config{Heartbeat: 7 * time.Second}, func(p *peer) {
					if p.request() != nil {
						p.send(sseHead, part(hello))
						tc.script(p)
						p.gone()
					}
				})
				start := time.Now()
				ans, f := openAt(c, true, virtual)
				if f != nil {
					t.Fatalf("got %+v", f)
				}
				got := play(ans.Stream)
				if d := time.Since(start); d != tc.after || got.final.Duration != tc.after {
					t.Fatalf("ended after %v, want %v", d, tc.after)
				}
				wantKind(t, got.final.Failure, exchange.FailTimeout, tc.text+" deadline")
				if got.err != nil || got.final.Status != StatusPartial || !strings.Contains(got.text, `{"error":"`+tc.text) {
					t.Fatalf("got %+v", got)
				}
			})
		})
	}
}

func TestHeartbeat(t *testing.T) {
	gzipHead := strings.Replace(sseHead, "Transfer", "Content-Encoding: gzip\r\nTransfer", 1)
	for _, tc := range []struct {
		name, head string
	}{
		{"plain", sseHead},
		{"inside a chunk", sseHead},
		{"gzip", gzipHead},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bubbled) {
				c := inMemory(b, Config{}, func(p *peer) {
					if p.request() == nil {
						return
					}
					parts := []string{hello, world + finish + done}
					switch tc.name {
					case "plain":
						parts[0], parts[1] = part(parts[0]), part(parts[1])+lastPart
					case "inside a chunk":
						all := part(parts[0] + parts[1])
						cut := strings.Index(all, hello) + len(hello)
						parts[0], parts[1] = all[:cut], all[cut:]+lastPart
					case "gzip":
						flushed, all := flushedGzip(parts[0]), gzipTwo(parts[0], parts[1])
						parts[0], parts[1] = part(flushed), part(all[len(flushed):])+lastPart
					}
					p.send(tc.head, parts[0])
					pass(29 * time.Second) // idle is 30 s
					p.send(parts[1])
					p.gone()
				})
				ans, f := openAt(c, true, virtual)
				if f != nil {
					t.Fatalf("got %+v", f)
				}
				var at []time.Duration
				start := time.Now()
				var all bytes.Buffer
				_, err := ans.Stream.WriteTo(writerFunc(func(p []byte) (int, error) {
					if string(p) == ": keep-alive\n\n" {
						at = append(at, time.Since(start))
					}
					return all.Write(p)
				}))
				_ = ans.Stream.Close()
				if err != nil || !strings.HasSuffix(all.String(), world+finish+event(`{"usage":0}`)+done) {
					t.Fatalf("got %q, %v", all.String(), err)
				}
				if len(at) != 1 || at[0] != heartbeatEvery {
					t.Fatalf("got heartbeats at %v, want one at %v", at, heartbeatEvery)
				}
			})
		})
	}
}

func gzipTwo(a, b string) string {
	var out bytes.Buffer
	w := newGzip(&out)
	_, _ = io.WriteString(w, a)
	_ = w.Flush()
	_, _ = io.WriteString(w, b)
	_ = w.Close()
	return out.String()
}

func TestHeartbeatFindsTheCallerGone(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		c := inMemory(b, Config{}, func(p *peer) {
			if p.request() != nil {
				p.send(sseHead, part(hello))
				p.gone()
			}
		})
		ans, f := openAt(c, true, virtual)
		if f != nil {
			t.Fatalf("got %+v", f)
		}
		var end Outcome
		ans.Stream.OnEnd = func(o Outcome) { end = o }
		start := time.Now()
		_, err := ans.Stream.WriteTo(writerFunc(func(p []byte) (int, error) {
			if p[0] == ':' {
				return 0, io.ErrClosedPipe
			}
			return len(p), nil
		}))
		_ = ans.Stream.Close()
		if err == nil || end.Status != StatusCancelled || time.Since(start) != heartbeatEvery {
			t.Fatalf("got %v, %+v after %v", err, end, time.Since(start))
		}
	})
}

// A caller that does not read stops the reading of the provider; little is held in between.
func TestSlowCaller(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		const events = 100_000
		sent := 0
		c := inMemory(b, Config{WriteWait: time.Hour}, func(p *peer) {
			if p.request() == nil {
				return
			}
			p.send(sseHead, part(hello))
			for range events {
				if _, err := io.WriteString(p, part(world)); err != nil {
					return
				}
				sent++
			}
			p.send(part(finish+done), lastPart)
			p.gone()
		})
		ans, f := openAt(c, true, virtual)
		if f != nil {
			t.Fatalf("got %+v", f)
		}
		pr, pw := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			ans.Stream.Caller = pw
			_, err := ans.Stream.WriteTo(pw)
			_ = ans.Stream.Close()
			_ = pw.Close()
			ended <- err
		}()
		synctest.Wait() // everybody waits for the caller now
		if held := sent * len(world); held > 64<<10 {
			t.Fatalf("%d bytes were taken from the provider for a caller that reads nothing", held)
		}
		all, err := io.ReadAll(pr)
		if err != nil || <-ended != nil || bytes.Count(all, []byte(world)) != events || !bytes.HasSuffix(all, []byte(done)) {
			t.Fatalf("got %d bytes, %v", len(all), err)
		}
	})
}

func TestACallerThatNeverReads(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		gone := make(chan bool)
		c := inMemory(b, Config{}, func(p *peer) {
			if p.request() != nil {
				p.send(sseHead, part(hello))
				p.drip(part(world), time.Second)
				close(gone)
			}
		})
		ans, f := openAt(c, true, virtual)
		if f != nil {
			t.Fatalf("got %+v", f)
		}
		_, pw := net.Pipe()
		var end Outcome
		ans.Stream.Caller, ans.Stream.OnEnd = pw, func(o Outcome) { end = o }
		start := time.Now()
		if _, err := ans.Stream.WriteTo(pw); err == nil || time.Since(start) != writeWait {
			t.Fatalf("got %v after %v", err, time.Since(start))
		}
		_ = ans.Stream.Close()
		<-gone
		if end.Status != StatusCancelled {
			t.Fatalf("got %+v", end)
		}
	})
}

// The end of a stream is awaited for its connection's sake, but not for long.
func TestLateEnd(t *testing.T) {
	for _, tc := range []struct {
		name  string
		late  time.Duration
		conns int
		// cancel is whether the request is cancelled once it is over, as one that ends by defer is.
		cancel bool
	}{
		{"soon enough", drainWait - time.Millisecond, 1, false},
		{"soon enough, and cancelled after its end", drainWait - time.Millisecond, 1, true},
		{"too late", drainWait + time.Millisecond, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bubbled) {
				conns := 0
				c := inMemory(b, Config{}, func(p *peer) {
					conns++
					for p.request() != nil {
						p.send(sseHead, part(hello+finish+done))
						pass(tc.late)
						p.send(lastPart)
					}
				})
				for range 2 {
					start := time.Now()
					cancel := &Canceller{}
					ans, f := c.Open(cancel, Upstream{BaseURL: "http://up/v1", Timeouts: virtual}, newCall(), true, dialect{},
						&exchange.Request{}, noNote)
					if f != nil {
						t.Fatalf("got %+v", f)
					}
					if got := play(ans.Stream); got.final.Status != StatusOK {
						t.Fatalf("got %+v", got)
					}
					if tc.cancel {
						cancel.Cancel()
					}
					if d := time.Since(start); d > leftoverWait {
						t.Fatalf("the caller waited %v", d)
					}
					pass(time.Second)
				}
				if conns != tc.conns {
					t.Fatalf("got %d connections, want %d", conns, tc.conns)
				}
			})
		})
	}
}

func TestSweep(t *testing.T) {
	bubble(t, func(t *testing.T, b *bubbled) {
		gone := make(chan time.Time, 1)
		c := inMemory(b, Config{}, func(p *peer) {
			for p.request() != nil {
				p.send(plain(200, "application/json", okBody))
			}
			gone <- time.Now()
		})
		start := time.Now()
		if _, f := openAt(c, false, virtual); f != nil {
			t.Fatalf("got %+v", f)
		}
		if d := (<-gone).Sub(start); d < idleAge || d > idleAge+sweepEvery {
			t.Fatalf("the idle connection was closed after %v", d)
		}
	})
}
