package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// crashDirEnv makes the test binary a process that writes generations until it is killed.
const crashDirEnv = "STORE_CRASH_DIR"

const crashRecords = 50

// TestCrashChild is not a test of its own: it is what TestKilledWhileWriting runs and kills.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDirEnv)
	if dir == "" {
		return
	}
	s, err := Open(Config{Dir: dir, NodeID: "a"}, zap.NewNop())
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	for index := s.State().Applied() + 1; ; index++ {
		// Every record says which entry wrote it, so that a mixture shows.
		v := []byte(strconv.FormatUint(index, 10))
		records := make([]Record, crashRecords)
		for i := range records {
			records[i] = Record{Key: fmt.Sprintf("k/%d", i), Value: v}
		}
		s.State().Append(index, records)
		if err := s.State().Flush(); err != nil {
			t.Fatalf("Flush: %v", err)
		}
		fmt.Fprintln(os.Stdout, "written", index)
	}
}

func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		written := runAndKill(t, dir, 3+7*round)
		s := openStore(t, dir) // the lock went with the process
		applied := s.State().Applied()
		if applied < written {
			t.Fatalf("round %d: the file stands at %d, %d was reported written", round, applied, written)
		}
		got := contents(t, s.State())
		if len(got) != crashRecords {
			t.Fatalf("round %d: %d records, want %d", round, len(got), crashRecords)
		}
		for k, v := range got {
			if v != strconv.FormatUint(applied, 10) {
				t.Fatalf("round %d: %s is of entry %s, the file stands at %d", round, k, v, applied)
			}
		}
		abandon(t, s)
	}
}

// runAndKill lets the child write some generations, kills it in the middle of its work, and returns the last one it
// reported.
func runAndKill(t *testing.T, dir string, generations int) (last uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
	cmd.Env = append(os.Environ(), crashDirEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n, ok := strings.CutPrefix(lines.Text(), "written ")
		if !ok {
			t.Errorf("child: %s", lines.Text())
			continue
		}
		if last, err = strconv.ParseUint(n, 10, 64); err != nil {
			t.Fatal(err)
		}
		if generations--; generations == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("child ended by itself: %v", err)
	}
	return last
}
