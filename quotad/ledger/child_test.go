package ledger

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// each returns a ledger with a template of end users, one of runs, and a pool.
func each(t testing.TB) (l *Ledger, users, runs, pool uint64) {
	t.Helper()
	l = New(Config{})
	specs := []Spec{
		{Scope: "deployment", Owner: "m", Kind: Requests, Limit: 600, Each: EachClaimant},
		{Scope: "end_user", Owner: "a", Kind: Requests, Limit: 600, Each: EachName},
		{Scope: "run", Owner: "a", Kind: Calls, Limit: 20, Hard: true, Each: EachName},
	}
	if err := l.Define(1, specs, Fairness{}); err != nil {
		t.Fatal(err)
	}
	rs := l.Resources()
	return l, rs[1].ID, rs[2].ID, rs[0].ID
}

// namer asks for names, one renew each, and settles what it was granted.
type namer struct {
	t     *testing.T
	l     *Ledger
	index uint64
	renew Renew
}

func (n *namer) ask(template uint64, name string) (AskResult, []Grant) {
	n.t.Helper()
	n.index++
	n.l.Enter(n.index)
	n.renew.Incarnation = 1
	n.renew.Seq++
	n.renew.Asks = []Ask{{ID: n.renew.Seq, Needs: []Need{{Resource: template, Name: name, Amount: 1}}}}
	reply := n.l.Renew(n.renew)
	if reply.Fenced || reply.Refusal != RefusedNot {
		n.t.Fatalf("got %+v", reply)
	}
	n.renew.Counters = nil
	for _, g := range reply.Grants {
		if !g.Gone {
			n.renew.Counters = append(n.renew.Counters, Counter{Resource: g.Resource, Spent: g.Granted, Close: true})
		}
	}
	return reply.Asks[0], reply.Grants
}

// TestNameFlood: names without end are bounded. Users that were served and are full again make room; where nobody may
// go, and for runs, further names share one.
func TestNameFlood(t *testing.T) {
	l, users, runs, _ := each(t)
	n := &namer{t: t, l: l, index: 1}
	for i := range 3 * namesMax {
		l.Advance(l.Now() + 1)
		if a, gs := n.ask(users, fmt.Sprint("u", i)); !a.Granted || gs[len(gs)-1].Name != fmt.Sprint("u", i) {
			t.Fatalf("user %d got %+v, %+v", i, a, gs)
		}
	}
	if r, _ := l.Resource(users); r.Children != namesMax {
		t.Errorf("%d users are remembered, want %d", r.Children, namesMax)
	}
	n.renew.Seq++
	n.renew.Asks = nil
	l.Renew(n.renew) // the last one settles
	n.renew.Counters = nil
	l.Advance(l.Now() + childKeepMS + 1000)
	if r, _ := l.Resource(users); r.Children != 0 {
		t.Errorf("%d users are remembered a minute later", r.Children)
	}
	for i := range runsMax + 10 {
		a, gs := n.ask(runs, fmt.Sprint("r", i))
		name := fmt.Sprint("r", i)
		if i >= runsMax {
			name = ""
		}
		if !a.Granted || gs[len(gs)-1].Name != name {
			t.Fatalf("run %d got %+v, %+v", i, a, gs)
		}
	}
	for i := range 11 {
		if a, _ := n.ask(runs, fmt.Sprint("late", i)); a.Granted != (i < 10) || !a.Granted && a.Shortage != Exhausted {
			t.Fatalf("late run %d got %+v: the shared one has 20 calls", i, a)
		}
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	l.Advance(l.Now() + runKeepMS + expireEveryMS)
	if r, _ := l.Resource(runs); r.Children != 0 || l.children != 0 {
		t.Errorf("%d runs are remembered a day later, %d children in all", r.Children, l.children)
	}
	reload(t, l)
}

// TestBusyUsersShare: users that hold something keep their place; new ones share one.
func TestBusyUsersShare(t *testing.T) {
	l, users, _, _ := each(t)
	n := &namer{t: t, l: l, index: 1}
	for i := range namesMax {
		n.index++
		l.Enter(n.index)
		inc := uint64(2 + i/1000)
		l.Renew(Renew{Incarnation: inc, Seq: uint64(1 + i%1000), Asks: []Ask{{Needs: []Need{{Resource: users, Name: fmt.Sprint(i), Amount: 1}}}}})
	}
	if a, gs := n.ask(users, "new"); !a.Granted || gs[0].Name != "" || gs[0].Of != users {
		t.Errorf("got %+v, %+v", a, gs)
	}
	if r, _ := l.Resource(users); r.Children != namesMax+1 {
		t.Errorf("%d children, want %d and the shared one", r.Children, namesMax)
	}
}

// TestEntryChildren: one entry makes so many children and no more; who is over asks again.
func TestEntryChildren(t *testing.T) {
	l, users, _, _ := each(t)
	l.Enter(2)
	r := Renew{Incarnation: 1, Seq: 1}
	for i := range asksMax {
		r.Asks = append(r.Asks, Ask{ID: uint64(i), Needs: []Need{{Resource: users, Name: fmt.Sprint(i), Amount: 1}}})
	}
	l.Renew(r)
	r.Seq, r.Asks = 2, []Ask{{ID: 1, Needs: []Need{{Resource: users, Name: "more", Amount: 1}}}}
	if got := l.Renew(r).Asks[0]; got.Granted || got.Shortage != Reserved || got.RetryAfterMS < 1 {
		t.Errorf("got %+v, want it reserved", got)
	}
	l.Enter(3)
	r.Seq = 3
	if got := l.Renew(r); !got.Asks[0].Granted || got.Grants[0].Resource != 3*ordinalsMax {
		t.Errorf("got %+v, want it granted", got)
	}
}

// TestRunStaysWithinItsCap: whatever sidecars and network do, what all of them hold and have spent of a run is no more
// than its cap, and what the ledger says is free is theirs to have.
func TestRunStaysWithinItsCap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := New(Config{})
		amount := func(most int64, what string) int64 { return rapid.Int64Range(0, most).Draw(rt, what) }
		maxima := map[Kind]int64{Money: 5000, Calls: 12}
		define := func(index uint64) {
			var specs []Spec
			for _, k := range []Kind{Money, Calls} {
				specs = append(specs, Spec{Scope: "run", Owner: "a", Kind: k, Limit: maxima[k], Hard: true, Each: EachName})
			}
			if err := l.Define(index, specs, Fairness{}); err != nil {
				rt.Fatal(err)
			}
		}
		define(1)
		money, calls := l.Resources()[0].ID, l.Resources()[1].ID
		type side struct {
			inc, seq uint64
			ids      [2]uint64 // money, calls
			counters [2]spender
			flight   *Renew
			old      []Renew
		}
		sides := []*side{{inc: 1}, {inc: 2}, {inc: 3}}
		var closed [2]int64 // what closed counters had spent
		for step := range rapid.IntRange(1, 80).Draw(rt, "steps") {
			l.Enter(uint64(step + 2))
			if amount(30, "raise") == 0 {
				maxima[Money] += 700
				maxima[Calls] += 2
				define(uint64(step + 2))
			}
			l.Advance(l.Now() + amount(4000, "ms"))
			s := sides[amount(2, "side")]
			if s.flight == nil {
				s.seq++
				r := &Renew{Incarnation: s.inc, Seq: s.seq}
				shut := amount(3, "close") == 0
				for i := range s.counters {
					c := &s.counters[i]
					for len(c.holds) > 0 && (shut || amount(1, "settle") == 0) {
						c.settle(0, -amount(c.holds[0]/2, "less"))
					}
					idle := c.granted - c.spent - c.back - c.held()
					if idle > 0 && !shut && amount(1, "hold") == 0 {
						c.holds = append(c.holds, 1+amount(idle-1, "held"))
						idle = c.granted - c.spent - c.back - c.held()
					}
					if shut || amount(2, "back") == 0 {
						c.back += idle
					}
					if s.ids[i] != 0 {
						r.Counters = append(r.Counters, Counter{
							Resource: s.ids[i], Spent: c.spent, Returned: c.back, Held: c.held(), Close: shut,
						})
						if !shut {
							r.Counters[len(r.Counters)-1].Demand = amount(900, "demand")
						}
					}
				}
				if !shut {
					r.Asks = []Ask{{ID: s.seq, Needs: []Need{
						{Resource: money, Name: "r", Amount: 1 + amount(1500, "need")}, {Resource: calls, Name: "r", Amount: 1},
					}}}
				}
				s.flight = r
			}
			if len(s.old) > 0 && amount(3, "late") == 0 {
				l.Renew(s.old[amount(int64(len(s.old)-1), "which")])
			}
			reply := l.Renew(*s.flight)
			if reply.Fenced || reply.Refusal != RefusedNot {
				rt.Fatalf("an honest sidecar is refused: %+v", reply)
			}
			if amount(3, "lost") > 0 { // else it is sent again, byte for byte
				s.old = append(s.old, *s.flight)
				for _, g := range reply.Grants {
					i := slices.Index([]uint64{money, calls}, g.Of)
					if k := slices.Index(s.ids[:], g.Resource); g.Gone && k >= 0 {
						closed[k] += s.counters[k].spent
						s.counters[k], s.ids[k] = spender{}, 0
					} else if i >= 0 {
						s.ids[i], s.counters[i].granted = g.Resource, g.Granted
					}
				}
				for i, a := range reply.Asks {
					if a.Granted {
						for k, n := range s.flight.Asks[i].Needs {
							s.counters[k].holds = append(s.counters[k].holds, n.Amount)
						}
					}
				}
				s.flight = nil
			}
			if err := l.Check(); err != nil {
				rt.Fatal(err)
			}
			for i, k := range []Kind{Money, Calls} {
				used := closed[i]
				for _, s := range sides {
					used += s.counters[i].spent + s.counters[i].held()
				}
				if used > maxima[k] {
					rt.Fatalf("kind %d: %d is held or spent of %d", k, used, maxima[k])
				}
				kids := l.Children([]uint64{money, calls}[i])
				if len(kids) == 1 && kids[0].Periods[0].Free > maxima[k]-used {
					rt.Fatalf("kind %d: %d is free, in truth %d", k, kids[0].Periods[0].Free, maxima[k]-used)
				}
			}
		}
	})
}

// TestChildrenAreNotDefined: what is wrong with a template is refused, with its name.
func TestChildrenAreNotDefined(t *testing.T) {
	inr := []Rate{{Period: 202601, PerUSDNano: 88e9}}
	for name, s := range map[string]Spec{
		"pool of money":        {Kind: Money, Each: EachClaimant, Hard: true},
		"whole calls":          {Kind: Calls, Hard: true},
		"soft run":             {Kind: Money, Each: EachName},
		"unknown each":         {Kind: Requests, Each: 3},
		"large pool":           {Kind: Requests, Each: EachClaimant, Limit: poolMax + 1},
		"kept for ever":        {Kind: Money, Each: EachName, Hard: true, KeepMS: math.MaxInt64},
		"no rate":              {Kind: Money, Currency: "INR"},
		"rates of nothing":     {Kind: Money, Rates: inr},
		"requests in rupees":   {Kind: Requests, Currency: "INR", Rates: inr},
		"a month twice":        {Kind: Money, Currency: "INR", Rates: append(inr, inr...)},
		"a rate of nothing":    {Kind: Money, Currency: "INR", Rates: []Rate{{Period: 202601}}},
		"more rates than fit":  {Kind: Money, Currency: "INR", Rates: make([]Rate, ratesMax+1)},
		"a month out of range": {Kind: Money, Currency: "INR", Rates: []Rate{{Period: periodMax + 1, PerUSDNano: 1}}},
	} {
		if err := New(Config{}).Define(1, []Spec{s}, Fairness{}); err == nil {
			t.Errorf("%s: it was defined", name)
		}
	}
	for name, f := range map[string]Fairness{
		"unknown class":   {Reserves: []ClassReserve{{"urgent", 1}}},
		"class twice":     {Reserves: []ClassReserve{{"batch", 1}, {"batch", 2}}},
		"more than all":   {Reserves: []ClassReserve{{"batch", 200}}},
		"weight of none":  {Weights: []TeamWeight{{"a", 0}}},
		"team twice":      {Weights: []TeamWeight{{"a", 1}, {"a", 1}}},
		"absurd weight":   {Weights: []TeamWeight{{"a", weightMax + 1}}},
		"negative part":   {Reserves: []ClassReserve{{"batch", -1}}},
		"too many of all": {Weights: make([]TeamWeight, teamsMax+1)},
	} {
		l := New(Config{})
		if l.CheckDefine(1, nil, f) == nil || l.Define(1, nil, f) == nil {
			t.Errorf("%s: it was defined", name)
		}
	}
}
