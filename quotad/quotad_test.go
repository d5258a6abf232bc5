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
	"errors"
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
	"google.golang.org/grpc/status"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// patience is how long a test waits for what must happen. It is long, so that only a fault reaches it.
const patience = 60 * time.Second

func devConfig(t *testing.T) Config {
	t.Helper()
	c, err := Load("", nil, map[string]string{
		"data_dir": filepath.Join(t.TempDir(), "data"), "listen": "127.0.0.1:0", "raft_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0",
	}, true)
	must(t, err)
	return c
}

// run runs a node until the end of the test.
func run(t *testing.T, cfg Config) *Quotad {
	t.Helper()
	q, err := New(cfg, "b1", zap.NewNop())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
		must(t, q.Close())
	})
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for range q.node.Watch(waiting) {
		if _, _, _, self := q.node.Leader(); self {
			return q
		}
	}
	t.Fatal("no leader")
	return nil
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	resp, err := c.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}

func TestAdminPlane(t *testing.T) {
	q := run(t, devConfig(t))
	for _, tc := range []struct{ name, path, want string }{
		{"health", "/healthz", "ok\n"},
		{"ready", "/readyz", "ready\n"},
		{"leader", "/metrics", "\nsluice_raft_leader 1\n"},
		{"sidecars", "/metrics", "\nsluice_sidecars_connected 0\n"},
		{"violations", "/metrics", "\nsluice_conservation_violations_total 0\n"},
		{"REST", "/admin/v1/status", `"quotad-0"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if code, body := get(t, http.DefaultClient, "http://"+q.AdminAddr()+tc.path); code != http.StatusOK || !strings.Contains(body, tc.want) {
				t.Errorf("status %d: %s", code, body)
			}
		})
	}
}

func TestSecondQuotadOnADirectory(t *testing.T) {
	cfg := devConfig(t)
	run(t, cfg)
	_, err := New(cfg, "b1", zap.NewNop())
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), cfg.DataDir) {
		t.Errorf("got %v", err)
	}
}

func TestNewGivesBackWhatItOpened(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	for _, tc := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"sidecar port taken", func(c *Config) { c.Listen = taken.Addr().String() }, "listen: "},
		{"admin port taken", func(c *Config) { c.AdminListen = taken.Addr().String() }, "admin_listen: "},
		{"raft port taken", func(c *Config) { c.RaftListen = taken.Addr().String() }, "listen for peers: "},
		{"no key file outside dev", func(c *Config) { c.Dev, c.TLS = false, authority(t).files(t, "n") }, "key_file: "},
		{"no certificates", func(c *Config) { c.Dev, c.TLS = false, TLSFiles{"x", "y", "z"} }, "tls.cert, tls.key: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := devConfig(t)
			bad := cfg
			tc.edit(&bad)
			if _, err := New(bad, "b1", zap.NewNop()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v", err)
			}
			run(t, cfg) // the directory is free
		})
	}
}

func TestRunThatIsStoppedAtOnce(t *testing.T) {
	q, err := New(devConfig(t), "b1", zap.NewNop())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must(t, q.Run(ctx))
	must(t, q.Close())
}

func TestStateOutlivesARestart(t *testing.T) {
	cfg := devConfig(t)
	yaml := "version: 1\nteams: { red: {} }\n"
	var version uint64
	t.Run("first", func(t *testing.T) {
		q := run(t, cfg)
		resp, err := adminv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+q.AdminAddr()).Apply(
			context.Background(), connect.NewRequest(&adminv1.ApplyRequest{Yaml: yaml}))
		must(t, err)
		version = resp.Msg.GetVersion()
	})
	t.Run("second", func(t *testing.T) {
		q := run(t, cfg)
		if got := q.node.Status().ConfigVersion; got != version || got == 0 {
			t.Errorf("version %d, want %d", got, version)
		}
	})
}

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

// files makes the files of one certificate, with uri as its name and good for 127.0.0.1.
func (a *ca) files(t *testing.T, uri string) TLSFiles {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	u, err := url.Parse(uri)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "c"}, NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{u}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"quotad-0"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
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

func TestMutualTLS(t *testing.T) {
	a := authority(t)
	cfg := devConfig(t)
	dev, err := New(cfg, "b1", zap.NewNop()) // makes the key file, which production does not
	must(t, err)
	must(t, dev.Close())
	cfg.Dev, cfg.TLS = false, a.files(t, "spiffe://x/quotad")
	q := run(t, cfg)
	operator, err := a.files(t, "spiffe://x/ops").HTTPClient()
	must(t, err)
	defer operator.CloseIdleConnections()
	if code, body := get(t, operator, "https://"+q.AdminAddr()+"/admin/v1/status"); code != http.StatusOK || !strings.Contains(body, "quotad-0") {
		t.Errorf("operator: %d %s", code, body)
	}
	stranger, err := authority(t).files(t, "spiffe://x/ops").HTTPClient()
	must(t, err)
	if resp, err := stranger.Get("https://" + q.AdminAddr() + "/healthz"); err == nil {
		_ = resp.Body.Close()
		t.Error("a stranger was served")
	}

	for _, tc := range []struct {
		name, identity string
		want           codes.Code
	}{
		{"its own name", "spiffe://x/gw", codes.OK},
		{"another name", "spiffe://x/other", codes.PermissionDenied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mutual, err := a.files(t, "spiffe://x/gw").mutual()
			must(t, err)
			conn, err := grpc.NewClient(q.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(mutual)))
			must(t, err)
			defer func() { _ = conn.Close() }()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s, err := quotav1.NewQuotaServiceClient(conn).Session(ctx)
			must(t, err)
			must(t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{
				Hello: &quotav1.Hello{Identity: tc.identity, Incarnation: 1},
			}}))
			if _, err := s.Recv(); status.Code(err) != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the server must refuse it
	if resp, err := bare.Get("https://" + q.AdminAddr() + "/healthz"); err == nil {
		_ = resp.Body.Close()
		t.Error("served without a certificate")
	}
}
