//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package relay

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// peekWatch parks a goroutine per watched connection in Go's poller.
type peekWatch struct{}

// parkedPeek is one such goroutine.
type parkedPeek struct {
	conn    net.Conn
	stopped atomic.Bool
	done    chan struct{}
}

func (peekWatch) run(ctx context.Context) error {
	<-ctx.Done() // disarm waits for each goroutine
	return nil
}

func (peekWatch) arm(conn net.Conn, onGone func()) Token {
	rc := descriptor(conn)
	// A deadline left over from reading the request would end the wait.
	if rc == nil || conn.SetReadDeadline(time.Time{}) != nil {
		return Token{}
	}
	p := &parkedPeek{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		gone := false
		err := rc.Read(func(fd uintptr) bool {
			gone = hungUp(int(fd))
			return gone
		})
		if err == nil && gone && !p.stopped.Load() {
			onGone()
		}
	}()
	return Token{on: true, parked: p}
}

// hungUp reports whether the peer has closed. A close may hide behind bytes that nobody has read yet; the poller wakes
// the goroutine at each new arrival, so it is asked for by name then.
func hungUp(fd int) bool {
	switch peekFD(fd) {
	case peekDead:
		return true
	case peekBytes:
		p := []unix.PollFd{{Fd: int32(fd), Events: pollHangUp}}
		n, err := unix.Poll(p, 0)
		return err == nil && n == 1 && p[0].Revents&(pollHangUp|unix.POLLHUP|unix.POLLERR) != 0
	}
	return false
}

func (peekWatch) disarm(t Token) {
	if t.parked == nil {
		return
	}
	// The goroutine holds the read side of the connection: the server can read only after it is gone.
	t.parked.stopped.Store(true)
	_ = t.parked.conn.SetReadDeadline(past)
	<-t.parked.done
	_ = t.parked.conn.SetReadDeadline(time.Time{})
}
