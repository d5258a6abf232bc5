package gateway

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

const (
	lingerWait = 2 * time.Second
	lingerMax  = 64 << 20 // bytes
)

// lingerListener makes connections that can be closed so that the caller still gets its answer.
type lingerListener struct{ net.Listener }

func (l lingerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingerConn{Conn: c}, nil
}

// lingerConn reads on for a while when it is closed with a request body unread: closing at once would reset the
// connection, and the caller, still sending, would lose the refusal that is on its way.
type lingerConn struct {
	net.Conn
	unread atomic.Bool
}

// NetConn is the connection below, for those who need its descriptor.
func (c *lingerConn) NetConn() net.Conn { return c.Conn }

func (c *lingerConn) Close() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if ok && c.unread.Swap(false) && half.CloseWrite() == nil && c.Conn.SetReadDeadline(time.Now().Add(lingerWait)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerMax) // whatever ends it, the connection is closed next
	}
	return c.Conn.Close()
}
