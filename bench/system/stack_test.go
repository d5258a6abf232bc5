// Package system runs the whole of Sluice with real processes and real sockets, and takes the fake provider's word
// for what truly happened.
package system

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

const (
	providerKey = "provider-secret"
	appKey      = "sk-sluice-test-app"
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// stack is a running Sluice with its witness.
type stack struct {
	t        *testing.T
	fake     *fakeprovider.Server
	fakeURL  string
	nodes    []*node
	sidecars []*sidecar
}

type node struct {
	*process
	id, raft, plane, admin, dir string
	args                        []string
}

type sidecar struct {
	*process
	name, url, ops, dir string
	args                []string
}

// start brings up nodes and sidecars and applies an organisation; org gets the provider's base URL.
func start(t *testing.T, nodes, sidecars int, org func(base string) string) *stack {
	t.Helper()
	return startOn(t, make([]string, nodes), sidecars, org)
}

// startOn is start with a data directory for each node; "" is a new one.
func startOn(t *testing.T, dirs []string, sidecars int, org func(base string) string) *stack {
	t.Helper()
	s := &stack{t: t}
	s.fake = fakeprovider.New(fakeprovider.Config{
		Keys:   []fakeprovider.Key{{Name: "main", Secret: providerKey}},
		Prices: map[string]fakeprovider.Price{"*": {Input: 2_000_000_000, Output: 10_000_000_000}},
	})
	srv := httptest.NewServer(s.fake)
	t.Cleanup(func() { s.fake.Close(); srv.Close() })
	s.fakeURL = srv.URL + "/v1"
	s.startNodes(dirs)
	s.apply(org(s.fakeURL))
	s.quotadIn(providerKey, "credential", "set", "main")
	for i := range sidecars {
		s.startSidecar(fmt.Sprintf("sidecar-%d", i), filepath.Join(t.TempDir(), "data"))
	}
	return s
}

func (s *stack) startNodes(dirs []string) {
	s.t.Helper()
	key := filepath.Join(s.t.TempDir(), "seal.key")
	if err := os.WriteFile(key, []byte(sum("seal")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	var peers []string
	for i, dir := range dirs {
		if dir == "" {
			dir = filepath.Join(s.t.TempDir(), "data")
		}
		nd := &node{
			id: fmt.Sprintf("quotad-%d", i), raft: freePort(s.t), plane: freePort(s.t), admin: freePort(s.t),
			dir: dir,
		}
		s.nodes = append(s.nodes, nd)
		peers = append(peers, fmt.Sprintf("%s=%s/%s/%s", nd.id, nd.raft, nd.plane, nd.admin))
	}
	for _, nd := range s.nodes {
		nd.args = []string{
			"serve", "--dev", "--id", nd.id, "--data-dir", nd.dir, "--listen", nd.plane, "--raft-listen", nd.raft,
			"--admin-listen", nd.admin, "--key-file", key,
		}
		if len(dirs) > 1 {
			nd.args = append(nd.args, "--peers", strings.Join(peers, ","))
		}
		nd.process = run(s.t, nd.id, "quotad", nd.args...)
	}
	s.leader()
}

// leader waits for a leader that serves and returns it.
func (s *stack) leader() *node {
	s.t.Helper()
	var found *node
	s.eventually("a leader", func() bool {
		for _, nd := range s.nodes {
			if b, err := get("http://" + nd.admin + "/metrics"); err == nil && strings.Contains(b, "\nsluice_raft_leader 1\n") {
				found = nd
				return true
			}
		}
		return false
	})
	return found
}

func (s *stack) startSidecar(name, dir string) *sidecar {
	s.t.Helper()
	var planes []string
	for _, nd := range s.nodes {
		planes = append(planes, nd.plane)
	}
	sc := &sidecar{name: name, dir: dir}
	sc.args = []string{
		"--dev", "--identity", name, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", dir,
		"--quotad", strings.Join(planes, ","),
	}
	s.restart(sc)
	s.sidecars = append(s.sidecars, sc)
	return sc
}

// restart starts a sidecar, again, on its directory.
func (s *stack) restart(sc *sidecar) {
	s.t.Helper()
	sc.run(s.t)
	s.eventually(sc.name+" ready", func() bool {
		b, err := get(sc.ops + "/readyz")
		return err == nil && b == "ready\n"
	})
	s.eventually(sc.name+" connected", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })
}

// run starts the process. It may have no configuration and no session yet.
func (sc *sidecar) run(t *testing.T) {
	t.Helper()
	sc.process = run(t, sc.name, "sidecar", sc.args...)
	if _, err := fmt.Sscanf(sc.Line, "sidecar ready: data %s ops %s", &sc.url, &sc.ops); err != nil {
		t.Fatalf("ready line %q: %v", sc.Line, err)
	}
	sc.url = strings.TrimSuffix(sc.url, ",")
}

// eventually polls until something is so.
func (s *stack) eventually(what string, so func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); ; {
		if so() {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("never happened: %s", what)
		}
		select {
		case <-s.t.Context().Done():
			s.t.Fatalf("test ended while waiting for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(url string) (string, error) {
	c := http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// metric reads one metric of a sidecar, labels and all; -1 when it cannot be read.
func (s *stack) metric(sc *sidecar, name string) float64 {
	b, err := get(sc.ops + "/metrics")
	if err != nil {
		return -1
	}
	return readMetric(b, name)
}

func readMetric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			var v float64
			if _, err := fmt.Sscan(rest, &v); err == nil {
				return v
			}
		}
	}
	return -1
}

// status is what a sidecar says of itself.
func (s *stack) status(sc *sidecar) carStatus {
	s.t.Helper()
	b, err := get(sc.ops + "/status")
	if err != nil {
		s.t.Fatal(err)
	}
	return readStatus(s.t, b)
}
