//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package relay

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// descriptor gives access to the descriptor behind c, nil when there is none.
func descriptor(c net.Conn) syscall.RawConn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return rc
}

// peek looks at a socket without waiting and without taking anything from it.
func peek(rc syscall.RawConn) peeked {
	got := peekDead
	err := rc.Control(func(fd uintptr) { got = peekFD(int(fd)) })
	if err != nil {
		return peekDead
	}
	return got
}

func peekFD(fd int) peeked {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return peekQuiet
		case err != nil || n == 0:
			return peekDead
		}
		return peekBytes
	}
}

// recvBufferControl sets SO_RCVBUF before connecting, when the window is still to be agreed.
func recvBufferControl(size int) func(_, _ string, rc syscall.RawConn) error {
	if size < 0 {
		return nil
	}
	return func(_, _ string, rc syscall.RawConn) error {
		var err error
		if cerr := rc.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		}); cerr != nil {
			return cerr
		}
		return err
	}
}
