package lease

import (
	"strings"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

func TestAskBecomesHold(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(1, 1), need(moneyID, 5000))
	r := b.exchange()
	if len(r.Asks) != 1 || len(r.Asks[0].Needs) != 2 || r.Asks[0].Needs[1].Period != jan {
		t.Fatalf("asks %v", r.Asks)
	}
	if !w.Done() || !w.Verdict.OK || b.m.Finished()[0] != w {
		t.Fatalf("got %+v, want a grant", w.Verdict)
	}
	if c := b.counter(moneyID, jan); c.held != 5000 || c.granted < 5000 {
		t.Fatalf("got %+v, want 5000 held", c)
	}
	b.m.Settle(w.Hold, []Need{need(1, 1), need(moneyID, 6000)})
	if c := b.counter(moneyID, jan); c.held != 0 || c.spent != 6000 {
		t.Fatalf("got held %d spent %d, want 0 and 6000", c.held, c.spent)
	}
}

func TestSecondRequestNeedsNoQuotad(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	b.ask(need(1, 1))
	b.exchange()
	b.must(need(1, 1)) // demand brought a lease along
	if b.m.stats.local != 1 || b.m.stats.asked != 1 {
		t.Fatalf("got %+v", b.m.stats)
	}
}

func TestAskHandsBackWhatItIsMeasuredAgainst(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	b.ask(need(1, 1), need(tokensID, 3000))
	b.exchange() // everything asked for twice over is here: 6000 idle tokens, 2 idle requests, 1000 left
	b.l.free[counterKey{1, 0}] = 0
	b.l.total[counterKey{1, 0}] = b.l.outstanding(counterKey{1, 0})
	w := b.ask(need(1, 1), need(tokensID, 6900))
	b.after(75 * time.Millisecond)
	r := b.exchange()
	if got := r.Counters[1].Returned; got != 6000 {
		t.Fatalf("handed back %d tokens, want the 6000 that did not suffice", got)
	}
	if got := r.Counters[0].Returned; got != 1 {
		t.Fatalf("handed back %d requests, want the 1 that is asked for again", got)
	}
	if !w.Verdict.OK {
		t.Fatalf("got %+v, want a grant", w.Verdict)
	}
}

func TestRefusalsAreRepeatedWithoutAsking(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	b.l.stingy = true
	b.l.free[counterKey{1, 0}], b.l.total[counterKey{1, 0}] = 3, 3
	w := b.ask(need(1, 10))
	b.exchange()
	if w.Verdict.Reason != Throttled || w.Verdict.Left != 3 || w.Verdict.Needed != 10 || w.Verdict.Limit != 600 ||
		w.Verdict.RetryAfter != 300*time.Millisecond {
		t.Fatalf("got %+v", w.Verdict)
	}
	b.after(100 * time.Millisecond) // one request refills in that time
	if v := b.refused(Share, Throttled, need(1, 10)); v.RetryAfter != 200*time.Millisecond || v.Left != 4 {
		t.Fatalf("got %+v, want 200ms and 4 left", v)
	}
	if v := b.refused(Share, Throttled, need(1, 5)); v.RetryAfter != 100*time.Millisecond {
		t.Fatalf("got %+v, want 100ms: the smaller need fits earlier", v)
	}
	b.ask(need(1, 4)) // may fit: worth asking
	b.after(200 * time.Millisecond)
	b.ask(need(1, 10)) // its time has come
}

func TestMemoryEnds(t *testing.T) {
	exhausted := func(t *testing.T) *bed {
		b := newBed(t)
		b.m.Connected(b.now)
		b.l.stingy = true
		b.l.free[counterKey{moneyID, jan}] = 10
		w := b.ask(need(moneyID, 500))
		b.exchange()
		if w.Verdict.Reason != Exhausted || w.Verdict.RetryAfter != 0 || w.Verdict.Left != 10 {
			t.Fatalf("got %+v", w.Verdict)
		}
		b.refused(Share, Exhausted, need(moneyID, 500))
		return b
	}
	for name, end := range map[string]func(b *bed){
		"wake":   func(b *bed) { b.m.Wake() },
		"second": func(b *bed) { b.after(time.Second) },
		"raised cap": func(b *bed) {
			b.m.Configure(b.now, []*quotav1.Resource{budgetOf(moneyID, 2_000_000, jan, true)})
		},
		"new period": func(b *bed) {
			b.m.Configure(b.now, []*quotav1.Resource{budgetOf(moneyID, 1_000_000, jan+1, true)})
		},
		"free again": func(b *bed) {
			b.l.free[counterKey{moneyID, jan}] = 500
			b.renew()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := exhausted(t)
			end(b)
			b.ask(need(moneyID, 500))
		})
	}
	t.Run("same snapshot again keeps it", func(t *testing.T) {
		b := exhausted(t)
		b.m.Configure(b.now, []*quotav1.Resource{budgetOf(moneyID, 1_000_000, jan, true)})
		b.refused(Share, Exhausted, need(moneyID, 500))
	})
}

func TestReservedEndsWithASettle(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	b.l.stingy = true
	first := b.ask(need(moneyID, 900_000))
	b.exchange()
	b.after(75 * time.Millisecond)
	second := b.ask(need(moneyID, 200_000))
	b.exchange()
	if second.Verdict.Reason != Reserved || second.Verdict.RetryAfter <= 0 {
		t.Fatalf("got %+v, want reserved", second.Verdict)
	}
	b.refused(Share, Reserved, need(moneyID, 200_000))
	b.m.Settle(first.Hold, []Need{need(moneyID, 1)})
	b.must(need(moneyID, 200_000)) // what the first did not use
}

func TestRefusedHere(t *testing.T) {
	for name, tc := range map[string]struct {
		want Reason
		need Need
	}{
		"unknown resource":  {Unavailable, need(99, 1)},
		"above the burst":   {TooLarge, need(1, 61)},
		"above any number":  {TooLarge, need(moneyID, 1<<60)},
		"largest int there": {TooLarge, need(tokensID, 1<<63-1)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.m.Connected(b.now)
			v := b.refused(Share, tc.want, tc.need)
			if v.Resource != tc.need.Resource || v.Needed != tc.need.Amount {
				t.Fatalf("got %+v", v)
			}
		})
	}
	t.Run("budget without an open period", func(t *testing.T) {
		b := newBed(t)
		b.m.Connected(b.now)
		b.m.Configure(b.now, []*quotav1.Resource{budgetOf(moneyID, 1, 0, true)})
		b.refused(Share, Unavailable, need(moneyID, 1))
	})
	t.Run("removed from the snapshot", func(t *testing.T) {
		b := newBed(t)
		b.m.Connected(b.now)
		b.ask(need(1, 1))
		b.exchange()
		b.m.Configure(b.now, nil)
		b.refused(Share, Unavailable, need(1, 1))
	})
	t.Run("nothing to reserve", func(t *testing.T) {
		b := newBed(t)
		b.must()
		b.must(need(1, 0))
	})
}

func TestIdleLeaseGoesBack(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(1, 20), need(moneyID, 100_000))
	b.exchange()
	b.m.Settle(w.Hold, []Need{need(1, 20), need(moneyID, 50_000)})
	if b.counter(1, 0).balance() == 0 {
		t.Fatal("demand brought no lease")
	}
	for range 6 {
		b.renew()
	}
	for _, c := range b.m.counters {
		if c.balance() != 0 {
			t.Errorf("%v: %d idle after six renews, want 0", c.key, c.balance())
		}
	}
}

// TestWhatOthersLackGoesBack: what is far more than this process's part goes back before the next regular renew, and the
// rest with the first window without use.
func TestWhatOthersLackGoesBack(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(tokensID, 2000))
	b.exchange()
	b.m.Settle(w.Hold, []Need{need(tokensID, 2000)})
	c := b.counter(tokensID, 0)
	if c.balance() != 4000 {
		t.Fatalf("%d idle, want two renews' worth", c.balance())
	}
	b.l.idleMax[c.key], b.l.stingy = 500, true
	b.renew()
	told := b.now
	if b.renew(); b.now-told > int64(200*time.Millisecond) || c.balance() != 500 {
		t.Fatalf("%d idle %v after others lacked it, want 500 at once", c.balance(), time.Duration(b.now-told))
	}
	if b.renew(); c.balance() != 0 || b.now-told < int64(time.Second) {
		t.Errorf("%d idle after a window without use, %v later", c.balance(), time.Duration(b.now-told))
	}
}

func TestPeriodTurns(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	b.l.fund(moneyID, jan+1, 1_000_000)
	w := b.ask(need(moneyID, 1000))
	b.exchange()
	b.m.Configure(b.now, []*quotav1.Resource{budgetOf(moneyID, 1_000_000, jan+1, true)})
	w2 := b.ask(need(moneyID, 2000))
	b.renew()
	if !w2.Verdict.OK {
		t.Fatalf("got %+v, want a grant from the new period", w2.Verdict)
	}
	b.m.Settle(w.Hold, []Need{need(moneyID, 700)})
	if c := b.counter(moneyID, jan); c.spent != 700 || c.balance() != 300 {
		t.Fatalf("old period: %+v, want 700 spent and 300 to return", c)
	}
	b.renew()
	if c := b.counter(moneyID, jan); !c.closed || c.balance() != 0 {
		t.Fatalf("old period: %+v, want closed", c)
	}
	if r := b.renew(); len(r.Counters) != 1 || r.Counters[0].Period != jan+1 {
		t.Fatalf("got %v, want the new period only", r.Counters)
	}
}

func TestCallerGoneWhileAsked(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(moneyID, 400_000))
	r := b.m.Poll(b.now)
	b.m.Withdraw(b.now, w, true)
	if w.Verdict.Reason != CallerGone || w.Hold.Valid() {
		t.Fatalf("got %+v", w.Verdict)
	}
	rep, err := b.l.renew(r)
	if err != nil {
		t.Fatal(err)
	}
	b.m.Apply(b.now, rep, 8)
	if len(b.m.Finished()) != 0 || len(b.m.open) != 0 {
		t.Fatal("a request that had gone was granted")
	}
	b.after(75 * time.Millisecond)
	if r := b.exchange(); r.Counters[0].Returned < 400_000 {
		t.Fatalf("returned %d at once, want the 400000 granted", r.Counters[0].Returned)
	}
}

// TestNobodySpendsWhatACallerLeft: quotad has let the bucket fill beside what it granted, so that another request which ran
// on it would be one too many.
func TestNobodySpendsWhatACallerLeft(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(tokensID, 10_000))
	r := b.m.Poll(b.now)
	b.m.Withdraw(b.now, w, true)
	next := b.ask(need(tokensID, 3000)) // it waits for the answer
	rep, err := b.l.renew(r)
	if err != nil {
		t.Fatal(err)
	}
	b.m.Apply(b.now, rep, 8)
	if _, _, ask := b.m.Reserve(b.now, Share, []Need{need(tokensID, 1)}, nil); !ask || b.counter(tokensID, 0).balance() != 0 {
		t.Fatalf("%+v is there to be spent", b.counter(tokensID, 0))
	}
	b.after(75 * time.Millisecond)
	if r := b.exchange(); r.Counters[0].Returned != 10_000 || len(r.Asks) != 1 || !next.Verdict.OK {
		t.Fatalf("%v, then %+v: want 10000 returned, and 3000 asked for and granted", r, next.Verdict)
	}
}

// TestLateGrantGoesBack: a lease that has ended when the answer comes serves nobody, also not after the next renew.
func TestLateGrantGoesBack(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(tokensID, 10_000))
	r := b.m.Poll(b.now)
	rep, err := b.l.renew(r)
	if err != nil {
		t.Fatal(err)
	}
	b.after(11 * time.Second)
	b.m.Apply(b.now, rep, 8)
	if c := b.counter(tokensID, 0); w.Done() || c.balance() != 0 || c.returned != 10_000 {
		t.Fatalf("%+v with %+v, want it to wait and 10000 to go back", w.Verdict, c)
	}
	if b.exchange(); !w.Verdict.OK || b.counter(tokensID, 0).granted < 20_000 {
		t.Fatalf("%+v with %+v, want it granted anew", w.Verdict, b.counter(tokensID, 0))
	}
}

func TestQueueIsBounded(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	for range maxWaiting {
		b.ask(need(1, 1))
	}
	for id, want := range map[uint64]Reason{1: Throttled, moneyID: Reserved} {
		_, v := b.m.Ask(b.now, Share, []Need{need(id, 1)}, nil)
		if v.Reason != want || v.RetryAfter != queueFullRetry {
			t.Errorf("got %+v, want %v", v, want)
		}
	}
	if r := b.m.Poll(b.now); len(r.Asks) != maxAsksPerRenew {
		t.Fatalf("%d asks in a renew, want %d", len(r.Asks), maxAsksPerRenew)
	}
}

func TestBrokenCallersPanic(t *testing.T) {
	for name, call := range map[string]func(m *Machine){
		"negative": func(m *Machine) { m.Reserve(0, Share, []Need{need(1, -1)}, nil) },
		"name":     func(m *Machine) { m.Reserve(0, Share, []Need{named(1, strings.Repeat("n", MaxNameBytes+1), 1)}, nil) },
		"too many": func(m *Machine) { m.Reserve(0, Share, make([]Need, MaxNeeds+1), nil) },
		"note":     func(m *Machine) { m.Reserve(0, Share, nil, make([]byte, MaxNoteBytes+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			call(newBed(t).m)
		})
	}
}

func TestRemaining(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	if _, _, _, _, ok := b.m.Remaining(1, ""); ok {
		t.Fatal("known before quotad said anything")
	}
	b.ask(need(1, 1), need(moneyID, 1000))
	b.exchange()
	left, limit, full, _, ok := b.m.Remaining(1, "")
	if !ok || left != 59 || limit != 600 || full != 100*time.Millisecond {
		t.Errorf("bucket: left %d limit %d full in %v ok %v", left, limit, full, ok)
	}
	left, limit, _, ends, ok := b.m.Remaining(moneyID, "")
	if !ok || left != 999_000 || limit != 1_000_000 || ends != 1<<41 {
		t.Errorf("budget: left %d limit %d ends %d ok %v", left, limit, ends, ok)
	}
	c := b.counter(1, 0)
	c.granted, c.free = c.granted+20, 60 // leased, and refilled since
	if left, _, full, _, _ := b.m.Remaining(1, ""); left != 60 || full != 0 {
		t.Errorf("a bucket of 60 has %d left and is full in %v", left, full)
	}
	if _, v, _ := b.m.Reserve(b.now, Share, []Need{need(1, 61)}, nil); v.Reason != TooLarge || v.Left != 60 {
		t.Errorf("%+v", v)
	}
}

func TestAskNamesEachResourceOnce(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(1, 2), need(1, 3), need(moneyID, 0))
	r := b.exchange()
	if n := r.Asks[0].Needs; len(n) != 1 || n[0].Amount != 5 {
		t.Fatalf("got %v, want 5 of resource 1", n)
	}
	b.m.Settle(w.Hold, []Need{need(1, 4), need(moneyID, 20)}) // a need of 0 may still cost something
	if c := b.counter(moneyID, jan); c.spent != 20 || b.m.stats.straySettles != 0 {
		t.Fatalf("spent %d, stray %d, want 20 and 0", c.spent, b.m.stats.straySettles)
	}
}

func TestTooLargeIsRemembered(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(moneyID, 2_000_000))
	r := b.m.Poll(b.now)
	b.m.Apply(b.now, &quotav1.RenewReply{
		Seq: r.Seq, UsableForMs: 10_000, StandbyForMs: 60_000,
		Asks: []*quotav1.AskResult{
			{Id: 12345}, // not one of ours
			{Id: w.id, Resource: moneyID, Shortage: quotav1.Shortage_SHORTAGE_TOO_LARGE, Left: 7},
		},
	}, 8)
	if w.Verdict.Reason != TooLarge || w.Verdict.Limit != 1_000_000 || w.Verdict.Left != 7 {
		t.Fatalf("got %+v", w.Verdict)
	}
	b.refused(Share, TooLarge, need(moneyID, 2_000_001))
	b.ask(need(moneyID, 1_000_000))
}

func TestUnansweredAskIsAskedAgain(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(1, 1))
	r := b.m.Poll(b.now)
	b.m.Apply(b.now, &quotav1.RenewReply{Seq: r.Seq, UsableForMs: 10_000}, 8) // a reply without results
	if w.Done() {
		t.Fatalf("got %+v", w.Verdict)
	}
	b.l.seqs[7] = 1
	b.after(75 * time.Millisecond)
	b.exchange()
	if !w.Verdict.OK {
		t.Fatalf("got %+v, want a grant", w.Verdict)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := Granted; r < NumReasons; r++ {
		if seen[r.String()] || r.String() == NumReasons.String() {
			t.Errorf("reason %d is called %q", r, r)
		}
		seen[r.String()] = true
	}
}

func TestLeaseCountsFromTheFirstSend(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(1, 1))
	start := b.now
	first := b.m.Poll(b.now)
	for range 3 {
		b.after(700 * time.Millisecond)
		if b.m.Poll(b.now) != first {
			t.Fatal("not sent again")
		}
	}
	rep, err := b.l.renew(first)
	if err != nil {
		t.Fatal(err)
	}
	b.m.Apply(b.now, rep, 8)
	if !w.Verdict.OK || b.m.usableUntil != start+10_000*ms || b.m.standbyUntil != start+3_600_000*ms {
		t.Fatalf("usable for %d ms, standby for %d ms from the first send", (b.m.usableUntil-start)/ms,
			(b.m.standbyUntil-start)/ms)
	}
}
