//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package relay

import (
	"net"
	"syscall"
)

// descriptor is not used here: a short read decides whether an idle connection is fit.
func descriptor(net.Conn) syscall.RawConn { return nil }

func peek(syscall.RawConn) peeked { return peekDead }

func recvBufferControl(int) func(_, _ string, rc syscall.RawConn) error { return nil }
