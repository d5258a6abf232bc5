package relay

import "sync"

// Canceller ends the attempts of one request, from any goroutine at any time, and more than once. The zero value is
// ready; it serves one request and stays cancelled.
type Canceller struct {
	mu        sync.Mutex
	cancelled bool
	stop      func() // ends a dial under way
	conn      *conn  // the connection in use
	done      chan struct{}
}

// Cancel closes the upstream connection at once, with a reset, so that the provider stops producing. It does not
// block. Later attempts with this Canceller fail before they begin.
func (c *Canceller) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled {
		return
	}
	c.cancelled = true
	if c.done != nil {
		close(c.done)
	}
	if c.stop != nil {
		c.stop()
	}
	if c.conn != nil {
		c.conn.abort()
	}
}

// Cancelled reports whether Cancel was called.
func (c *Canceller) Cancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

// Done is closed by Cancel, for those who wait between attempts.
func (c *Canceller) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.cancelled {
			close(c.done)
		}
	}
	return c.done
}

// attach names what Cancel has to end from now on. false means that it is too late: the Canceller was cancelled, and
// what it should have ended is the caller's to end.
func (c *Canceller) attach(stop func(), k *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop, c.conn = stop, k
	return !c.cancelled
}
