package ledger

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestAsksThatComeBack: of what asks are granted some runs and some comes back with the next renew, in any order, beside
// leases that are used or handed back. The witness is a bucket from which only what runs is drawn, when it was granted or
// taken from the lease: what it holds is never less than nothing, to the unit.
func TestAsksThatComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		limit, burst := 1+rng.Int64N(1200), 1+rng.Int64N(60)
		l := New(Config{})
		if err := l.Define(1, []Spec{{Scope: "org", Kind: Requests, Limit: limit, Burst: burst}}, Fairness{}); err != nil {
			rt.Fatal(err)
		}
		res := l.Resources()[0].ID
		type pod struct {
			seq           uint64
			g, f, s, r, h int64
			back          int64 // granted to asks whose callers have gone
			renewed       int64
		}
		pods := make([]pod, 2+rng.IntN(3))
		now, level, at := int64(0), burst*perUnit, int64(0)
		run := func(p *pod, n int64) {
			p.h += n
			level = min(burst*perUnit, level+limit*(now-at)) - n*perUnit
			at = now
			if level < 0 {
				rt.Fatalf("at %d: %d are drawn on a bucket (limit %d, burst %d) that is %d short", now, n, limit, burst, -level)
			}
		}
		for range 400 {
			now += rng.Int64N(2 + 120_000/limit)
			if rng.IntN(20) == 0 {
				now += rng.Int64N(12_000) // some lapse
			}
			i := rng.IntN(len(pods))
			p := &pods[i]
			idle := p.g - p.f - p.s - p.r - p.h - p.back
			if idle > 0 && now-p.renewed < 10_000 && rng.IntN(2) == 0 {
				n := 1 + rng.Int64N(idle)
				run(p, n)
				idle -= n
			}
			if rng.IntN(2) == 0 {
				continue
			}
			settled := rng.Int64N(p.h + 1)
			p.s, p.h = p.s+settled, p.h-settled
			p.r, p.back = p.r+p.back, 0
			if idle > 0 && now-p.renewed < 10_000 && rng.IntN(2) == 0 {
				p.r += 1 + rng.Int64N(idle)
			}
			p.seq++
			p.renewed = now
			need := 1 + rng.Int64N(burst)
			l.Enter(1 + uint64(now))
			l.Advance(now)
			r := Renew{Incarnation: uint64(i + 1), Seq: p.seq, Asks: []Ask{{ID: p.seq, Needs: []Need{{Resource: res, Amount: need}}}}}
			r.Counters = []Counter{{Resource: res, Spent: p.s, Returned: p.r, Held: p.h, Demand: rng.Int64N(burst) * rng.Int64N(2)}}
			reply := l.Renew(r)
			if reply.Fenced || reply.Refusal != RefusedNot {
				rt.Fatalf("an honest process is answered %+v", reply)
			}
			p.g, p.f = reply.Grants[0].Granted, reply.Grants[0].Forfeited
			switch {
			case !reply.Asks[0].Granted:
			case rng.IntN(2) == 0:
				run(p, need)
			default:
				p.back = need
			}
			if err := l.Check(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}
