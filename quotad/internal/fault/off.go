//go:build !faults

// Package fault marks where tests of the whole system put faults into a node: points on its way to the disk, its clocks
// and its connections. Binaries built with the tag faults do what bench/fault says; in all others nothing is there, and
// this file is what it comes to.
package fault

import (
	"net"
	"time"
)

// Pass marks a point.
func Pass(string) {}

// Now reads the clock that tells how much time has passed.
func Now() time.Time { return time.Now() }

// Wall reads the clock on the wall, which tells the date.
func Wall() time.Time { return time.Now() }

// Often is how many times as often things happen that happen once in a while.
func Often() int64 { return 1 }

// Dial connects to a peer.
var Dial = (&net.Dialer{}).DialContext
