// Package fire is what tests of a cluster under faults are made of: links that can be cut, slowed and torn; a client of
// the sidecar plane that keeps a history, or lies; and the model that a history is checked against.
package fire

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Trouble is what a link does to the bytes on it. The zero value passes them on.
//
// Nothing is ever lost within a connection: like TCP over a network that drops packets, a link that is cut holds back
// what was sent and delivers it when it heals, unless a side gives up before.
type Trouble struct {
	CutForth bool          // nothing gets from who dialled to who listens
	CutBack  bool          // nothing gets the other way
	Delay    time.Duration // each way
	PerSec   int           // bytes a second each way at most; 0 for no limit
	Refuse   bool          // connections are reset, and new ones at once
}

// Cut is a link without any way through.
var Cut = Trouble{CutForth: true, CutBack: true}

const (
	linkChunk   = 16 << 10
	linkQueue   = 64 // chunks on their way; beyond it the sender waits
	linkConnect = 5 * time.Second
)

// Link is a proxy in front of one address. It must be closed.
type Link struct {
	to       string
	listener net.Listener
	work     sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc

	mu      sync.Mutex // guards the rest
	trouble Trouble
	change  chan struct{} // closed when trouble changes
	conns   map[*net.TCPConn]struct{}
}

// NewLink listens on a port of its own and connects through to an address.
func NewLink(to string) (*Link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &Link{to: to, listener: l, change: make(chan struct{}), conns: map[*net.TCPConn]struct{}{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(k.accept)
	return k, nil
}

// Addr is where to dial.
func (k *Link) Addr() string { return k.listener.Addr().String() }

// Set puts the link into trouble, or ends it with the zero value.
func (k *Link) Set(t Trouble) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble = t
	close(k.change)
	k.change = make(chan struct{})
	if t.Refuse {
		k.reset()
	}
}

// Reset tears every connection.
func (k *Link) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reset()
}

// reset makes each end see a reset, not a clean end. The caller holds mu.
func (k *Link) reset() {
	for c := range k.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// Close ends the link and all that is on it.
func (k *Link) Close() {
	k.stop()
	_ = k.listener.Close()
	k.Reset()
	k.work.Wait()
}

func (k *Link) now() (Trouble, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble, k.change
}

// until waits for a moment in which the trouble is as wanted; false when the link or done ended first.
func (k *Link) until(done <-chan struct{}, wanted func(Trouble) bool) bool {
	for {
		t, change := k.now()
		if wanted(t) {
			return true
		}
		select {
		case <-change:
		case <-done:
			return false
		case <-k.ctx.Done():
			return false
		}
	}
}

func (k *Link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.work.Go(func() { k.carry(c.(*net.TCPConn)) })
	}
}

// keep registers a connection, so that it can be torn; false when the link refuses.
func (k *Link) keep(c *net.TCPConn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[c] = struct{}{}
	if k.trouble.Refuse || k.ctx.Err() != nil {
		_ = c.SetLinger(0)
		return false
	}
	return true
}

func (k *Link) drop(c *net.TCPConn) {
	k.mu.Lock()
	delete(k.conns, c)
	k.mu.Unlock()
	_ = c.Close()
}

// carry connects a caller through. While the link is cut a connection cannot be made, whichever way it is cut.
func (k *Link) carry(caller *net.TCPConn) {
	defer k.drop(caller)
	if !k.keep(caller) || !k.until(nil, func(t Trouble) bool { return !t.CutForth && !t.CutBack }) {
		return
	}
	ctx, cancel := context.WithTimeout(k.ctx, linkConnect)
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", k.to)
	cancel()
	if err != nil {
		_ = caller.SetLinger(0) // the caller sees a refusal
		return
	}
	callee := c.(*net.TCPConn)
	defer k.drop(callee)
	if !k.keep(callee) {
		return
	}
	over := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(over)
		_ = caller.Close()
		_ = callee.Close()
	})
	var ways sync.WaitGroup
	ways.Go(func() {
		defer end()
		k.pump(callee, caller, over, func(t Trouble) bool { return !t.CutForth })
	})
	ways.Go(func() {
		defer end()
		k.pump(caller, callee, over, func(t Trouble) bool { return !t.CutBack })
	})
	ways.Wait()
}

// chunk is bytes on their way, and when they may arrive.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pump carries bytes one way until either end closes. An end of stream is carried like bytes.
func (k *Link) pump(to io.Writer, from io.Reader, over <-chan struct{}, open func(Trouble) bool) {
	way := make(chan chunk, linkQueue)
	k.work.Go(func() {
		defer close(way)
		for {
			b := make([]byte, linkChunk)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			t, _ := k.now()
			select {
			case way <- chunk{b[:n], time.Now().Add(t.Delay)}:
			case <-over:
				return
			}
		}
	})
	for c := range way {
		if !pause(over, time.Until(c.due)) || !k.until(over, open) {
			return
		}
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
		if t, _ := k.now(); t.PerSec > 0 && !pause(over, time.Duration(len(c.bytes))*time.Second/time.Duration(t.PerSec)) {
			return
		}
	}
	k.until(over, open) // an end does not get through either
}

// pause waits; false when it was cut short.
func pause(over <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-over:
		return false
	}
}
