package sim

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

const (
	eventsMin   = 10_000
	faultsMin   = 5
	loadMost    = 20 * time.Minute // load goes on until there were eventsMin events, but no longer
	askWait     = 2500 * time.Millisecond
	standbyFor  = 60 * time.Second
	standbyLate = 8 * time.Second
)

// event is something that will happen.
type event struct {
	at time.Duration
	n  uint64 // order among equals
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// world is everything there is.
type world struct {
	plan   plan
	rng    *rand.Rand
	tape   tape
	tally  Tally
	broken error

	now      time.Duration
	queue    events
	planned  uint64
	events   int
	messages uint64

	faulty bool // faults happen
	load   load

	provider        provider
	quotad          *quotad
	sidecars        []*sidecar
	witness         *witness
	lastIncarnation uint64
	dirty           []*process // touched by the present event
}

func newWorld(seed uint64, p plan, trace io.Writer) *world {
	w := &world{plan: p, rng: rand.New(rand.NewPCG(seed, 7)), tape: newTape(trace), faulty: true}
	w.witness = newWitness(w)
	w.quotad = newQuotad(w)
	w.load = load{on: true, saturated: p.hungry}
	for range p.sidecars {
		w.join()
	}
	w.planFaults()
	if p.pulses {
		w.pulse()
	}
	if p.script != nil {
		p.script(w)
	}
	return w
}

// join adds a sidecar on a new machine.
func (w *world) join() *sidecar {
	s := &sidecar{w: w, name: fmt.Sprint("sidecar-", len(w.sidecars)), rate: 1_000_000, booted: w.upTo(time.Hour)}
	if d := w.plan.driftMillionths; d > 0 {
		s.rate += w.rng.Int64N(2*d+1) - d
	}
	w.sidecars = append(w.sidecars, s)
	s.start()
	s.demandLoop()
	return s
}

// after plans an event.
func (w *world) after(delay time.Duration, do func()) {
	w.planned++
	heap.Push(&w.queue, event{w.now + max(0, delay), w.planned, do})
}

func (w *world) chance(mille int) bool { return mille > 0 && w.rng.IntN(1000) < mille }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *world) between(least, most time.Duration) time.Duration { return least + w.upTo(most-least) }

func (w *world) mean(d time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(d))
}

func (w *world) note(who, what string, numbers ...int64) { w.tape.note(w.now, who, what, numbers...) }

// must records the first thing that is broken; the world ends with it.
func (w *world) must(err error) {
	if err != nil && w.broken == nil {
		w.broken = fmt.Errorf("at %.6f s: %w", w.now.Seconds(), err)
		w.note("", "BROKEN: "+err.Error())
	}
}

func (w *world) mustf(ok bool, c check, format string, args ...any) {
	w.tally.checks[c]++
	if !ok {
		w.must(fmt.Errorf("%s: %s", checkNames[c], fmt.Sprintf(format, args...)))
	}
}

// playUntil lets events happen until a time, or until something is broken.
func (w *world) playUntil(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.broken == nil {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		w.events++
		e.do()
		w.inspect()
	}
	w.now = max(w.now, until)
}

func (w *world) playFor(d time.Duration) { w.playUntil(w.now + d) }

// run plays the world to its end: load under faults, healing and rest, a saturated minute, rest.
func (w *world) run() {
	w.playUntil(w.plan.duration)
	dull := func() bool {
		return w.events < eventsMin || len(w.plan.mix) > 0 && w.tally.injected() < faultsMin
	}
	for dull() && w.now < loadMost && w.broken == nil {
		w.playFor(10 * time.Second)
	}
	w.heal()
	w.load.on = false
	for !w.quotad.up && w.broken == nil {
		w.playFor(time.Second)
	}
	w.playFor(40 * time.Second) // what was cut off is found, journals are filed
	w.playFor(standbyFor + 2*standbyLate)
	w.saturate()
	w.playFor(60 * time.Second)
	w.judge()
}

// heal ends every fault, and every incarnation that was cloned: or the one that is left might be found out at any later
// time, and its share would be away for as long as it may still be in use.
func (w *world) heal() {
	w.note("", "heal")
	w.faulty = false
	w.provider.outside = 0
	for _, s := range w.sidecars {
		s.link.mend(w.now)
		if s.twin != nil {
			s.twin.die()
			s.twin = nil
		}
		if s.p != nil && s.p.books.cloned {
			s.kill(lost, time.Second)
		}
	}
}

// saturate lets everybody want more of the first team's buckets than there is, with money for all of it, and measures
// who gets what.
func (w *world) saturate() {
	if w.broken != nil {
		return
	}
	w.judgeBudgets()
	w.note("", "saturate")
	w.quotad.enrich()
	w.playFor(5 * time.Second)
	w.load = load{on: true, saturated: true}
	w.playFor(15 * time.Second)
	from := w.now
	for _, s := range w.sidecars {
		s.wished, s.got = 0, 0
	}
	for i := range w.plan.teams {
		w.plan.teams[i].wished, w.plan.teams[i].got = 0, 0
	}
	parts := 120 // requests of the limit for each: tokens may allow a few less, and judgeParts needs a hundred
	if w.plan.pool > 0 {
		parts = 300
	}
	if w.plan.patient {
		parts = 1000 // who comes first is chance: over a short time parts differ by it
	}
	w.playFor(max(40*time.Second, time.Duration(w.living()*parts)*time.Minute/time.Duration(w.quotad.requestLimit())))
	w.load.on = false
	w.judgeSaturation(from, w.now)
}
