package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-gateway/sluice/bench/program"
)

// binariesEnv is set for processes that are part of a test.
const binariesEnv = "SLUICE_TEST_BINARIES"

var binaries string

func TestMain(m *testing.M) {
	if binaries = os.Getenv(binariesEnv); binaries != "" {
		os.Exit(m.Run()) // part of a test of a process that has built them
	}
	program.Main(m, &binaries)
}

// long skips what takes more than a few seconds unless the whole suite is wanted (make test-system).
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_SYSTEM") == "" {
		t.Skip("long: runs with make test-system")
	}
}

const wait = program.Wait

type process = program.Process

// run starts a binary and waits for its ready line.
func run(t *testing.T, name, binary string, args ...string) *process {
	t.Helper()
	p := launch(t, name, binary, args...)
	p.Await(t)
	return p
}

func launch(t *testing.T, name, binary string, args ...string) *process {
	t.Helper()
	return program.Start(t, name, exec.Command(filepath.Join(binaries, binary), args...))
}

func freePort(t *testing.T) string {
	t.Helper()
	return program.FreePort(t)
}
