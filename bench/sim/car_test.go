package sim

import (
	"fmt"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// car is one sidecar.
type car struct {
	w        *world
	name     string
	m        *lease.Machine
	life     int // numbers its processes; what belongs to an earlier one is dropped
	up, cut  bool
	rate     int64 // of its clock, in millionths
	pending  []*quotav1.FileFinal
	old      []*quotav1.FileFinal     // earlier states of the journal
	seq      uint64                   // built last
	settled  []int64                  // overruns settled since then
	reported map[uint64][]int64       // by seq
	waiting  map[*lease.Waiting]int64 // tokens
	trickled uint64                   // admissions from shares
	polls    int                      // numbers the planned polls; only the newest counts
}

// clock is the sidecar's own, in nanoseconds.
func (c *car) clock() int64 {
	return (c.w.now + 1000) * int64(time.Millisecond) / 1_000_000 * c.rate
}

// start begins a process. before is the machine that died on this disk, if its journal is there.
func (c *car) start(before *lease.Machine) {
	c.w.lastInc++
	c.life++
	c.m = lease.NewMachine(lease.Config{}, c.w.lastInc, c.clock())
	c.up, c.seq, c.settled, c.reported, c.waiting = true, 0, nil, map[uint64][]int64{}, map[*lease.Waiting]int64{}
	if before != nil {
		shares, until := before.Shares(c.clock())
		c.m.Inherit(c.clock(), shares, until)
	}
	c.old, c.trickled = nil, 0
	c.configure()
	c.connectSoon()
	c.arrive()
}

func (c *car) configure() {
	if !c.up {
		return
	}
	c.m.Configure(c.clock(), []*quotav1.Resource{
		{Id: c.w.ids.requests, Kind: quotav1.Kind_KIND_REQUESTS, Limit: requestLimit, Burst: requestBurst},
		{Id: c.w.ids.tokens, Kind: quotav1.Kind_KIND_TOTAL_TOKENS, Limit: tokenLimit, Burst: tokenBurst},
		{Id: c.w.ids.money, Kind: quotav1.Kind_KIND_MONEY, Limit: c.w.f.capNano, Period: c.w.month, Hard: true},
	})
}

func (c *car) disconnect() {
	if c.up {
		c.m.Disconnected(c.clock())
	}
}

func (c *car) connectSoon() {
	life := c.life
	c.w.at(5+c.w.rng.Int64N(200), func() {
		if c.up && c.life == life && !c.cut && !c.w.down {
			c.m.Connected(c.clock())
			c.file()
			c.poll()
		}
	})
}

// file reports dead predecessors until quotad has them.
func (c *car) file() {
	for _, f := range c.pending {
		c.w.wire(c, func() {
			if c.w.down {
				return
			}
			done := false
			in := ledger.FileFinal{
				Identity: c.name, Incarnation: f.Incarnation, Seq: f.Seq, Proven: f.Proven, Successor: c.m.Incarnation(),
			}
			for _, k := range f.Counters {
				in.Counters = append(in.Counters, ledger.Counter{
					Resource: k.Resource, Period: k.Period, Spent: k.Spent, Returned: k.Returned,
				})
			}
			c.w.op(func() { done = c.w.l.FileFinal(in) })
			c.w.wire(c, func() {
				for i, p := range c.pending {
					if p == f && done {
						c.pending = append(c.pending[:i:i], c.pending[i+1:]...)
						break
					}
				}
			})
		})
	}
	if len(c.pending) > 0 {
		life := c.life
		c.w.at(2000, func() {
			if c.life == life && c.up && !c.w.down && !c.cut {
				c.file()
			}
		})
	}
}

// breakAgain schedules the sidecar's next cut and its next death.
func (c *car) breakAgain() {
	w := c.w
	if w.f.cutEveryMS > 0 {
		w.at(w.mean(w.f.cutEveryMS), func() {
			if !w.load || c.cut {
				return
			}
			c.cut = true
			w.at(w.rng.Int64N(2000), c.disconnect) // it takes a while to notice
			w.at(2000+w.rng.Int64N(38_000), func() {
				c.cut = false
				c.connectSoon()
				c.breakAgain()
			})
		})
	}
	if w.f.killEveryMS > 0 {
		w.at(w.mean(w.f.killEveryMS), func() {
			if w.load && c.up {
				c.kill()
			}
			if w.f.cutEveryMS == 0 {
				c.breakAgain()
			}
		})
	}
}

// kill is kill -9: the running requests go on at the provider, and nobody settles them.
func (c *car) kill() {
	c.up = false
	before := c.m
	switch c.w.f.journal {
	case journalWhole:
		c.pending = append(c.pending, c.m.Final(true))
	case journalRolledBack:
		before = nil
		// quotad has seen all seqs but perhaps the last: this state is older than what it knows.
		if n := len(c.old); n > 2 {
			c.pending = append(c.pending, c.old[c.w.rng.IntN(n-2)])
		}
	case journalMissing:
		before = nil
	}
	c.w.at(100+c.w.rng.Int64N(3000), func() { c.start(before) })
}

// poll sends what is due and looks again when the machine says so.
func (c *car) poll() {
	if !c.up {
		return
	}
	w := c.w
	if r := c.m.Poll(c.clock()); r != nil {
		if r.Seq != c.seq {
			c.seq = r.Seq
			c.reported[r.Seq], c.settled = c.settled, nil
			c.old = append(c.old, c.m.Final(true))
		}
		life := c.life
		w.wire(c, func() { c.deliver(r, life) })
	}
	c.collect()
	if next := c.m.NextPoll(); next < 1<<62 {
		c.polls++
		planned := c.polls
		w.at(max(1, (next-c.clock())/int64(time.Millisecond)+1), func() {
			if c.polls == planned {
				c.poll()
			}
		})
	}
}

func (c *car) collect() {
	for _, p := range append([]*lease.Waiting(nil), c.m.Finished()...) {
		tokens := c.waiting[p]
		delete(c.waiting, p)
		c.decide(p.Hold, p.Verdict, tokens)
	}
}

// deliver is a renew at quotad, whose answer goes back if the process is still the same.
func (c *car) deliver(r *quotav1.Renew, life int) {
	w := c.w
	if w.down {
		return
	}
	var rep ledger.RenewReply
	w.op(func() {
		rep = w.l.Renew(toLedger(c.name, r))
		if life == c.life && rep.Refusal == ledger.RefusedNot && !rep.Fenced {
			for _, o := range c.reported[r.Seq] {
				w.w.overrun -= o
			}
			delete(c.reported, r.Seq)
		}
	})
	switch rep.Refusal {
	case ledger.RefusedNot:
	case ledger.RefusedStale:
		return
	default:
		w.try(fmt.Errorf("renew %d of %s refused: %d", r.Seq, c.name, rep.Refusal))
	}
	if rep.Fenced && life == c.life {
		w.try(fmt.Errorf("%s was fenced at seq %d", c.name, r.Seq))
		return
	}
	w.wire(c, func() {
		if c.life == life && c.up {
			c.m.Apply(c.clock(), fromLedger(rep), 0)
			c.poll()
		}
	})
}

// arrive is the next request of the sidecar's app.
func (c *car) arrive() {
	life := c.life
	c.w.at(c.w.mean(1000/int64(c.w.f.ratePerSecond))+1, func() {
		if c.life == life && c.up {
			if c.w.load {
				c.request()
			}
			c.arrive()
		}
	})
}

func (c *car) request() {
	w := c.w
	tokens := 50 + w.rng.Int64N(450)
	needs := []lease.Need{{Resource: w.ids.requests, Amount: 1}, {Resource: w.ids.tokens, Amount: tokens},
		{Resource: w.ids.money, Amount: tokens * 1000}}
	h, v, ask := c.m.Reserve(c.clock(), lease.Share, needs, nil)
	if !ask {
		c.decide(h, v, tokens)
		c.poll()
		return
	}
	p, v := c.m.Ask(c.clock(), lease.Share, needs, nil)
	if p == nil {
		c.decide(lease.Hold{}, v, tokens)
		return
	}
	c.waiting[p] = tokens
	gone := w.rng.IntN(1000) < w.f.goneMille
	wait := int64(askWaitMS)
	if gone {
		wait = w.rng.Int64N(30)
	}
	life := c.life
	w.at(wait, func() {
		if c.life == life && c.up && !p.Done() {
			c.m.Withdraw(c.clock(), p, gone)
			delete(c.waiting, p)
			c.decide(p.Hold, p.Verdict, tokens)
		}
	})
	c.poll()
}

// decide is the end of a request's admission. A granted one runs for a while and settles.
func (c *car) decide(h lease.Hold, v lease.Verdict, tokens int64) {
	w := c.w
	if v.OK != h.Valid() {
		w.try(fmt.Errorf("verdict %+v, hold valid %v", v, h.Valid()))
	}
	if !v.OK {
		w.w.refused[v.Reason]++
		if v.Reason == lease.Exhausted && w.w.finalAt < 0 {
			w.w.finalAt = w.w.spent
		}
		return
	}
	w.w.admitted++
	c.checkLease()
	w.w.requests = append(w.w.requests, flow{w.now, 1})
	w.w.tokens = append(w.w.tokens, flow{w.now, tokens})
	reserved := tokens * 1000
	used, cost := 1+w.rng.Int64N(tokens), 1+w.rng.Int64N(reserved)
	if w.f.overrun && w.rng.IntN(4) == 0 {
		cost = reserved + w.rng.Int64N(reserved/2)
	}
	over := max(0, cost-reserved)
	w.w.overrun += over
	w.w.overrunMost = max(w.w.overrunMost, w.w.overrun)
	life := c.life
	w.at(100+w.rng.Int64N(3900), func() {
		w.w.spent += cost // the provider bills it, whoever is left to hear of it
		if c.life != life || !c.up {
			return
		}
		w.w.tokens = append(w.w.tokens, flow{w.now, used - tokens})
		if over > 0 {
			c.settled = append(c.settled, over)
		}
		c.m.Settle(h, []lease.Need{{Resource: w.ids.requests, Amount: 1}, {Resource: w.ids.tokens, Amount: used},
			{Resource: w.ids.money, Amount: cost}})
		c.poll()
	})
}
