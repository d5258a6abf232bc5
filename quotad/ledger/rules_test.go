package ledger

import (
	"reflect"
	"slices"
	"testing"
)

// TestFirstRules: what the first version does, as it does it. The numbers are that version's.
func TestFirstRules(t *testing.T) {
	budget := Spec{Scope: "team", Owner: "t", Kind: Money, Limit: 1e9}
	gift := Credit{ID: "x", Amount: 5, Actor: "ann", Reason: "why"}
	again := func(amount int64) Credit { return Credit{ID: "x", Amount: amount} }
	bucket := Spec{Scope: "team", Owner: "t", Kind: TotalTokens, Limit: 60_000, Burst: 60_000}
	made := func(t *testing.T, r Rules, specs ...Spec) *Ledger {
		t.Helper()
		l := New(Config{})
		l.Follow(r)
		l.Advance(1)
		l.OpenPeriods([]Period{{Period: 202601, EndsMS: 1 << 40}})
		if err := l.Define(1, specs, Fairness{}); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, tt := range []struct {
		rules   Rules
		standby int64 // when standby ends
		level   int64 // of a bucket after its only user lapsed with a share of all of it: refilled for 11,100 ms
		beside  int64 // what asks were granted: level of a bucket of 60,000 a second after half of it was
		filed   bool  // a journal of a process that is not known is done with
		settled int64 // by a journal of a counter that is not known
		ids     []string
		given   []Credit
		other   CreditResult // of a credit with the same id and another amount
	}{
		{RulesFirst, 1 + 3_601_100, 60_000 - 20_000, 31_000, false, 0, []string{"x"}, nil, CreditRepeated},
		{RulesNow, 1 + 3_619_100, 60_000 - 20_000 - 1_100, 30_000, true, 500, nil, []Credit{{"x", 5, 1, "ann", "why"}}, CreditOther},
	} {
		l := made(t, tt.rules, bucket)
		id := l.Resources()[0].ID
		ask := []Ask{{ID: 1, Needs: []Need{{Resource: id, Amount: 31_100}}}}
		l.Renew(Renew{Identity: "s", Incarnation: 7, Seq: 1, Asks: ask})
		l.Renew(Renew{Identity: "s", Incarnation: 7, Seq: 2, Counters: []Counter{{Resource: id, Held: 31_100}}})
		m, _ := l.MemberState(7)
		if m.StandbyAtMS != tt.standby {
			t.Errorf("rules %d: standby ends at %d, want %d", tt.rules, m.StandbyAtMS, tt.standby)
		}
		l.Advance(1 + 11_100)
		if got, _ := l.Resource(id); got.Level != tt.level || got.Shares != 60_000 {
			t.Errorf("rules %d: %+v, want a level of %d", tt.rules, got, tt.level)
		}

		l = made(t, tt.rules, bucket)
		ask = []Ask{{ID: 1, Needs: []Need{{Resource: id, Amount: 30_000}}}}
		l.Renew(Renew{Identity: "s", Incarnation: 7, Seq: 1, Asks: ask})
		l.Advance(1 + 1_000)
		if got, _ := l.Resource(id); got.Level != tt.beside {
			t.Errorf("rules %d: level %d beside an ask, want %d", tt.rules, got.Level, tt.beside)
		}

		l = made(t, tt.rules, budget)
		id = l.Resources()[0].ID
		if got := l.Credit(id, 202601, gift); got != CreditApplied {
			t.Errorf("rules %d: credit %d", tt.rules, got)
		}
		l.Follow(RulesNow) // what was credited before is known by its id alone
		same, other := l.Credit(id, 202601, again(5)), l.Credit(id, 202601, again(6))
		if p := l.Resources()[0].Periods[0]; same != CreditRepeated || other != tt.other || p.Credits != 5 ||
			!slices.Equal(p.CreditIDs, tt.ids) || !slices.Equal(p.Given, tt.given) {
			t.Errorf("rules %d: repeated %d, other %d, %+v", tt.rules, same, other, p)
		}

		l = made(t, tt.rules, budget)
		id = l.Resources()[0].ID
		cs := []Counter{{Resource: id, Period: 202601, Spent: 500}}
		before := l.Resources()
		if done := l.FileFinal(FileFinal{Identity: "s", Incarnation: 7, Seq: 1, Counters: cs, Successor: 8}); done != tt.filed {
			t.Errorf("rules %d: filed %v, want %v", tt.rules, done, tt.filed)
		}
		if !tt.filed && !reflect.DeepEqual(l.Resources(), before) {
			t.Errorf("rules %d: what is to be filed later has changed something: %+v", tt.rules, l.Resources())
		}

		l = made(t, tt.rules, budget)
		l.Renew(Renew{Identity: "s", Incarnation: 7, Seq: 1})
		l.Advance(60_000)
		if !l.FileFinal(FileFinal{Identity: "s", Incarnation: 7, Seq: 1, Counters: cs, Successor: 8}) {
			t.Errorf("rules %d: not filed", tt.rules)
		}
		if p := l.Resources()[0].Periods[0]; p.Settled != tt.settled {
			t.Errorf("rules %d: settled %d, want %d", tt.rules, p.Settled, tt.settled)
		}
		if err := l.Check(); err != nil {
			t.Errorf("rules %d: %v", tt.rules, err)
		}
	}
}
