//go:build !faults

package main

import "github.com/sluice-gateway/sluice/sidecar"

// host is the machine it runs on: the real one.
func host(real sidecar.Host) sidecar.Host { return real }
