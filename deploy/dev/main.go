// Command dev runs the whole of Sluice on this machine: a fake provider, quotad and sidecars, with a demo
// organisation applied. It is what `make run` and `make up` start.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	readyWait = 30 * time.Second
	stopWait  = 15 * time.Second
	// restartWait leaves time to look at a cluster without the node.
	restartWait = 10 * time.Second
)

type stack struct {
	bin, dir        string
	nodes, sidecars int
	upstream, model string
	ports           ports
	children        []*child
	ended           chan *child
}

func main() {
	s := &stack{ended: make(chan *child, 16)}
	flag.StringVar(&s.bin, "bin", "bin", "directory of the binaries")
	flag.StringVar(&s.dir, "dir", ".dev", "directory of all data; made when absent, kept between runs")
	flag.IntVar(&s.nodes, "nodes", 1, "quotad nodes, 1 or 3")
	flag.IntVar(&s.sidecars, "sidecars", 1, "sidecars, 1 to 9")
	flag.IntVar((*int)(&s.ports), "offset", 0, "added to every port, so that several stacks can run side by side")
	flag.StringVar(&s.upstream, "upstream", "", "base URL of an OpenAI-compatible server to put behind the sidecar")
	flag.StringVar(&s.model, "model", "", "its model name")
	flag.Parse()
	ctx, asked := signal.NotifyContext(context.Background(), stopSignals...)
	err := s.run(ctx)
	stopped := ctx.Err() != nil
	asked() // from here on a second signal is not for us to swallow: see stop
	s.stop()
	if err != nil && !stopped {
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

// stopSignals end the stack. A terminal that is closed sends SIGHUP: what it started must not stay behind.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

func (s *stack) run(ctx context.Context) error {
	if err := s.validate(); err != nil {
		return err
	}
	if err := s.ports.free(s.nodes, s.sidecars); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	secret, err := s.demoKey()
	if err != nil {
		return err
	}
	if err := s.start("fakeprovider", "bench", "fakeprovider", "--listen", s.ports.fake(), "--api-key", fakeKey); err != nil {
		return err
	}
	var planes []string
	for i := range s.nodes {
		if err := s.startNode(i); err != nil {
			return err
		}
		planes = append(planes, s.ports.plane(i))
	}
	for i := range s.nodes {
		if err := s.await(ctx, fmt.Sprintf("quotad-%d", i), "http://"+s.ports.admin(i)+"/readyz"); err != nil {
			return err
		}
	}
	if err := s.apply(ctx, org{Fake: s.ports.fake(), KeySHA256: sum(secret)}); err != nil {
		return err
	}
	for i := range s.sidecars {
		name := fmt.Sprintf("sidecar-%d", i)
		if err := s.start(name, "sidecar", "--dev", "--identity", name, "--listen", s.ports.data(i),
			"--ops-listen", s.ports.ops(i), "--quotad", strings.Join(planes, ","),
			"--data-dir", filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	for i := range s.sidecars {
		if err := s.await(ctx, fmt.Sprintf("sidecar-%d", i), "http://"+s.ports.ops(i)+"/readyz"); err != nil {
			return err
		}
	}
	s.welcome(ctx, secret)
	return s.watch(ctx)
}

// watch waits for the end. A cluster is there to be tried: what is killed of it comes back. One of each is a stack that is
// broken without it.
func (s *stack) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-s.ended:
			if s.nodes == 1 {
				return c.failure()
			}
			fmt.Printf("%s ended (%s). It is started again in %s.\n", c.name, c.cmd.ProcessState, restartWait)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(restartWait):
			}
			if err := s.restart(c); err != nil {
				return err
			}
		}
	}
}

func (s *stack) validate() error {
	switch {
	case (s.upstream == "") != (s.model == ""):
		return errors.New("UPSTREAM and MODEL belong together: make run UPSTREAM=http://127.0.0.1:8000/v1 MODEL=my-model")
	case s.model != "" && slices.Contains((&stack{}).aliases(), aliasOf(s.model)):
		return fmt.Errorf("MODEL=%s is the name of an alias of the demo organisation: serve yours under another name", s.model)
	case s.nodes != 1 && s.nodes != 3:
		return errors.New("-nodes must be 1 or 3")
	case s.sidecars < 1 || s.sidecars > 9:
		return errors.New("-sidecars must be 1 to 9")
	}
	return s.ports.validate()
}

// startNode starts one quotad. All nodes of a cluster share the sealing key.
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
		"--listen", s.ports.plane(i), "--raft-listen", s.ports.raft(i), "--admin-listen", s.ports.admin(i),
	}
	if s.nodes > 1 {
		var peers []string
		for j := range s.nodes {
			peers = append(peers, fmt.Sprintf("quotad-%d=%s/%s/%s", j, s.ports.raft(j), s.ports.plane(j), s.ports.admin(j)))
		}
		args = append(args, "--peers", strings.Join(peers, ","))
	}
	return s.start(name, "quotad", args...)
}

func (s *stack) welcome(ctx context.Context, secret string) {
	model := "chat"
	if s.model != "" {
		model = aliasOf(s.model)
		s.checkUpstream(ctx)
	}
	var bases []string
	for i := range s.sidecars {
		bases = append(bases, "http://"+s.ports.data(i)+"/v1")
	}
	addr := ""
	if s.ports != 0 {
		addr = " --addr http://" + s.ports.admin(0)
	}
	fmt.Printf(`Sluice is up: %s, %s and a fake provider. Logs and data are in %s. Ctrl-C stops it.

  curl -N http://%s/v1/chat/completions \
    -H "Authorization: Bearer %s" -H "Content-Type: application/json" \
    -d '{"model": %q, "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'

  base URL: %s
  key:      in %s
  models:   %s

  bin/quotad status%s
  bin/quotad budget show demo%s
  curl -s http://%s/status
`, count(s.nodes, "quotad", "quotad"), count(s.sidecars, "sidecar", "sidecars"), s.dir, s.ports.data(0), secret, model,
		strings.Join(bases, " and "), filepath.Join(s.dir, "demo.key"), strings.Join(s.aliases(), " "), addr, addr, s.ports.ops(0))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
