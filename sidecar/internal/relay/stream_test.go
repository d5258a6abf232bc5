package relay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestCancel(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stream bool
		first  []string // what the provider sends before it falls silent
	}{
		{"before the head", true, nil},
		{"before the head, no stream", false, nil},
		{"inside the head", true, []string{"HTTP/1.1 200 OK\r\nCont"}},
		{"before the first event", true, []string{sseHead}},
		{"before the token", true, []string{sseHead, part(role)}},
		{"inside the body", false, []string{"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"}},
		{"inside an error", true, []string{"HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\n{"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked, gone := make(chan bool, 1), make(chan error, 1)
			u := serve(t, func(p *peer) {
				if p.request() == nil {
					return
				}
				p.send(tc.first...)
				asked <- true
				gone <- p.gone()
			})
			cancel := &Canceller{}
			go func() {
				<-asked
				cancel.Cancel()
			}()
			ans, f := open(newClient(t, Config{}), cancel, u.url, tc.stream)
			wantKind(t, f, exchange.FailCancelled, "left")
			if !ans.Sent {
				t.Fatal("Sent is not set")
			}
			if err := <-gone; !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("the provider saw %v, want a reset", err)
			}
		})
	}
}

func TestCancelMidStream(t *testing.T) {
	gone := make(chan error, 1)
	u := serve(t, func(p *peer) {
		if p.request() != nil {
			p.send(sseHead, part(hello))
			gone <- p.gone()
		}
	})
	cancel := &Canceller{}
	ans, f := open(newClient(t, Config{}), cancel, u.url, true)
	if f != nil {
		t.Fatalf("got %+v", f)
	}
	s := ans.Stream
	var ends []Outcome
	s.OnEnd = func(o Outcome) { ends = append(ends, o) }
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := s.WriteTo(pw)
		done <- errors.Join(err, s.Close())
	}()
	if _, err := io.ReadFull(pr, make([]byte, len(hello))); err != nil {
		t.Fatal(err)
	}
	cancel.Cancel() // the pump waits for the provider, or is about to
	if err := <-done; !errors.Is(err, ErrCallerGone) {
		t.Fatalf("got %v", err)
	}
	if err := <-gone; !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the provider saw %v, want a reset", err)
	}
	if len(ends) != 1 || ends[0].Status != StatusCancelled || ends[0].Failure.Kind != exchange.FailCancelled || ends[0].Delivered.Bytes != 5 {
		t.Fatalf("got outcomes %+v", ends)
	}
}

func TestCancelBeforeAndAfter(t *testing.T) {
	u := serve(t, once(plain(200, "application/json", okBody), false))
	c := newClient(t, Config{})
	cancel := &Canceller{}
	mustBody(t, c, u.url)
	if _, f := open(c, cancel, u.url, false); f != nil {
		t.Fatalf("got %+v", f)
	}
	// The connection is back in the pool: cancelling the request that used it must not touch it.
	cancel.Cancel()
	cancel.Cancel()
	<-cancel.Done()
	mustBody(t, c, u.url)
	if n := u.accepted(); n != 1 {
		t.Fatalf("got %d connections, want 1", n)
	}
	ans, f := open(c, cancel, u.url, false)
	wantKind(t, f, exchange.FailCancelled, "left")
	if ans.Sent || !cancel.Cancelled() {
		t.Fatal("a cancelled request was sent")
	}
}

// How a stream may break after its first token: the caller gets what was there, an error event and a proper end.
func TestBrokenStreams(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer string
		closes bool
		kind   exchange.FailureKind
		text   string
	}{
		{"cut", sseHead + part(hello), true, exchange.FailCut, "early"},
		{"cut inside an event", sseHead + part(hello+`data: {"t":"wo`), true, exchange.FailCut, "early"},
		{"cut inside a chunk", sseHead + "ff\r\n" + hello, true, exchange.FailCut, "early"},
		{"malformed chunk", sseHead + part(hello) + "zz\r\n", false, exchange.FailCut, "framing"},
		{"no finish", whole(hello), false, exchange.FailCut, "no finish"},
		{"no finish, but done", whole(hello, done), false, exchange.FailCut, "no finish"},
		{"error event", whole(hello, event(`{"error":"busy"}`), done), false, exchange.FailOverloaded, "busy"},
		{"bare error line", whole(hello, `{"error":"busy"}`), false, exchange.FailOverloaded, "busy"},
		{"event too large", whole(hello, event(strings.Repeat("x", 2000))), false, exchange.FailCut, "too large"},
		{"until close, no finish", "HTTP/1.1 200 OK\r\n\r\n" + hello, true, exchange.FailCut, "no finish"},
		{"gzip ends early", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + flushedGzip(hello), true, exchange.FailCut, "early"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(tc.answer, tc.closes))
			got := play(mustStream(t, newClient(t, Config{EventBytesMax: 1000}), u.url))
			if got.err != nil {
				t.Fatalf("got error %v: the body must end properly", got.err)
			}
			if !strings.HasPrefix(got.text, hello+`data: {"error":`) || strings.Contains(got.text, "[DONE]") {
				t.Fatalf("got %q", got.text)
			}
			if len(got.ends) != 1 || got.final.Status != StatusPartial || got.final.Delivered.Bytes != 5 {
				t.Fatalf("got outcomes %+v", got.ends)
			}
			wantKind(t, got.final.Failure, tc.kind, tc.text)
		})
	}
}

// flushedGzip is the start of a gzip stream that was flushed but not closed.
func flushedGzip(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Flush()
	return b.String()
}

func TestResetMidStream(t *testing.T) {
	proceed := make(chan bool)
	u := serve(t, func(p *peer) {
		if p.request() == nil {
			return
		}
		p.send("HTTP/1.1 200 OK\r\n\r\n", hello+finish) // until close: a reset is no end
		<-proceed
		_ = p.Conn.(*net.TCPConn).SetLinger(0)
	})
	s := mustStream(t, newClient(t, Config{}), u.url)
	close(proceed)
	got := play(s)
	if got.final.Status != StatusPartial || strings.Contains(got.text, "[DONE]") {
		t.Fatalf("got %+v", got)
	}
	wantKind(t, got.final.Failure, exchange.FailCut, "broke")
}

// Each flush of a gzipped stream reaches the caller before the next one exists.
func TestGzippedStreamIsNotHeldBack(t *testing.T) {
	seen := make(chan bool)
	u := serve(t, func(p *peer) {
		if p.request() == nil {
			return
		}
		p.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		for _, s := range []string{hello, world, finish + done} {
			_, _ = io.WriteString(w, s)
			_ = w.Flush()
			p.send(part(b.String()))
			b.Reset()
			if s != finish+done {
				<-seen
			}
		}
		_ = w.Close()
		p.send(part(b.String()), lastPart)
	})
	s := mustStream(t, newClient(t, Config{}), u.url)
	pr, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := s.WriteTo(pw)
		ended <- errors.Join(err, s.Close(), pw.Close())
	}()
	buf := make([]byte, len(hello))
	for range 2 {
		if _, err := io.ReadFull(pr, buf); err != nil {
			t.Fatal(err)
		}
		seen <- true
	}
	if rest, err := io.ReadAll(pr); err != nil || !strings.HasSuffix(string(rest), done) {
		t.Fatalf("got %q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestByteByByte(t *testing.T) {
	u := serve(t, func(p *peer) {
		if p.request() == nil {
			return
		}
		for _, b := range []byte(sseHead + part(role+hello) + part(world+finish) + part(usage+done) + lastPart) {
			if _, err := p.Write([]byte{b}); err != nil {
				return
			}
		}
		p.gone()
	})
	got := play(mustStream(t, newClient(t, Config{}), u.url))
	want := role + hello + world + finish + usage + done
	if got.text != want || got.err != nil || got.final.Status != StatusOK || got.final.Usage.Output != 7 || got.final.Delivered.Bytes != 10 {
		t.Fatalf("got %+v", got)
	}
}

// writes records each write on its own.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

func TestWhatArrivedTogetherGoesOutTogether(t *testing.T) {
	u := serve(t, once(whole(strings.Repeat(hello, 50), finish, done), false))
	s := mustStream(t, newClient(t, Config{}), u.url)
	var w writes
	if _, err := s.WriteTo(&w); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if len(w) > 2 {
		t.Fatalf("got %d writes of what arrived at once", len(w))
	}
	if got := strings.Join(w, ""); strings.Count(got, hello) != 50 || !strings.HasSuffix(got, done) {
		t.Fatalf("got %q", got)
	}
}

func TestOnEndComesBeforeTheLastBytes(t *testing.T) {
	for name, answer := range map[string]string{
		"done in the stream": whole(hello, finish, usage, done),
		"all held back":      whole(role, finish, usage, done),
		"broken":             whole(hello),
		"json":               plain(200, "application/json", `{"choices":[{"message":{"content":"x"}}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, once(answer, false))
			s := mustStream(t, newClient(t, Config{}), u.url)
			ended := false
			s.OnEnd = func(Outcome) { ended = true }
			_, err := s.WriteTo(writerFunc(func(p []byte) (int, error) {
				last := bytes.Contains(p, []byte("[DONE]")) || bytes.Contains(p, []byte(`"error"`))
				if last && !ended {
					t.Error("the last bytes were written before OnEnd")
				}
				return len(p), nil
			}))
			if err != nil || !ended {
				t.Fatalf("got %v, ended %v", err, ended)
			}
			_ = s.Close()
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWriteErrorMeansTheCallerIsGone(t *testing.T) {
	gone := make(chan error, 1)
	u := serve(t, func(p *peer) {
		if p.request() != nil {
			p.send(sseHead, part(hello))
			gone <- p.gone()
		}
	})
	s := mustStream(t, newClient(t, Config{}), u.url)
	var ends []Outcome
	s.OnEnd = func(o Outcome) { ends = append(ends, o) }
	_, err := s.WriteTo(writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE }))
	if !errors.Is(err, ErrCallerGone) {
		t.Fatalf("got %v", err)
	}
	_ = s.Close()
	<-gone
	if len(ends) != 1 || ends[0].Status != StatusCancelled {
		t.Fatalf("got outcomes %+v", ends)
	}
}

func TestCloseWithoutWriting(t *testing.T) {
	gone := make(chan error, 1)
	u := serve(t, func(p *peer) {
		if p.request() != nil {
			p.send(sseHead, part(hello+usage))
			gone <- p.gone()
		}
	})
	s := mustStream(t, newClient(t, Config{}), u.url)
	var ends []Outcome
	s.OnEnd = func(o Outcome) { ends = append(ends, o) }
	_ = s.Close()
	_ = s.Close()
	<-gone
	if len(ends) != 1 || ends[0].Status != StatusCancelled || ends[0].Delivered.Bytes != 5 {
		t.Fatalf("got outcomes %+v", ends)
	}
}

func TestPanicOfAnAdapterMidStream(t *testing.T) {
	for name, pump := range map[string]func(s *Stream){
		"WriteTo": func(s *Stream) { _, _ = s.WriteTo(io.Discard) },
		"Read":    func(s *Stream) { _, _ = io.Copy(io.Discard, struct{ io.Reader }{s}) },
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan error, 1)
			u := serve(t, func(p *peer) {
				if p.request() != nil {
					p.send(sseHead, part(hello+event("panic")))
					gone <- p.gone()
				}
			})
			s := mustStream(t, newClient(t, Config{}), u.url)
			var ends []Outcome
			s.OnEnd = func(o Outcome) { ends = append(ends, o) }
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				pump(s)
			}()
			_ = s.Close()
			<-gone
			if len(ends) != 1 || ends[0].Status != StatusFailed {
				t.Fatalf("got outcomes %+v", ends)
			}
		})
	}
}

func TestRead(t *testing.T) {
	for _, tc := range []struct{ name, answer, want string }{
		{"whole", whole(role, hello, world, finish, usage, done), role + hello + world + finish + usage + done},
		{"broken", whole(hello), hello + event(`{"error":"no finish"}`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(tc.answer, false))
			s := mustStream(t, newClient(t, Config{}), u.url)
			ends := 0
			s.OnEnd = func(Outcome) { ends++ }
			var b bytes.Buffer
			buf := make([]byte, 7)
			for {
				n, err := s.Read(buf)
				b.Write(buf[:n])
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			_ = s.Close()
			if b.String() != tc.want || ends != 1 {
				t.Fatalf("got %q, %d ends", b.String(), ends)
			}
		})
	}
}

// A stream's connection is used again once its end has arrived, also when that comes after [DONE], but not for ever.
func TestConnectionAfterDone(t *testing.T) {
	for _, tc := range []struct {
		name  string
		late  string
		conns int
	}{
		{"end in time", "", 1},
		{"end after done", lastPart, 1},
		{"more events after done", part(hello) + lastPart, 1},
		{"surplus", lastPart + "EVIL", 2},
		{"broken end", "zz\r\n", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			written := make(chan bool)
			u := serve(t, func(p *peer) {
				for p.request() != nil {
					if tc.late == "" {
						p.send(whole(hello, finish, done))
						<-written
						continue
					}
					p.send(sseHead + part(hello+finish+done))
					<-written // the caller has everything
					p.send(tc.late)
				}
			})
			c := newClient(t, Config{})
			for i := range 2 {
				if got := play(mustStream(t, c, u.url)); got.final.Status != StatusOK || got.err != nil {
					t.Fatalf("got %+v", got)
				}
				written <- true
				if i == 0 && tc.conns == 1 {
					for end := time.Now().Add(5 * time.Second); c.idle() == 0; {
						if time.Now().After(end) {
							t.Fatal("the connection did not come back")
						}
					}
				}
			}
			if n := u.accepted(); n != tc.conns {
				t.Fatalf("got %d connections, want %d", n, tc.conns)
			}
		})
	}
}

func TestWithoutRunLateEndsCloseTheConnection(t *testing.T) {
	gone := make(chan error, 1)
	u := serve(t, func(p *peer) {
		if p.request() != nil {
			p.send(sseHead + part(hello+finish+done))
			gone <- p.gone()
		}
	})
	if got := play(mustStream(t, NewClient(Config{}), u.url)); got.final.Status != StatusOK {
		t.Fatalf("got %+v", got)
	}
	<-gone
}

func newGzip(w io.Writer) *gzip.Writer { return gzip.NewWriter(w) }
