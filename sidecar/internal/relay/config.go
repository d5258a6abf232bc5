package relay

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// Config is what a Client may be told. The zero value is complete.
type Config struct {
	// TLS is the base of the TLS configuration; nil for Go's defaults. NextProtos, ServerName and the session cache
	// are set by the client.
	TLS *tls.Config
	// Dial opens a connection to addr (host:port) and returns early when ctx ends; nil for TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	RecvBufferBytes int           // SO_RCVBUF of dialled sockets; default 32 KiB, negative for the system's default
	IdlePerOrigin   int           // idle connections kept per origin; default 64, negative for none
	IdleAge         time.Duration // how long a connection may lie idle; default 55 s
	ConnAge         time.Duration // how long a connection is reused at all; default 10 min
	BodyBytesMax    int           // of a complete answer, decoded; default 32 MiB
	EventBytesMax   int           // of one server-sent event; default 32 MiB
	WriteWait       time.Duration // for one write to the caller; default 30 s
	Heartbeat       time.Duration // silence towards the caller before a comment is sent; default 15 s
	Patience        time.Duration // silence towards a stream's caller before it begins without a token; default 45 s
	UserAgent       string        // default "sluice"
}

func (c Config) withDefaults() Config {
	orInt(&c.RecvBufferBytes, recvBufferBytes)
	orInt(&c.IdlePerOrigin, idlePerOrigin)
	orInt(&c.BodyBytesMax, bodyBytesMax)
	orInt(&c.EventBytesMax, sse.EventBytesMax)
	orTime(&c.IdleAge, idleAge)
	orTime(&c.ConnAge, connAge)
	orTime(&c.WriteWait, writeWait)
	orTime(&c.Heartbeat, heartbeatEvery)
	orTime(&c.Patience, patience)
	if c.UserAgent == "" {
		c.UserAgent = "sluice"
	}
	if c.Dial == nil {
		d := &net.Dialer{KeepAlive: 30 * time.Second, Control: recvBufferControl(c.RecvBufferBytes)}
		c.Dial = d.DialContext
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	} else {
		c.TLS = c.TLS.Clone()
	}
	// HTTP/1.1 alone: cancelling and pooling here are per connection.
	c.TLS.NextProtos = []string{"http/1.1"}
	c.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(4 * idlePerOrigin)
	return c
}

// timeoutsOf fills in what the policy left at zero, so that no attempt is without bounds.
func timeoutsOf(t exchange.Timeouts) exchange.Timeouts {
	orTime(&t.Connect, 2*time.Second)
	orTime(&t.FirstToken, time.Minute)
	orTime(&t.Idle, time.Minute)
	orTime(&t.Total, 10*time.Minute)
	return t
}

func orInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

func orTime(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
}
