package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tailLines is how much of a dead child's log is shown.
const tailLines = 15

// child is a binary of ours, running.
type child struct {
	name string
	args []string // the binary first
	cmd  *exec.Cmd
	log  string
	from int64         // where this run's part of the log begins
	done chan struct{} // closed when it has ended
}

// start runs a binary with its output in a log file.
func (s *stack) start(name, binary string, args ...string) error {
	c, err := s.launch(name, append([]string{binary}, args...))
	if err == nil {
		s.children = append(s.children, c)
	}
	return err
}

// restart runs a child again that has ended.
func (s *stack) restart(c *child) error {
	again, err := s.launch(c.name, c.args)
	if err == nil {
		s.children[slices.Index(s.children, c)] = again
	}
	return err
}

func (s *stack) launch(name string, args []string) (*child, error) {
	out, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	st, err := out.Stat()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, args: args, log: out.Name(), from: st.Size(), done: make(chan struct{})}
	c.cmd = exec.Command(filepath.Join(s.bin, args[0]), args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = childAttributes()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in ProcessState
		close(c.done)
		s.ended <- c
	}()
	return c, nil
}

// failure says how a child that has ended did.
func (c *child) failure() error {
	return fmt.Errorf("%s ended (%s). The end of %s:\n\n%s", c.name, c.cmd.ProcessState, c.log, c.tail())
}

// tail is the end of what the child has written in this run.
func (c *child) tail() string {
	f, err := os.Open(c.log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(f, c.from, 1<<30))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}

// stop ends the children in reverse order of their start, so that sidecars can say goodbye. A second signal kills what
// is left: somebody does not want to wait for a stream's end.
func (s *stack) stop() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, stopSignals...)
	hurry := make(chan struct{})
	go func() {
		<-again
		close(hurry)
	}()
	for _, c := range slices.Backward(s.children) {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
		select {
		case <-c.done:
			continue
		case <-hurry:
		case <-time.After(stopWait):
			fmt.Fprintf(os.Stderr, "dev: %s did not stop within %s and is killed\n", c.name, stopWait)
		}
		_ = c.cmd.Process.Kill() // it may be gone by now
		<-c.done
	}
}

// await polls until a child's URL answers 200.
func (s *stack) await(ctx context.Context, name, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		select {
		case c := <-s.ended:
			return c.failure()
		case <-ctx.Done():
			i := slices.IndexFunc(s.children, func(c *child) bool { return c.name == name })
			return fmt.Errorf("%s did not become ready within %s. The end of %s:\n\n%s", name, readyWait, s.children[i].log,
				s.children[i].tail())
		case <-time.After(50 * time.Millisecond):
		}
		if code, err := status(ctx, url); err == nil && code == http.StatusOK {
			return nil
		}
	}
}

// status asks a URL and drops its answer.
func status(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// quotad runs an operator verb.
func (s *stack) quotad(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "quotad"), append(args, "--addr", "http://"+s.ports.admin(0))...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("quotad %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
