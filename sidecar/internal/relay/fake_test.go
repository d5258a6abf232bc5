package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// TestMain fails when a goroutine of this package outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
		code = 1
	}
	os.Exit(code)
}

func leaked() string {
	var left string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		buf := make([]byte, 1<<20)
		left = ""
		for i, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if i > 0 && strings.Contains(g, "internal/relay.") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// dialect is a small adapter. Its streams are events of {"role":…}, {"t":text}, {"finish":…}, {"usage":n},
// {"error":…} and [DONE]; its answers are {"text":…} or {"error":…}.
type dialect struct{}

func (dialect) Request(r *exchange.Request, _ *exchange.Deployment, _ []byte) (adapter.Call, *exchange.Failure) {
	return adapter.Call{Path: "/chat/completions", Body: r.Body}, nil
}

func (dialect) Response(_ *exchange.Request, body []byte, note adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	if !gjson.ValidBytes(body) {
		return nil, exchange.Usage{}, fail(exchange.FailInvalid, "not JSON")
	}
	if e := gjson.GetBytes(body, "error"); e.Exists() {
		return nil, exchange.Usage{}, fail(exchange.FailOverloaded, e.String())
	}
	if bytes.Contains(body, []byte("panic")) {
		panic("adapter")
	}
	u := exchange.Usage{Source: exchange.FromProvider}
	u.Output = gjson.GetBytes(body, "usage.completion_tokens").Int()
	body, u = note(body, u, adapter.Delivered{Bytes: int64(len(body))})
	return body, u, nil
}

func (dialect) Stream(r *exchange.Request, _ adapter.Annotate) adapter.Stream {
	return &dialectStream{wantUsage: r.IncludeUsage}
}

func (dialect) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	kind := exchange.FailOverloaded
	if status < 500 {
		kind = exchange.FailRequest
	}
	return &exchange.Failure{Kind: kind, Code: h("x-code"), Message: string(body)}
}

type dialectStream struct {
	wantUsage bool
	finish    bool
	usage     int64
	delivered int64
}

func (s *dialectStream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	v := gjson.ParseBytes(data)
	switch {
	case string(data) == "[DONE]":
		return dst, adapter.Progress{Done: true}
	case string(data) == "panic":
		panic("adapter")
	case string(name) == "error" || v.Get("error").Exists():
		return dst, adapter.Progress{Failure: fail(exchange.FailOverloaded, v.Get("error").String())}
	case v.Get("usage").Exists():
		s.usage = v.Get("usage").Int()
		return dst, adapter.Progress{}
	case v.Get("finish").Exists():
		s.finish = true
	case v.Get("t").Exists():
		s.delivered += int64(len(v.Get("t").Str))
		return sse.AppendData(dst, data), adapter.Progress{Real: true}
	}
	return sse.AppendData(dst, data), adapter.Progress{}
}

func (s *dialectStream) End(dst []byte) ([]byte, *exchange.Failure) {
	if !s.finish {
		return dst, fail(exchange.FailCut, "no finish")
	}
	if s.wantUsage {
		dst = sse.AppendData(dst, fmt.Appendf(nil, `{"usage":%d}`, s.usage))
	}
	return append(dst, sse.Done...), nil
}

func (s *dialectStream) Abort(dst []byte, f *exchange.Failure) []byte {
	return sse.AppendData(dst, fmt.Appendf(nil, `{"error":%q}`, f.Message))
}

func (s *dialectStream) Usage() exchange.Usage {
	u := exchange.Usage{Source: exchange.FromEstimate}
	if s.usage > 0 {
		u.Output, u.Source = s.usage, exchange.FromProvider
	}
	return u
}

func (s *dialectStream) Delivered() adapter.Delivered { return adapter.Delivered{Bytes: s.delivered} }

func noNote(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	return dst, u
}

// upstream is a provider made of raw connections.
type upstream struct {
	url   string
	ln    net.Listener
	conns sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool
	n    int
}

// peer is one connection to an upstream; n counts them from 0.
type peer struct {
	net.Conn
	br *bufio.Reader
	n  int
}

// serve runs handle for each connection; the connection closes when it returns.
func serve(t testing.TB, handle func(p *peer)) *upstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, ln, "http://"+ln.Addr().String()+"/v1", handle)
}

func serveOn(t testing.TB, ln net.Listener, url string, handle func(p *peer)) *upstream {
	u := &upstream{url: url, ln: ln, open: map[net.Conn]bool{}}
	u.conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.open[c] = true
			p := &peer{Conn: c, br: bufio.NewReader(c), n: u.n}
			u.n++
			u.mu.Unlock()
			u.conns.Go(func() {
				defer c.Close()
				handle(p)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		u.mu.Lock()
		for c := range u.open {
			c.Close()
		}
		u.mu.Unlock()
		u.conns.Wait()
	})
	return u
}

// accepted counts the connections so far.
func (u *upstream) accepted() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// request reads one request with its body; nil when the connection ended.
func (p *peer) request() *http.Request {
	r, err := http.ReadRequest(p.br)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

func (p *peer) send(parts ...string) {
	for _, s := range parts {
		if _, err := io.WriteString(p, s); err != nil {
			return
		}
	}
}

// gone waits until the other side has closed and returns the error that said so.
func (p *peer) gone() error {
	_, err := io.Copy(io.Discard, p.br)
	if err == nil {
		err = io.EOF
	}
	return err
}

const (
	sseHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Request-Id: up-1\r\n\r\n"
	lastPart = "0\r\n\r\n"
)

func part(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func event(json string) string { return "data: " + json + "\n\n" }

// plain is a whole answer with Content-Length.
func plain(status int, contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\nX-Code: c7\r\n\r\n%s",
		status, contentType, len(body), body)
}

// whole is a stream from its head to its end, in one part.
func whole(events ...string) string {
	return sseHead + part(strings.Join(events, "")) + lastPart
}

var (
	role   = event(`{"role":"assistant"}`)
	hello  = event(`{"t":"hello"}`)
	world  = event(`{"t":"world"}`)
	finish = event(`{"finish":"stop"}`)
	usage  = event(`{"usage":7}`)
	done   = sse.Done
)

var testTimeouts = exchange.Timeouts{
	Connect: 10 * time.Second, FirstToken: 10 * time.Second, Idle: 10 * time.Second, Total: time.Minute,
}

// newClient returns a client whose Run runs until the test ends.
func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c := NewClient(cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for { // until streams may leave their last bytes to it
		c.leaveMu.Lock()
		on := c.leaving
		c.leaveMu.Unlock()
		if on {
			return c
		}
		runtime.Gosched()
	}
}

func newCall() adapter.Call {
	return adapter.Call{
		Path: "/chat/completions", Body: []byte(`{"stream":true}`),
		Header: []adapter.Field{{Name: "Authorization", Value: "Bearer k"}},
	}
}

func open(c *Client, cancel *Canceller, url string, stream bool) (*Answer, *exchange.Failure) {
	if cancel == nil {
		cancel = &Canceller{}
	}
	r := &exchange.Request{Operation: exchange.Chat, Stream: stream, IncludeUsage: true, Body: []byte("{}")}
	return c.Open(cancel, Upstream{BaseURL: url, Timeouts: testTimeouts}, newCall(), stream, dialect{}, r, noNote)
}

// played is a stream as its caller saw it.
type played struct {
	text  string
	err   error
	ends  []Outcome
	final Outcome
}

// play writes a stream to its end.
func play(s *Stream) played {
	var p played
	var w bytes.Buffer
	s.OnEnd = func(o Outcome) { p.ends = append(p.ends, o) }
	_, p.err = s.WriteTo(&w)
	if err := s.Close(); err != nil {
		p.err = errors.Join(p.err, err)
	}
	p.text = w.String()
	if len(p.ends) > 0 {
		p.final = p.ends[0]
	}
	return p
}

func mustStream(t testing.TB, c *Client, url string) *Stream {
	t.Helper()
	ans, f := open(c, nil, url, true)
	if f != nil {
		t.Fatalf("Open: %+v", f)
	}
	if ans.Stream == nil {
		t.Fatal("Open: no stream")
	}
	return ans.Stream
}

// wantKind checks a failure.
func wantKind(t testing.TB, f *exchange.Failure, kind exchange.FailureKind, text string) {
	t.Helper()
	if f == nil || f.Kind != kind || !strings.Contains(f.Message, text) {
		t.Fatalf("got failure %+v, want kind %d with %q", f, kind, text)
	}
}
