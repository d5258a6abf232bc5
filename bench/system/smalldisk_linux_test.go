package system

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mountsEnv is set in the process that may mount; mountsExit is its exit code when it may not.
const (
	mountsEnv  = "SLUICE_TEST_MOUNTS"
	mountsExit = 77
)

// withMounts runs a test in a process with user and mount namespaces of its own, in which it may use disk. No root is
// needed, and what is mounted there is gone with the process. Where the kernel forbids it, the test is skipped.
func withMounts(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(mountsEnv) != "" {
		test(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), mountsEnv+"=1", binariesEnv+"="+binaries)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("the kernel gives no user namespace: %v", err)
	case err != nil && exit.ExitCode() == mountsExit:
		t.Skipf("the kernel does not let a user namespace mount a disk: %s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("nothing ran:\n%s", out)
	}
	t.Logf("%s", out)
}

// disk is an empty file system that holds size bytes.
func disk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		_, _ = os.Stderr.WriteString(err.Error()) // the reason of the skip
		os.Exit(mountsExit)
	}
	// Processes of the test hold it until they are killed, which happens later.
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill takes all of a disk's room, and returns what gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); ; {
		_, err := f.Write(block)
		if errors.Is(err, syscall.ENOSPC) && len(block) > 1 {
			block = block[:len(block)/2]
			continue
		}
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}
