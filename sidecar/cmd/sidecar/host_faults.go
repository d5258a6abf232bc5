//go:build faults

package main

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-gateway/sluice/bench/fault"
	"github.com/sluice-gateway/sluice/sidecar"
)

// host is the machine as a test makes it: its clock and its connections are bench/fault's.
func host(real sidecar.Host) sidecar.Host {
	real.Dial = fault.Dial
	real.Now = func() int64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
			panic("faults: no boot-time clock: " + err.Error())
		}
		return t.Nano() + int64(fault.Skew())
	}
	return real
}
