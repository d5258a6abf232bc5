package sidecar

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

const appKey = "sk-app"

// away is an address on which nobody listens.
func away(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

// config is a sidecar in development whose quotad is away.
func config(t *testing.T, dir string) Config {
	t.Helper()
	return Config{
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Quotad: []string{away(t)}, DataDir: dir, Identity: "gw", Dev: true,
	}.WithDefaults()
}

// seen is a sidecar whose ops endpoints are looked at.
type seen struct {
	*Sidecar
	t *testing.T
}

// opened is a sidecar that does not run. Close is the test's.
func opened(t *testing.T, cfg Config) seen {
	t.Helper()
	s, err := New(cfg, "b1", zap.NewNop())
	must(t, err)
	return seen{s, t}
}

// get asks an ops endpoint.
func (s seen) get(path string) (int, string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.opsHandler(func() { s.t.Error("drained") }).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func (s seen) wantReady(status int, text string) {
	s.t.Helper()
	if got, body := s.get("/readyz"); got != status || !strings.Contains(body, text) {
		s.t.Errorf("/readyz: %d %s, want %d %s", got, body, status, text)
	}
	if got, _ := s.get("/healthz"); got != 200 {
		s.t.Errorf("/healthz: %d", got)
	}
}

func (s seen) problems() string {
	s.t.Helper()
	code, body := s.get("/status")
	if code != 200 || !gjson.Valid(body) {
		s.t.Fatalf("/status: %d %s", code, body)
	}
	return gjson.Get(body, "problems").Raw
}

// running is a sidecar that runs until it is stopped, at the latest with the test.
type running struct {
	seen
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{seen: opened(t, cfg), stop: stop, done: make(chan error, 1)}
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

// end stops the sidecar and waits until it has given everything back.
func (r *running) end() {
	r.stop()
	if err, open := <-r.done; open {
		close(r.done)
		if err = errors.Join(err, r.Close()); err != nil {
			r.t.Error(err)
		}
	}
}

func fetch(t *testing.T, c *http.Client, method, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader([]byte(body)))
	must(t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}

// snapshot lets the application use one deployment without limits.
func snapshot(version uint64, baseURL string) *quotav1.SessionResponse {
	sum := sha256.Sum256([]byte(appKey))
	return &quotav1.SessionResponse{Message: &quotav1.SessionResponse_Snapshot{Snapshot: &quotav1.Snapshot{
		Version: version, ClusterId: "c1",
		Keys:        []*quotav1.Key{{Id: "app", Team: "red", SecretSha256: sum[:]}},
		Deployments: []*quotav1.Deployment{{Id: "d", Provider: "openai", Model: "m", BaseUrl: baseURL, UnpricedAllow: true}},
		Aliases: []*quotav1.Alias{{
			Name: "chat", MaxAttempts: 1, DefaultMaxOutput: 9, Targets: []*quotav1.Target{{Deployment: "d"}},
			Timeouts: &quotav1.Timeouts{ConnectMs: 10_000, FirstTokenMs: 60_000, IdleMs: 60_000, TotalMs: 60_000},
		}},
	}}}
}

// TestReadiness: ready means to have a configuration, from quotad or from disk, and nothing else.
func TestReadiness(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, config(t, dir))
	r.wantReady(503, "no configuration yet")
	url := "http://" + r.Addr()
	if code, body := fetch(t, http.DefaultClient, "GET", url+"/v1/models", appKey, ""); code != 503 || gjson.Get(body, "error.code").Str != "quota_unavailable" {
		t.Errorf("without a configuration: %d %s", code, body)
	}
	r.Handle(snapshot(3, "http://x"))
	r.wantReady(200, "ready") // quotad is away all the time
	if code, body := fetch(t, http.DefaultClient, "GET", url+"/v1/models", appKey, ""); code != 200 || gjson.Get(body, "data.0.id").Str != "chat" {
		t.Errorf("%d %s", code, body)
	}
	_, status := r.get("/status")
	for path, want := range map[string]string{
		"identity": "gw", "build": "b1", "config_version": "3", "draining": "false", "quotad.connected": "false", "snapshot_fault": "",
	} {
		if got := gjson.Get(status, path).String(); got != want {
			t.Errorf("/status %s is %q, want %q", path, got, want)
		}
	}
	if !strings.Contains(r.problems(), "quotad is away") {
		t.Errorf("problems %s", r.problems())
	}
	_, metrics := r.get("/metrics")
	for _, line := range []string{
		"sluice_config_version 3", "sluice_quotad_connected 0", "sluice_journal_ok 1", "sluice_open_holds 0",
		`sluice_requests_total{status="200"} 1`, `sluice_requests_total{status="503"} 1`, `sluice_refusals_total{code="quota_unavailable"} 1`,
		"sluice_double_settles_total 0", `sluice_lease_refusals_total{reason="throttled"} 0`,
	} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
	for path, want := range map[string]int{"/": 404, "/drain": 405, "/readyz": 200} {
		if code, _ := fetch(t, http.DefaultClient, "GET", "http://"+r.OpsAddr()+path, "", ""); code != want {
			t.Errorf("GET %s: %d", path, code)
		}
	}
}

// TestLastGoodConfiguration: a snapshot that cannot be understood changes nothing; the last good one is in force after
// a restart without quotad; and what is damaged on disk is not served from.
func TestLastGoodConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, config(t, dir))
	s.wantReady(503, "no configuration yet")
	s.Handle(snapshot(3, "http://x"))
	bad := snapshot(4, "http://x")
	bad.GetSnapshot().GetAliases()[0].GetTargets()[0].Deployment = "gone"
	s.Handle(bad)
	s.wantReady(200, "ready")
	if _, status := s.get("/status"); gjson.Get(status, "config_version").Int() != 3 || !strings.Contains(s.problems(), `unknown deployment \"gone\"`) {
		t.Errorf("%s", status)
	}
	s.Handle(snapshot(5, "http://x"))
	if strings.Contains(s.problems(), "gone") {
		t.Errorf("a fault that is over: %s", s.problems())
	}
	must(t, s.Close())

	s = opened(t, config(t, dir))
	s.wantReady(200, "ready")
	if h := s.Hello(); h.GetConfigVersion() != 5 || h.GetClusterId() != "c1" || h.GetIdentity() != "gw" || h.GetIncarnation() == 0 {
		t.Errorf("hello %v", h)
	}
	must(t, s.Close())

	path := filepath.Join(dir, "snapshot.pb")
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, b[:len(b)-1], 0o600))
	s = opened(t, config(t, dir))
	s.wantReady(503, "no configuration yet")
	if !strings.Contains(s.problems(), "damaged") || s.Hello().GetConfigVersion() != 0 {
		t.Errorf("problems %s", s.problems())
	}
	s.Handle(snapshot(6, "http://x")) // quotad's next one mends it
	s.wantReady(200, "ready")
	if strings.Contains(s.problems(), "damaged") {
		t.Errorf("problems %s", s.problems())
	}
	must(t, s.Close())
	s = opened(t, config(t, dir))
	s.wantReady(200, "ready")
	must(t, s.Close())
}

// TestDrain: while running requests end, the sidecar is alive and not ready; then it is gone.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*running){
		"by signal": func(r *running) { r.stop() },
		"by an operator": func(r *running) {
			if code, body := fetch(r.t, http.DefaultClient, "POST", "http://"+r.OpsAddr()+"/drain", "", ""); code != 202 {
				r.t.Errorf("/drain: %d %s", code, body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, answer := make(chan struct{}), make(chan struct{})
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(asked)
				<-answer
				_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"late"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			}))
			defer provider.Close()
			r := start(t, config(t, t.TempDir()))
			r.Handle(snapshot(3, provider.URL))
			type reply struct {
				code int
				body string
			}
			got := make(chan reply, 1)
			go func() {
				code, body := fetch(t, http.DefaultClient, "POST", "http://"+r.Addr()+"/v1/chat/completions", appKey,
					`{"model":"chat","messages":[{"role":"user","content":"hi"}]}`)
				got <- reply{code, body}
			}()
			<-asked
			r.wantReady(200, "ready")
			ask(r)
			for code := 0; code != 503; code, _ = r.get("/readyz") {
			}
			r.wantReady(503, "draining")
			if _, status := r.get("/status"); !gjson.Get(status, "draining").Bool() {
				t.Errorf("%s", status)
			}
			close(answer)
			if a := <-got; a.code != 200 || gjson.Get(a.body, "choices.0.message.content").Str != "late" {
				t.Errorf("the running request: %d %s", a.code, a.body)
			}
			r.end()
			if _, err := net.DialTimeout("tcp", r.Addr(), time.Second); err == nil {
				t.Error("it still accepts")
			}
		})
	}
}

// TestOneProcessPerDirectory: two processes must never share a journal.
func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, config(t, dir))
	if _, err := New(config(t, dir), "b1", zap.NewNop()); !errors.Is(err, lease.ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	must(t, s.Close())
	must(t, opened(t, config(t, dir)).Close())
}

func TestListenersThatCannotBe(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	for want, change := range map[string]func(*Config){
		"listen: ":           func(c *Config) { c.Listen = l.Addr().String() },
		"ops_listen: ":       func(c *Config) { c.OpsListen = l.Addr().String() },
		"unix_socket: ":      func(c *Config) { c.UnixSocket = filepath.Join(c.DataDir, "no", "such", "dir") },
		"default_key_file: ": func(c *Config) { c.DefaultKeyFile = filepath.Join(c.DataDir, "none") },
		"data directory: ":   func(c *Config) { c.DataDir = "/dev/null/x" },
	} {
		cfg := config(t, t.TempDir())
		change(&cfg)
		if _, err := New(cfg, "b1", zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestUnixSocketAndDefaultKey: callers on the socket need no key when the sidecar has one for them; a socket left by a
// killed process is no hindrance.
func TestUnixSocketAndDefaultKey(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sluice") // a socket's path must be short
	must(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	cfg := config(t, filepath.Join(dir, "data"))
	cfg.UnixSocket, cfg.DefaultKeyFile = filepath.Join(dir, "s"), filepath.Join(dir, "key")
	must(t, os.WriteFile(cfg.DefaultKeyFile, []byte(appKey+"\n"), 0o600))
	must(t, os.WriteFile(cfg.UnixSocket, nil, 0o600))
	r := start(t, cfg)
	r.Handle(snapshot(3, "http://x"))
	info, err := os.Stat(cfg.UnixSocket)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("socket %v %v", info, err)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", cfg.UnixSocket)
	}}}
	defer c.CloseIdleConnections()
	for key, want := range map[string]int{"": 200, appKey: 200, "sk-other": 503} { // quotad is away: it may be a new key
		if code, body := fetch(t, c, "GET", "http://sluice/v1/models", key, ""); code != want {
			t.Errorf("key %q: %d %s", key, code, body)
		}
	}
}

// TestTLSFiles: outside development each file of mutual TLS is checked at the start, and named.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := selfSigned(t)
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, b, 0o600))
		return path
	}
	good := TLSFiles{CA: write("ca", cert), Cert: write("cert", cert), Key: write("key", key)}
	for name, c := range map[string]struct {
		files TLSFiles
		want  string
	}{
		"good":           {good, ""},
		"no certificate": {TLSFiles{good.CA, filepath.Join(dir, "none"), good.Key}, "tls.cert, tls.key: "},
		"not its key":    {TLSFiles{good.CA, good.Cert, write("other", otherKey(t))}, "tls.cert, tls.key: "},
		"no authority":   {TLSFiles{filepath.Join(dir, "none"), good.Cert, good.Key}, "tls.ca: "},
		"an empty one":   {TLSFiles{write("empty", nil), good.Cert, good.Key}, "tls.ca: no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, t.TempDir())
			cfg.Dev, cfg.TLS = false, c.files
			if c.want == "" {
				must(t, opened(t, cfg).Close())
				return
			}
			if _, err := New(cfg, "b1", zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gw"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pemKey(t, k)
}

func otherKey(t *testing.T) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return pemKey(t, k)
}

func pemKey(t *testing.T, k *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
