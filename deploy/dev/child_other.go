//go:build !linux

package main

import "syscall"

// childAttributes: Ctrl-C comes to us alone, and we stop the rest in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
