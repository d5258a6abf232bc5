package relay

import (
	"context"
	"net"
)

// Watcher notices that a caller has left while its request is running; fasthttp does not. A half-closed connection
// counts as left: HTTP clients that still want the answer do not do that. Bytes that the caller sent early, such as a
// pipelined request, are left for the server to read.
//
// On Linux one private epoll set serves all connections; elsewhere each armed connection has a goroutine. Connections
// without a descriptor, such as those in memory, are not watched: there a caller that left shows at the next write.
type Watcher struct {
	watch interface {
		run(ctx context.Context) error
		arm(conn net.Conn, onGone func()) Token
		disarm(t Token)
	}
}

// Token names one armed watch. The zero Token watches nothing.
type Token struct {
	slot, gen uint32
	on        bool
	parked    *parkedPeek
}

// NewWatcher returns a watcher. Arm may be called before Run, but nothing is noticed until Run has begun.
func NewWatcher() (*Watcher, error) { return newWatcher() }

// Run watches until ctx ends, and returns nil then. It is called once.
func (w *Watcher) Run(ctx context.Context) error { return w.watch.run(ctx) }

// Arm begins to watch conn, the connection of a request whose body was read. onGone is called at most once, on another
// goroutine; it must be quick and must not call Disarm. Every Arm needs its Disarm, before the server reads from conn
// again. A TLS connection is watched at its socket.
func (w *Watcher) Arm(conn net.Conn, onGone func()) Token {
	for {
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = over.NetConn()
	}
	return w.watch.arm(conn, onGone)
}

// Disarm ends a watch. After it onGone is neither running nor will it be called.
func (w *Watcher) Disarm(t Token) { w.watch.disarm(t) }
