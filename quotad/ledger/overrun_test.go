package ledger

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// spender is a sidecar whose requests may cost more, or less, than they reserved. What it knows is its own: the test
// compares the ledger's books with it.
type spender struct {
	inc, seq             uint64
	granted, spent, back int64
	holds                []int64 // of running requests
}

func (s *spender) held() (sum int64) {
	for _, h := range s.holds {
		sum += h
	}
	return sum
}

// settle ends a request that cost its reservation and over.
func (s *spender) settle(i int, over int64) {
	s.spent += max(0, s.holds[i]+over)
	s.holds = append(s.holds[:i], s.holds[i+1:]...)
}

// TestFreeIsNeverWhatIsOverrun: after each renew the budget balances, and what is free leaves untouched what has been
// spent and what running requests hold, at all sidecars: also where a request cost more than it reserved while others
// were running.
func TestFreeIsNeverWhatIsOverrun(t *testing.T) {
	for name, hard := range map[string]bool{"hard": true, "soft": false} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { playOverruns(rt, hard) })
		})
	}
}

func playOverruns(rt *rapid.T, hard bool) {
	const limit, month = 10_000, 202601
	l := New(Config{})
	if err := l.Define(1, []Spec{{Scope: "team", Owner: "a", Kind: Money, Limit: limit, Hard: hard}}, Fairness{}); err != nil {
		rt.Fatal(err)
	}
	l.OpenPeriods([]Period{{Period: month, EndsMS: 1}})
	id := l.Resources()[0].ID
	sides := []*spender{{inc: 1}, {inc: 2}, {inc: 3}}
	credits := int64(0)
	amount := func(most int64, what string) int64 { return rapid.Int64Range(0, most).Draw(rt, what) }
	for range rapid.IntRange(1, 60).Draw(rt, "steps") {
		if amount(20, "credit") == 0 {
			gift := amount(1000, "gift") - 300
			if l.Credit(id, month, Credit{ID: fmt.Sprint(credits, l.Now()), Amount: gift}) == CreditApplied {
				credits += gift
			}
		}
		s := sides[amount(2, "side")]
		for len(s.holds) > 0 && amount(1, "settle") == 0 {
			s.settle(int(amount(int64(len(s.holds)-1), "which")), amount(400, "over")-200)
		}
		idle := s.granted - s.spent - s.back - s.held()
		if idle > 0 && amount(1, "back") == 0 {
			part := amount(idle, "returned")
			s.back += part
			idle -= part
		}
		if idle > 0 {
			s.holds = append(s.holds, 1+amount(idle-1, "hold"))
		}
		s.seq++
		need := 1 + amount(3000, "need")
		r := Renew{
			Incarnation: s.inc, Seq: s.seq,
			Counters: []Counter{{Resource: id, Period: month, Spent: s.spent, Returned: s.back, Held: s.held(), Demand: amount(500, "demand")}},
			Asks:     []Ask{{ID: s.seq, Needs: []Need{{Resource: id, Period: month, Amount: need}}}},
		}
		reply := l.Renew(r)
		if reply.Fenced || reply.Refusal != RefusedNot {
			rt.Fatalf("an honest sidecar is refused: %+v", reply)
		}
		if reply.Asks[0].Granted {
			s.holds = append(s.holds, need)
		}
		s.granted = reply.Grants[0].Granted
		l.Advance(l.Now() + amount(300, "ms"))
		if err := l.Check(); err != nil {
			rt.Fatal(err)
		}
		// Of this one the test knows what is true; of the others, what they told last.
		told := limit + credits - s.spent - s.held()
		for _, other := range sides {
			if other != s {
				for _, c := range l.Counters(other.inc) {
					told -= c.Spent + c.Held
				}
			}
		}
		open, _ := l.Resources()[0].Open()
		if open.Free > told {
			rt.Fatalf("free is %d, of which %d is spent or held", open.Free, open.Free-told)
		}
	}
}
