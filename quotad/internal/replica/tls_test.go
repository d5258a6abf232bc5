package replica

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/memnet"
)

// Certificates are valid in bubbles, which begin with the year 2000, and outside.
var validFrom, validUntil = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: validFrom, NotAfter: validUntil, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert: cert, key: key, pool: pool}
}

// config returns both directions' configuration for the holder of a certificate with this URI.
func (a *authority) config(t *testing.T, uri string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	u, err := url.Parse(uri)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: validFrom, NotAfter: validUntil,
		KeyUsage: x509.KeyUsageDigitalSignature, URIs: []*url.URL{u}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 3)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	must(t, err)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      a.pool, ClientCAs: a.pool,
	}
}

func TestThreeNodesOverTLS(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ca := newAuthority(t)
		cfgs, _ := three(t)
		for i := range cfgs {
			own := ca.config(t, "spiffe://example.org/quotad/"+cfgs[i].ID)
			cfgs[i].TLS = func() *tls.Config { return own }
		}
		nodes := startAll(t, cfgs)
		leader, others := leaderOf(t, nodes...)
		last := leader.seal("k")
		for _, n := range others {
			n.waitApplied(last.Index)
		}
	})
}

func TestOnlyNodesAreTalkedTo(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	for _, tt := range []struct {
		name     string
		dialler  *tls.Config
		alpn     string
		says, to string // b and a, unless
		group    string
		accepted bool
	}{
		{name: "a node", dialler: ca.config(t, "spiffe://example.org/quotad/b"), alpn: alpnRaft, accepted: true},
		{name: "a sidecar", dialler: ca.config(t, "spiffe://example.org/sidecar/b"), alpn: alpnRaft},
		{name: "an unknown node without a cluster", dialler: ca.config(t, "spiffe://example.org/quotad/z"), alpn: alpnRaft, says: "z"},
		{name: "a new node of the cluster", dialler: ca.config(t, "spiffe://example.org/quotad/z"), alpn: alpnRaft, says: "z", group: "g", accepted: true},
		{name: "a node that calls itself another", dialler: ca.config(t, "spiffe://example.org/quotad/z"), alpn: alpnRaft, group: "g"},
		{name: "a node of another cluster", dialler: ca.config(t, "spiffe://example.org/quotad/b"), alpn: alpnRaft, group: "h"},
		{name: "a node that was removed", dialler: ca.config(t, "spiffe://example.org/quotad/r"), alpn: alpnRaft, says: "r", group: "g"},
		{name: "a node that looks for another", dialler: ca.config(t, "spiffe://example.org/quotad/b"), alpn: alpnRaft, to: "c"},
		{name: "a name within a name", dialler: ca.config(t, "spiffe://example.org/x/quotad/b"), alpn: alpnRaft},
		{name: "another authority", dialler: foreign.config(t, "spiffe://example.org/quotad/b"), alpn: alpnRaft},
		{name: "another protocol", dialler: ca.config(t, "spiffe://example.org/quotad/b"), alpn: "h2"},
		{name: "no protocol", dialler: ca.config(t, "spiffe://example.org/quotad/b")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, addr := listenTLS(t, memnet.New(0), ca, "spiffe://example.org/quotad/a", "a")
				read := make(chan error, 1)
				go func() {
					c, err := s.Accept()
					if err == nil {
						defer c.Close()
						_, err = c.Read(make([]byte, 1))
					}
					read <- err
				}()
				cfg := tt.dialler.Clone()
				cfg.RootCAs, cfg.ServerName = ca.pool, "127.0.0.1"
				if tt.alpn != "" {
					cfg.NextProtos = []string{tt.alpn}
				}
				raw, err := s.dial(t.Context(), "tcp", addr)
				must(t, err)
				c := tls.Client(raw, cfg)
				if c.Handshake() == nil {
					// It fails or not: the other side decides.
					_ = writeGreeting(c, greeting{ID: cmp.Or(tt.says, "b"), To: cmp.Or(tt.to, "a"), Group: tt.group})
					_, _ = readGreeting(c)
					_, _ = c.Write([]byte{1})
				}
				c.Close()
				if err := <-read; (err == nil) != tt.accepted {
					t.Fatalf("first byte read: %v, want accepted %v", err, tt.accepted)
				}
			})
		})
	}
}

// listenTLS listens as a node, which knows peer id at its own address, and b.
func listenTLS(t *testing.T, net *memnet.Net, ca *authority, uri, id string) (*streams, string) {
	t.Helper()
	host := net.Host("127.0.0.1")
	l, err := host.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	cfg := ca.config(t, uri)
	nobody := func(string) (Peer, bool) { return Peer{}, false }
	return &streams{
		Listener: l, dial: host.Dial, tls: func() *tls.Config { return cfg },
		book:    newBook([]Peer{{ID: id, RaftAddress: l.Addr().String()}, {ID: "b", RaftAddress: "127.0.0.1:1"}}, nobody),
		self:    func() greeting { return greeting{ID: id, Group: "g"} },
		first:   func() bool { return false },
		removed: func(id string) bool { return id == "r" },
		refused: func(string, error) {},
	}, l.Addr().String()
}

func TestDialChecksWhoAnswers(t *testing.T) {
	ca := newAuthority(t)
	for _, tt := range []struct {
		name, uri string
		want      error
	}{
		{name: "the node of that address", uri: "spiffe://example.org/quotad/a"},
		{name: "another node", uri: "spiffe://example.org/quotad/b", want: errNotPeer},
		{name: "a sidecar", uri: "spiffe://example.org/sidecar/a", want: errNotPeer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				net := memnet.New(0)
				answering, addr := listenTLS(t, net, ca, tt.uri, "a")
				dialling, _ := listenTLS(t, net, ca, "spiffe://example.org/quotad/b", "b")
				dialling.book.configured["a"] = Peer{ID: "a", RaftAddress: addr}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if c, err := answering.Accept(); err == nil {
						_, _ = c.Read(make([]byte, 1)) // makes handshake and greeting
						c.Close()
					}
				}()
				c, err := dialling.Dial("a", time.Minute)
				if !errors.Is(err, tt.want) {
					t.Fatalf("Dial: got %v, want %v", err, tt.want)
				}
				if c != nil {
					c.Close()
				}
				<-done
			})
		})
	}
}
