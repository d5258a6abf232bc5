package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// The joint simulation: real sidecar machines, the real ledger, a network that drops, delays, repeats and reorders, and
// a witness that counts what was truly admitted. It is seeded: a failing seed fails again. Times are virtual
// milliseconds.

const (
	requestLimit, requestBurst = int64(1200), int64(120)
	tokenLimit, tokenBurst     = int64(240_000), int64(24_000)
	month1, month2             = uint32(202601), uint32(202602)
	askWaitMS                  = 2500
)

// faults is what goes wrong in a run, as chances in a thousand or mean times.
type faults struct {
	drop, repeat  int   // per message and direction
	cutEveryMS    int64 // mean time between cuts of one sidecar, which last up to 40 s
	killEveryMS   int64 // mean time between kills of one sidecar, which comes back within 3 s
	journal       journalFault
	quotadDownMS  int64 // mean time between outages of quotad, which last up to 8 s
	overrun       bool  // requests may cost more than they reserved
	turnMonth     bool
	drift         bool // clocks run up to half a per cent fast or slow
	goneMille     int  // callers that leave while they wait
	capNano       int64
	ratePerSecond int // of each sidecar
}

type journalFault int

const (
	journalWhole journalFault = iota
	journalMissing
	journalRolledBack
)

type event struct {
	at int64
	n  int // order among equals
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

type world struct {
	f       faults
	rng     *rand.Rand
	now     int64
	n       int
	queue   events
	fault   error
	l       *ledger.Ledger
	lost    int64 // time that quotad's clock did not count
	down    bool
	ids     struct{ requests, tokens, money uint64 }
	month   uint32
	lastInc uint64
	cars    []*car
	load    bool
	w       witness
}

func newWorld(f faults, seed uint64, cars int) *world {
	w := &world{f: f, rng: rand.New(rand.NewPCG(seed, 7)), month: month1, load: true}
	w.w.finalAt = -1
	w.l = ledger.New(ledger.Config{StandbyForMS: 60_000})
	w.l.OpenPeriods([]ledger.Period{{Period: month1, EndsMS: 1}})
	w.try(w.l.Define(1, []ledger.Spec{
		{Scope: "team", Owner: "a", Kind: ledger.Requests, Limit: requestLimit, Burst: requestBurst},
		{Scope: "team", Owner: "a", Kind: ledger.TotalTokens, Limit: tokenLimit, Burst: tokenBurst},
		{Scope: "team", Owner: "a", Kind: ledger.Money, Limit: f.capNano, Hard: true},
	}))
	for _, r := range w.l.Resources() {
		switch r.Spec.Kind {
		case ledger.Requests:
			w.ids.requests = r.ID
		case ledger.TotalTokens:
			w.ids.tokens = r.ID
		case ledger.Money:
			w.ids.money = r.ID
		}
	}
	for i := range cars {
		c := &car{w: w, name: fmt.Sprint("car", i), rate: 1_000_000}
		if f.drift {
			c.rate += w.rng.Int64N(10_001) - 5000
		}
		w.cars = append(w.cars, c)
		c.start(nil)
		c.breakAgain()
	}
	w.breakQuotad()
	if f.turnMonth {
		w.at(100_000, func() {
			w.month = month2
			w.op(func() { w.l.OpenPeriods([]ledger.Period{{Period: month2, EndsMS: 2}}) })
			for _, c := range w.cars {
				w.at(w.rng.Int64N(3000), c.configure)
			}
		})
	}
	return w
}

func (w *world) try(err error) {
	if err != nil && w.fault == nil {
		w.fault = fmt.Errorf("at %d ms: %w", w.now, err)
	}
}

func (w *world) at(delay int64, do func()) {
	w.n++
	heap.Push(&w.queue, event{w.now + max(0, delay), w.n, do})
}

func (w *world) mean(ms int64) int64 { return int64(w.rng.ExpFloat64() * float64(ms)) }

// run goes on until a time, or until something is broken.
func (w *world) run(until int64) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.fault == nil {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = max(w.now, until)
}

// op does something to the ledger at its time, and checks it.
func (w *world) op(f func()) {
	w.l.Advance(w.now - w.lost)
	f()
	w.try(w.l.Check())
	if !w.f.overrun {
		w.checkCovered()
	}
	w.checkShares()
	for _, e := range w.l.Events() {
		if e.Kind != ledger.Wake {
			continue
		}
		for _, c := range w.cars {
			if c.up && c.m.Incarnation() == e.Incarnation {
				life := c.life
				w.wire(c, func() {
					if c.life == life && c.up {
						c.m.Wake()
						c.poll()
					}
				})
			}
		}
	}
}

// wire carries something between quotad and a sidecar.
func (w *world) wire(c *car, deliver func()) {
	times := 1
	if w.rng.IntN(1000) < w.f.repeat {
		times = 2
	}
	for range times {
		if c.cut || w.rng.IntN(1000) < w.f.drop {
			continue
		}
		w.at(1+w.rng.Int64N(20), func() {
			if !c.cut {
				deliver()
			}
		})
	}
}

func (w *world) breakQuotad() {
	if w.f.quotadDownMS == 0 {
		return
	}
	w.at(w.mean(w.f.quotadDownMS), func() {
		if !w.load {
			return
		}
		w.down = true
		began := w.now
		for _, c := range w.cars {
			c.disconnect()
		}
		w.at(w.rng.Int64N(8000), func() {
			w.down, w.lost = false, w.lost+w.now-began // time is ticked: none passed
			for _, c := range w.cars {
				c.connectSoon()
			}
			w.breakQuotad()
		})
	})
}

// quiet ends all faults and all load, and lets what is running end. Then no living sidecar keeps anything.
func (w *world) quiet() {
	w.load = false
	for _, c := range w.cars {
		if c.cut {
			c.cut = false
			c.connectSoon()
		}
	}
	w.run(w.now + 30_000)
	w.run(w.now + 60_000)
	w.op(func() {})
	for _, c := range w.cars {
		if !c.up {
			w.try(fmt.Errorf("%s did not come back", c.name))
			continue
		}
		for _, k := range c.m.Stats(c.clock()).Counters {
			if k.Balance != 0 || k.Held != 0 {
				w.try(fmt.Errorf("%s keeps %d and holds %d of %d", c.name, k.Balance, k.Held, k.Resource))
			}
		}
		for _, k := range w.l.Counters(c.m.Incarnation()) {
			if out := k.Granted - k.Spent - k.Returned - k.Forfeited; out != 0 {
				w.try(fmt.Errorf("%d of %d is out at %s", out, k.Resource, c.name))
			}
		}
		if len(c.pending) > 0 {
			w.try(fmt.Errorf("%s has %d predecessors to file", c.name, len(c.pending)))
		}
		w.w.trickled += c.m.Stats(c.clock()).TrickleAdmissions
	}
}

func TestJoint(t *testing.T) {
	const plenty = int64(1) << 50
	for name, f := range map[string]faults{
		"calm":                    {capNano: plenty, ratePerSecond: 8},
		"small budget":            {capNano: 300_000_000, ratePerSecond: 8},
		"overruns":                {capNano: 300_000_000, ratePerSecond: 8, overrun: true},
		"lossy network":           {capNano: plenty, ratePerSecond: 8, drop: 100, repeat: 100, goneMille: 200},
		"lossy, small budget":     {capNano: 300_000_000, ratePerSecond: 8, drop: 100, repeat: 100, goneMille: 200},
		"cuts":                    {capNano: plenty, ratePerSecond: 8, drop: 20, cutEveryMS: 40_000, drift: true},
		"quotad down":             {capNano: plenty, ratePerSecond: 8, drop: 20, quotadDownMS: 15_000, drift: true},
		"month turns":             {capNano: 250_000_000, ratePerSecond: 8, drop: 20, turnMonth: true},
		"crashes":                 {capNano: 400_000_000, ratePerSecond: 8, drop: 20, killEveryMS: 20_000},
		"crash loop":              {capNano: 400_000_000, ratePerSecond: 8, killEveryMS: 2500},
		"crashes without journal": {capNano: 400_000_000, ratePerSecond: 8, killEveryMS: 20_000, journal: journalMissing},
		"crashes, disk rolled back": {capNano: 400_000_000, ratePerSecond: 8, killEveryMS: 20_000,
			journal: journalRolledBack},
		"everything": {capNano: 400_000_000, ratePerSecond: 8, drop: 50, repeat: 50, cutEveryMS: 60_000,
			killEveryMS: 40_000, quotadDownMS: 40_000, overrun: true, drift: true, goneMille: 100, turnMonth: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds(t)) {
				w := newWorld(f, seed+1, 6)
				w.run(200_000)
				w.quiet()
				if err := w.finish(); err != nil {
					t.Fatalf("seed %d: %v", seed+1, err)
				}
				if w.w.admitted < 100 {
					t.Fatalf("seed %d: only %d admitted", seed+1, w.w.admitted)
				}
				if seed == 0 {
					r, _ := w.l.Resource(w.ids.money)
					t.Logf("admitted %d, trickled %d, refused %v, spent %d, ledger %+v", w.w.admitted, w.w.trickled,
						w.w.refused, w.w.spent, r.Periods[0])
				}
			}
		})
	}
}

func seeds(t *testing.T) int {
	if testing.Short() {
		return 1
	}
	return 4
}
