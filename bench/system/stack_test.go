// Package system runs the whole of Sluice with real processes and real sockets, and takes the fake provider's word
// for what truly happened.
package system

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// wait is a generous bound on everything that is waited for: it ends a hung test, it judges nothing.
const wait = 60 * time.Second

// binariesEnv is set for processes that are part of a test.
const binariesEnv = "SLUICE_TEST_BINARIES"

var binaries string

func TestMain(m *testing.M) {
	if binaries = os.Getenv(binariesEnv); binaries != "" {
		os.Exit(m.Run()) // part of a test of a process that has built them
	}
	dir, err := os.MkdirTemp("", "sluice-system")
	if err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-o", dir+"/", "../../sidecar/cmd/sidecar", "../../quotad/cmd/quotad")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	binaries = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// long skips what takes more than a few seconds unless the whole suite is wanted (make test-system).
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_SYSTEM") == "" {
		t.Skip("long: runs with make test-system")
	}
}

const (
	providerKey = "provider-secret"
	appKey      = "sk-sluice-test-app"
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// process is one of our binaries, running.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	line string        // the ready line
}

// run starts a binary and waits for its ready line.
func run(t *testing.T, name, binary string, args ...string) *process {
	t.Helper()
	p := launch(t, name, binary, args...)
	select {
	case <-p.done:
	case <-p.ready(t):
		return p
	case <-time.After(wait):
	}
	b, _ := os.ReadFile(p.log)
	t.Fatalf("%s did not become ready:\n%s", name, b)
	return nil
}

func launch(t *testing.T, name, binary string, args ...string) *process {
	t.Helper()
	p := &process{name: name, done: make(chan struct{}), log: filepath.Join(t.TempDir(), name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(filepath.Join(binaries, binary), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			b, _ := os.ReadFile(p.log)
			if len(b) > 6000 {
				b = b[len(b)-6000:]
			}
			t.Logf("%s:\n%s", name, b)
		}
	})
	return p
}

// ready is closed once the process has printed its ready line.
func (p *process) ready(t *testing.T) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		for {
			b, err := os.ReadFile(p.log)
			if err == nil {
				for line := range strings.Lines(string(b)) {
					if strings.HasPrefix(line, strings.SplitN(p.name, "-", 2)[0]+" ready") {
						p.line = strings.TrimSpace(line)
						close(c)
						return
					}
				}
			}
			select {
			case <-p.done:
				return
			case <-t.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return c
}

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// term asks the process to stop and waits for the end.
func (p *process) term(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(wait):
		t.Fatalf("%s did not stop", p.name)
	}
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

// freePort finds a port nobody listens on, below those the system gives to outgoing connections: one of these may be
// taken before our process listens. Should that happen all the same, the tests fail loudly.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		_ = l.Close()
		return l.Addr().String()
	}
	t.Fatal("every port is taken")
	return ""
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
	sc.process = run(s.t, sc.name, "sidecar", sc.args...)
	if _, err := fmt.Sscanf(sc.line, "sidecar ready: data %s ops %s", &sc.url, &sc.ops); err != nil {
		s.t.Fatalf("ready line %q: %v", sc.line, err)
	}
	sc.url = strings.TrimSuffix(sc.url, ",")
	s.eventually(sc.name+" ready", func() bool {
		b, err := get(sc.ops + "/readyz")
		return err == nil && b == "ready\n"
	})
	s.eventually(sc.name+" connected", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })
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

// apply applies an org.yaml.
func (s *stack) apply(yaml string) {
	s.t.Helper()
	s.quotad("apply", "-f", s.written(yaml))
}

// written puts an org.yaml into a file.
func (s *stack) written(yaml string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "org.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *stack) quotad(args ...string) string { s.t.Helper(); return s.quotadIn("", args...) }

// quotadIn runs an operator verb and returns what it printed. During an election it tries again.
func (s *stack) quotadIn(stdin string, args ...string) string {
	s.t.Helper()
	var last string
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		for _, nd := range s.nodes {
			var out, errs bytes.Buffer
			cmd := exec.Command(filepath.Join(binaries, "quotad"), append(args, "--addr", "http://"+nd.admin)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
			if err := cmd.Run(); err == nil {
				return out.String()
			}
			last = out.String() + errs.String()
			if !strings.Contains(last, "leader") && !strings.Contains(last, "refused") && !strings.Contains(last, "unavailable") {
				s.t.Fatalf("quotad %s: %s", strings.Join(args, " "), last)
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	s.t.Fatalf("quotad %s: %s", strings.Join(args, " "), last)
	return ""
}

// budget is what quotad says of a team's budget, in nano-dollars.
type budget struct {
	Cap, Settled, Outstanding, Held, Suspense, Free int64
}

func (s *stack) budget(team string) budget {
	s.t.Helper()
	var out struct {
		Budgets []struct {
			Scope, Owner    string
			CapNano         int64 `json:"cap_nano,string"`
			SettledNano     int64 `json:"settled_nano,string"`
			OutstandingNano int64 `json:"outstanding_nano,string"`
			HeldNano        int64 `json:"held_nano,string"`
			SuspenseNano    int64 `json:"suspense_nano,string"`
			FreeNano        int64 `json:"free_nano,string"`
		}
	}
	s.decode(s.quotad("budget", "show", team, "-o", "json"), &out)
	for _, b := range out.Budgets {
		if b.Scope == "team" && b.Owner == team {
			return budget{b.CapNano, b.SettledNano, b.OutstandingNano, b.HeldNano, b.SuspenseNano, b.FreeNano}
		}
	}
	s.t.Fatalf("no budget of team %s", team)
	return budget{}
}

func (s *stack) decode(text string, v any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		s.t.Fatalf("%v in %s", err, text)
	}
}

// answer is what a caller got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// code is the error code of the body, "" when there is none.
func (a answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal([]byte(a.body), &e)
	return e.Error.Code
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, MaxConnsPerHost: 0}}

// call sends a body with the app's key.
func (s *stack) call(ctx context.Context, sc *sidecar, path, key, body string) answer {
	return send(ctx, client, sc.url+path, key, body)
}

func send(ctx context.Context, client *http.Client, url, key, body string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

func (s *stack) chat(sc *sidecar, body string) answer {
	return s.call(s.t.Context(), sc, "/v1/chat/completions", appKey, body)
}

// events reads a stream's data lines until its end.
func events(r io.Reader) (out []string, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if d, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			out = append(out, d)
		}
	}
	return out, in.Err()
}

// each runs n calls at once and returns their answers.
func each(n int, call func(i int) answer) []answer {
	out := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { out[i] = call(i) })
	}
	wg.Wait()
	return out
}
