package relay

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const okBody = `{"usage":{"completion_tokens":5}}`

// mustBody opens a complete answer.
func mustBody(t *testing.T, c *Client, url string) {
	t.Helper()
	if ans, f := open(c, nil, url, false); f != nil || string(ans.Body) != okBody {
		t.Fatalf("got %q, %+v", ans.Body, f)
	}
}

// idle counts the idle connections of the only origin.
func (c *Client) idle() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, o := range c.origins {
		o.mu.Lock()
		n += len(o.idle)
		o.mu.Unlock()
	}
	return n
}

func TestReuse(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + part(okBody)
	for _, tc := range []struct {
		name, answer string
		conns        int
	}{
		{"content length", plain(200, "application/json", okBody), 1},
		{"chunked", chunked + lastPart, 1},
		{"trailers are dropped", chunked + "0\r\nContent-Length: 9\r\n\r\n", 1},
		{"long head", strings.Replace(plain(200, "application/json", okBody), "X-Code", "X-L: "+strings.Repeat("x", 9000)+"\r\nX-Code", 1), 1},
		{"close asked for", strings.Replace(plain(200, "application/json", okBody), "X-Code", "Connection: close\r\nX-Code", 1), 3},
		{"http 1.0", strings.Replace(plain(200, "application/json", okBody), "HTTP/1.1", "HTTP/1.0", 1), 3},
		{"surplus bytes", plain(200, "application/json", okBody) + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL", 3},
		{"error answers", plain(500, "application/json", "x"), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(tc.answer, false))
			c := newClient(t, Config{})
			for range 3 {
				if tc.name == "error answers" {
					_, f := open(c, nil, u.url, false)
					wantKind(t, f, exchange.FailOverloaded, "x")
					continue
				}
				mustBody(t, c, u.url)
			}
			if n := u.accepted(); n != tc.conns {
				t.Fatalf("got %d connections, want %d", n, tc.conns)
			}
			for _, k := range c.only(t).idle {
				if n := k.br.Size(); n != readBufferBytes {
					t.Fatalf("an idle connection holds a buffer of %d bytes", n)
				}
			}
		})
	}
}

// A connection that the server closed, or wrote to, while it was idle is not used again, and each request runs once.
func TestIdleConnectionsAreLookedAt(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(p *peer)
	}{
		{"closed", func(p *peer) { p.Close() }},
		{"reset", func(p *peer) { _ = p.Conn.(*net.TCPConn).SetLinger(0); p.Close() }},
		{"poisoned", func(p *peer) { p.send(plain(200, "application/json", `{"evil":1}`)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spoil, spoilt := make(chan bool), make(chan bool)
			u := serve(t, func(p *peer) {
				for p.request() != nil {
					p.send(plain(200, "application/json", okBody))
					if p.n == 0 {
						<-spoil
						tc.spoil(p)
						close(spoilt)
					}
				}
			})
			c := newClient(t, Config{})
			mustBody(t, c, u.url)
			close(spoil)
			<-spoilt
			o := c.only(t)
			o.mu.Lock()
			k := o.idle[0]
			o.mu.Unlock()
			for peek(k.raw.sys) == peekQuiet { // loopback, but not in no time
			}
			mustBody(t, c, u.url)
			if n := u.accepted(); n != 2 {
				t.Fatalf("got %d connections, want 2", n)
			}
		})
	}
}

func (c *Client) only(t *testing.T) *origin {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.origins {
		return o
	}
	t.Fatal("no origin")
	return nil
}

func TestPoolBounds(t *testing.T) {
	asked, answered := make(chan bool), make(chan bool)
	u := serve(t, func(p *peer) {
		for p.request() != nil {
			asked <- true
			<-answered
			p.send(plain(200, "application/json", okBody))
		}
	})
	burst := func(c *Client, n int) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { mustBody(t, c, u.url) })
		}
		for range n { // all are under way at once
			<-asked
		}
		for range n {
			answered <- true
		}
		wg.Wait()
	}
	t.Run("count", func(t *testing.T) {
		c := newClient(t, Config{IdlePerOrigin: 2})
		burst(c, 5)
		if n := c.idle(); n != 2 {
			t.Fatalf("got %d idle connections, want 2", n)
		}
	})
	t.Run("none", func(t *testing.T) {
		c := newClient(t, Config{IdlePerOrigin: -1})
		burst(c, 3)
		if n := c.idle(); n != 0 {
			t.Fatalf("got %d idle connections, want none", n)
		}
	})
	t.Run("age", func(t *testing.T) {
		c := newClient(t, Config{})
		burst(c, 3)
		o := c.only(t)
		o.sweep(time.Now().Add(idleAge-time.Second), &c.cfg)
		if n := c.idle(); n != 3 {
			t.Fatalf("got %d idle connections before their time, want 3", n)
		}
		o.sweep(time.Now().Add(idleAge), &c.cfg)
		if n := c.idle(); n != 0 {
			t.Fatalf("got %d idle connections after their time, want none", n)
		}
	})
	t.Run("after run", func(t *testing.T) {
		c := NewClient(Config{})
		ctx, stop := context.WithCancel(context.Background())
		stop()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		burst(c, 2)
		if n := c.idle(); n != 0 {
			t.Fatalf("got %d idle connections after Run, want none", n)
		}
	})
}

// faulty is a connection whose next write fails after it accepted some bytes.
type faulty struct {
	net.Conn
	armed  *bool
	accept int
}

func (c faulty) Write(p []byte) (int, error) {
	if !*c.armed {
		return c.Conn.Write(p)
	}
	*c.armed = false
	n, _ := c.Conn.Write(p[:c.accept])
	return n, syscall.EPIPE
}

func TestOnlyARequestOfWhichNothingLeftIsSentAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		accept int
		warm   bool
		dials  int
		kind   exchange.FailureKind
	}{
		{"reused, nothing left", 0, true, 2, exchange.FailNone},
		{"reused, a byte left", 1, true, 1, exchange.FailConnect},
		{"new, nothing left", 0, false, 1, exchange.FailConnect},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(plain(200, "application/json", okBody), false))
			armed, dials := false, 0
			c := newClient(t, Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials++
				var d net.Dialer
				nc, err := d.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return faulty{nc, &armed, tc.accept}, nil
			}})
			if tc.warm {
				mustBody(t, c, u.url)
			}
			armed = true
			ans, f := open(c, nil, u.url, false)
			if tc.kind == exchange.FailNone {
				if f != nil || string(ans.Body) != okBody {
					t.Fatalf("got %q, %+v", ans.Body, f)
				}
			} else {
				wantKind(t, f, tc.kind, "broke")
				if ans.Sent != (tc.accept > 0) {
					t.Fatalf("got Sent %v", ans.Sent)
				}
			}
			if dials != tc.dials {
				t.Fatalf("got %d dials, want %d", dials, tc.dials)
			}
		})
	}
}

// A server may refuse a large request after its head and close at once.
func TestAnAnswerBeforeTheRequestWasRead(t *testing.T) {
	u := serve(t, func(p *peer) {
		if _, err := p.br.ReadString('\n'); err != nil {
			return
		}
		p.send(plain(413, "application/json", "too large"))
		_ = p.Conn.(*net.TCPConn).CloseWrite()
		// Reading on a little keeps the kernel from throwing the answer away with a reset.
		_, _ = io.CopyN(io.Discard, p.br, 1<<20)
	})
	call := newCall()
	call.Body = make([]byte, 16<<20)
	_, f := newClient(t, Config{}).Open(&Canceller{}, Upstream{BaseURL: u.url, Timeouts: testTimeouts}, call, false,
		dialect{}, &exchange.Request{}, noNote)
	if f == nil || f.Kind != exchange.FailRequest && f.Kind != exchange.FailConnect {
		t.Fatalf("got %+v", f)
	}
}

func TestBaseURLsShareAnOrigin(t *testing.T) {
	u := serve(t, once(plain(200, "application/json", okBody), false))
	c := newClient(t, Config{})
	for _, path := range []string{"/v1", "/v1/", "/other", ""} {
		mustBody(t, c, strings.Replace(u.url, "/v1", path, 1))
	}
	if n := u.accepted(); n != 1 {
		t.Fatalf("got %d connections, want 1", n)
	}
}

func TestOriginTableIsBounded(t *testing.T) {
	c := NewClient(Config{})
	for i := range originsMax + 10 {
		if _, err := c.target("http://h/" + strings.Repeat("x", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.targets); n > originsMax {
		t.Fatalf("got %d targets", n)
	}
}

// certified returns server and client configurations that trust each other.
func certified(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	server = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	return server, &tls.Config{RootCAs: roots}
}

func serveTLS(t *testing.T, cfg *tls.Config, handle func(p *peer)) *upstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, tls.NewListener(ln, cfg), "https://"+ln.Addr().String()+"/v1", handle)
}

func TestTLS(t *testing.T) {
	server, client := certified(t)
	protos := make(chan string, 8)
	u := serveTLS(t, server, func(p *peer) {
		for p.request() != nil {
			st := p.Conn.(*tls.Conn).ConnectionState()
			proto := st.NegotiatedProtocol
			if st.DidResume {
				proto += " resumed"
			}
			protos <- proto
			p.send(plain(200, "application/json", okBody))
			if p.n == 0 {
				p.send("surplus") // poisons the idle connection
				return
			}
		}
	})
	c := newClient(t, Config{TLS: client})
	mustBody(t, c, u.url)
	for o := c.only(t); ; { // until the surplus or the close has arrived
		o.mu.Lock()
		quiet := len(o.idle) > 0 && peek(o.idle[0].raw.sys) == peekQuiet
		o.mu.Unlock()
		if !quiet {
			break
		}
	}
	for range 3 {
		mustBody(t, c, u.url)
	}
	if n := u.accepted(); n != 2 {
		t.Fatalf("got %d connections, want 2", n)
	}
	for _, want := range []string{"http/1.1", "http/1.1 resumed", "http/1.1 resumed", "http/1.1 resumed"} {
		if got := <-protos; got != want {
			t.Fatalf("got protocol %q, want %q", got, want)
		}
	}
}

// Bytes that the TLS layer has decoded already are invisible to the socket.
func TestPoisonInsideTheTLSLayer(t *testing.T) {
	server, client := certified(t)
	u := serveTLS(t, server, func(p *peer) {
		for p.request() != nil {
			// One record: an answer that just fills the client's buffer, and more behind it.
			answer := plain(200, "application/json", okBody)
			pad := "X-Pad: " + strings.Repeat("x", readBufferBytes-len(answer)-len("X-Pad: \r\n")) + "\r\n"
			p.send(strings.Replace(answer, "X-Code", pad+"X-Code", 1) + strings.Repeat("E", 100))
		}
	})
	c := newClient(t, Config{TLS: client})
	mustBody(t, c, u.url)
	mustBody(t, c, u.url)
	if n := u.accepted(); n != 2 {
		t.Fatalf("got %d connections, want 2", n)
	}
}

// Session tickets lie in the socket of a connection on which nothing was read yet. They do not make it unfit.
func TestTicketsAreNoPoison(t *testing.T) {
	server, client := certified(t)
	u := serveTLS(t, server, once(plain(200, "application/json", okBody), false))
	c := newClient(t, Config{TLS: client})
	target, err := c.target(u.url)
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.dial(context.Background(), target.origin)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	for peek(k.raw.sys) == peekQuiet {
	}
	if !k.alive() {
		t.Fatal("a connection with tickets was taken for unfit")
	}
	if peek(k.raw.sys) != peekQuiet {
		t.Fatal("the tickets are still there")
	}
}

func TestTLSWithoutTrust(t *testing.T) {
	server, _ := certified(t)
	u := serveTLS(t, server, func(p *peer) { p.request() })
	ans, f := open(newClient(t, Config{}), nil, u.url, false)
	wantKind(t, f, exchange.FailConnect, "certificate")
	if ans.Sent {
		t.Fatal("a request was sent to a server without trust")
	}
}

func TestTLSStreamAndCancel(t *testing.T) {
	server, client := certified(t)
	gone := make(chan error, 1)
	u := serveTLS(t, server, func(p *peer) {
		if p.request() != nil {
			p.send(sseHead, part(hello))
			gone <- p.gone()
		}
	})
	c := newClient(t, Config{TLS: client})
	cancel := &Canceller{}
	ans, f := open(c, cancel, u.url, true)
	if f != nil {
		t.Fatalf("got %+v", f)
	}
	cancel.Cancel()
	got := play(ans.Stream)
	if !errors.Is(got.err, ErrCallerGone) || got.final.Status != StatusCancelled {
		t.Fatalf("got %+v", got)
	}
	<-gone
}
