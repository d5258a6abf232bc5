//go:build faults

// Package fault is described in off.go.
package fault

import "github.com/sluice-gateway/sluice/bench/fault"

// See off.go.
var (
	Pass  = fault.Pass
	Now   = fault.Now
	Wall  = fault.Wall
	Often = fault.Often
	Dial  = fault.Dial
)
