package ledger

import "testing"

// TestOldJournalOfAClosedCounter: a run's counter was closed and begun anew. A journal from before that, as of a disk that
// was put back, does not count again what the first one counted.
func TestOldJournalOfAClosedCounter(t *testing.T) {
	l := New(Config{})
	err := l.Define(1, []Spec{{Scope: "run", Owner: "t", Kind: Money, Each: EachName, Limit: 1000, Hard: true}}, Fairness{})
	if err != nil {
		t.Fatal(err)
	}
	run := l.Resources()[0].ID
	seq, index := uint64(0), uint64(1)
	renew := func(asks []Ask, counters ...Counter) RenewReply {
		seq++
		index++
		l.Enter(index)
		return l.Renew(Renew{Identity: "s", Incarnation: 7, Seq: seq, Counters: counters, Asks: asks})
	}
	ask := []Ask{{ID: 1, Needs: []Need{{Resource: run, Amount: 100, Name: "r"}}}}
	child := renew(ask).Grants[0].Resource
	renew(nil, Counter{Resource: child, Spent: 100})
	if g := renew(nil, Counter{Resource: child, Spent: 100, Close: true}).Grants[0]; !g.Gone {
		t.Fatalf("closed: %+v", g)
	}
	renew(ask)
	l.Advance(60_000)
	old := FileFinal{Identity: "s", Incarnation: 7, Successor: 8, Seq: 2, Counters: []Counter{{Resource: child, Spent: 100}}}
	if !l.FileFinal(old) {
		t.Fatal("the journal is not taken")
	}
	if p := l.Children(run)[0].Periods[0]; p.Settled != 100 || p.Suspense != 100 {
		t.Errorf("settled %d and %d in suspense, want 100 and 100", p.Settled, p.Suspense)
	}
}
