package lease

import "golang.org/x/sys/unix"

// bootClock counts nanoseconds since boot, time asleep included: a lease must not outlive a suspended machine's nap.
func bootClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("BUG: no boot-time clock: " + err.Error())
	}
	return ts.Nano()
}
