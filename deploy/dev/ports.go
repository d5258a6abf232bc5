package main

import (
	"fmt"
	"net"
	"strings"
)

const (
	offsetMax  = 22_000 // keeps every port below those the system gives to outgoing connections
	offsetStep = 100    // stacks that are this far apart share no port
)

// ports is what is added to the usual port of everything.
type ports int

func (p ports) at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port+int(p)) }

func (p ports) fake() string       { return p.at(9900) }
func (p ports) plane(i int) string { return p.at(7070 + 10*i) }
func (p ports) raft(i int) string  { return p.at(7071 + 10*i) }
func (p ports) admin(i int) string { return p.at(7072 + 10*i) }
func (p ports) data(i int) string  { return p.at(4000 + 10*i) }
func (p ports) ops(i int) string   { return p.at(4001 + 10*i) }

func (p ports) validate() error {
	if p < 0 || p > offsetMax {
		return fmt.Errorf("OFFSET must be 0 to %d", offsetMax)
	}
	return nil
}

// free says whose ports are taken, and what to do. Without it a second stack would take the answers of the first for
// those of its own children.
func (p ports) free(nodes, sidecars int) error {
	taken := p.taken(nodes, sidecars)
	if len(taken) == 0 {
		return nil
	}
	next := p + offsetStep
	for next.validate() == nil && len(next.taken(nodes, sidecars)) > 0 {
		next += offsetStep
	}
	return fmt.Errorf(`taken already:

  %s

Another Sluice may be running, from here or from another clone: stop it (Ctrl-C in its terminal), or run this one
beside it with every port moved by %d:

  make run OFFSET=%d        (or make up OFFSET=%d)`, strings.Join(taken, "\n  "), next, next, next)
}

// taken lists the addresses of a stack that somebody else listens on.
func (p ports) taken(nodes, sidecars int) []string {
	var out []string
	try := func(address, use string) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			out = append(out, address+"  "+use)
			return
		}
		_ = l.Close() // nobody has called yet
	}
	try(p.fake(), "the fake provider's")
	for i := range nodes {
		try(p.plane(i), fmt.Sprintf("quotad-%d's, for sidecars", i))
		try(p.raft(i), fmt.Sprintf("quotad-%d's, for its peers", i))
		try(p.admin(i), fmt.Sprintf("quotad-%d's, for operators", i))
	}
	for i := range sidecars {
		try(p.data(i), fmt.Sprintf("sidecar-%d's, for apps", i))
		try(p.ops(i), fmt.Sprintf("sidecar-%d's, for operators", i))
	}
	return out
}
