package quota

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Local is admission in one sidecar: Acquire and Settle of two resources, journal included.
type Local struct {
	PerRequest time.Duration `json:"per_request"`
	Allocs     float64       `json:"allocs"`
}

// Restart is a start of a node with 1M resources of 250,000 keys in its state file.
type Restart struct {
	UntilServing time.Duration `json:"until_serving"`
	DiskBytes    float64       `json:"disk_bytes_per_resource"`
	HeapBytes    float64       `json:"heap_bytes_per_resource"`
}

// goBench runs a Go benchmark of this module and returns what it reports, by unit. These are figures of code that only
// its own package can drive.
func goBench(ctx context.Context, pkg, name string, more ...string) (map[string]float64, error) {
	args := append([]string{"test", pkg, "-run", "^$", "-bench", "^" + name + "$", "-benchmem"}, more...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s%s", strings.Join(args, " "), err, out, errs.String())
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], name) {
			continue
		}
		got := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if got[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
		}
		return got, nil
	}
	return nil, fmt.Errorf("%s does not report: %s", name, out)
}

func runLocal(ctx context.Context) (Local, error) {
	got, err := goBench(ctx, "./sidecar/lease", "BenchmarkAcquireSettle")
	return Local{time.Duration(got["ns/op"]), got["allocs/op"]}, err
}

func runRestart(ctx context.Context) (Restart, error) {
	got, err := goBench(ctx, "./quotad/internal/replica", "BenchmarkStart", "-benchtime", "3x", "-timeout", "20m")
	return Restart{time.Duration(got["ns/op"]), got["disk-B/resource"], got["heap-B/resource"]}, err
}
