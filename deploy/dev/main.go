// Command dev runs the whole of Sluice on this machine: a fake provider, quotad and sidecars, with a demo
// organisation applied. It is what `make run` and `make up` start.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"
)

//go:embed org.yaml.tmpl
var orgTemplate string

const (
	readyWait = 30 * time.Second
	stopWait  = 15 * time.Second
	fakeKey   = "fake-provider-key"
)

var errEnded = errors.New("exit status 0")

// org is what the demo organisation depends on.
type org struct {
	Fake              string
	KeySHA256         string
	OpenAI, Anthropic bool
	Upstream, Model   string
	UpstreamKey       bool
}

type stack struct {
	bin, dir        string
	nodes, sidecars int
	upstream, model string

	mu       sync.Mutex
	children []*exec.Cmd
	failed   chan error
}

func main() {
	s := &stack{failed: make(chan error, 16)}
	flag.StringVar(&s.bin, "bin", "bin", "directory of the binaries")
	flag.StringVar(&s.dir, "dir", ".dev", "directory of all data; made when absent, kept between runs")
	flag.IntVar(&s.nodes, "nodes", 1, "quotad nodes, 1 or 3")
	flag.IntVar(&s.sidecars, "sidecars", 1, "sidecars, 1 to 9")
	flag.StringVar(&s.upstream, "upstream", "", "base URL of an OpenAI-compatible server to put behind the sidecar")
	flag.StringVar(&s.model, "model", "", "its model name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := s.run(ctx)
	s.stop()
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

func (s *stack) run(ctx context.Context) error {
	if (s.upstream == "") != (s.model == "") {
		return errors.New("UPSTREAM and MODEL belong together")
	}
	if s.nodes != 1 && s.nodes != 3 {
		return errors.New("-nodes must be 1 or 3")
	}
	if s.sidecars < 1 || s.sidecars > 9 {
		return errors.New("-sidecars must be 1 to 9")
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	const fake = "127.0.0.1:9900"
	secret, err := s.demoKey()
	if err != nil {
		return err
	}
	if err := s.start("fakeprovider", "bench", "fakeprovider", "--listen", fake, "--api-key", fakeKey); err != nil {
		return err
	}
	var planes []string
	for i := range s.nodes {
		if err := s.startNode(i); err != nil {
			return err
		}
		planes = append(planes, sidecarPlane(i))
	}
	for i := range s.nodes {
		if err := s.await(ctx, "http://"+adminPlane(i)+"/readyz"); err != nil {
			return err
		}
	}
	if err := s.apply(ctx, org{Fake: fake, KeySHA256: sum(secret)}); err != nil {
		return err
	}
	for i := range s.sidecars {
		name := fmt.Sprintf("sidecar-%d", i)
		if err := s.start(name, "sidecar", "--dev", "--identity", name, "--listen", dataPlane(i), "--ops-listen", opsPlane(i),
			"--quotad", strings.Join(planes, ","), "--data-dir", filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	for i := range s.sidecars {
		if err := s.await(ctx, "http://"+opsPlane(i)+"/readyz"); err != nil {
			return err
		}
	}
	s.welcome(secret)
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

func sidecarPlane(i int) string { return fmt.Sprintf("127.0.0.1:%d", 7070+10*i) }
func raftPlane(i int) string    { return fmt.Sprintf("127.0.0.1:%d", 7071+10*i) }
func adminPlane(i int) string   { return fmt.Sprintf("127.0.0.1:%d", 7072+10*i) }
func dataPlane(i int) string    { return fmt.Sprintf("127.0.0.1:%d", 4000+10*i) }
func opsPlane(i int) string     { return fmt.Sprintf("127.0.0.1:%d", 4001+10*i) }

// startNode starts one quotad. All nodes of a cluster share the sealing key: the first one's is copied.
func (s *stack) startNode(i int) error {
	name := fmt.Sprintf("quotad-%d", i)
	key := filepath.Join(s.dir, "seal.key")
	if _, err := os.Stat(key); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(key, []byte(randomHex(32)+"\n"), 0o600); err != nil {
			return err
		}
	}
	args := []string{
		"serve", "--dev", "--id", name, "--data-dir", filepath.Join(s.dir, name), "--key-file", key,
		"--listen", sidecarPlane(i), "--raft-listen", raftPlane(i), "--admin-listen", adminPlane(i),
	}
	if s.nodes > 1 {
		var peers []string
		for j := range s.nodes {
			peers = append(peers, fmt.Sprintf("quotad-%d=%s/%s/%s", j, raftPlane(j), sidecarPlane(j), adminPlane(j)))
		}
		args = append(args, "--peers", strings.Join(peers, ","))
	}
	return s.start(name, "quotad", args...)
}

// start runs a binary with its output in a log file.
func (s *stack) start(name, binary string, args ...string) error {
	out, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	cmd := exec.Command(filepath.Join(s.bin, binary), args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C comes to us alone; we stop the rest in order
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	s.mu.Lock()
	s.children = append(s.children, cmd)
	s.mu.Unlock()
	go func() {
		err := cmd.Wait()
		select {
		case s.failed <- fmt.Errorf("%s ended: see %s: %w", name, out.Name(), cmp.Or(err, errEnded)):
		default:
		}
	}()
	return nil
}

// stop ends the children in reverse order of their start, so that sidecars can say goodbye.
func (s *stack) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.children) - 1; i >= 0; i-- {
		p := s.children[i].Process
		if p.Signal(syscall.SIGTERM) != nil {
			continue // gone already
		}
		for deadline := time.Now().Add(stopWait); p.Signal(syscall.Signal(0)) == nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				_ = p.Kill()
				break
			}
		}
	}
}

// await polls until a URL answers 200.
func (s *stack) await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready", url)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// apply writes the demo organisation, applies it, and sets the credentials.
func (s *stack) apply(ctx context.Context, o org) error {
	o.OpenAI = os.Getenv("OPENAI_API_KEY") != ""
	o.Anthropic = os.Getenv("ANTHROPIC_API_KEY") != ""
	o.Upstream, o.Model = s.upstream, s.model
	o.UpstreamKey = os.Getenv("UPSTREAM_API_KEY") != ""
	file := filepath.Join(s.dir, "org.yaml")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	t, err := template.New("org").Parse(orgTemplate)
	if err != nil {
		return err
	}
	if err := errors.Join(t.Execute(f, o), f.Close()); err != nil {
		return err
	}
	if err := s.quotad(ctx, "", "apply", "-f", file); err != nil {
		return err
	}
	secrets := []struct{ name, value string }{{"fake-openai", fakeKey}, {"fake-anthropic", fakeKey}}
	for name, env := range map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "own": "UPSTREAM_API_KEY"} {
		if v := os.Getenv(env); v != "" && (name != "own" || o.Upstream != "") {
			secrets = append(secrets, struct{ name, value string }{name, v})
		}
	}
	for _, c := range secrets {
		if err := s.quotad(ctx, c.value, "credential", "set", c.name); err != nil {
			return err
		}
	}
	return nil
}

// quotad runs an operator verb.
func (s *stack) quotad(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "quotad"), append(args, "--addr", "http://"+adminPlane(0))...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("quotad %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// demoKey is the demo application's secret, kept between runs.
func (s *stack) demoKey() (string, error) {
	file := filepath.Join(s.dir, "demo.key")
	if b, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	secret := "sk-sluice-" + randomHex(20)
	return secret, os.WriteFile(file, []byte(secret+"\n"), 0o600)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}

func sum(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

func (s *stack) welcome(secret string) {
	model := "chat"
	if s.model != "" {
		model = s.model
	}
	fmt.Printf(`Sluice is up: %d quotad, %d sidecar(s), a fake provider. Logs and data are in %s. Ctrl-C stops it.

  curl -N http://%s/v1/chat/completions \
    -H "Authorization: Bearer %s" -H "Content-Type: application/json" \
    -d '{"model": %q, "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'

  bin/quotad status                 # members, sidecars
  bin/quotad budget show demo       # to the nano-dollar
  curl -s http://%s/status       # the sidecar's own view
`, s.nodes, s.sidecars, s.dir, dataPlane(0), secret, model, opsPlane(0))
}
