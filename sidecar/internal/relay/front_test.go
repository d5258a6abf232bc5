package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// front is a fasthttp server before a client, wired as a gateway would wire it.
type front struct {
	addr string
	ends chan Outcome
	// failed gets the failures of Open.
	failed chan *exchange.Failure
}

func newFront(t testing.TB, url string) *front {
	t.Helper()
	c := newClient(t, Config{})
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	f := &front{ends: make(chan Outcome, 16), failed: make(chan *exchange.Failure, 16)}
	srv := &fasthttp.Server{
		ReduceMemoryUsage: true, WriteBufferSize: 1024, Logger: quiet{},
		Handler: func(rc *fasthttp.RequestCtx) {
			cancel := &Canceller{}
			tok := w.Arm(rc.Conn(), cancel.Cancel)
			ans, fl := open(c, cancel, url, true)
			if fl != nil {
				w.Disarm(tok)
				f.failed <- fl
				rc.SetStatusCode(502)
				return
			}
			s := ans.Stream
			s.Caller = rc
			s.OnEnd = func(o Outcome) {
				w.Disarm(tok)
				f.ends <- o
			}
			rc.SetContentType("text/event-stream")
			rc.SetBodyStream(s, -1)
		},
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	wg.Go(func() {
		if err := srv.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := srv.Shutdown(); err != nil {
			t.Error(err)
		}
		stop()
		wg.Wait()
	})
	return f
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// ask sends a request over a raw connection.
func ask(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
}

// hear reads an answer to its end.
func hear(br *bufio.Reader) (string, error) {
	r, err := http.ReadResponse(br, nil)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	return string(all), err
}

func dial(t testing.TB, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func TestFrontStreams(t *testing.T) {
	for _, tc := range []struct {
		name, answer, want string
		closes             bool
		status             Status
	}{
		{"whole", whole(role, hello, finish, usage, done), role + hello + finish + usage + done, false, StatusOK},
		{"long", whole(strings.Repeat(hello, 2000), finish, usage, done), strings.Repeat(hello, 2000) + finish + usage + done, false, StatusOK},
		{"cut", sseHead + part(hello), hello + event(`{"error":"the provider's answer ended early"}`), true, StatusPartial},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(tc.answer, tc.closes))
			f := newFront(t, u.url)
			c, br := dial(t, f.addr)
			for range 3 { // on one connection: each body ended properly
				ask(t, c)
				if got, err := hear(br); err != nil || got != tc.want {
					t.Fatalf("got %q, %v", got, err)
				}
				if o := <-f.ends; o.Status != tc.status {
					t.Fatalf("got outcome %+v", o)
				}
			}
		})
	}
}

func TestFrontPipelinedRequests(t *testing.T) {
	u := serve(t, once(whole(hello, finish, usage, done), false))
	f := newFront(t, u.url)
	c, br := dial(t, f.addr)
	for range 3 {
		ask(t, c)
	}
	for range 3 {
		if got, err := hear(br); err != nil || got != hello+finish+usage+done {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestFrontCallerLeaves(t *testing.T) {
	for _, tc := range []struct {
		name  string
		first []string
		mid   bool
		leave func(c net.Conn)
	}{
		{"close before the head", nil, false, func(c net.Conn) { c.Close() }},
		{"close before the token", []string{sseHead, part(role)}, false, func(c net.Conn) { c.Close() }},
		{"close mid-stream", []string{sseHead, part(hello)}, true, func(c net.Conn) { c.Close() }},
		{"half-close mid-stream", []string{sseHead, part(hello)}, true, func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }},
		{"reset mid-stream", []string{sseHead, part(hello)}, true, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() }},
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
			f := newFront(t, u.url)
			c, br := dial(t, f.addr)
			ask(t, c)
			<-asked
			if tc.mid {
				if _, err := br.ReadString('}'); err != nil { // the first event is here
					t.Fatal(err)
				}
			}
			tc.leave(c)
			if err := <-gone; !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("the provider saw %v, want a reset", err)
			}
			if tc.mid {
				if o := <-f.ends; o.Status != StatusCancelled || o.Delivered.Bytes != 5 {
					t.Fatalf("got outcome %+v", o)
				}
			} else {
				wantKind(t, <-f.failed, exchange.FailCancelled, "")
			}
		})
	}
}

func TestFrontPanicCutsTheCaller(t *testing.T) {
	u := serve(t, once(whole(hello, strings.Repeat(hello, 100), event("panic")), false))
	f := newFront(t, u.url)
	c, br := dial(t, f.addr)
	ask(t, c)
	if _, err := hear(br); err == nil {
		t.Fatal("the body ended properly")
	}
	if o := <-f.ends; o.Status != StatusFailed {
		t.Fatalf("got outcome %+v", o)
	}
}
