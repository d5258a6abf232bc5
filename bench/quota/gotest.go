package quota

import (
	"context"
	"time"

	"github.com/sluice-gateway/sluice/bench/measure"
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

func runLocal(ctx context.Context) (Local, error) {
	got, err := measure.GoBench(ctx, "./sidecar/lease", "BenchmarkAcquireSettle")
	return Local{time.Duration(got["ns/op"]), got["allocs/op"]}, err
}

func runRestart(ctx context.Context) (Restart, error) {
	got, err := measure.GoBench(ctx, "./quotad/internal/replica", "BenchmarkStart", "-benchtime", "3x", "-timeout", "20m")
	return Restart{time.Duration(got["ns/op"]), got["disk-B/resource"], got["heap-B/resource"]}, err
}
