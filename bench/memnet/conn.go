package memnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// link is one connection, with its two ends.
type link struct {
	net  *Net
	calm sync.Cond // something about either end has changed
	ends [2]conn
}

// conn is one end of a connection. Net.mu guards it.
type conn struct {
	link  *link
	other *conn
	at    netip.AddrPort

	arriving []segment // what the other end sent and this one has not read
	bytes    int       // in arriving
	shut     bool      // this end has closed its writing side
	closed   bool
	linger   bool // closing lets what was sent arrive
	reading  deadline
	writing  deadline
}

// segment is what arrives at once: bytes, or the end of them.
type segment struct {
	at   time.Time
	data []byte
	end  error // io.EOF, ECONNRESET; nil for bytes
	deaf bool  // the sender reads no more: writing to it fails
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

// link joins two addresses. Net.mu is held.
func (n *Net) link(from, to netip.AddrPort) (dialled, accepted *conn) {
	l := &link{net: n}
	l.calm.L = &n.mu
	a, b := &l.ends[0], &l.ends[1]
	*a = conn{link: l, other: b, at: from, linger: true}
	*b = conn{link: l, other: a, at: to, linger: true}
	n.links[l] = struct{}{}
	return a, b
}

// cut reports whether the ends do not hear each other.
func (c *conn) cut() bool { return c.link.net.cut[[2]netip.Addr{c.at.Addr(), c.other.at.Addr()}] }

// arrived returns a segment if it has arrived.
func (c *conn) arrived(i int) *segment {
	if i < 0 || i >= len(c.arriving) || c.cut() || c.arriving[i].at.After(time.Now()) {
		return nil
	}
	return &c.arriving[i]
}

// last is the last segment if it has arrived.
func (c *conn) last() *segment { return c.arrived(len(c.arriving) - 1) }

// next is what is read next, nil when nothing has arrived. A reset overtakes what was not read.
func (c *conn) next() *segment {
	if s := c.last(); s != nil && errors.Is(s.end, syscall.ECONNRESET) {
		return s
	}
	return c.arrived(0)
}

// send puts a segment on its way to the other end.
func (c *conn) send(s segment) {
	s.at = time.Now().Add(c.link.net.latency)
	c.other.arriving = append(c.other.arriving, s)
	c.other.bytes += len(s.data)
	if c.link.net.latency == 0 {
		c.link.calm.Broadcast()
		return
	}
	time.AfterFunc(c.link.net.latency, c.link.wake)
}

func (l *link) wake() {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.calm.Broadcast()
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	mu := &c.link.net.mu
	mu.Lock()
	defer mu.Unlock()
	for {
		switch s := c.next(); {
		case c.closed:
			return 0, net.ErrClosed
		case c.reading.over():
			return 0, os.ErrDeadlineExceeded
		case s != nil && s.end != nil:
			return 0, s.end
		case s != nil:
			n := copy(p, s.data)
			c.bytes -= n
			if s.data = s.data[n:]; len(s.data) == 0 {
				c.arriving = c.arriving[1:]
			}
			c.link.calm.Broadcast()
			return n, nil
		}
		c.link.calm.Wait()
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	mu := &c.link.net.mu
	mu.Lock()
	defer mu.Unlock()
	for {
		switch room := bufferBytes - c.other.bytes; {
		case c.closed:
			return n, net.ErrClosed
		case c.writing.over():
			return n, os.ErrDeadlineExceeded
		case c.shut || c.unheard():
			return n, syscall.EPIPE
		case len(p) == 0:
			return n, nil
		case room > 0:
			part := p[:min(room, len(p))]
			c.send(segment{data: append([]byte(nil), part...)})
			n, p = n+len(part), p[len(part):]
			continue
		}
		c.link.calm.Wait()
	}
}

// unheard reports whether this end knows that the other one reads no more.
func (c *conn) unheard() bool {
	s := c.last()
	return s != nil && s.deaf
}

// CloseWrite tells the other end that nothing more comes.
func (c *conn) CloseWrite() error {
	mu := &c.link.net.mu
	mu.Lock()
	defer mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if !c.shut {
		c.shut = true
		c.send(segment{end: io.EOF})
	}
	return nil
}

// SetLinger with 0 makes Close a reset.
func (c *conn) SetLinger(sec int) error {
	mu := &c.link.net.mu
	mu.Lock()
	defer mu.Unlock()
	c.linger = sec != 0
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	mu := &c.link.net.mu
	mu.Lock()
	defer mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if c.linger {
		c.close(io.EOF)
	} else {
		c.close(syscall.ECONNRESET)
	}
	return nil
}

// close ends this end; how is what the other one reads then. Net.mu is held.
func (c *conn) close(how error) {
	c.closed = true
	c.arriving, c.bytes = nil, 0
	c.reading.stop()
	c.writing.stop()
	if c.other.closed {
		delete(c.link.net.links, c.link)
	} else {
		c.send(segment{end: how, deaf: true})
	}
	c.link.calm.Broadcast()
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.at) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.other.at) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.until(t, &c.reading, &c.writing) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.until(t, &c.reading) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.until(t, &c.writing) }

func (c *conn) until(t time.Time, ds ...*deadline) error {
	mu := &c.link.net.mu
	mu.Lock()
	defer mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	for _, d := range ds {
		d.stop()
		d.at = t
		if !t.IsZero() && !d.over() {
			d.timer = time.AfterFunc(time.Until(t), c.link.wake)
		}
	}
	c.link.calm.Broadcast()
	return nil
}
