package main

import "syscall"

// childAttributes: Ctrl-C comes to us alone, and we stop the rest in order. Should we be killed, they stop by
// themselves.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
