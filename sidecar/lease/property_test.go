package lease

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

const ms = int64(time.Millisecond)

func bucketOf(id uint64, limit, burst int64) *quotav1.Resource {
	return &quotav1.Resource{Id: id, Scope: "key", Owner: "k", Kind: quotav1.Kind_KIND_REQUESTS, Limit: limit, Burst: burst}
}

func budgetOf(id uint64, limit int64, period uint32, hard bool) *quotav1.Resource {
	return &quotav1.Resource{
		Id: id, Scope: "team", Owner: "t", Kind: quotav1.Kind_KIND_MONEY, Limit: limit, Burst: 1, Period: period,
		PeriodEndsMs: 1 << 41, Hard: hard,
	}
}

// usersOf is a limit for each user, runOf a budget for each run, poolOf a pool.
func usersOf(id uint64, limit, burst int64) *quotav1.Resource {
	r := bucketOf(id, limit, burst)
	r.Scope, r.Each = "end_user", quotav1.Each_EACH_NAME
	return r
}

func runOf(id uint64, limit int64) *quotav1.Resource {
	r := budgetOf(id, limit, 0, true)
	r.Scope, r.Each, r.PeriodEndsMs = "run", quotav1.Each_EACH_NAME, 0
	return r
}

func poolOf(id uint64, limit, burst int64) *quotav1.Resource {
	r := bucketOf(id, limit, burst)
	r.Scope, r.Each = "deployment", quotav1.Each_EACH_CLAIMANT
	return r
}

func named(resource uint64, name string, amount int64) Need {
	return Need{Resource: resource, Amount: amount, Name: name}
}

// checkMachine is what must hold of a machine at any time.
func checkMachine(m *Machine) error {
	held, opened := map[*counter]int64{}, map[*counter]int{}
	for i, h := range m.open {
		if h.id == 0 || h.at != i {
			return fmt.Errorf("open hold %d has id %d, at %d", i, h.id, h.at)
		}
		for k := range h.n {
			if c := h.needs[k].counter; c != nil {
				held[c] += h.needs[k].amount
				opened[c]++
			}
		}
	}
	for i, c := range m.counters {
		if c.held != held[c] || c.open != opened[c] {
			return fmt.Errorf("counter %v holds %d of %d requests, they %d of %d", c.key, c.held, c.open, held[c], opened[c])
		}
		if c.closing && (c.held != 0 || c.balance() != 0 || c.res.current == c || m.inflight == nil) {
			return fmt.Errorf("counter %v is closing: %+v", c.key, *c)
		}
		if i > 0 && m.counters[i-1].key.compare(c.key) >= 0 {
			return fmt.Errorf("counters out of order at %v", c.key)
		}
		if m.byKey[c.key] != c || c.spent < 0 || c.returned < 0 || c.use < 0 || c.smooth < 0 {
			return fmt.Errorf("counter %v: %+v", c.key, *c)
		}
	}
	for i, r := range m.named {
		if r.at != i || m.names[nameKey{r.id, r.name}] != r || r.of == nil {
			return fmt.Errorf("name %d is %+v", i, *r)
		}
		if c := r.current; c != nil && (c.res != r || m.byKey[c.key] != c || c.gone || c.closing) {
			return fmt.Errorf("name %q has the counter %+v", r.name, *c)
		}
	}
	if len(m.names) != len(m.named) {
		return fmt.Errorf("%d names, %d listed", len(m.names), len(m.named))
	}
	return nil
}

type simHold struct {
	h     Hold
	needs []Need
}

// TestMachineConserves drives one machine against a ledger with lost, repeated and late messages, lapses, fences,
// changing periods, and names that come, go quiet and are dropped. Nothing is made or lost, a request is reserved whole
// or not at all, no reservation goes beyond a balance, and each settles once. After every step the journal says what
// the machine knows, of names that were closed and begun again too.
func TestMachineConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newFakeLedger()
		now, period := int64(1e9), uint32(202601)
		m := NewMachine(Config{}, 1, now)
		configure := func() {
			m.Configure(now, []*quotav1.Resource{
				bucketOf(1, 600, 100), bucketOf(2, 60_000, 10_000), budgetOf(3, 1_000_000, period, true),
				usersOf(5, 300, 40), runOf(6, 300_000), poolOf(7, 6_000, 3_000),
			})
		}
		m.journal = memoryJournal(4 * segmentBytesMin)
		m.checkpoint()
		requests := 0
		configure()
		l.templates = map[uint64]int64{5: 40, 6: 300_000, 7: 3_000}
		l.capped[6] = true
		l.namesMost = rapid.IntRange(1, 5).Draw(t, "names_most")
		l.fund(1, 0, 100)
		l.fund(2, 0, 10_000)
		for p := period; p < period+12; p++ {
			l.fund(3, p, 1_000_000)
		}
		m.Connected(now)
		var holds []simHold
		var waits []*Waiting
		var wire []*quotav1.Renew
		incarnation := uint64(1)
		spent := map[uint64]int64{} // money per incarnation, by our own count

		take := func(h Hold, needs []Need) {
			holds = append(holds, simHold{h, needs})
		}
		collect := func() {
			for _, w := range m.Finished() {
				if w.Verdict.OK != w.Hold.Valid() {
					t.Fatalf("verdict %+v with hold %v", w.Verdict, w.Hold)
				}
				if w.Hold.Valid() {
					take(w.Hold, w.needs)
				}
			}
		}
		reply := func(r *quotav1.Renew) {
			rep, err := l.renew(r)
			if err != nil {
				t.Fatal(err)
			}
			if rep == nil || rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				return
			}
			if m.Apply(now, rep, incarnation+1) {
				incarnation++
				wire = nil // with the session that was fenced
				m.Connected(now)
			}
			collect()
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				needs := []Need{
					need(1, 1),
					need(2, rapid.Int64Range(0, 4000).Draw(t, "tokens")),
					need(3, rapid.Int64Range(0, 50_000).Draw(t, "money")),
				}
				if name := rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(t, "name"); name != "" {
					needs = append(needs, named(5, name, 1), named(6, name, rapid.Int64Range(0, 9000).Draw(t, "run")),
						named(7, "class/"+name, needs[1].Amount/4))
				}
				balances := map[*counter]int64{}
				for _, c := range m.counters {
					balances[c] = c.balance()
				}
				usable := now < m.usableUntil
				requests++
				note := fmt.Append(nil, requests)
				h, v, ask := m.Reserve(now, Share, needs, note)
				switch {
				case ask:
					if w, _ := m.Ask(now, Share, needs, note); w != nil {
						waits = append(waits, w)
					}
				case v.OK:
					for i := range h.h.n {
						n := h.h.needs[i]
						if n.counter != nil && n.amount > 0 && n.amount > balances[n.counter] {
							t.Fatalf("reserved %d of %d", n.amount, balances[n.counter])
						}
						if n.counter != nil && !n.res.capped && n.amount > 0 && !usable {
							t.Fatal("used a lease that has ended")
						}
					}
					take(h, needs)
				}
				if !v.OK {
					for c, b := range balances {
						if c.balance() != b {
							t.Fatalf("a refused request changed %v", c.key)
						}
					}
				}
			},
			"settle": func(t *rapid.T) {
				if len(holds) == 0 {
					return
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "which")
				s := holds[i]
				holds = append(holds[:i], holds[i+1:]...)
				used := []Need{need(1, 1), need(2, s.needs[1].Amount/2), need(3, s.needs[2].Amount*5/4)}
				if n := s.h.h.find(3); n != nil && n.counter != nil && !n.counter.gone {
					spent[incarnation] += used[2].Amount
				}
				if len(s.needs) > 3 {
					used = append(used, need(5, 1), need(6, s.needs[4].Amount*6/5), need(7, s.needs[5].Amount/2))
				}
				doubles, strays := m.stats.doubleSettles, m.stats.straySettles
				m.Settle(s.h, used)
				m.Settle(s.h, used)
				if m.stats.doubleSettles != doubles+1 {
					t.Fatal("a second settle was not noticed")
				}
				if m.stats.straySettles != strays {
					t.Fatalf("a resource was settled that had not been reserved: %+v of %+v", used, s.needs)
				}
			},
			"poll": func(t *rapid.T) {
				if r := m.Poll(now); r != nil {
					wire = append(wire, r)
				}
				collect()
			},
			"deliver": func(t *rapid.T) {
				if len(wire) == 0 {
					return
				}
				i := rapid.IntRange(0, len(wire)-1).Draw(t, "which")
				r := wire[i]
				if rapid.Bool().Draw(t, "once") {
					wire = append(wire[:i], wire[i+1:]...)
				}
				reply(r)
			},
			"lose": func(*rapid.T) { wire = nil },
			"time": func(t *rapid.T) {
				now += rapid.Int64Range(1, 3000).Draw(t, "ms") * ms
			},
			"rest": func(t *rapid.T) { // long enough for names to be closed
				for range rapid.IntRange(1, 12).Draw(t, "renews") {
					now = max(now+1800*ms, min(m.NextPoll(), now+3000*ms))
					if r := m.Poll(now); r != nil {
						reply(r)
					}
					collect()
				}
			},
			"lapse": func(*rapid.T) {
				if now > m.usableUntil+1100*ms {
					l.lapse(incarnation)
				}
			},
			"evict": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
				l.evict(5, name, false)
				l.evict(7, "class/"+name, false)
				l.evict(6, name, rapid.IntRange(0, 3).Draw(t, "over") == 0) // a run's time is over
			},
			"agree": func(t *rapid.T) { l.stubborn = rapid.IntRange(0, 3).Draw(t, "stubborn") == 0 },
			"leave the queue": func(t *rapid.T) {
				for _, w := range waits {
					if !w.Done() {
						m.Withdraw(now, w, rapid.Bool().Draw(t, "gone"))
						if w.Hold.Valid() {
							take(w.Hold, w.needs)
						}
					}
				}
				waits = nil
			},
			"turn the month": func(*rapid.T) {
				if period < 202612 {
					period++
					configure()
				}
			},
			"drop the session": func(*rapid.T) { m.Disconnected(now) },
			"new session":      func(*rapid.T) { m.Connected(now) },
			"wake":             func(*rapid.T) { m.Wake() },
			"fence": func(t *rapid.T) {
				if rapid.IntRange(0, 19).Draw(t, "rarely") == 0 {
					l.fenced[incarnation] = true
				}
			},
			"": func(t *rapid.T) {
				if err := checkMachine(m); err != nil {
					t.Fatal(err)
				}
				if err := l.check(); err != nil {
					t.Fatal(err)
				}
				if err := compareFinal(m, readBoth(contents(m.journal))); err != nil {
					t.Fatal(err)
				}
				if len(m.open) != len(holds) {
					t.Fatalf("%d open, %d held by us", len(m.open), len(holds))
				}
				var money int64
				for _, c := range m.counters {
					if c.key.period != 0 {
						money += c.spent
					}
				}
				if money != spent[incarnation] {
					t.Fatalf("spent %d, settled %d", money, spent[incarnation])
				}
			},
		})

		// Let everything end: all settles, and an idle machine hands everything back.
		for _, s := range holds {
			m.Settle(s.h, nil)
		}
		m.Connected(now)
		l.stubborn = false
		for range 60 {
			now = max(now+100*ms, min(m.NextPoll(), now+3000*ms))
			if r := m.Poll(now); r != nil {
				rep, err := l.renew(r)
				if err != nil {
					t.Fatal(err)
				}
				if rep != nil && m.Apply(now, rep, incarnation+1) {
					incarnation++
					m.Connected(now)
				}
			}
			for _, w := range m.Finished() {
				m.Settle(w.Hold, nil)
			}
		}
		if len(m.named) > 0 {
			t.Fatalf("an idle machine keeps %d names", len(m.named))
		}
		for key, a := range l.accounts {
			if _, child := l.nameOf[key.resource]; child && key.incarnation == incarnation {
				t.Fatalf("quotad keeps %v: %+v", key, *a)
			}
		}
		for _, c := range m.counters {
			if c.balance() != 0 || c.held != 0 {
				t.Fatalf("an idle machine keeps %d of %v", c.balance(), c.key)
			}
			a := l.account(incarnation, c.key)
			if a.out() != 0 || a.spent != c.spent || a.returned != c.returned {
				t.Fatalf("%v: ledger %+v, machine spent %d returned %d", c.key, *a, c.spent, c.returned)
			}
		}
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
	})
}
