// Package sim plays whole worlds from a seed: real sidecar lease machines and the real quota ledger, under one
// scheduler, in virtual time, with everything that can go wrong between them.
//
// One goroutine plays one world, and nothing in it reads a clock or the order of a map, so that the same seed gives
// the same world event for event. The network, the disks, the leaders, the load and the faults are models; the code
// that decides what may be spent is the product's. A witness counts what was truly admitted and spent, and judges both
// sides by it.
//
// After every event invariant.go is checked; at the end, after healing and a saturated minute, promise.go.
package sim

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Result is what became of one seed.
type Result struct {
	Seed   uint64
	Err    error // the first broken invariant or promise
	Events int
	Faults int           // injected, messages that were dropped, repeated or late not counted
	Passed time.Duration // virtual
	Hash   uint64        // of the event log
	Tally  Tally
}

// Run plays one seed. trace takes the event log; nil keeps none.
func Run(seed uint64, trace io.Writer) Result {
	r := play(seed, drawPlan(seed), trace)
	if r.Err == nil && (r.Events < eventsMin || r.Faults < faultsMin) {
		r.Err = fmt.Errorf("a dull world: %d events and %d faults, of %d and %d", r.Events, r.Faults, eventsMin, faultsMin)
	}
	return r
}

func play(seed uint64, p plan, trace io.Writer) Result {
	p.teams = slices.Clone(p.teams) // they count
	w := newWorld(seed, p, trace)
	w.run()
	r := Result{
		Seed: seed, Err: w.broken, Events: w.events, Faults: w.tally.injected(), Passed: w.now,
		Hash: w.tape.hash, Tally: w.tally,
	}
	if r.Err == nil && w.tape.err != nil {
		r.Err = fmt.Errorf("write the event log: %w", w.tape.err)
	}
	return r
}
