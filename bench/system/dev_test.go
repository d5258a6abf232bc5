package system

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// developer is what `make run` starts, with its output.
type developer struct {
	cmd    *exec.Cmd
	out    string // a file
	done   chan struct{}
	offset int
	t      *testing.T
}

// develop starts the development stack; it is up, or has ended, when this returns.
func develop(t *testing.T, dir string, offset int, args ...string) *developer {
	t.Helper()
	d := &developer{out: filepath.Join(t.TempDir(), "out"), done: make(chan struct{}), offset: offset, t: t}
	out, err := os.Create(d.out)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	d.cmd = exec.Command(filepath.Join(binaries, "dev"), append([]string{
		"-bin", binaries, "-dir", dir, "-offset", fmt.Sprint(offset)}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in ProcessState
		close(d.done)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		<-d.done
	})
	for deadline := time.Now().Add(wait); !strings.Contains(d.said(), "Sluice is up"); {
		select {
		case <-d.done:
			return d
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("not up: %s", d.said())
		}
	}
	return d
}

func (d *developer) said() string {
	b, err := os.ReadFile(d.out)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// ends waits for the end, and for everything the stack had started.
func (d *developer) ends(code int) {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(wait):
		d.t.Fatalf("it did not end: %s", d.said())
	}
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("exit code %d, want %d: %s", got, code, d.said())
	}
	for _, port := range []int{9900, 7070, 7071, 7072, 4000, 4001} {
		address := fmt.Sprint("127.0.0.1:", port+d.offset)
		for deadline := time.Now().Add(wait); ; <-time.After(20 * time.Millisecond) {
			l, err := net.Listen("tcp", address)
			if err == nil {
				_ = l.Close()
				break
			}
			if time.Now().After(deadline) {
				d.t.Fatalf("something was left behind: %v", err)
			}
		}
	}
}

// quietOffset is an offset at which nothing listens.
func quietOffset(t *testing.T) int {
	t.Helper()
next:
	for offset := 15_000; offset < 22_000; offset += 100 {
		for _, port := range []int{9900, 7070, 7071, 7072, 4000, 4001} {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+offset))
			if err != nil {
				continue next
			}
			_ = l.Close()
		}
		return offset
	}
	t.Fatal("every port is taken")
	return 0
}

// TestDevelopmentStack: it comes up, a second one beside it is refused and told what to do, and nothing stays behind
// however it ends.
func TestDevelopmentStack(t *testing.T) {
	build := exec.Command("go", "build", "-o", binaries+"/", "../cmd/bench", "../../deploy/dev")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	offset, dir := quietOffset(t), filepath.Join(t.TempDir(), "dev")
	first := develop(t, dir, offset)
	b, err := os.ReadFile(filepath.Join(dir, "demo.key"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{t: t}
	sc := &sidecar{url: fmt.Sprint("http://127.0.0.1:", 4000+offset)}
	a := s.call(t.Context(), sc, "/v1/chat/completions", string(bytes.TrimSpace(b)), say("tokens=3", `,"stream":true`))
	if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("%d %s %v", a.status, a.body, a.err)
	}

	second := develop(t, filepath.Join(t.TempDir(), "dev"), offset)
	<-second.done
	if got := second.said(); second.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(got, "make run OFFSET=") ||
		!strings.Contains(got, fmt.Sprint("127.0.0.1:", 4000+offset)) {
		t.Errorf("a second stack: %s", got)
	}

	// Ctrl-C while a stream runs: the first one lets it end for a while, the second does not.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sc.url+"/v1/chat/completions",
		strings.NewReader(say("tokens=1000 gap=1s", `,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(b)))
	open, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	s.eventually("it stops", func() bool {
		_, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", 4000+offset), time.Second)
		return err != nil
	})
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	first.ends(0)
	_, _ = io.Copy(io.Discard, open.Body) // it was cut

	// A child that cannot start shows why, and takes the others with it.
	if err := os.RemoveAll(filepath.Join(dir, "sidecar-0")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sidecar-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := develop(t, dir, offset)
	broken.ends(1)
	if got := broken.said(); !strings.Contains(got, "sidecar-0 ended") || !strings.Contains(got, "not a directory") {
		t.Errorf("a broken child: %s", got)
	}
	if err := os.Remove(filepath.Join(dir, "sidecar-0")); err != nil {
		t.Fatal(err)
	}

	// A closed terminal.
	closed := develop(t, dir, offset)
	if err := closed.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	closed.ends(0)
}
