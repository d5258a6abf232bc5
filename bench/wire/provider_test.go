package wire

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// How an answer is cut into writes.
type cut string

const (
	whole    cut = "whole"
	bytewise cut = "bytes"
	split    cut = "split"
)

func cuts() []cut { return []cut{whole, bytewise, split} }

// play is what a provider does with a request.
type play struct {
	raw    []byte
	cut    cut
	closes bool
	script func(net.Conn) // instead of raw; the connection ends with it
}

// provider is a server of raw answers. Which one a request gets stands at the start of its path.
type provider struct {
	ln    net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	plays map[string]play
	asked map[string][]*asked // by the same name
	open  map[net.Conn]bool
}

// asked is a request as it arrived.
type asked struct {
	method, path string
	header       http.Header
	body         []byte
}

func listen(t *testing.T) *provider {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{ln: ln, plays: map[string]play{}, asked: map[string][]*asked{}, open: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// base is the base URL under which requests get the named play.
func (p *provider) base(name string) string { return "http://" + p.ln.Addr().String() + "/" + name }

// will says what requests to a name get.
func (p *provider) will(name string, pl play) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plays[name] = pl
}

// requests are those that a name got.
func (p *provider) requests(name string) []*asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[name]
}

func (p *provider) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.open[c] = true
		p.mu.Unlock()
		p.wg.Go(func() {
			p.serve(c)
			_ = c.Close()
			p.mu.Lock()
			delete(p.open, c)
			p.mu.Unlock()
		})
	}
}

func (p *provider) serve(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		name, rest, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		if req.URL.RawQuery != "" {
			rest += "?" + req.URL.RawQuery
		}
		p.mu.Lock()
		pl, known := p.plays[name]
		p.asked[name] = append(p.asked[name], &asked{req.Method, "/" + rest, req.Header, body})
		p.mu.Unlock()
		if pl.script != nil {
			pl.script(c)
			return
		}
		if !known || !pl.write(c) || pl.closes {
			return
		}
	}
}

// write sends the answer as it is to be cut; false when the other side has left.
func (pl play) write(w io.Writer) bool {
	rnd := rand.New(rand.NewPCG(uint64(len(pl.raw)), 7)) // the same cuts each time
	for rest := pl.raw; len(rest) > 0; {
		n := len(rest)
		switch pl.cut {
		case bytewise:
			n = 1
		case split:
			n = min(n, 1+rnd.IntN(1+rnd.IntN(200)))
		}
		if _, err := w.Write(rest[:n]); err != nil {
			return false
		}
		rest = rest[n:]
	}
	return true
}

// answer is a raw answer with a length.
func answer(status, contentType, body string) []byte {
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 " + status + "\r\nContent-Type: " + contentType + "\r\n")
	b.WriteString("Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body)
	return b.Bytes()
}
