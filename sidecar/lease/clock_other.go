//go:build !linux

package lease

import "time"

var processStart = time.Now() // never changed

// bootClock counts from the start of the process. Where the system's monotonic clock stops during sleep, so does this.
func bootClock() int64 { return int64(time.Since(processStart)) }
