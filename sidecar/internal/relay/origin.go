package relay

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// errBaseURL says that a deployment's base URL cannot be used.
var errBaseURL = errors.New("relay: base URL is not usable")

// target is a base URL, taken apart once.
type target struct {
	origin *origin
	host   string // the Host field
	path   string // what call paths are appended to, without a slash at its end
}

// origin is one scheme and host, and the idle connections to it.
type origin struct {
	secure bool
	name   string // host name, for TLS
	addr   string // host:port

	mu     sync.Mutex
	idle   []*conn // the last one used last
	closed bool
}

// parseBaseURL takes a base URL apart; the origin in it is new.
func parseBaseURL(base string) (*target, error) {
	u, err := url.Parse(base)
	if err != nil {
		// The cause would repeat the URL, which may hold a secret.
		return nil, errBaseURL
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: scheme is not http or https", errBaseURL)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%w: no host", errBaseURL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%w: user, query or fragment in it", errBaseURL)
	}
	o := &origin{secure: u.Scheme == "https", name: u.Hostname()}
	port := u.Port()
	switch {
	case port != "":
	case o.secure:
		port = "443"
	default:
		port = "80"
	}
	o.addr = net.JoinHostPort(o.name, port)
	return &target{origin: o, host: u.Host, path: strings.TrimRight(u.EscapedPath(), "/")}, nil
}

// take returns a connection that was idle and is fit, nil when there is none.
func (o *origin) take(now time.Time, cfg *Config) *conn {
	for {
		o.mu.Lock()
		n := len(o.idle)
		if n == 0 {
			o.mu.Unlock()
			return nil
		}
		k := o.idle[n-1]
		o.idle[n-1] = nil
		o.idle = o.idle[:n-1]
		o.mu.Unlock()
		if k.fresh(now, cfg) && k.alive() {
			k.reused = true
			return k
		}
		k.close()
	}
}

// put keeps a connection whose answer was read to its end.
func (o *origin) put(k *conn, cfg *Config) {
	k.parked = time.Now()
	if k.br.Size() > readBufferBytes {
		k.br = bufio.NewReaderSize(k, readBufferBytes) // nothing is buffered, or k would not be here
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.idle) >= cfg.IdlePerOrigin || !k.fresh(k.parked, cfg) {
		k.close()
		return
	}
	o.idle = append(o.idle, k)
}

// sweep closes what has become too old.
func (o *origin) sweep(now time.Time, cfg *Config) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.idle[:0]
	for _, k := range o.idle {
		if k.fresh(now, cfg) {
			kept = append(kept, k)
		} else {
			k.close()
		}
	}
	clear(o.idle[len(kept):])
	o.idle = kept
}

// shut closes the idle connections, now and for good.
func (o *origin) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, k := range o.idle {
		k.close()
	}
	o.idle = nil
}

func (k *conn) fresh(now time.Time, cfg *Config) bool {
	return now.Sub(k.parked) < cfg.IdleAge && now.Sub(k.born) < cfg.ConnAge
}
