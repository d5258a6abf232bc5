package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestPoolIsFair runs honest sidecars of a contested pool and counts outside the ledger what each claimant admits. The
// pool lets through no more than its bucket; nothing idles while somebody wishes; each class with demand has its reserve
// and batch no less than its floor; teams of a class have theirs by weighted max-min. What they should have is computed
// here another way than there.
func TestPoolIsFair(t *testing.T) {
	type offer struct {
		name string
		rate int64 // units a second that its requests want
		size int64 // of a request
	}
	many := func(n int, class string, rate, size int64) (out []offer) {
		for i := range n {
			out = append(out, offer{fmt.Sprintf("%s/%02d", class, i), rate, size})
		}
		return out
	}
	tests := []struct {
		name         string
		limit, burst int64
		pods         int
		weights      []TeamWeight
		offers       []offer
		fair         int64 // thousandths of its part that each claimant has at least, to within a request at either end
	}{
		{"classes", 60_000, 20_000, 3, nil, []offer{
			{"interactive/a", 2000, 100}, {"standard/a", 2000, 100}, {"batch/a", 2000, 100},
		}, 900},
		{"batch shrinks to its floor", 60_000, 20_000, 2, nil, []offer{
			{"interactive/a", 900, 50}, {"interactive/b", 900, 50}, {"batch/a", 3000, 100},
		}, 900},
		{"batch has what the others leave", 60_000, 20_000, 2, nil, []offer{
			{"interactive/a", 100, 50}, {"standard/b", 200, 50}, {"batch/a", 3000, 100},
		}, 900},
		{"weights", 60_000, 20_000, 3, []TeamWeight{{"b", 3}, {"c", 2}}, []offer{
			{"standard/a", 3000, 50}, {"standard/b", 3000, 50}, {"standard/c", 100, 50},
		}, 900},
		{"large requests beside small ones", 60_000, 20_000, 3, nil, []offer{
			{"standard/small", 2000, 20}, {"standard/large", 4000, 2000},
		}, 900},
		{"crumbs", 600, 100, 2, nil, many(60, "standard", 1, 1), 850},
		{"crumbs, asked for in order", 600, 100, 1, nil, many(60, "standard", 2, 1), 850},
		{"more claimants than requests fit", 60_000, 20_000, 2, nil, many(40, "interactive", 1000, 1000), 850},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, 3))
				w := &claimWorld{l: New(Config{}), rng: rng, limit: tt.limit, level: (tt.burst + tt.burst/20) * perUnit}
				w.most = w.level
				fair := Fairness{Weights: tt.weights}
				spec := Spec{Scope: "deployment", Owner: "m", Kind: TotalTokens, Each: EachClaimant, Limit: tt.limit, Burst: tt.burst}
				if err := w.l.Define(1, []Spec{spec}, fair); err != nil {
					t.Fatal(err)
				}
				w.pool = w.l.Resources()[0].ID
				for range tt.pods {
					p := &claimPod{inc: uint64(len(w.pods) + 1)}
					for _, o := range tt.offers {
						p.claims = append(p.claims, &claimSide{
							name: o.name, size: o.size, milli: o.rate * 1000 / o.size / int64(tt.pods),
						})
					}
					w.pods = append(w.pods, p)
				}
				const warm, span = 20_000, 80_000
				before := map[string]int64{}
				for ; w.now < span; w.now += 50 {
					if w.now == warm {
						before = w.admitted()
						for _, p := range w.pods {
							for _, c := range p.claims {
								c.offered = 0
							}
						}
					}
					w.step()
					if w.over != "" {
						t.Fatal(w.over)
					}
				}
				if err := w.l.Check(); err != nil {
					t.Fatal(err)
				}
				got, sum := w.admitted(), int64(0)
				names, wants := make([]string, 0, len(tt.offers)), make([]int64, 0, len(tt.offers))
				for i, o := range tt.offers {
					got[o.name] -= before[o.name]
					sum += got[o.name]
					names, wants = append(names, o.name), append(wants, 0)
					for _, p := range w.pods {
						wants[i] += p.claims[i].offered
					}
				}
				total := tt.limit * (span - warm) / 60_000
				should := fairParts(total, names, wants, fair)
				for i, name := range names {
					if least := should[i]*tt.fair/1000 - 2*tt.offers[i].size; got[name] < least {
						t.Fatalf("seed %d: %s admitted %d, its part is %d: of all %v", seed, name, got[name], should[i], got)
					}
				}
				wish := int64(0)
				for _, n := range wants {
					wish += n
				}
				if least := min(total, wish) * 950 / 1000; sum < least {
					t.Fatalf("%d admitted, want at least %d", sum, least)
				}
			}
		})
	}
}

// fairParts is what each should have of total: by class its reserve, then the others before batch; by team water poured
// into vessels as wide as their weights, unit by unit of a thousandth.
func fairParts(total int64, names []string, wants []int64, fair Fairness) []int64 {
	got := make([]float64, len(names))
	weight := func(i int) float64 {
		for _, w := range fair.Weights {
			if w.Team == names[i][len(names[i])-len(w.Team):] {
				return float64(w.Weight)
			}
		}
		return 1
	}
	in := func(i int, class string) bool { return names[i][:min(len(class), len(names[i]))] == class }
	pour := func(amount float64, who func(i int) bool) {
		for drop := amount / 2000; amount > drop/2; {
			least := -1
			for i := range names {
				if who(i) && got[i] < float64(wants[i]) && (least < 0 || got[i]/weight(i) < got[least]/weight(least)) {
					least = i
				}
			}
			if least < 0 {
				return
			}
			part := min(drop, float64(wants[least])-got[least])
			got[least] += part
			amount -= part
		}
	}
	reserves := map[string]float64{"interactive": 0.6, "standard": 0.25, "batch": 0.05}
	sum := func(class string) (have, want float64) {
		for i := range names {
			if in(i, class) {
				have += got[i]
				want += float64(wants[i])
			}
		}
		return have, want
	}
	left := float64(total)
	for _, class := range []string{"interactive", "standard", "batch"} {
		_, want := sum(class)
		part := min(want, reserves[class]*float64(total))
		pour(part, func(i int) bool { return in(i, class) })
		left -= part
	}
	rest := map[string]float64{}
	for drop := left / 1000; left > drop/2; left -= drop {
		best := ""
		for _, class := range []string{"interactive", "standard"} {
			have, want := sum(class)
			if have+rest[class] < want && (best == "" || rest[class]/reserves[class] < rest[best]/reserves[best]) {
				best = class
			}
		}
		if best == "" {
			best = "batch"
		}
		rest[best] += drop
	}
	for _, class := range []string{"interactive", "standard", "batch"} {
		pour(rest[class], func(i int) bool { return in(i, class) })
	}
	out := make([]int64, len(names))
	for i := range out {
		out[i] = int64(got[i])
	}
	return out
}

type claimWorld struct {
	l    *Ledger
	rng  *rand.Rand
	now  int64
	pool uint64
	pods []*claimPod

	limit, level, most, levelAt int64
	over                        string
}

type claimPod struct {
	inc, seq uint64
	claims   []*claimSide
	next     int64
}

// claimSide is one claimant at one sidecar.
type claimSide struct {
	name       string
	size       int64
	milli      int64 // requests wished for in 1000 s
	id         uint64
	g, f, s, r int64
	h          int64
	ends       []int64
	queue      []int64 // when each waiting request gives up
	arrived    int64   // units since the last renew
	demand     int64
	retry      int64 // not before
	offered    int64 // since the warm-up
	admitted   int64
}

func (c *claimSide) balance() int64 { return c.g - c.f - c.s - c.r - c.h }

func (w *claimWorld) admitted() map[string]int64 {
	out := map[string]int64{}
	for _, p := range w.pods {
		for _, c := range p.claims {
			out[c.name] += c.admitted
		}
	}
	return out
}

func (w *claimWorld) step() {
	w.l.Enter(uint64(w.now + 2))
	w.l.Advance(w.now)
	for _, p := range w.pods {
		waits := false
		for _, c := range p.claims {
			w.run(c)
			waits = waits || len(c.queue) > 0 && w.now >= c.retry
		}
		if w.now >= p.next || waits {
			w.renew(p)
		}
	}
}

func (w *claimWorld) run(c *claimSide) {
	rest := c.ends[:0]
	for _, end := range c.ends {
		if end <= w.now {
			c.h -= c.size
			c.s += c.size
		} else {
			rest = append(rest, end)
		}
	}
	c.ends = rest
	for mean := c.milli * 50; mean > 0; mean -= 1_000_000 {
		if w.rng.Int64N(1_000_000) < mean {
			c.arrived += c.size
			c.offered += c.size
			if len(c.queue) < 20 {
				c.queue = append(c.queue, w.now+2500)
			}
		}
	}
	for len(c.queue) > 0 && (c.balance() >= c.size || c.queue[0] <= w.now) {
		if c.balance() >= c.size {
			w.admit(c)
		}
		c.queue = c.queue[1:]
	}
}

func (w *claimWorld) admit(c *claimSide) {
	c.h += c.size
	c.ends = append(c.ends, w.now+w.rng.Int64N(3000))
	c.admitted += c.size
	w.level = min(w.most, w.level+w.limit*(w.now-w.levelAt)) - c.size*perUnit
	w.levelAt = w.now
	if w.level < 0 {
		w.over = "more was admitted than the pool holds and refills"
	}
}

// renew sends what a sidecar does: totals, demand of two seconds, and one ask for the oldest that waits of each claimant.
func (w *claimWorld) renew(p *claimPod) {
	regular := w.now >= p.next
	if regular {
		p.next = w.now + 1600 + w.rng.Int64N(800)
	}
	p.seq++
	r := Renew{Incarnation: p.inc, Seq: p.seq}
	asked := map[uint64]*claimSide{}
	for i, c := range p.claims {
		if regular {
			c.demand = (c.demand + c.arrived) / 2
			c.arrived = 0
		}
		demand := c.demand + c.size*int64(len(c.queue))
		asks := len(c.queue) > 0 && w.now >= c.retry
		if idle := c.balance(); asks && idle > 0 || demand == 0 {
			c.r += max(0, idle)
		}
		if c.id != 0 {
			r.Counters = append(r.Counters, Counter{Resource: c.id, Spent: c.s, Returned: c.r, Held: c.h, Demand: demand})
		}
		if asks {
			id := uint64(i + 1)
			asked[id] = c
			r.Asks = append(r.Asks, Ask{ID: id, Needs: []Need{{Resource: w.pool, Name: c.name, Amount: c.size}}})
		}
	}
	reply := w.l.Renew(r)
	if reply.Fenced || reply.Refusal != RefusedNot {
		w.over = fmt.Sprintf("an honest sidecar is refused: %+v", reply)
		return
	}
	for _, g := range reply.Grants {
		for _, c := range p.claims {
			if c.name == g.Name {
				c.id, c.g, c.f = g.Resource, g.Granted, g.Forfeited
			}
		}
	}
	for _, a := range reply.Asks {
		c := asked[a.ID]
		if a.Granted {
			w.admit(c)
			c.queue = c.queue[1:]
			c.retry = 0
		} else {
			c.retry = w.now + min(a.RetryAfterMS, 2500)
		}
	}
}
