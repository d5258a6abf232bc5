//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package relay

import (
	"context"
	"net"
)

// noWatch watches nothing: a caller that left shows at the next write.
type noWatch struct{}

type parkedPeek struct{}

func newWatcher() (*Watcher, error) { return &Watcher{watch: noWatch{}}, nil }

func (noWatch) run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (noWatch) arm(net.Conn, func()) Token { return Token{} }

func (noWatch) disarm(Token) {}
