package quotad

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// ca signs certificates for one test.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func authority(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	c, err = x509.ParseCertificate(der)
	must(t, err)
	return &ca{cert: c, key: key}
}

// files makes the files of one certificate, with uri as its name, that is good for a host.
func (a *ca) files(t *testing.T, uri, host string) TLSFiles {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	u, err := url.Parse(uri)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "c"}, NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{u}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return TLSFiles{
		CA: write("ca.pem", "CERTIFICATE", a.cert.Raw), Cert: write("cert.pem", "CERTIFICATE", der), Key: write("key.pem", "EC PRIVATE KEY", keyDER),
	}
}

// mixed trusts one authority and shows the certificate of another.
func mixed(trusts, shows TLSFiles) TLSFiles {
	return TLSFiles{CA: trusts.CA, Cert: shows.Cert, Key: shows.Key}
}

// secure runs a node whose three planes demand certificates of a, and whose own is good for host.
func secure(t *testing.T, a *ca, host string) *Quotad {
	t.Helper()
	cfg := devConfig(t)
	dev, err := New(cfg, "b1", zap.NewNop()) // makes the key file, which production does not
	must(t, err)
	must(t, dev.Close())
	cfg.Dev, cfg.TLS = false, a.files(t, "spiffe://x/quotad/quotad-0", host)
	return run(t, cfg)
}

func TestSidecarPlaneOverTLS(t *testing.T) {
	a, other := authority(t), authority(t)
	q, elsewhere := secure(t, a, "127.0.0.1"), secure(t, a, "quotad.example")
	own, strange := a.files(t, "spiffe://x/gw", "gw"), other.files(t, "spiffe://x/gw", "gw")
	creds := func(f TLSFiles) credentials.TransportCredentials {
		mutual, err := f.mutual()
		must(t, err)
		return credentials.NewTLS(mutual)
	}
	bare := func() credentials.TransportCredentials {
		c, err := own.mutual()
		must(t, err)
		c.Certificates = nil
		return credentials.NewTLS(c)
	}
	for _, tc := range []struct {
		name     string
		node     *Quotad
		creds    credentials.TransportCredentials
		identity string
		code     codes.Code
		want     string // empty where it may also be a broken connection: in TLS 1.3 the refusal races with the first write
	}{
		{"its own name", q, creds(own), "spiffe://x/gw", codes.OK, ""},
		{"another name", q, creds(own), "spiffe://x/other", codes.PermissionDenied, "is not a URI name of the client certificate"},
		{"part of its name", q, creds(own), "gw", codes.PermissionDenied, "is not a URI name of the client certificate"},
		{"certificate of another authority", q, creds(mixed(own, strange)), "spiffe://x/gw", codes.Unavailable, ""},
		{"no certificate", q, bare(), "spiffe://x/gw", codes.Unavailable, ""},
		{"no TLS", q, insecure.NewCredentials(), "spiffe://x/gw", codes.Unavailable, ""},
		{"quotad of another authority", q, creds(mixed(strange, own)), "spiffe://x/gw", codes.Unavailable, "unknown authority"},
		{"quotad by another name", elsewhere, creds(own), "spiffe://x/gw", codes.Unavailable, "127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, err := grpc.NewClient(tc.node.Addr(), grpc.WithTransportCredentials(tc.creds))
			must(t, err)
			defer func() { _ = conn.Close() }()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s, err := quotav1.NewQuotaServiceClient(conn).Session(ctx)
			if err == nil {
				_ = s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{ // its end says why it failed
					Hello: &quotav1.Hello{Identity: tc.identity, Incarnation: 1},
				}})
				_, err = s.Recv()
			}
			if status.Code(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", err, tc.code, tc.want)
			}
		})
	}
}

const withSidecar = `version: 1
teams:
  red: { budget: { monthly: 100 } }
sidecars:
  - { identity: "spiffe://x/gw", teams: [red] }
`

func TestAdminPlaneOverTLS(t *testing.T) {
	a, other := authority(t), authority(t)
	q, elsewhere := secure(t, a, "127.0.0.1"), secure(t, a, "quotad.example")
	ops, strange := a.files(t, "spiffe://x/ops", "ops"), other.files(t, "spiffe://x/ops", "ops")
	client := func(f TLSFiles) *http.Client {
		c, err := f.HTTPClient()
		must(t, err)
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	api := adminv1connect.NewAdminServiceClient(client(ops), "https://"+q.AdminAddr())
	if _, err := api.Apply(ctx, connect.NewRequest(&adminv1.ApplyRequest{Yaml: withSidecar, Actor: "ann"})); err != nil {
		t.Fatal(err)
	}
	h, err := api.History(ctx, connect.NewRequest(&adminv1.HistoryRequest{}))
	must(t, err)
	if got := h.Msg.GetEntries()[0].GetActor(); got != "spiffe://x/ops (ann)" {
		t.Errorf("the history names %q", got)
	}
	bare := client(ops)
	bare.Transport.(*http.Transport).TLSClientConfig.Certificates = nil
	for _, tc := range []struct {
		name   string
		node   *Quotad
		scheme string
		client *http.Client
		status int // 0: there is no answer
		want   string
	}{
		{"operator", q, "https", client(ops), http.StatusOK, "quotad-0"},
		{"sidecar", q, "https", client(a.files(t, "spiffe://x/gw", "gw")), http.StatusForbidden, "of the sidecar spiffe://x/gw"},
		{"certificate of another authority", q, "https", client(mixed(ops, strange)), 0, ""},
		{"no certificate", q, "https", bare, 0, ""},
		{"no TLS", q, "http", http.DefaultClient, http.StatusBadRequest, "HTTPS server"},
		{"quotad of another authority", q, "https", client(mixed(strange, ops)), 0, "unknown authority"},
		{"quotad by another name", elsewhere, "https", client(ops), 0, "127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, tc.scheme+"://"+tc.node.AdminAddr()+"/admin/v1/status", nil)
			must(t, err)
			resp, err := tc.client.Do(req)
			if err != nil {
				if tc.status != 0 || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %d with %q", err, tc.status, tc.want)
				}
				return
			}
			defer func() { _ = resp.Body.Close() }()
			b, err := io.ReadAll(resp.Body)
			must(t, err)
			if resp.StatusCode != tc.status || !strings.Contains(string(b), tc.want) {
				t.Errorf("got %d %s, want %d with %q", resp.StatusCode, b, tc.status, tc.want)
			}
		})
	}
	gw := adminv1connect.NewAdminServiceClient(client(a.files(t, "spiffe://x/gw", "gw")), "https://"+q.AdminAddr())
	_, err = gw.CreditBudget(ctx, connect.NewRequest(&adminv1.CreditBudgetRequest{Team: "red", AmountNano: 1, Reason: "r"}))
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a sidecar that raises its budget: %v", err)
	}
}

// TestOldTLSIsRefused: only TLS 1.3 is spoken.
func TestOldTLSIsRefused(t *testing.T) {
	a := authority(t)
	q := secure(t, a, "127.0.0.1")
	c, err := a.files(t, "spiffe://x/ops", "ops").mutual()
	must(t, err)
	c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, addr := range []string{q.Addr(), q.AdminAddr()} {
		conn, err := tls.Dial("tcp", addr, c)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s speaks an old version", addr)
		}
	}
}

// TestCertificateOfAnotherNodeIsNotUsed: files that were mixed up would cut the node off from the others.
func TestCertificateOfAnotherNodeIsNotUsed(t *testing.T) {
	a := authority(t)
	own, others := a.files(t, "spiffe://x/quotad/a", "h"), a.files(t, "spiffe://x/quotad/b", "h")
	q := &Quotad{cfg: Config{ID: "a", Join: true}}
	c, err := openCertificates(own, q.fits, zap.NewNop())
	must(t, err)
	used := c.config()
	for _, f := range [...][2]string{{others.Cert, own.Cert}, {others.Key, own.Key}} {
		b, err := os.ReadFile(f[0])
		must(t, err)
		must(t, os.WriteFile(f[1], b, 0o600))
	}
	c.reload()
	if got := c.problem(time.Now()); c.config() != used || !strings.Contains(got, "tls.cert: of [spiffe://x/quotad/b], and not of this node") {
		t.Errorf("got %q", got)
	}
	q.cfg.Join = false // a cluster of one takes any
	if c.reload(); c.config() == used || c.problem(time.Now()) != "" {
		t.Errorf("got %q", c.problem(time.Now()))
	}
}
