package system

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// papers are the certificate files of one process, which are replaced while it runs.
type papers struct {
	t             *testing.T
	uri           string
	ca, cert, key string
}

func newPapers(t *testing.T, uri string) *papers {
	dir := t.TempDir()
	return &papers{t: t, uri: uri, ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
}

func (p *papers) flags() []string {
	return []string{"--tls-ca", p.ca, "--tls-cert", p.cert, "--tls-key", p.key}
}

// replace puts a file in the place of another at once, as rotation tools do.
func (p *papers) replace(path string, b []byte) {
	p.t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// trust sets whom the process trusts.
func (p *papers) trust(authorities ...*authority) {
	p.t.Helper()
	var bundle []byte
	for _, a := range authorities {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	p.replace(p.ca, bundle)
}

// issue gives the process a certificate of an authority.
func (p *papers) issue(a *authority) {
	p.t.Helper()
	u, err := url.Parse(p.uri)
	a.must(err)
	der, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{u},
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	p.replace(p.key, pemKey(a, key))
	p.replace(p.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func pemKey(a *authority, key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	a.must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestAuthorityIsReplaced: three nodes and a sidecar go over to another authority in the usual steps, while requests and
// a long stream run. Not one request fails, and nothing is restarted for it. Nodes that are restarted later find each
// other with the new certificates, and the old ones are refused. A broken file is reported and changes nothing.
func TestAuthorityIsReplaced(t *testing.T) {
	long(t)
	before, after := newAuthority(t), newAuthority(t)
	s := &stack{t: t, fake: fakeprovider.New(fakeprovider.Config{
		Keys:   []fakeprovider.Key{{Name: "main", Secret: providerKey}},
		Prices: map[string]fakeprovider.Price{"*": {Input: 2_000_000_000, Output: 10_000_000_000}},
	})}
	srv := httptest.NewServer(s.fake)
	t.Cleanup(func() { s.fake.Close(); srv.Close() })
	seal := filepath.Join(t.TempDir(), "seal.key")
	before.must(os.WriteFile(seal, []byte(sum("seal")+"\n"), 0o600))

	var all []*papers
	issued := func(uri string) *papers {
		p := newPapers(t, uri)
		p.trust(before)
		p.issue(before)
		all = append(all, p)
		return p
	}
	var peers []string
	for i := range 3 {
		nd := &node{
			id: fmt.Sprintf("quotad-%d", i), raft: freePort(t), plane: freePort(t), admin: freePort(t), dir: filepath.Join(t.TempDir(), "data"),
		}
		s.nodes = append(s.nodes, nd)
		peers = append(peers, fmt.Sprintf("%s=%s/%s/%s", nd.id, nd.raft, nd.plane, nd.admin))
	}
	for _, nd := range s.nodes {
		nd.args = append([]string{
			"serve", "--id", nd.id, "--data-dir", nd.dir, "--listen", nd.plane, "--raft-listen", nd.raft, "--admin-listen", nd.admin,
			"--key-file", seal, "--peers", strings.Join(peers, ","),
		}, issued("spiffe://x/quotad/"+nd.id).flags()...)
		nd.process = run(t, nd.id, "quotad", nd.args...)
	}
	operator := issued("spiffe://x/ops/ann")
	verb := func(p *papers, stdin string, args ...string) (string, error) {
		var last string
		var err error
		for _, nd := range s.nodes {
			cmd := exec.Command(filepath.Join(binaries, "quotad"), append(append(args, "--addr", nd.admin), p.flags()...)...)
			cmd.Stdin = strings.NewReader(stdin)
			var b []byte
			if b, err = cmd.CombinedOutput(); err == nil {
				return string(b), nil
			}
			last = string(b)
		}
		return last, err
	}
	file := s.written(org(srv.URL+"/v1", "{ monthly: 100 }", "{ rpm: 600000 }") + "sidecars:\n  - { identity: \"spiffe://x/gw\", teams: [t] }\n")
	s.eventually("the organisation is applied", func() bool {
		_, err := verb(operator, "", "apply", "-f", file)
		return err == nil
	})
	if out, err := verb(operator, providerKey, "credential", "set", "main"); err != nil {
		t.Fatal(out)
	}
	sc := &sidecar{name: "sidecar-0"}
	gw := issued("spiffe://x/gw")
	sc.args = append([]string{
		"--identity", "spiffe://x/gw", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", t.TempDir(),
		"--quotad", s.nodes[0].plane + "," + s.nodes[1].plane + "," + s.nodes[2].plane,
	}, gw.flags()...)
	sc.run(t)
	s.sidecars = append(s.sidecars, sc)
	s.eventually("a request is answered", func() bool { return s.chat(sc, say("tokens=3", "")).status == 200 })

	var stop atomic.Bool
	var callers sync.WaitGroup
	var served atomic.Int64
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				if a := s.chat(sc, say("tokens=3 first=10ms", "")); a.status != 200 {
					t.Errorf("a request failed: %d %s %v", a.status, a.body, a.err)
					return
				}
				served.Add(1)
			}
		})
	}
	// Until everybody has read its files, as its metrics tell.
	reads := 0
	reread := func(what string) {
		t.Helper()
		for _, nd := range s.nodes {
			_ = nd.Cmd.Process.Signal(syscall.SIGHUP)
		}
		_ = sc.Cmd.Process.Signal(syscall.SIGHUP)
		procs := []*process{sc.process}
		for _, nd := range s.nodes {
			procs = append(procs, nd.process)
		}
		reads++
		for _, p := range procs {
			s.eventually(p.Name+" has read "+what, func() bool {
				b, _ := os.ReadFile(p.Log)
				return bytes.Count(b, []byte("certificates were read again")) >= reads
			})
		}
		s.eventually("requests go on", func() bool { n := served.Load(); return n > 0 && s.chat(sc, say("tokens=1", "")).status == 200 })
	}
	for _, p := range all {
		p.trust(before, after)
	}
	reread("that both authorities are trusted")
	for _, p := range all {
		p.issue(after)
	}
	reread("the new certificates")
	old := newPapers(t, "spiffe://x/ops/bob")
	old.trust(before, after)
	old.issue(before)
	if out, err := verb(old, "", "status"); err != nil {
		t.Errorf("a certificate of the old authority, while both are trusted: %s", out)
	}
	for _, p := range all {
		p.trust(after)
	}
	reread("that only the new one is trusted")
	if out, err := verb(old, "", "status"); err == nil {
		t.Errorf("a certificate of the old authority is served: %s", out)
	}
	if out, err := verb(operator, "", "status"); err != nil {
		t.Errorf("a new one is not: %s", out)
	}

	// Every node is restarted, one at a time: each finds the others, and the sidecar the leader.
	for _, nd := range s.nodes {
		nd.Term(t)
		nd.process = run(t, nd.id, "quotad", nd.args...)
		s.eventually(nd.id+" is back", func() bool {
			out, err := verb(operator, "", "member", "list")
			return err == nil && !strings.Contains(out, "silent") && strings.Count(out, "voter")+strings.Count(out, "leader") == 3
		})
	}
	s.eventually("the sidecar is connected", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })

	// A broken file.
	gw.replace(gw.cert, []byte("not a certificate\n"))
	s.eventually("the sidecar says so", func() bool {
		b, err := get(sc.ops + "/status")
		return err == nil && strings.Contains(b, "new certificate files are not used: tls.cert, tls.key")
	})
	for i, nd := range s.nodes {
		p := all[i]
		p.replace(p.key, []byte("-----BEGIN EC PRIVATE KEY-----\n"))
		s.eventually(nd.id+" says so", func() bool {
			cmd := exec.Command(filepath.Join(binaries, "quotad"), append([]string{"status", "-o", "json", "--addr", nd.admin}, operator.flags()...)...)
			b, err := cmd.Output()
			if err != nil {
				return false
			}
			log, _ := os.ReadFile(nd.Log)
			return bytes.Contains(log, []byte("the old ones stay")) && len(b) > 0
		})
	}
	if out, err := verb(operator, "", "status"); err != nil || !strings.Contains(out, "new certificate files are not used") {
		t.Errorf("status: %v %s", err, out)
	}
	if a := s.chat(sc, say("tokens=3", "")); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, p := range all {
		p.issue(after)
	}
	s.eventually("mended, it says nothing more", func() bool {
		out, err := verb(operator, "", "status")
		return err == nil && !strings.Contains(out, "not used")
	})
	stop.Store(true)
	callers.Wait()
	t.Logf("%d requests", served.Load())
}

// TestOperatorsAreNamed: with admin.operators set, a certificate of the authority alone does not open the admin plane.
func TestOperatorsAreNamed(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	seal, config, admin := filepath.Join(dir, "seal.key"), filepath.Join(dir, "quotad.yaml"), freePort(t)
	a.must(os.WriteFile(seal, []byte(sum("seal")+"\n"), 0o600))
	a.must(os.WriteFile(config, []byte("admin:\n  operators:\n    - spiffe://x/ops/*\n    - spiffe://x/ci\n"), 0o600))
	run(t, "quotad-0", "quotad", append([]string{
		"serve", "--config", config, "--data-dir", filepath.Join(dir, "data"), "--listen", freePort(t), "--raft-listen", freePort(t),
		"--admin-listen", admin, "--key-file", seal,
	}, a.flags("spiffe://x/quotad/quotad-0", "127.0.0.1")...)...)
	s := &stack{t: t}
	for _, tt := range []struct {
		uri string
		ok  bool
	}{
		{"spiffe://x/ops/ann", true},
		{"spiffe://x/ci", true},
		{"spiffe://x/ops/ann/more", false},
		{"spiffe://x/app", false},
		{"spiffe://x/quotad/quotad-0", false},
	} {
		flags := a.flags(tt.uri, "127.0.0.9")
		for _, args := range [][]string{{"status"}, {"backup", "-o", filepath.Join(t.TempDir(), "b")}, {"restore", config}} {
			s.eventually(tt.uri+" is judged at "+args[0], func() bool {
				b, err := exec.Command(filepath.Join(binaries, "quotad"), append(append(args, "--addr", admin), flags...)...).CombinedOutput()
				out := string(b)
				switch {
				case strings.Contains(out, "no leader"):
					return false // it was just started
				case !tt.ok && !strings.Contains(out, "is not an operator's"), tt.ok && strings.Contains(out, "is not an operator's"):
					t.Errorf("%s %s: %v %s", tt.uri, args[0], err, out)
				}
				return true
			})
		}
	}
}
