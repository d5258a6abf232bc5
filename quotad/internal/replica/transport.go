package replica

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// alpnRaft names the protocol in the TLS handshake, so that a connection meant for another port is refused.
const alpnRaft = "quotad-raft/1"

// newTransport listens for peers. Raft closes it.
func newTransport(cfg Config, s *streams, log *zap.Logger) (raft.Transport, error) {
	l, err := cfg.Listen("tcp", cfg.RaftListen)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	s.Listener, s.advertise = l, peerAddr(cfg.advertise(l))
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: s.book,
		Stream:                s,
		MaxPool:               peerConnsMax,
		Timeout:               peerIOTimeout,
		Logger:                store.HCLog(log, "raft-net"),
	}), nil
}

// peerAddr is a host:port that is resolved only when it is dialled.
type peerAddr string

func (a peerAddr) Network() string { return "tcp" }
func (a peerAddr) String() string  { return string(a) }

// streams makes and takes the connections between peers, over TLS unless it is nil.
type streams struct {
	net.Listener
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	advertise peerAddr
	tls       func() *tls.Config // the certificates of the moment
	book      *book
	self      func() greeting      // what this node says of itself
	removed   func(id string) bool // whom it takes for removed
	// first says that the state is at the first level, so that there may be nodes that know no greeting.
	first func() bool
	// refused is told when a peer refuses this node.
	refused func(peer string, err error)
}

// Addr returns what peers know this node by, not what it listens on.
func (s *streams) Addr() net.Addr { return s.advertise }

// config is the configuration of both directions.
func (s *streams) config() *tls.Config {
	c := s.tls().Clone()
	c.NextProtos, c.MinVersion, c.ClientAuth = []string{alpnRaft}, tls.VersionTLS13, tls.RequireAndVerifyClientCert
	return c
}

// Dial connects to a node, whose name is its address here, wherever it is now.
func (s *streams) Dial(node raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id := string(node)
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, dialTimeout))
	defer cancel()
	var errs []error
	for _, address := range s.book.addresses(id) {
		c, _, err := s.meet(ctx, id, address)
		if errors.Is(err, errUngreeted) && s.first() {
			// Each connection begins with the greeting, so that a node that was upgraded is told at once.
			c, err = s.connect(ctx, id, address)
		}
		if err == nil {
			s.book.answered(id, address)
			return c, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	if errs == nil {
		return nil, fmt.Errorf("no address of node %s is known", id)
	}
	return nil, errors.Join(errs...)
}

// meet connects to a node at an address and makes sure that it is the one, of the same cluster. A refusal comes with
// the answer.
func (s *streams) meet(ctx context.Context, id, address string) (net.Conn, greeting, error) {
	c, err := s.connect(ctx, id, address)
	if err != nil {
		return nil, greeting{}, err
	}
	answer, err := s.introduce(ctx, c, id)
	if err != nil {
		_ = c.Close()
		return nil, answer, err
	}
	return c, answer, nil
}

// connect dials, and over TLS makes sure by the certificate that it is the node.
func (s *streams) connect(ctx context.Context, id, address string) (net.Conn, error) {
	c, err := s.dial(ctx, "tcp", address)
	if err != nil || s.tls == nil {
		return c, err
	}
	cfg := s.config()
	cfg.VerifyConnection = and(cfg.VerifyConnection, func(cs tls.ConnectionState) error { return checkPeer(cs, id) })
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(address)
	}
	over := tls.Client(c, cfg)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return over, nil
}

// introduce makes the greeting.
func (s *streams) introduce(ctx context.Context, c net.Conn, id string) (answer greeting, err error) {
	if until, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(until); err != nil {
			return answer, err
		}
		defer func() { err = errors.Join(err, c.SetDeadline(time.Time{})) }()
	}
	own := s.self()
	own.To = id
	if err := writeGreeting(c, own); err != nil {
		return answer, err
	}
	if answer, err = readGreeting(c); err != nil {
		return answer, err
	}
	switch {
	case answer.Refusal != "":
		err := refusals[answer.Refusal]
		if err == nil {
			err = fmt.Errorf("refused: %.64q", answer.Refusal)
		}
		s.refused(id, err)
		return answer, err
	case answer.ID != id:
		return answer, fmt.Errorf("%w: %.64q", errOtherNode, answer.ID)
	case own.Group != "" && answer.Group != "" && own.Group != answer.Group:
		s.refused(id, ErrOtherCluster)
		return answer, ErrOtherCluster
	}
	return answer, nil
}

// Accept takes a connection. Handshake and greeting are left to its first reader, which is the connection's own
// goroutine: a peer that is slow, or none, must not hold up the others.
func (s *streams) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &acceptedConn{Conn: c, streams: s}, nil
}

func and(a, b func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	if a == nil {
		return b
	}
	return func(cs tls.ConnectionState) error { return errors.Join(a(cs), b(cs)) }
}

// checkPeer checks that the certificate is the node's.
func checkPeer(cs tls.ConnectionState, id string) error {
	if len(cs.PeerCertificates) == 0 || cs.NegotiatedProtocol != alpnRaft || !IsOfNode(cs.PeerCertificates[0], id) {
		return errNotPeer
	}
	return nil
}

// acceptedConn finds out who is there before anything is read.
type acceptedConn struct {
	net.Conn
	streams *streams
	once    sync.Once
	err     error
	begun   []byte // was read of what is raft's
}

func (c *acceptedConn) Read(b []byte) (int, error) {
	c.once.Do(func() { c.err = c.admit() })
	if c.err != nil {
		return 0, c.err
	}
	if len(c.begun) > 0 {
		n := copy(b, c.begun)
		c.begun = c.begun[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *acceptedConn) admit() error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var over *tls.Conn
	if c.streams.tls != nil {
		over = tls.Server(c.Conn, c.streams.config())
		if err := over.HandshakeContext(ctx); err != nil {
			return err
		}
		c.Conn = over
	}
	if err := c.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c.Conn, first); err != nil {
		return err
	}
	if first[0] != greetingMagic[0] {
		if err := c.streams.admitUngreeted(over); err != nil {
			return err
		}
		c.begun = first
		return c.SetDeadline(time.Time{})
	}
	from, err := readGreeting(io.MultiReader(bytes.NewReader(first), c.Conn))
	if err != nil {
		return err
	}
	own := c.streams.self()
	// Whoever greets is answered, also when it is refused: one that closes without an answer is taken for an older build.
	if over != nil && checkPeer(over.ConnectionState(), from.ID) != nil {
		own.Refusal = "certificate"
	} else {
		own.Refusal = c.streams.book.verdict(own, from, c.streams.removed)
	}
	if err := writeGreeting(c.Conn, own); err != nil {
		return err
	}
	if own.Refusal != "" {
		return fmt.Errorf("node %.64q is refused: %w", from.ID, refusals[own.Refusal])
	}
	return c.SetDeadline(time.Time{})
}

// admitUngreeted lets raft speak to who does not greet: a node of the first version, as long as there may be such. Over
// TLS it must be one of the cluster's as it is configured; which one is not said.
func (s *streams) admitUngreeted(over *tls.Conn) error {
	if !s.first() {
		return errUngreeted
	}
	if over == nil {
		return nil
	}
	for id := range s.book.configured {
		if checkPeer(over.ConnectionState(), id) == nil && !s.removed(id) {
			return nil
		}
	}
	return errNotPeer
}
