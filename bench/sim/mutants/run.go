package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// playMost is how long the seeds of one mutant may take. Beyond it the mutant hangs, and counts as not caught.
const playMost = 10 * time.Minute

// Caught is how the simulator found a mutant out.
type Caught struct {
	Seed   uint64
	Events int    // of that seed
	Broken string // the check, and what it saw
}

// Hunt builds the bench command with the mutant in it and plays seeds 1 to seeds, until one breaks a check. root is the
// module's. A mutant that does not apply, does not build or survives is an error.
func (m *Mutant) Hunt(ctx context.Context, root string, seeds int) (c Caught, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return c, fmt.Errorf("find the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "sluice-mutant-")
	if err != nil {
		return c, fmt.Errorf("make a directory for %s: %w", m.Name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return c, err
	}
	binary := filepath.Join(dir, "bench")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", binary, "./bench/cmd/bench")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return c, fmt.Errorf("%s does not build: %w\n%s", m.Name, err, out)
	}
	ctx, cancel := context.WithTimeout(ctx, playMost)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "sim", "--until-broken", "--seeds", strconv.Itoa(seeds)).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return c, fmt.Errorf("%s survives %d seeds: it breaks %s, and no check sees it", m.Name, seeds, m.Breaks)
	case ctx.Err() != nil, !errors.As(err, &exit):
		return c, fmt.Errorf("play %s: %w", m.Name, errors.Join(ctx.Err(), err))
	}
	for line := range strings.Lines(string(out)) {
		if n, _ := fmt.Sscanf(line, "FAIL seed %d after %d events: ", &c.Seed, &c.Events); n == 2 {
			_, c.Broken, _ = strings.Cut(strings.TrimSpace(line), "events: ")
			return c, nil
		}
	}
	return c, fmt.Errorf("%s crashed: no check caught it\n%s", m.Name, out)
}
