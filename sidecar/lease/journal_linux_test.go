package lease

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// The test binary is also the process that is killed: childEnv says what it shall do, dirEnv where.
const (
	childEnv = "LEASE_TEST_CHILD"
	dirEnv   = "LEASE_TEST_DIR"
	markEnv  = "LEASE_TEST_MARKS"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(runTests(m))
	case "spend":
		childSpends(os.Getenv(dirEnv))
	case "close":
		childCloses(os.Getenv(dirEnv))
	case "full":
		childOnFullDisk(os.Getenv(dirEnv))
	}
	os.Exit(0)
}

// runTests keeps the marks of all tests in one place that goes with them.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lease-marks")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	if err := os.Setenv(markEnv, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// onDisk is a client's configuration.
func onDisk(dir string) Config {
	return Config{Dir: dir, MarkDir: os.Getenv(markEnv), SegmentBytes: segmentBytesMin}
}

func child(t *testing.T, what, dir string) (*exec.Cmd, io.ReadCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what, dirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func open(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := New(onDisk(dir), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// childSpends reserves and settles for ever, and says so after each step: "r 5" or "s 5 105".
func childSpends(dir string) {
	c, err := New(onDisk(dir), zap.NewNop())
	if err != nil {
		fmt.Fprintln(os.Stdout, "fault", err)
		return
	}
	rich(c)
	var holds [3]Hold
	for i := 0; ; i++ {
		if i >= len(holds) {
			used := int64(100 + i%7)
			c.Settle(holds[i%len(holds)], []Need{need(1, 1), need(3, used)})
			fmt.Fprintln(os.Stdout, "s", i-len(holds), used)
		}
		h, v := c.Acquire(nil, 0, Share, []Need{need(1, 1), need(3, 1000)}, []byte(strconv.Itoa(i)))
		if !v.OK {
			fmt.Fprintf(os.Stdout, "fault %+v\n", v)
			return
		}
		holds[i%len(holds)] = h
		fmt.Fprintln(os.Stdout, "r", i)
		c.mu.Lock()
		enrich(c.m)
		c.mu.Unlock()
	}
}

// TestKill9 kills a real process at many points. Its successor must know every step that the process had finished,
// and at most the one more that it was in.
func TestKill9(t *testing.T) {
	for _, steps := range []int{1, 2, 7, 50, 333, 1000, 2500} { // a segment holds about 250 steps
		t.Run(strconv.Itoa(steps), func(t *testing.T) {
			dir := t.TempDir()
			cmd, out := child(t, "spend", dir)
			lines := bufio.NewScanner(out)
			reserved, settled, spent := map[string]bool{}, map[string]bool{}, int64(0)
			var all []string
			for lines.Scan() {
				all = append(all, lines.Text())
				if len(all) == steps {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			_ = cmd.Wait() // killed
			for _, line := range all {
				f := strings.Fields(line)
				switch f[0] {
				case "r":
					reserved[f[1]] = true
				case "s":
					n, err := strconv.ParseInt(f[2], 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					settled[f[1]] = true
					spent += n
				default:
					t.Fatal(line)
				}
			}
			c := open(t, dir)
			if s := c.Stats(); !s.Journal.OK || s.PendingFinals != 1 {
				t.Fatalf("stats %+v", s)
			}
			f := c.m.finals[0].msg
			if !f.Proven || f.Seq != 1 {
				t.Fatalf("final %v", f)
			}
			lost := map[string]bool{}
			for _, l := range c.Predecessor() {
				lost[string(l.Note)] = true
				if len(l.Needs) != 2 || l.Needs[1] != (need(3, 1000)) {
					t.Fatalf("lost %+v", l)
				}
			}
			extra := 0
			for i := range reserved {
				switch {
				case settled[i] && lost[i]:
					t.Fatalf("settle of %s is lost", i)
				case !settled[i] && !lost[i]:
					extra++ // settled, and killed before it said so
					spent += 106
				}
			}
			for i := range lost {
				if !reserved[i] {
					extra++
				}
			}
			if extra > 1 {
				t.Fatalf("%d steps beyond what was said, want at most 1", extra)
			}
			want := spent + int64(len(lost))*1000
			if got := f.Counters[1].Spent; got > want || got < want-6 {
				t.Fatalf("spent %d, want %d", got, want)
			}
			if c.m.shares[1] != 600 || c.m.standbyUntil == 0 {
				t.Fatal("the standing share was not inherited")
			}
		})
	}
}

// childCloses spends of a run for ever, seven at a time, and closes its counter after every five: "s" and "c".
func childCloses(dir string) {
	c, err := New(onDisk(dir), zap.NewNop())
	if err != nil {
		fmt.Fprintln(os.Stdout, "fault", err)
		return
	}
	rich(c)
	c.Configure([]*quotav1.Resource{runOf(runID, 1_000_000_000)})
	begin := func() *counter {
		r := c.m.one(c.m.resources[runID], "r1")
		r.current = c.m.addCounter(r, counterKey{1001, 0})
		r.current.granted = 1 << 40
		return r.current
	}
	for run := begin(); ; run = begin() {
		for range 5 {
			h, v := c.Acquire(nil, 0, Share, []Need{named(runID, "r1", 100)}, nil)
			if !v.OK {
				fmt.Fprintf(os.Stdout, "fault %+v\n", v)
				return
			}
			c.Settle(h, []Need{need(runID, 7)})
			fmt.Fprintln(os.Stdout, "s")
		}
		c.m.close(run)
		c.m.dropCounter(run)
		c.m.forgetGone()
		fmt.Fprintln(os.Stdout, "c")
	}
}

// TestKill9BesideAClose: what a closed counter had spent is not said of the one that began after it.
func TestKill9BesideAClose(t *testing.T) {
	for _, steps := range []int{4, 6, 11, 500, 1500} {
		t.Run(strconv.Itoa(steps), func(t *testing.T) {
			dir := t.TempDir()
			cmd, out := child(t, "close", dir)
			lines := bufio.NewScanner(out)
			settled := int64(0)
			for n := 1; lines.Scan(); n++ {
				switch lines.Text() {
				case "s":
					settled++
				case "c":
					settled = 0
				default:
					t.Fatal(lines.Text())
				}
				if n == steps {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			_ = cmd.Wait() // killed
			f := open(t, dir).m.finals[0].msg
			got := int64(0)
			for _, k := range f.Counters {
				if k.Resource == 1001 {
					got = k.Spent
				}
			}
			// It may have been in the next step: a reservation, its settle, or the close.
			if want := 7 * settled; !f.Proven || got != want && got != want+7 && got != want+100 && (got != 0 || settled != 5) {
				t.Fatalf("proven %v, spent %d, want %d", f.Proven, got, want)
			}
		})
	}
}

func TestLostAcrossTwoDeaths(t *testing.T) {
	dir := t.TempDir()
	spend := func(done bool) uint64 {
		c, err := New(onDisk(dir), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if done {
			for _, f := range c.m.finals {
				c.HandleFileFinalReply(&quotav1.FileFinalReply{Incarnation: f.msg.Incarnation, Done: true})
			}
		}
		rich(c)
		c.Acquire(nil, 0, Share, []Need{need(3, 10)}, []byte("n"))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return c.Incarnation()
	}
	a, b := spend(false), spend(false)
	c := open(t, dir)
	if len(c.m.finals) != 2 || c.m.finals[0].msg.Incarnation != a || c.m.finals[1].msg.Incarnation != b {
		t.Fatalf("finals %v, want both dead processes", c.m.finals)
	}
	if len(c.Predecessor()) != 1 {
		t.Fatalf("lost holds %v, want the last process's one", c.Predecessor())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	d := spend(true)
	if last := open(t, dir); len(last.m.finals) != 1 || last.m.finals[0].msg.Incarnation != d {
		t.Fatalf("finals %v, want only the one that was not filed", last.m.finals)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	cmd, out := child(t, "spend", dir)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, err := New(onDisk(dir), zap.NewNop())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v, want ErrLocked and the directory", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	open(t, dir)
}

func childOnFullDisk(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	limit := unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Fprintln(os.Stdout, "fault", err)
		return
	}
	c, err := New(onDisk(dir), zap.NewNop())
	if err != nil {
		fmt.Fprintln(os.Stdout, "fault", err)
		return
	}
	rich(c)
	h, v := c.Acquire(nil, 0, Share, []Need{need(3, 10)}, []byte("n"))
	c.Settle(h, nil)
	s := c.Stats()
	fmt.Fprintln(os.Stdout, v.OK, s.Journal.OK, s.PendingFinals, strings.Contains(s.Journal.Why, "allocate"))
}

// TestFullDisk: without room for the journal the client goes on, and what the predecessor left is still filed.
func TestFullDisk(t *testing.T) {
	for name, before := range map[string]bool{"at the first start": false, "after a predecessor": true} {
		t.Run(name, func(t *testing.T) {
			dir, want := t.TempDir(), "true false 0 true"
			if before {
				c, err := New(onDisk(dir), zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				rich(c)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(filepath.Join(dir, "journal.1")); err != nil {
					t.Fatal(err)
				}
				want = "true false 1 true"
			}
			cmd, out := child(t, "full", dir)
			text, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its words count
			if got := strings.TrimSpace(string(text)); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		})
	}
}

func TestNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, filepath.Join(file, "sub"))
	rich(c)
	if s := c.Stats(); s.Journal.OK || s.Journal.Why == "" {
		t.Fatalf("got %+v", s.Journal)
	}
	if _, v := c.Acquire(nil, 0, Share, []Need{need(3, 10)}, []byte("n")); !v.OK {
		t.Fatalf("got %+v", v)
	}
}

// TestFileCutUnderTheMapping: a fault in the mapping ends the journal and not the process, and no successor takes the
// rest for the truth.
func TestFileCutUnderTheMapping(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	rich(c)
	for _, name := range []string{"journal.0", "journal.1"} {
		if err := os.Truncate(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	h, v := c.Acquire(nil, 0, Share, []Need{need(3, 10)}, []byte("n"))
	if !v.OK {
		t.Fatalf("got %+v", v)
	}
	c.Settle(h, []Need{need(3, 7)})
	if s := c.Stats(); s.Journal.OK || s.Journal.Why != "memory fault" || s.Counters[1].Spent != 7 {
		t.Fatalf("got %+v", s)
	}
	if _, err := os.Stat(filepath.Join(dir, "journal.0")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the broken journal is still there: %v", err)
	}
}

// TestRolledBackOrCopied: an older state of the file carries an older seq, which quotad does not refund; a copy proves
// nothing.
func TestRolledBackOrCopied(t *testing.T) {
	files := []string{"journal.0", "journal.1"}
	dir, other := t.TempDir(), t.TempDir()
	c, err := New(onDisk(dir), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	rich(c)
	var saved [2][]byte
	for i, name := range files {
		if saved[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	rich(c) // another renew
	c.Acquire(nil, 0, Share, []Need{need(3, 10)}, nil)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for i, name := range files {
		if err := os.WriteFile(filepath.Join(other, name), saved[i], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(saved[i], 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if back := open(t, dir); back.m.finals[0].msg.Seq != 1 {
		t.Fatalf("rolled back: %v, want seq 1, which quotad knows to be old", back.m.finals[0].msg)
	}
	copied := open(t, other)
	if copied.m.finals[0].msg.Proven || len(copied.m.shares) != 0 {
		t.Fatalf("copied: %v, shares %v, want nothing proven", copied.m.finals[0].msg, copied.m.shares)
	}
}
