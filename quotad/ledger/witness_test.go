package ledger

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestAdmissionBound runs honest sidecars over a network that drops, delays and repeats, with cuts and restarts, and
// counts outside the ledger what they admit from one bucket. Leases must not let through more than the bucket itself
// would: in any window of w ms no more than burst + limit × w / 60,000.
//
// The witness is a token bucket: it never runs dry exactly when no window is over the bound. A request granted by an
// ask is admitted when the answer arrives, a little after it left the level; slack allows for those under way.
func TestAdmissionBound(t *testing.T) {
	tests := []struct {
		name          string
		sides         int
		limit, burst  int64
		perSec        int64 // requests a second at each sidecar
		asks          int64 // size of asks, 0 for none
		slack         int64
		drop, restart int64 // per mille: of messages; a second, of processes
		cuts          bool  // pods are cut off for up to 30 s
		each          Each  // a pool has each process as a claimant of its own
		least         int64 // share of the limit that must get through, per mille
	}{
		{name: "leases", sides: 4, limit: 600, burst: 100, perSec: 10, drop: 20, least: 950},
		{name: "small burst, many sidecars", sides: 12, limit: 60, burst: 10, perSec: 3, drop: 20, least: 950},
		{name: "bad network", sides: 4, limit: 600, burst: 600, perSec: 8, drop: 400, cuts: true},
		{name: "crash loop", sides: 6, limit: 600, burst: 60, perSec: 5, drop: 50, restart: 300, cuts: true},
		{name: "asks only when short", sides: 5, limit: 600, burst: 50, perSec: 5, asks: 5, slack: 25, drop: 50, least: 950},
		{name: "claimants", sides: 5, limit: 600, burst: 50, perSec: 5, asks: 5, slack: 25, drop: 20, each: EachClaimant, least: 950},
		{name: "claimants that crash", sides: 6, limit: 600, burst: 50, perSec: 5, asks: 5, slack: 25, drop: 50, restart: 100,
			cuts: true, each: EachClaimant},
		{name: "users of one name", sides: 5, limit: 600, burst: 50, perSec: 5, asks: 5, slack: 25, drop: 50, each: EachName, least: 950},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2))
				w := &witness{l: New(Config{}), rng: rng, limit: tt.limit, burst: tt.burst, drop: tt.drop, asks: tt.asks, cuts: tt.cuts}
				w.level = (tt.burst + tt.slack) * perUnit
				w.most = w.level
				spec := Spec{Scope: "org", Kind: Requests, Limit: tt.limit, Burst: tt.burst, Each: tt.each}
				w.each = tt.each
				if err := w.l.Define(1, []Spec{spec}, Fairness{}); err != nil {
					rt.Fatal(err)
				}
				w.res = w.l.Resources()[0].ID
				for range tt.sides {
					w.pods = append(w.pods, w.pod())
				}
				const span = 90_000
				for w.now = 0; w.now < span; w.now += 50 {
					w.step(tt.perSec, tt.restart)
					if w.over != "" {
						rt.Fatal(w.over)
					}
				}
				if err := w.l.Check(); err != nil {
					rt.Fatal(err)
				}
				if want := tt.limit * span / 60_000 * tt.least / 1000; w.admitted < want {
					rt.Fatalf("admitted %d, want at least %d", w.admitted, want)
				}
			})
		})
	}
}

type witness struct {
	l            *Ledger
	rng          *rand.Rand
	now          int64
	res          uint64
	each         Each
	limit, burst int64
	drop, asks   int64
	cuts         bool
	pods         []*pod
	lastInc      uint64
	net          []packet

	level, most, levelAt int64
	admitted             int64
	over                 string
}

type packet struct {
	at      int64
	deliver func()
}

// pod is an honest sidecar: it uses a lease only until 10 s after it first sent the renew that brought it.
type pod struct {
	inc, seq      uint64
	name          string // what it asks for
	id            uint64 // of its counter; 0: not known yet
	g, f, s, r, h int64
	ends          []int64 // of running requests
	deadline      int64
	demand        int64 // twice the use wished for in a renew interval, halved at each
	waiting       int64
	flight        *Renew
	first, resend int64
	next          int64
	cutUntil      int64
}

func (w *witness) pod() *pod {
	w.lastInc++
	p := &pod{inc: w.lastInc, next: w.now + w.rng.Int64N(2000)}
	switch w.each {
	case Whole:
		p.id = w.res
	case EachName:
		p.name = "u"
	case EachClaimant:
		p.name = "standard/" + string(rune('a'+p.inc%20))
	}
	return p
}

func (p *pod) balance() int64 { return p.g - p.f - p.s - p.r - p.h }

func (w *witness) chance(perMille int64) bool { return w.rng.Int64N(1000) < perMille }

func (w *witness) step(perSec, restart int64) {
	var due []packet
	rest := w.net[:0]
	for _, p := range w.net {
		if p.at <= w.now {
			due = append(due, p)
		} else {
			rest = append(rest, p)
		}
	}
	w.net = rest
	for _, p := range due {
		p.deliver()
	}
	for i, p := range w.pods {
		if w.chance(restart / 20) {
			w.pods[i] = w.pod()
			continue
		}
		if w.cuts && w.chance(1) {
			p.cutUntil = w.now + w.rng.Int64N(30_000)
		}
		w.run(p, perSec)
	}
}

// run settles, admits and renews.
func (w *witness) run(p *pod, perSec int64) {
	rest := p.ends[:0]
	for _, end := range p.ends {
		if end <= w.now {
			p.h--
			p.s++
		} else {
			rest = append(rest, end)
		}
	}
	p.ends = rest
	if w.chance(perSec * 50) {
		p.demand++
		if w.now < p.deadline && p.balance() > 0 {
			w.admit(p, 1)
		} else if p.waiting < w.asks {
			p.waiting++
		}
	}
	if p.flight == nil && w.now >= p.next {
		w.renew(p)
	}
	if p.flight != nil && w.now >= p.resend {
		w.send(p)
	}
}

func (w *witness) admit(p *pod, n int64) {
	p.h += n
	for range n {
		p.ends = append(p.ends, w.now+w.rng.Int64N(4000))
	}
	w.level = min(w.most, w.level+w.limit*(w.now-w.levelAt)) - n*perUnit
	w.levelAt = w.now
	w.admitted += n
	if w.level < 0 {
		w.over = "more was admitted than the bucket holds and refills"
	}
}

func (w *witness) renew(p *pod) {
	p.seq++
	if idle := p.balance(); p.waiting > 0 && idle > 0 {
		p.r += idle
	} else if idle > 2*p.demand {
		p.r += idle - 2*p.demand
	}
	r := &Renew{Incarnation: p.inc, Seq: p.seq}
	if p.id != 0 {
		r.Counters = []Counter{{Resource: p.id, Spent: p.s, Returned: p.r, Held: p.h, Demand: p.demand}}
	}
	if p.waiting > 0 {
		r.Asks = []Ask{{ID: p.seq, Needs: []Need{{Resource: w.res, Amount: p.waiting, Name: p.name}}}}
	}
	p.demand /= 2
	p.flight, p.first, p.next = r, w.now, w.now+1600+w.rng.Int64N(800)
}

func (w *witness) send(p *pod) {
	p.resend = w.now + 700
	r, first := *p.flight, p.first
	for copies := w.rng.Int64N(8) / 7; copies >= 0; copies-- { // some arrive twice
		w.post(p, func() {
			w.l.Enter(uint64(w.now) + 2)
			w.l.Advance(w.now)
			reply := w.l.Renew(r)
			w.post(p, func() { w.answer(p, first, reply) })
		})
	}
}

func (w *witness) post(p *pod, deliver func()) {
	if w.now < p.cutUntil || w.chance(w.drop) {
		return
	}
	delay := 1 + w.rng.Int64N(60)
	if w.chance(20) {
		delay = w.rng.Int64N(5000)
	}
	w.net = append(w.net, packet{w.now + delay, deliver})
}

func (w *witness) answer(p *pod, first int64, reply RenewReply) {
	if p.flight == nil || reply.Seq != p.seq || reply.Refusal != RefusedNot {
		return
	}
	if reply.Fenced {
		w.over = "an honest sidecar was fenced"
		return
	}
	p.flight = nil
	for _, g := range reply.Grants {
		switch {
		case g.Gone && g.Resource == p.id:
			p.id, p.g, p.f, p.s, p.r, p.h, p.ends = 0, 0, 0, 0, 0, 0, nil // what runs still settles to nobody
		case g.Resource == p.id || p.id == 0 && g.Of == w.res:
			p.id, p.g, p.f = g.Resource, max(p.g, g.Granted), max(p.f, g.Forfeited)
		}
	}
	p.deadline = first + reply.UsableForMS
	for _, a := range reply.Asks {
		if n := p.waiting; a.Granted && w.now < p.deadline && p.balance() >= n {
			w.admit(p, n)
		}
		p.waiting = 0
	}
}
