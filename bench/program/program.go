// Package program runs our programs for tests: it builds them, starts them, waits until they are ready, and ends them.
package program

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Wait is a generous bound on everything that is waited for: it ends a hung test, it judges nothing.
const Wait = 60 * time.Second

// Main is the body of a TestMain: it builds sidecar and quotad into a folder, hands that out, and runs the tests.
func Main(m *testing.M, dir *string) {
	var err error
	if *dir, err = os.MkdirTemp("", "sluice-test"); err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-o", *dir+"/", "../../sidecar/cmd/sidecar", "../../quotad/cmd/quotad")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(*dir)
	os.Exit(code)
}

// Process is a program that was started.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Log  string        // the file with all that it wrote
	Done chan struct{} // closed when it has ended
	Line string        // the ready line
}

// Start starts a command. It is killed at the end of the test; of one that failed the log's end is shown.
func Start(t *testing.T, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Name: name, Cmd: cmd, Done: make(chan struct{}), Log: filepath.Join(t.TempDir(), name+".log")}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.Done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			const most = 6000
			text := p.Text()
			t.Logf("%s:\n%s", name, text[max(0, len(text)-most):])
		}
	})
	return p
}

// Await waits for the ready line, which begins with the program's name: the process's own, up to a hyphen.
func (p *Process) Await(t *testing.T) {
	t.Helper()
	program, _, _ := strings.Cut(p.Name, "-")
	for deadline := time.Now().Add(Wait); time.Now().Before(deadline); {
		for line := range strings.Lines(p.Text()) {
			if strings.HasPrefix(line, program+" ready") && strings.HasSuffix(line, "\n") {
				p.Line = strings.TrimSpace(line)
				return
			}
		}
		select {
		case <-p.Done:
			t.Fatalf("%s ended before it was ready:\n%s", p.Name, p.Text())
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("%s did not become ready:\n%s", p.Name, p.Text())
}

// Text is what the process wrote so far.
func (p *Process) Text() string {
	b, _ := os.ReadFile(p.Log)
	return string(b)
}

// Dead says whether it has ended.
func (p *Process) Dead() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to a process that runs.
func (p *Process) Signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
}

// Kill is kill -9, and waits for the end.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Done
}

// Term asks the process to stop and waits for the end.
func (p *Process) Term(t *testing.T) {
	t.Helper()
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Done:
	case <-time.After(Wait):
		t.Fatalf("%s did not stop", p.Name)
	}
}

// FreePort finds a port nobody listens on, below those the system gives to outgoing connections: one of these may be
// taken before our process listens. It is not found twice. Should it be taken all the same, the tests fail loudly.
func FreePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		_ = l.Close()
		if _, given := portsGiven.LoadOrStore(l.Addr().String(), true); given {
			continue
		}
		return l.Addr().String()
	}
	t.Fatal("every port is taken")
	return ""
}

// portsGiven are those that FreePort has found, and whoever asked may not listen on yet.
var portsGiven sync.Map
