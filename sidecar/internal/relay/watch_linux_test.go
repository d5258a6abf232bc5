package relay

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// pair returns both ends of a connection; under TLS the caller's socket comes beside.
type pair struct {
	server net.Conn // as the server has it
	caller net.Conn // as the caller has it
	socket net.Conn // the caller's socket
}

// pairs opens connections the way a kind says.
func pairs(t *testing.T, kind string) func() pair {
	t.Helper()
	network, addr := "tcp", "127.0.0.1:0"
	if kind == "unix" {
		network, addr = "unix", filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	server, client := certified(t)
	client.ServerName = "127.0.0.1"
	return func() pair {
		socket, err := net.Dial(network, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close(); accepted.Close() })
		if kind != "tls" {
			return pair{accepted, socket, socket}
		}
		s, c := tls.Server(accepted, server), tls.Client(socket, client)
		var wg sync.WaitGroup
		wg.Go(func() { err = s.Handshake() })
		if cerr := c.Handshake(); cerr != nil {
			t.Fatal(cerr)
		}
		if wg.Wait(); err != nil {
			t.Fatal(err)
		}
		// The session tickets come with the first bytes; take them off, as after a first answer.
		wg.Go(func() { _, err = s.Write([]byte("x")) })
		if _, cerr := io.ReadFull(c, make([]byte, 1)); cerr != nil {
			t.Fatal(cerr)
		}
		if wg.Wait(); err != nil {
			t.Fatal(err)
		}
		return pair{s, c, socket}
	}
}

// eachWatcher runs f for both watchers over each kind of connection.
func eachWatcher(t *testing.T, f func(t *testing.T, w *Watcher, open func() pair)) {
	for _, how := range []string{"epoll", "peek"} {
		for _, kind := range []string{"tcp", "unix", "tls"} {
			t.Run(how+"/"+kind, func(t *testing.T) {
				w := &Watcher{watch: peekWatch{}}
				if how == "epoll" {
					var err error
					if w, err = NewWatcher(); err != nil {
						t.Fatal(err)
					}
				}
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				t.Cleanup(func() {
					stop()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				})
				f(t, w, pairs(t, kind))
			})
		}
	}
}

// fence returns once the watcher has noticed everything that happened before.
func fence(t *testing.T, w *Watcher, open func() pair) {
	t.Helper()
	p, gone := open(), make(chan bool)
	tok := w.Arm(p.server, func() { close(gone) })
	p.socket.Close()
	<-gone
	w.Disarm(tok)
}

// arrived returns once bytes from the caller lie in the server's socket.
func arrived(t *testing.T, c net.Conn) {
	t.Helper()
	if s, ok := c.(*tls.Conn); ok {
		c = s.NetConn()
	}
	for peek(descriptor(c)) == peekQuiet {
	}
}

func TestWatcherSeesACallerLeave(t *testing.T) {
	leave := []struct {
		name  string
		leave func(p pair)
	}{
		{"close", func(p pair) { p.caller.Close() }},
		{"close of the socket", func(p pair) { p.socket.Close() }},
		{"half-close", func(p pair) { _ = p.socket.(interface{ CloseWrite() error }).CloseWrite() }},
		{"reset", func(p pair) {
			if tcp, ok := p.socket.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			p.socket.Close()
		}},
		{"pipelined request, then close", func(p pair) {
			_, _ = io.WriteString(p.caller, "GET / HTTP/1.1\r\n\r\n")
			p.socket.Close()
		}},
	}
	eachWatcher(t, func(t *testing.T, w *Watcher, open func() pair) {
		for _, tc := range leave {
			t.Run(tc.name, func(t *testing.T) {
				for _, early := range []bool{true, false} {
					p, gone := open(), make(chan bool)
					if early { // it had left before the watch began
						tc.leave(p)
						arrived(t, p.server)
					}
					tok := w.Arm(p.server, func() { close(gone) })
					if !early {
						tc.leave(p)
					}
					<-gone
					w.Disarm(tok)
				}
			})
		}
	})
}

func TestWatcherLeavesTheConnectionAlone(t *testing.T) {
	eachWatcher(t, func(t *testing.T, w *Watcher, open func() pair) {
		p := open()
		say := func(s string) {
			t.Helper()
			if _, err := io.WriteString(p.caller, s); err != nil {
				t.Fatal(err)
			}
		}
		hear := func(want string) {
			t.Helper()
			buf := make([]byte, len(want))
			if _, err := io.ReadFull(p.server, buf); err != nil || string(buf) != want {
				t.Fatalf("got %q, %v, want %q", buf, err, want)
			}
		}
		wrong := func() { t.Error("the caller was said to have left") }

		for range 3 { // requests of one connection, one after another
			tok := w.Arm(p.server, wrong)
			fence(t, w, open)
			w.Disarm(tok)
			say("next request")
			hear("next request")
		}

		tok := w.Arm(p.server, wrong)
		say("pipelined")
		arrived(t, p.server)
		fence(t, w, open)
		w.Disarm(tok)
		hear("pipelined")

		gone := make(chan bool)
		tok = w.Arm(p.server, func() { close(gone) })
		p.caller.Close()
		<-gone
		w.Disarm(tok)
	})
}

func TestWatcherAfterDisarm(t *testing.T) {
	eachWatcher(t, func(t *testing.T, w *Watcher, open func() pair) {
		p := open()
		tok := w.Arm(p.server, func() { t.Error("called after Disarm") })
		w.Disarm(tok)
		w.Disarm(tok)
		other, gone := open(), make(chan bool)
		next := w.Arm(other.server, func() { close(gone) }) // has the slot of the first now
		p.caller.Close()
		fence(t, w, open)
		select {
		case <-gone:
			t.Fatal("the event of one connection reached another")
		default:
		}
		other.caller.Close()
		<-gone
		w.Disarm(next)
	})
}

func TestDisarmWaitsForTheCallback(t *testing.T) {
	eachWatcher(t, func(t *testing.T, w *Watcher, open func() pair) {
		p, called := open(), make(chan bool)
		var finished atomic.Bool
		tok := w.Arm(p.server, func() {
			close(called)
			for range 1000 {
				runtime.Gosched()
			}
			finished.Store(true)
		})
		p.socket.Close()
		<-called
		w.Disarm(tok)
		if !finished.Load() {
			t.Fatal("Disarm returned while the callback was running")
		}
	})
}

func TestWatcherManyAtOnce(t *testing.T) {
	eachWatcher(t, func(t *testing.T, w *Watcher, open func() pair) {
		const n = 50
		var left sync.WaitGroup
		toks := make([]Token, n)
		ps := make([]pair, n)
		for i := range toks {
			ps[i] = open()
			left.Add(1)
			toks[i] = w.Arm(ps[i].server, left.Done)
		}
		var wg sync.WaitGroup
		for _, p := range ps {
			wg.Go(func() { p.socket.Close() })
		}
		wg.Wait()
		left.Wait() // a second call for one of them would panic
		for _, tok := range toks {
			w.Disarm(tok)
		}
	})
}

func TestWatcherIgnoresWhatItCannotWatch(t *testing.T) {
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	a, b := net.Pipe()
	closed := pairs(t, "tcp")()
	closed.server.Close()
	never := func() { t.Error("called") }
	toks := []Token{w.Arm(a, never), w.Arm(closed.server, never), {}}
	b.Close()
	stop()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	toks = append(toks, w.Arm(pairs(t, "tcp")().server, never)) // Run is over
	for _, tok := range toks {
		w.Disarm(tok)
	}
}

func BenchmarkWatcher(b *testing.B) {
	for _, how := range []string{"epoll", "peek"} {
		b.Run(how, func(b *testing.B) {
			w := &Watcher{watch: peekWatch{}}
			if how == "epoll" {
				var err error
				if w, err = NewWatcher(); err != nil {
					b.Fatal(err)
				}
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.ReportAllocs()
			for b.Loop() {
				w.Disarm(w.Arm(c, func() {}))
			}
		})
	}
}
