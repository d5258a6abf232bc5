// Package relay carries one attempt: it sends a request to a provider, finds out what the answer is, and pumps a
// stream to the caller. It owns the upstream connections, the deadlines, the cancelling and the bytes, and knows no
// dialect: that is the adapter's.
package relay

import (
	"context"
	"crypto/tls"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Client is an HTTP/1.1 client for providers. It keeps the connections of each origin in a pool of its own and looks
// at a connection before it uses it again. It follows no redirects and sends no request twice, except one of which not
// a byte had left. Safe for concurrent use.
type Client struct {
	cfg Config

	mu      sync.Mutex
	targets map[string]*target // by base URL
	origins map[originKey]*origin
	closed  bool

	// leftovers holds streams that are finished for the caller but not yet for their connection. Guarded by
	// leaveMu, so that nothing is put in once the workers are gone.
	leaveMu   sync.Mutex
	leaving   bool
	leftovers chan *body

	heads   sync.Pool // *fasthttp.ResponseHeader
	buffers sync.Pool // *[]byte
}

type originKey struct {
	secure bool
	addr   string
}

// NewClient returns a client. It works without Run, but then no connection outlives a stream whose last bytes were
// late, and idle connections close only when they are met.
func NewClient(cfg Config) *Client {
	return &Client{
		cfg:       cfg.withDefaults(),
		targets:   map[string]*target{},
		origins:   map[originKey]*origin{},
		leftovers: make(chan *body, drainQueue),
	}
}

// Run keeps the pools tidy until ctx ends, and then closes every idle connection. Attempts still running go on; their
// connections close when they finish. It is called once.
func (c *Client) Run(ctx context.Context) error {
	c.setLeaving(true)
	var g errgroup.Group
	for range drainWorkers {
		g.Go(func() error {
			for b := range c.leftovers {
				b.drain()
			}
			return nil
		})
	}
	c.sweep(ctx)
	c.setLeaving(false)
	close(c.leftovers)
	c.shut()
	return g.Wait()
}

func (c *Client) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.mu.Lock()
			for _, o := range c.origins {
				o.sweep(now, &c.cfg)
			}
			c.mu.Unlock()
		}
	}
}

func (c *Client) setLeaving(on bool) {
	c.leaveMu.Lock()
	defer c.leaveMu.Unlock()
	c.leaving = on
}

// leave hands what is left of a body to the drain workers, as a body of its own: for the request b is over, and
// cancelling the request does not touch the rest.
func (c *Client) leave(b *body) {
	if !b.cancel.attach(nil, nil) {
		b.abort()
		return
	}
	rest := *b
	rest.cancel, rest.beater = &Canceller{}, nil
	b.over, b.err = true, io.EOF
	c.leaveMu.Lock()
	defer c.leaveMu.Unlock()
	if c.leaving {
		select {
		case c.leftovers <- &rest:
			return
		default:
		}
	}
	rest.abort()
}

// shut closes what is idle and keeps anything from becoming idle.
func (c *Client) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, o := range c.origins {
		o.shut()
	}
}

// target looks a base URL up, taking it apart the first time.
func (c *Client) target(base string) (*target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.targets[base]; t != nil {
		return t, nil
	}
	t, err := parseBaseURL(base)
	if err != nil {
		return nil, err
	}
	if len(c.targets) >= originsMax {
		// Only years of changing configuration come here. Attempts under way keep what they hold.
		for _, o := range c.origins {
			o.shut()
		}
		clear(c.targets)
		clear(c.origins)
	}
	key := originKey{t.origin.secure, t.origin.addr}
	if known := c.origins[key]; known != nil {
		t.origin = known
	} else {
		t.origin.closed = c.closed
		c.origins[key] = t.origin
	}
	c.targets[base] = t
	return t, nil
}

// connect returns a connection for an attempt, an idle one if there is one and fresh does not forbid it.
func (c *Client) connect(cancel *Canceller, o *origin, dl *deadlines, fresh bool) (*conn, *exchange.Failure) {
	if !fresh {
		if k := o.take(time.Now(), &c.cfg); k != nil {
			if !cancel.attach(nil, k) {
				k.close()
				return nil, failCancelled()
			}
			return k, nil
		}
	}
	end, why := dl.connect()
	ctx, stop := context.WithDeadline(context.Background(), end)
	defer stop()
	if !cancel.attach(stop, nil) {
		return nil, failCancelled()
	}
	k, err := c.dial(ctx, o)
	if err != nil {
		cancelled := !cancel.attach(nil, nil)
		switch {
		case cancelled:
			return nil, failCancelled()
		case isTimeout(err) && !time.Now().Before(end), ctx.Err() != nil:
			return nil, dl.failure(why)
		}
		return nil, fail(exchange.FailConnect, "no connection to the provider: "+err.Error())
	}
	if !cancel.attach(nil, k) {
		k.abort()
		return nil, failCancelled()
	}
	return k, nil
}

func (c *Client) dial(ctx context.Context, o *origin) (*conn, error) {
	raw, err := c.cfg.Dial(ctx, "tcp", o.addr)
	if err != nil {
		return nil, err
	}
	s := newSocket(raw)
	if !o.secure {
		return newConn(s, nil), nil
	}
	cfg := c.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = o.name
	}
	secured := tls.Client(s, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return newConn(s, secured), nil
}

func (c *Client) head() *fasthttp.ResponseHeader {
	if h, ok := c.heads.Get().(*fasthttp.ResponseHeader); ok {
		return h
	}
	h := &fasthttp.ResponseHeader{}
	h.SetNoDefaultContentType(true)
	return h
}

// buffer lends an empty buffer; giveBack takes it back.
func (c *Client) buffer() *[]byte {
	if b, ok := c.buffers.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, batchBytes))
}

func (c *Client) giveBack(b *[]byte) {
	if cap(*b) > keptBufferBytes {
		return // one huge event must not make every buffer huge
	}
	*b = (*b)[:0]
	c.buffers.Put(b)
}
