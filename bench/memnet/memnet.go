// Package memnet is a network in memory, for tests that run whole programs on a virtual clock (testing/synctest).
// Real sockets would stop that clock. Libraries with connections in memory have nowhere to cut a network between two
// of their ends, which is most of what such tests are about.
//
// Connections behave like TCP's: writes go into a bounded buffer, deadlines and half-closing work, closing with linger
// zero resets. What waits, waits on channels, conditions and timers alone. Everything may be used from any goroutine.
package memnet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	bufferBytes = 64 << 10 // on the way in one direction of a connection; beyond, writes wait
	backlogMax  = 4096     // connections not yet accepted; beyond, dialling is refused
	firstPort   = 40_000   // of those that are chosen
)

// Net is one network. A bubble's net must be made in the bubble.
type Net struct {
	latency time.Duration // of each segment, one way

	mu        sync.Mutex // guards everything below, and all connections
	listeners map[netip.AddrPort]*listener
	links     map[*link]struct{}
	cut       map[[2]netip.Addr]bool // pairs that do not hear each other
	healed    chan struct{}          // closed by Heal, then another
	port      uint16
}

// New makes a network. Latency is how long everything takes to arrive, and may be 0.
func New(latency time.Duration) *Net {
	return &Net{
		latency: latency, listeners: map[netip.AddrPort]*listener{}, links: map[*link]struct{}{},
		cut: map[[2]netip.Addr]bool{}, healed: make(chan struct{}), port: firstPort,
	}
}

// Host is one machine on a network, named by its IP address.
type Host struct {
	net *Net
	ip  netip.Addr
}

// Host returns the machine of an IP address. One that is none is a BUG panic.
func (n *Net) Host(ip string) *Host { return &Host{n, mustIP(ip)} }

func mustIP(ip string) netip.Addr {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		panic("BUG: memnet: " + err.Error())
	}
	return a
}

// Cut stops everything between two machines, both ways: what is sent waits, and dialling waits as well. Nobody is
// told.
func (n *Net) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, y := mustIP(a), mustIP(b)
	n.cut[[2]netip.Addr{x, y}], n.cut[[2]netip.Addr{y, x}] = true, true
}

// Heal joins all machines again. What waited arrives.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	close(n.healed)
	n.healed = make(chan struct{})
	for l := range n.links {
		l.calm.Broadcast()
	}
}

// Listen listens on a port of this machine; port 0 chooses one.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp" || at.Addr() != h.ip {
		return nil, fmt.Errorf("memnet: %s cannot listen on %s %s", h.ip, network, address)
	}
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(h.ip, n.nextPort())
	}
	if n.listeners[at] != nil {
		return nil, fmt.Errorf("memnet: listen %s: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{net: n, at: at, backlog: make(chan *conn, backlogMax), closed: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

func (n *Net) nextPort() uint16 {
	n.port = max(n.port+1, firstPort)
	return n.port
}

// Exit closes every listener and connection of this machine, as the end of its last process does.
func (h *Host) Exit() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for at, l := range n.listeners {
		if at.Addr() == h.ip {
			l.close()
		}
	}
	for l := range n.links {
		for i := range l.ends {
			if c := &l.ends[i]; c.at.Addr() == h.ip && !c.closed {
				c.close(io.EOF)
			}
		}
	}
}

// Dial connects this machine to an address. Where nobody listens it is refused; through a cut it waits for ctx.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp" {
		return nil, fmt.Errorf("memnet: cannot dial %s %s", network, address)
	}
	n := h.net
	if err := n.pass(ctx, 2*n.latency); err != nil {
		return nil, err
	}
	for {
		n.mu.Lock()
		if !n.cut[[2]netip.Addr{h.ip, to.Addr()}] {
			break
		}
		healed := n.healed
		n.mu.Unlock()
		select {
		case <-healed:
		case <-ctx.Done():
			return nil, fmt.Errorf("memnet: dial %s: %w", to, ctx.Err())
		}
	}
	defer n.mu.Unlock()
	l := n.listeners[to]
	if l == nil {
		return nil, fmt.Errorf("memnet: dial %s: %w", to, syscall.ECONNREFUSED)
	}
	mine, theirs := n.link(netip.AddrPortFrom(h.ip, n.nextPort()), to)
	select {
	case l.backlog <- theirs:
		return mine, nil
	default:
		return nil, fmt.Errorf("memnet: dial %s: backlog is full: %w", to, syscall.ECONNREFUSED)
	}
}

// pass lets time pass.
func (n *Net) pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type listener struct {
	net     *Net
	at      netip.AddrPort
	backlog chan *conn
	closed  chan struct{} // guarded by net.mu for closing
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed: // before what is waiting, which is being reset
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener and resets what it has not accepted.
func (l *listener) Close() error {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.at] != l {
		return net.ErrClosed
	}
	l.close()
	return nil
}

// close is Close with Net.mu held.
func (l *listener) close() {
	delete(l.net.listeners, l.at)
	close(l.closed)
	for {
		select {
		case c := <-l.backlog:
			c.close(syscall.ECONNRESET)
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }
