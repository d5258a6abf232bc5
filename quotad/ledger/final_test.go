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

// TestSharesOfTheDead: a successor uses its predecessor's shares before quotad hears of it, whatever became of the successor
// in quotad's eyes meanwhile. Nobody else gets them then; and when it has given them up, somebody does.
func TestSharesOfTheDead(t *testing.T) {
	const limit = 60_000
	for _, tt := range []struct {
		name   string
		rules  Rules
		befall func(l *Ledger, bucket uint64)
		others int64 // share that somebody else gets once the journal is filed
	}{
		{"lives", RulesNow, func(l *Ledger, _ uint64) { l.Renew(Renew{Identity: "s", Incarnation: 8, Seq: 2}) }, 0},
		{"lapses", RulesNow, func(*Ledger, uint64) {}, 0},
		{"lapses, by the first rules", RulesFirst, func(*Ledger, uint64) {}, limit},
		{"is fenced", RulesNow, func(l *Ledger, bucket uint64) {
			l.Renew(Renew{Identity: "s", Incarnation: 8, Seq: 2, Counters: []Counter{{Resource: bucket, Spent: 1 << 50}}})
		}, 0},
		{"has no room for one more version", RulesNow, func(l *Ledger, bucket uint64) {
			m := l.members[8]
			for v := range uint64(sharesMax) {
				l.pushShare(m.find(bucket, 0), v+1, 0)
			}
			m.shareVersion = sharesMax
		}, 0},
		{"has left", RulesNow, func(l *Ledger, _ uint64) {
			l.Renew(Renew{Identity: "s", Incarnation: 8, Seq: 2, Leaving: true})
		}, limit},
	} {
		l := New(Config{})
		l.Follow(tt.rules)
		if err := l.Define(1, []Spec{{Scope: "team", Owner: "t", Kind: TotalTokens, Limit: limit, Burst: 6000}}, Fairness{}); err != nil {
			t.Fatal(err)
		}
		bucket := l.Resources()[0].ID
		listed := []Counter{{Resource: bucket}}
		l.Renew(Renew{Identity: "s", Incarnation: 7, Seq: 1, Counters: listed})
		l.Advance(5_000)
		l.Renew(Renew{Identity: "s", Incarnation: 8, Seq: 1, Counters: listed}) // it never hears the answer
		l.Advance(15_000)
		tt.befall(l, bucket)
		l.Advance(17_000)
		final := FileFinal{Identity: "s", Incarnation: 7, Successor: 8, Seq: 1, Proven: true}
		if !l.FileFinal(final) {
			t.Errorf("%s: the journal is not taken", tt.name)
		}
		// Past the newcomer's minute, so that only what is in use keeps it from growing.
		l.Renew(Renew{Identity: "o", Incarnation: 9, Seq: 1, Counters: listed})
		for seq := uint64(2); seq < 10; seq++ {
			l.Advance(17_000 + 10_000*int64(seq))
			l.Renew(Renew{Identity: "o", Incarnation: 9, Seq: seq, Counters: listed})
		}
		got := int64(0)
		for _, s := range l.Renew(Renew{Identity: "o", Incarnation: 9, Seq: 10, Counters: listed}).Shares {
			got += s.PerMinute
		}
		if r := l.Resources()[0]; got != tt.others || r.Shares != limit {
			t.Errorf("the successor %s: another's share is %d of %d, want %d", tt.name, got, r.Shares, tt.others)
		}
		if err := l.Check(); err != nil {
			t.Errorf("the successor %s: %v", tt.name, err)
		}
	}
}
