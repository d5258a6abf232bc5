package system

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	ca   string // its file
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var der []byte
	der, a.key = a.sign(a.cert)
	a.cert = a.parse(der)
	a.ca = a.write("CERTIFICATE", der)
	return a
}

// sign makes a certificate and its key; an authority without a key signs its own.
func (a *authority) sign(c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), signer)
	a.must(err)
	return der, key
}

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) parse(der []byte) *x509.Certificate {
	c, err := x509.ParseCertificate(der)
	a.must(err)
	return c
}

func (a *authority) write(kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "x.pem")
	a.must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// flags makes a certificate with a URI name, that is good for an address, and the flags that use it.
func (a *authority) flags(name, ip string) []string {
	a.t.Helper()
	u, err := url.Parse(name)
	a.must(err)
	der, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{u}, IPAddresses: []net.IP{net.ParseIP(ip)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	keyDER, err := x509.MarshalECPrivateKey(key)
	a.must(err)
	return []string{"--tls-ca", a.ca, "--tls-cert", a.write("CERTIFICATE", der), "--tls-key", a.write("EC PRIVATE KEY", keyDER)}
}

// trusting replaces the authority that the flags trust.
func trusting(other *authority, flags []string) []string {
	return append([]string{"--tls-ca", other.ca}, flags[2:]...)
}

// TestTLS: outside --dev, quotad, the operator's verbs and the sidecar speak to each other with certificates of one
// authority, and to nobody else; a request gets its answer.
func TestTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	s := &stack{t: t, fake: fakeprovider.New(fakeprovider.Config{
		Keys:   []fakeprovider.Key{{Name: "main", Secret: providerKey}},
		Prices: map[string]fakeprovider.Price{"*": {Input: 2_000_000_000, Output: 10_000_000_000}},
	})}
	srv := httptest.NewServer(s.fake)
	t.Cleanup(func() { s.fake.Close(); srv.Close() })
	node := func(ip string) (plane, admin string) {
		plane, admin = freePort(t), freePort(t)
		dir := t.TempDir()
		seal := filepath.Join(dir, "seal.key")
		a.must(os.WriteFile(seal, []byte(sum("seal")+"\n"), 0o600))
		run(t, "quotad-0", "quotad", append([]string{
			"serve", "--data-dir", filepath.Join(dir, "data"), "--listen", plane, "--raft-listen", freePort(t), "--admin-listen", admin, "--key-file", seal,
		}, a.flags("spiffe://x/quotad/quotad-0", ip)...)...)
		return plane, admin
	}
	plane, admin := node("127.0.0.1")
	_, misnamed := node("127.0.0.2")
	verb := func(addr, stdin string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(binaries, "quotad"), append(args, "--addr", addr)...)
		cmd.Stdin = strings.NewReader(stdin)
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	ops := a.flags("spiffe://x/ops", "127.0.0.9")
	with := func(flags []string, args ...string) []string { return append(args, flags...) }
	apply := with(ops, "apply", "-f", s.written(org(srv.URL+"/v1", "{ monthly: 1 }", "{ rpm: 600 }")+
		"sidecars:\n  - { identity: \"spiffe://x/gw\", teams: [t] }\n"))
	s.eventually("the organisation is applied", func() bool { // while a node that was just started elects itself, it says so
		out, err := verb(admin, "", apply...)
		if err != nil && !strings.Contains(out, "leader") {
			t.Fatalf("apply: %s", out)
		}
		return err == nil
	})
	if out, err := verb(admin, providerKey, with(ops, "credential", "set", "main")...); err != nil {
		t.Fatalf("credential: %s", out)
	}
	for _, tc := range []struct {
		name, addr string
		flags      []string
		want       string // empty: it is served
	}{
		{"operator", admin, ops, ""},
		{"operator, with https", "https://" + admin, ops, ""},
		{"no certificate", admin, nil, "speaks TLS: --tls-ca"},
		{"certificate of another authority", admin, trusting(a, other.flags("spiffe://x/ops", "127.0.0.9")), "quotad: "},
		{"quotad of another authority", admin, trusting(other, ops), "unknown authority"},
		{"quotad by another name", misnamed, ops, "valid for 127.0.0.2, not 127.0.0.1"},
		{"sidecar", admin, a.flags("spiffe://x/gw", "127.0.0.9"), "of the sidecar spiffe://x/gw"},
	} {
		t.Run("verb/"+tc.name, func(t *testing.T) {
			out, err := verb(tc.addr, "", with(tc.flags, "status")...)
			if (err == nil) != (tc.want == "") || !strings.Contains(out, tc.want) {
				t.Errorf("got %v: %s", err, out)
			}
		})
	}
	for _, tc := range []struct {
		name, identity string
		flags          []string
		want           string // in its status; empty: it is served
	}{
		{"own name", "spiffe://x/gw", a.flags("spiffe://x/gw", "127.0.0.9"), ""},
		{"another name", "spiffe://x/other", a.flags("spiffe://x/gw", "127.0.0.9"), "is not a URI name of the client certificate"},
		{"certificate of another authority", "spiffe://x/gw", trusting(a, other.flags("spiffe://x/gw", "127.0.0.9")), "Unavailable"},
		{"quotad of another authority", "spiffe://x/gw", trusting(other, a.flags("spiffe://x/gw", "127.0.0.9")), "unknown authority"},
	} {
		t.Run("sidecar/"+tc.name, func(t *testing.T) {
			sub := &stack{t: t}
			sc := &sidecar{name: "sidecar-0"}
			sc.args = append([]string{
				"--identity", tc.identity, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--quotad", plane,
			}, tc.flags...)
			sc.run(t)
			if tc.want != "" {
				sub.eventually("it says why it is not served", func() bool {
					return strings.Contains(sub.status(sc).Quotad.LastError, tc.want)
				})
				if sub.metric(sc, "sluice_quotad_connected") != 0 {
					t.Error("it is connected")
				}
				return
			}
			sub.eventually("a request is answered", func() bool { return sub.chat(sc, say("tokens=3", "")).status == 200 })
		})
	}
}
