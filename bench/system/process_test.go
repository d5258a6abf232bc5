package system

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
	p.await(t)
	return p
}

// await waits for the ready line.
func (p *process) await(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-p.ready(t):
		return
	case <-time.After(wait):
	}
	b, _ := os.ReadFile(p.log)
	t.Fatalf("%s did not become ready:\n%s", p.name, b)
}

func launch(t *testing.T, name, binary string, args ...string) *process {
	t.Helper()
	return begin(t, name, exec.Command(filepath.Join(binaries, binary), args...))
}

// begin starts a command.
func begin(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, done: make(chan struct{}), log: filepath.Join(t.TempDir(), name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = cmd
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

// freePort finds a port nobody listens on, below those the system gives to outgoing connections: one of these may be
// taken before our process listens. It is not found twice. Should it be taken all the same, the tests fail loudly.
func freePort(t *testing.T) string {
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

// portsGiven are those that freePort has found, and whoever asked may not listen on yet.
var portsGiven sync.Map
