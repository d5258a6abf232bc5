package ledger

import (
	"fmt"
	"math"
	"testing"
)

// BenchmarkRenew is a renew of six counters (key, team and org buckets, and budgets) among 5,000 sidecars and 100,000
// resources. Sidecars share the org's resources, and 50 each a team's.
//
//	plenty   there is enough for all
//	short    the org's bucket is short, so that each renew divides it among all 5,000
//	asks     each renew brings a request to be granted
func BenchmarkRenew(b *testing.B) {
	b.Run("plenty", func(b *testing.B) { benchmarkRenew(b, 1e9, 0) })
	b.Run("short", func(b *testing.B) { benchmarkRenew(b, 1e5, 0) })
	b.Run("asks", func(b *testing.B) { benchmarkRenew(b, 1e9, 3) })
}

const benchSides = 5000

// benchLedger returns the ledger and the renew that each sidecar sends.
func benchLedger(b *testing.B, orgLimit, need int64) (*Ledger, []Renew) {
	const sides, resources, perTeam = benchSides, 100_000, 50
	l := New(Config{})
	specs := []Spec{
		{Scope: "org", Owner: "o", Kind: TotalTokens, Limit: orgLimit},
		{Scope: "org", Owner: "o", Kind: Money, Limit: 1e15, Hard: true},
	}
	for i := range sides {
		specs = append(specs, Spec{Scope: "key", Owner: fmt.Sprintf("%05d", i), Kind: Requests, Limit: 6000})
	}
	for i := range sides / perTeam {
		for _, k := range []Kind{Requests, TotalTokens, Money} {
			specs = append(specs, Spec{Scope: "team", Owner: fmt.Sprintf("%05d", i), Kind: k, Limit: 1e12, Hard: true})
		}
	}
	for i := len(specs); i < resources; i++ {
		specs = append(specs, Spec{Scope: "key", Owner: fmt.Sprintf("other-%05d", i), Kind: Requests, Limit: 60})
	}
	for n, index := 0, uint64(1); n < len(specs); index++ {
		n = min(n+ordinalsMax, len(specs))
		if err := l.Define(index, specs[:n], Fairness{}); err != nil {
			b.Fatal(err)
		}
	}
	l.OpenPeriods([]Period{{Period: 202601, EndsMS: 1}})
	ids := map[string]uint64{}
	for _, r := range l.Resources() {
		ids[r.Spec.name()] = r.ID
	}
	renews := make([]Renew, sides)
	for i := range renews {
		key, team := fmt.Sprintf("key/%05d/", i), fmt.Sprintf("team/%05d/", i/perTeam)
		renews[i] = Renew{Identity: "pod", Incarnation: uint64(i)*0x9e3779b97f4a7c15 | 1, Counters: []Counter{
			{Resource: ids["org/o/4"], Demand: 1000},
			{Resource: ids["org/o/5"], Period: 202601, Demand: 2e6},
			{Resource: ids[key+"1"], Demand: 5},
			{Resource: ids[team+"1"], Demand: 5},
			{Resource: ids[team+"4"], Demand: 1000},
			{Resource: ids[team+"5"], Period: 202601, Demand: 2e6},
		}}
		if need > 0 {
			a := Ask{ID: 1}
			for _, c := range renews[i].Counters {
				a.Needs = append(a.Needs, Need{Resource: c.Resource, Period: c.Period, Amount: need})
			}
			renews[i].Asks = []Ask{a}
		}
	}
	return l, renews
}

func benchmarkRenew(b *testing.B, orgLimit, need int64) {
	l, renews := benchLedger(b, orgLimit, need)
	now, i := int64(0), 0
	next := func() {
		r := &renews[i%benchSides]
		r.Seq++
		if i++; i%5 == 0 {
			now += 2
			l.Advance(now)
		}
		reply := l.Renew(*r)
		if reply.Fenced || reply.Refusal != RefusedNot || need > 0 && !reply.Asks[0].Granted {
			b.Fatalf("got %+v", reply)
		}
		for k := range r.Counters {
			c, g := &r.Counters[k], &reply.Grants[k]
			c.Spent = g.Granted - g.Forfeited - c.Returned // it uses all it got
		}
		if i%512 == 0 {
			l.Touched(math.MaxInt)
			l.Events()
		}
	}
	for range 3 * benchSides {
		next()
	}
	b.ReportAllocs()
	for b.Loop() {
		next()
	}
	b.StopTimer()
	if err := l.Check(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, n := range []int{10, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			claims, scratch := make([]claim, n), make([]claim, n)
			for i := range claims {
				claims[i] = claim{id: uint64(i), want: int64(i * 7919 % 1000), weight: 1}
			}
			for b.Loop() {
				copy(scratch, claims)
				divide(int64(n)*300, scratch, 0)
			}
		})
	}
}

// BenchmarkClaim is a renew of eight counters, two of them of a claimant of a deployment's pools, among 1,000 sidecars
// with a claimant each.
//
//	plenty     there is enough for all
//	contested  what refills is set aside among all 1,000
func BenchmarkClaim(b *testing.B) {
	b.Run("plenty", func(b *testing.B) { benchmarkClaim(b, poolMax) })
	b.Run("contested", func(b *testing.B) { benchmarkClaim(b, 1e6) })
}

func benchmarkClaim(b *testing.B, limit int64) {
	const sides = 1000
	l := New(Config{})
	var specs []Spec
	for _, k := range []Kind{Requests, TotalTokens, Money} {
		specs = append(specs, Spec{Scope: "org", Owner: "o", Kind: k, Limit: 1e12, Hard: true},
			Spec{Scope: "team", Owner: "t", Kind: k, Limit: 1e12, Hard: true})
	}
	for _, k := range []Kind{Requests, TotalTokens} {
		specs = append(specs, Spec{Scope: "deployment", Owner: "m", Kind: k, Limit: limit, Each: EachClaimant})
	}
	if err := l.Define(1, specs, Fairness{}); err != nil {
		b.Fatal(err)
	}
	l.OpenPeriods([]Period{{Period: 202601, EndsMS: 1}})
	renews := make([]Renew, sides)
	for i := range renews {
		r := &renews[i]
		*r = Renew{Incarnation: uint64(i)*0x9e3779b97f4a7c15 | 1, Seq: 1}
		l.Enter(uint64(i) + 2)
		name := fmt.Sprintf("%s/%04d", classNames[i%int(classes)], i)
		for _, res := range l.Resources() {
			if res.Spec.Each == EachClaimant {
				r.Asks = append(r.Asks, Ask{ID: res.ID, Needs: []Need{{Resource: res.ID, Amount: 1, Name: name}}})
				continue
			}
			c := Counter{Resource: res.ID, Demand: 1000}
			if res.Spec.Kind == Money {
				c.Period, c.Demand = 202601, 2e6
			}
			r.Counters = append(r.Counters, c)
		}
		for _, g := range l.Renew(*r).Grants {
			if g.Of != 0 {
				r.Counters = append(r.Counters, Counter{Resource: g.Resource, Demand: 1000})
			}
		}
		r.Asks = nil
		if len(r.Counters) != 8 {
			b.Fatalf("%d counters", len(r.Counters))
		}
	}
	now, i := int64(0), 0
	next := func() {
		r := &renews[i%sides]
		r.Seq++
		if i++; i%5 == 0 {
			now += 2
			l.Advance(now)
		}
		reply := l.Renew(*r)
		if reply.Fenced || reply.Refusal != RefusedNot {
			b.Fatalf("got %+v", reply)
		}
		for k := range r.Counters {
			c, g := &r.Counters[k], &reply.Grants[k]
			c.Spent = g.Granted - g.Forfeited - c.Returned
		}
		if i%512 == 0 {
			l.Touched(math.MaxInt)
			l.Events()
		}
	}
	for range 3 * sides {
		next()
	}
	b.ReportAllocs()
	for b.Loop() {
		next()
	}
	b.StopTimer()
	if err := l.Check(); err != nil {
		b.Fatal(err)
	}
}
