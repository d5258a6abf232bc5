package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
func newTransport(cfg Config, log *zap.Logger) (raft.Transport, error) {
	l, err := cfg.Listen("tcp", cfg.RaftListen)
	if err != nil {
		return nil, fmt.Errorf("listen for peers: %w", err)
	}
	s := &streams{Listener: l, dial: cfg.Dial, advertise: peerAddr(cfg.advertise(l)), ids: map[string]string{}}
	if cfg.TLS != nil {
		s.tls = cfg.TLS.Clone()
		s.tls.NextProtos = []string{alpnRaft}
		s.tls.MinVersion = tls.VersionTLS13
		s.tls.ClientAuth = tls.RequireAndVerifyClientCert
	}
	addresses := addressBook{}
	for _, p := range cfg.Peers {
		addresses[raft.ServerID(p.ID)] = raft.ServerAddress(p.RaftAddress)
		s.ids[p.RaftAddress] = p.ID
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addresses,
		Stream:                s,
		MaxPool:               peerConnsMax,
		Timeout:               peerIOTimeout,
		Logger:                store.HCLog(log, "raft-net"),
	}), nil
}

// addressBook finds a peer by its id, so that an address that changed in the configuration counts at once, whatever
// raft has stored.
type addressBook map[raft.ServerID]raft.ServerAddress

func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a, ok := b[id]; ok {
		return a, nil
	}
	return "", fmt.Errorf("replica: node %q is not configured", id)
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
	tls       *tls.Config
	ids       map[string]string // node by address
}

// Addr returns what peers know this node by, not what it listens on.
func (s *streams) Addr() net.Addr { return s.advertise }

// Dial connects to a peer and, over TLS, makes sure that it is the one that is configured at that address.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, dialTimeout))
	defer cancel()
	if s.tls == nil {
		return s.dial(ctx, "tcp", string(address))
	}
	id, ok := s.ids[string(address)]
	if !ok {
		return nil, fmt.Errorf("replica: no node is configured at %s", address)
	}
	cfg := s.tls.Clone()
	cfg.VerifyConnection = and(cfg.VerifyConnection, func(cs tls.ConnectionState) error { return checkPeer(cs, id) })
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(string(address))
	}
	raw, err := s.dial(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// Accept takes a connection. The handshake is left to its first reader, which is the connection's own goroutine: a
// peer that is slow, or none, must not hold up the others.
func (s *streams) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil || s.tls == nil {
		return c, err
	}
	cfg := s.tls.Clone()
	cfg.VerifyConnection = and(cfg.VerifyConnection, func(cs tls.ConnectionState) error {
		for _, id := range s.ids {
			if checkPeer(cs, id) == nil {
				return nil
			}
		}
		return errNotPeer
	})
	return &acceptedConn{Conn: tls.Server(c, cfg)}, nil
}

func and(a, b func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	if a == nil {
		return b
	}
	return func(cs tls.ConnectionState) error { return errors.Join(a(cs), b(cs)) }
}

// errNotPeer: the other side's certificate is valid and not a node's.
var errNotPeer = errors.New("replica: certificate is not of a configured node")

// checkPeer checks that the certificate is the node's: one of its URI names is spiffe://<trust domain>/quotad/<id>. Any
// certificate of the same authority would do otherwise, and sidecars have such.
func checkPeer(cs tls.ConnectionState, id string) error {
	if len(cs.PeerCertificates) == 0 || cs.NegotiatedProtocol != alpnRaft {
		return errNotPeer
	}
	for _, u := range cs.PeerCertificates[0].URIs {
		if u.Scheme == "spiffe" && u.Host != "" && u.Path == "/quotad/"+id {
			return nil
		}
	}
	return errNotPeer
}

// acceptedConn bounds the handshake.
type acceptedConn struct {
	*tls.Conn
	once sync.Once
	err  error
}

func (c *acceptedConn) Read(b []byte) (int, error) {
	c.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		c.err = c.HandshakeContext(ctx)
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(b)
}
