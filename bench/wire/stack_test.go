package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/program"
)

const (
	wait   = program.Wait
	appKey = "sk-sluice-wire"
)

var binaries string

func TestMain(m *testing.M) { program.Main(m, &binaries) }

// run starts a binary and waits for its ready line.
func run(t *testing.T, binary string, args ...string) *program.Process {
	t.Helper()
	p := program.Start(t, binary, exec.Command(filepath.Join(binaries, binary), args...))
	p.Await(t)
	return p
}

func itoa(n int) string { return strconv.Itoa(n) }

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// stack is a quotad and a sidecar.
type stack struct {
	t               *testing.T
	quotad, sidecar *program.Process
	plane, admin    string
	url, ops        string // of the sidecar
	client          *http.Client
	missing         map[string]bool // dialects and providers that the sidecar does not have
}

// start brings both up with an organisation and the secrets of its credentials.
func start(t *testing.T, org string, secrets map[string]string) *stack {
	t.Helper()
	s := &stack{t: t, plane: program.FreePort(t), admin: program.FreePort(t), client: &http.Client{Timeout: wait}}
	dir := t.TempDir()
	key, file := filepath.Join(dir, "seal.key"), filepath.Join(dir, "org.yaml")
	if err := os.WriteFile(key, []byte(sum("seal")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(org), 0o600); err != nil {
		t.Fatal(err)
	}
	s.quotad = run(t, "quotad", "serve", "--dev", "--id", "q", "--data-dir", filepath.Join(dir, "q"), "--listen", s.plane,
		"--raft-listen", program.FreePort(t), "--admin-listen", s.admin, "--key-file", key)
	s.eventually("a leader", func() bool { return strings.Contains(get("http://"+s.admin+"/metrics"), "\nsluice_raft_leader 1\n") })
	s.verb("", "apply", "-f", file)
	for name, secret := range secrets {
		s.verb(secret, "credential", "set", name)
	}
	s.sidecar = run(t, "sidecar", "--dev", "--identity", "wire", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(dir, "s"), "--quotad", s.plane)
	if _, err := fmt.Sscanf(s.sidecar.Line, "sidecar ready: data %s ops %s", &s.url, &s.ops); err != nil {
		t.Fatalf("ready line %q: %v", s.sidecar.Line, err)
	}
	s.url = strings.TrimSuffix(s.url, ",")
	s.eventually("the configuration", func() bool { return get(s.ops+"/readyz") == "ready\n" })
	s.eventually("the sidecar's session", func() bool { return strings.Contains(get(s.ops+"/metrics"), "\nsluice_quotad_connected 1\n") })
	return s
}

// launch brings up a stack with an organisation of targets, waits until the sidecar has their secrets, and finds out what
// it does not have.
func launch(t *testing.T, p *provider, targets []target, chains map[string][2]string) *stack {
	t.Helper()
	probes := map[string]target{}
	for _, x := range targets {
		name := "probe-" + x.provider
		probes[x.provider] = target{name, p.base(name), x.deployment}
		p.will(name, play{raw: answer("503 Busy", "application/json", "{}")})
	}
	for _, probe := range probes {
		targets = append(targets, probe)
	}
	org, secrets := organisation(targets, chains)
	s := start(t, org, secrets)
	s.missing = map[string]bool{}
	for _, d := range dialects() {
		if got := s.do(t, d.path, "{}"); got.status == http.StatusNotFound {
			s.missing[d.name] = true
		}
	}
	plain := &fixture{}
	for name, probe := range probes {
		s.eventually("an answer of "+name, func() bool {
			s.do(t, "/v1/chat/completions", chatBody(plain, probe.name, false))
			s.missing[name] = strings.Contains(s.sidecar.Text(), fmt.Sprintf(`provider \"%s\" is not known to this version`, name))
			return s.missing[name] || len(p.requests(probe.name)) > 0
		})
	}
	for name, is := range s.missing {
		if is {
			t.Logf("MISSING: the sidecar has no %s", name)
		}
	}
	return s
}

// verb runs an operator verb.
func (s *stack) verb(stdin string, args ...string) string {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(binaries, "quotad"), append(args, "--addr", "http://"+s.admin)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("quotad %s: %v\n%s%s", args[0], err, &out, &errs)
	}
	return out.String()
}

func (s *stack) eventually(what string, so func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); !so(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never happened: %s", what)
		}
	}
}

func get(url string) string {
	c := http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
