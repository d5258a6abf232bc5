package relay

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// conn is one upstream connection. Its user owns it alone; only abort may come from elsewhere.
type conn struct {
	c   net.Conn // what is read and written: the TLS layer, or the socket itself
	raw *socket
	br  *bufio.Reader

	born   time.Time
	parked time.Time // since when it is idle
	reused bool
	// readErr is the last error of the connection itself. It tells a broken connection from bytes that make no
	// sense, which decoders report alike.
	readErr error
}

// socket counts what the kernel accepted, below TLS too: only an attempt of which nothing left may be sent again.
type socket struct {
	net.Conn
	sys   syscall.RawConn // nil when there is no descriptor behind it
	wrote int64
}

func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.wrote += int64(n)
	return n, err
}

func newSocket(c net.Conn) *socket { return &socket{Conn: c, sys: descriptor(c)} }

func newConn(s *socket, secured *tls.Conn) *conn {
	k := &conn{c: s, raw: s, born: time.Now()}
	if secured != nil {
		k.c = secured
	}
	k.br = bufio.NewReaderSize(k, readBufferBytes)
	return k
}

// widen moves to a buffer for long heads, with what has arrived.
func (k *conn) widen() {
	have, _ := k.br.Peek(k.br.Buffered())
	k.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(have)), k), headBytesMax)
}

func (k *conn) Read(p []byte) (int, error) {
	n, err := k.c.Read(p)
	if err != nil {
		k.readErr = err
	}
	return n, err
}

// close ends a connection that owes nothing. The TLS goodbye is left out: it could block, and the answer was whole.
func (k *conn) close() { _ = k.raw.Close() }

// abort ends a connection with a reset, so that the provider notices at once and no state lingers here. It wakes a
// blocked Read or Write. It may be called from any goroutine and more than once.
func (k *conn) abort() {
	if t, ok := k.raw.Conn.(interface{ SetLinger(int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = k.raw.Close()
}

// alive reports whether an idle connection may be used again. Bytes that nobody asked for make it unfit: they would
// be read as the answer to the next request.
func (k *conn) alive() bool {
	if k.br.Buffered() > 0 {
		return false
	}
	secured := k.c != net.Conn(k.raw)
	if k.raw.sys == nil {
		return k.quiet(time.Now().Add(leftoverWait))
	}
	switch peek(k.raw.sys) {
	case peekQuiet:
		// A record may sit decoded or half read inside the TLS layer. A read that is late already shows it without
		// touching the socket.
		return !secured || k.quiet(past)
	case peekBytes:
		// After a TLS 1.3 handshake these are mostly session tickets; reading takes them off.
		return secured && k.quiet(time.Now().Add(leftoverWait)) && peek(k.raw.sys) == peekQuiet
	}
	return false
}

// quiet reports whether a read until the deadline brings nothing at all.
func (k *conn) quiet(until time.Time) bool {
	if k.c.SetReadDeadline(until) != nil {
		return false
	}
	var b [1]byte
	n, err := k.c.Read(b[:])
	return n == 0 && isTimeout(err)
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func isTimeout(err error) bool {
	// fasthttp's time-out errors are no net.Error, hence the smaller interface.
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

type peeked uint8

const (
	peekQuiet peeked = iota // open, and nothing to read
	peekBytes               // something to read
	peekDead                // closed or broken
)
