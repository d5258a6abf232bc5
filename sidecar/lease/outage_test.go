package lease

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// newOutage is a machine with a lease, a share of 60 requests and 6000 tokens a minute, and quotad gone for long.
func newOutage(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.m.Connected(b.now)
	b.l.shares = []*quotav1.Share{{Resource: 1, PerMinute: 60}, {Resource: tokensID, PerMinute: 6000}}
	b.l.version = 1
	w := b.ask(need(1, 1), need(tokensID, 100), need(moneyID, 1000), need(softID, 10))
	b.exchange()
	b.m.Settle(w.Hold, nil)
	b.m.Disconnected(b.now)
	b.after(5 * time.Second)
	return b
}

// leaseEnds goes to the moment when the bucket leases end.
func (b *bed) leaseEnds() { b.now = b.m.usableUntil }

func TestAwayUsesTheLeaseToItsEnd(t *testing.T) {
	b := newOutage(t)
	b.must(need(1, 3))
	v := b.refused(Share, Unavailable, need(1, 1)) // the share must wait: quotad still counts the lease
	if want := time.Duration(b.m.usableUntil - b.now); v.RetryAfter != want {
		t.Fatalf("retry after %v, want the end of the lease, %v", v.RetryAfter, want)
	}
	b.leaseEnds()
	b.after(time.Second)
	b.must(need(1, 1)) // one a second trickles
	if v := b.refused(Share, Unavailable, need(1, 1)); v.RetryAfter != time.Second {
		t.Fatalf("retry after %v, want 1s", v.RetryAfter)
	}
}

func TestAwayModes(t *testing.T) {
	for name, tc := range map[string]struct {
		outage Outage
		need   Need
		ok     bool
	}{
		"share, bucket":              {Share, need(1, 1), true},
		"zero mode is share":         {0, need(1, 1), true},
		"share, money on lease":      {Share, need(moneyID, 3000), true},
		"share, money beyond":        {Share, need(moneyID, 4000), false},
		"share, soft beyond":         {Share, need(softID, 500), false},
		"open, hard budget on lease": {Open, need(moneyID, 3000), true},
		"open, hard budget beyond":   {Open, need(moneyID, 4000), false},
		"open, soft budget beyond":   {Open, need(softID, 500), true},
		"open, bucket beyond":        {Open, need(1, 50), false},
		"closed":                     {Closed, need(1, 1), false},
		"closed, money on lease":     {Closed, need(moneyID, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOutage(t)
			b.leaseEnds()
			b.after(5 * time.Second)
			_, v, ask := b.m.Reserve(b.now, tc.outage, []Need{tc.need}, nil)
			if ask || v.OK != tc.ok || !v.OK && (v.Reason != Unavailable || v.RetryAfter < time.Millisecond) {
				t.Fatalf("got %+v, ask %v, want ok %v", v, ask, tc.ok)
			}
		})
	}
}

func TestOpenIsRecorded(t *testing.T) {
	b := newOutage(t)
	b.leaseEnds()
	h, v, _ := b.m.Reserve(b.now, Open, []Need{need(softID, 500)}, nil)
	if !v.OK || b.m.stats.opened != 1 {
		t.Fatalf("got %+v", v)
	}
	b.m.Settle(h, []Need{need(softID, 400)})
	b.m.Connected(b.now)
	b.exchange()
	if a := b.l.account(7, counterKey{softID, jan}); a.spent != 400 {
		t.Fatalf("quotad booked %d, want 400", a.spent)
	}
}

func TestTrickleIsNotCharged(t *testing.T) {
	b := newOutage(t)
	b.leaseEnds()
	b.after(time.Second)
	before := *b.counter(1, 0)
	h := b.must(need(1, 1), need(moneyID, 500))
	b.m.Settle(h, []Need{need(1, 1), need(moneyID, 200)})
	if c := b.counter(1, 0); c.spent != before.spent || c.held != before.held {
		t.Fatalf("the share's spend reached the counter: %+v", c)
	}
	if c := b.counter(moneyID, jan); c.spent != 200 || b.m.stats.straySettles != 0 {
		t.Fatalf("money spent %d, stray %d, want 200 and 0", c.spent, b.m.stats.straySettles)
	}
}

func TestTrickleAllOrNothing(t *testing.T) {
	b := newOutage(t)
	b.leaseEnds()
	b.after(2 * time.Second)
	b.refused(Share, Unavailable, need(1, 1), need(tokensID, 5000))
	b.must(need(1, 1), need(tokensID, 200)) // the request of the refused one is still there
}

func TestStandby(t *testing.T) {
	b := newOutage(t)
	b.now = b.m.standbyUntil - 1
	b.must(need(1, 1))
	b.after(time.Minute)
	for _, outage := range []Outage{Share, Open, Closed} {
		b.refused(outage, Unavailable, need(1, 1))
		b.refused(outage, Unavailable, need(softID, 1))
	}
}

func TestNeverReached(t *testing.T) {
	b := newBed(t)
	b.ask(need(1, 1)) // quotad may still come
	b.after(5 * time.Second)
	b.refused(Open, Unavailable, need(softID, 1))
	b.refused(Share, Unavailable, need(1, 1))
	b.m.Inherit(b.now, []*quotav1.Share{{Resource: 1, PerMinute: 60}}, b.now+int64(time.Minute))
	b.refused(Share, Unavailable, need(1, 1)) // from empty
	b.after(time.Second)
	b.must(need(1, 1))
	b.after(time.Minute)
	b.refused(Share, Unavailable, need(1, 1)) // a restart never makes it longer
}

func TestSilentQuotad(t *testing.T) {
	b := newOutage(t)
	b.m.Connected(b.now) // a session, but nobody answers
	w := b.ask(need(1, 30))
	if b.m.Poll(b.now) == nil {
		t.Fatal("no renew")
	}
	b.after(2500 * time.Millisecond)
	b.m.Withdraw(b.now, w, false)
	if w.Verdict.Reason != Unavailable || w.Verdict.Waited != 2500*time.Millisecond {
		t.Fatalf("got %+v", w.Verdict)
	}
	b.refused(Share, Unavailable, need(1, 30)) // at once from now on
	b.leaseEnds()
	b.after(time.Second)
	b.must(need(1, 1)) // and the share serves
}

// TestTrickleRate: over any stretch of time a share gives at most its rate and its depth: one request, or 5 s of the
// share if that is less.
func TestTrickleRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perMinute := rapid.Int64Range(1, 100_000).Draw(t, "per_minute")
		biggest := rapid.Int64Range(1, 5000).Draw(t, "biggest")
		start := int64(50 * time.Second)
		tr, now := trickle{}, start
		type use struct{ at, amount int64 }
		var uses []use
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += rapid.Int64Range(0, 8000).Draw(t, "gap") * ms
			amount := rapid.Int64Range(1, biggest).Draw(t, "amount")
			wait, ok := tr.take(now, perMinute, start, amount)
			if !ok && (wait <= 0 || wait > (amount*perUnit/perMinute+2)*ms) {
				t.Fatalf("wait %d for %d", wait, amount)
			}
			if !ok {
				if _, ok = tr.take(now+wait, perMinute, start, amount); !ok {
					t.Fatalf("not granted after the stated wait")
				}
				now += wait
			}
			uses = append(uses, use{now, amount})
		}
		for i := range uses {
			sum := int64(0)
			for _, u := range uses[i:] {
				sum += u.amount
				if sum*perUnit > (u.at-uses[i].at)/ms*perMinute+perMinute+biggest*perUnit {
					t.Fatalf("%d in %d ms at %d a minute", sum, (u.at-uses[i].at)/ms, perMinute)
				}
				if sum*perUnit > (u.at-start)/ms*perMinute {
					t.Fatalf("%d within %d ms of the start", sum, (u.at-start)/ms)
				}
			}
		}
	})
}

func TestTrickleDepth(t *testing.T) {
	var tr trickle
	now := int64(time.Hour)
	if _, ok := tr.take(now, 600, 0, 1); !ok {
		t.Fatal("one request after an hour")
	}
	if wait, ok := tr.take(now, 600, 0, 1); ok || wait != 100*ms {
		t.Fatalf("got %v after %d: an idle share kept more than one request", ok, wait)
	}
	tr = trickle{}
	tr.take(now, 6000, 0, 2000) // more than 5 s of the share: gathers its own need
	if _, ok := tr.take(now, 6000, 0, 1); !ok {
		t.Fatal("a small one")
	}
}

func TestLoweredLimitLowersTheShare(t *testing.T) {
	b := newOutage(t)
	b.leaseEnds()
	b.after(2 * time.Second)
	b.must(need(1, 1))
	b.m.Configure(b.now, []*quotav1.Resource{bucketOf(1, 6, 60)})
	b.after(5 * time.Second)
	v := b.refused(Share, Unavailable, need(1, 1)) // 6 a minute from now on
	b.now += int64(v.RetryAfter)
	b.must(need(1, 1))
	if v.RetryAfter > 5*time.Second {
		t.Fatalf("retry after %v, want the rest of 10s", v.RetryAfter)
	}
}

// newNamedOutage is a machine that knows ann and her run, with a share of 60 a minute of each user, 600 a minute of
// the pool, and quotad gone; its leases have ended.
func newNamedOutage(t *testing.T) *bed {
	t.Helper()
	b := newNamedBed(t)
	b.l.shares = []*quotav1.Share{{Resource: 1, PerMinute: 60_000}, {Resource: userID, PerMinute: 60}, {Resource: poolID, PerMinute: 600}}
	b.l.version = 1
	b.m.Settle(b.granted(named(userID, "ann", 1), named(runID, "r1", 500), named(poolID, "standard/t", 1)), nil)
	b.m.Disconnected(b.now)
	b.leaseEnds()
	return b
}

func TestEachNameTricklesByItself(t *testing.T) {
	b := newNamedOutage(t)
	b.after(time.Second)
	for _, name := range []string{"ann", "bob", "eve"} { // known or not
		b.must(named(userID, name, 1))
		b.refused(Share, Unavailable, named(userID, name, 1))
	}
	b.after(time.Second)
	b.must(named(userID, "bob", 1))
	b.refused(Closed, Unavailable, named(userID, "ann", 1))
}

func TestClaimantsTrickleTogether(t *testing.T) {
	b := newNamedOutage(t)
	b.after(time.Second)
	b.refused(Share, Unavailable, named(poolID, "batch/t", 11)) // ten have come so far
	b.must(named(poolID, "standard/t", 6))
	v := b.refused(Share, Unavailable, named(poolID, "batch/u", 5))
	if v.RetryAfter != 100*time.Millisecond {
		t.Fatalf("retry after %v, want the time for one unit at ten a second", v.RetryAfter)
	}
	b.must(named(poolID, "batch/u", 4))
	// A refusal of something else gives the share back to the pool.
	b.after(time.Second)
	b.refused(Share, Unavailable, named(poolID, "batch/t", 10), named(userID, "ann", 5))
	b.must(named(poolID, "standard/t", 10))
}

// TestTricklesAreBounded: names beyond the bound share one trickle, and none begins anew by being forgotten.
func TestTricklesAreBounded(t *testing.T) {
	b := newNamedOutage(t)
	b.after(time.Second)
	passed := 0
	for i := range 2 * maxNames {
		if _, v, _ := b.m.Reserve(b.now, Share, []Need{named(userID, fmt.Sprint(i), 1)}, nil); v.OK {
			passed++
		}
	}
	if most := maxNames + 1; passed > most || passed < most-10 || len(b.m.named) > most {
		t.Fatalf("%d passed, %d names, want about %d", passed, len(b.m.named), most)
	}
	for i := range 2 * maxNames {
		if _, v, _ := b.m.Reserve(b.now, Share, []Need{named(userID, fmt.Sprint(i), 1)}, nil); v.OK {
			t.Fatalf("name %d passed twice within a second", i)
		}
	}
}

func TestRunsAwaySpendWhatIsOnLease(t *testing.T) {
	b := newNamedOutage(t)
	lease := b.of(runID, "r1").balance()
	if lease <= 0 {
		t.Fatal("no lease to spend")
	}
	for _, mode := range []Outage{Share, Open} {
		b.refused(mode, Unavailable, named(runID, "r1", lease+1))
		b.refused(mode, Unavailable, named(runID, "r2", 1))
	}
	b.m.Settle(b.must(named(runID, "r1", lease)), []Need{need(runID, lease)})
	if c := b.of(runID, "r1"); c.balance() != 0 || c.spent != lease {
		t.Fatalf("run %+v", c)
	}
}

func TestLoweredLimitLowersTheShareOfEachName(t *testing.T) {
	b := newNamedOutage(t)
	b.after(2 * time.Second)
	b.must(named(userID, "ann", 1))
	b.m.Configure(b.now, []*quotav1.Resource{usersOf(userID, 6, 10)})
	b.after(5 * time.Second)
	b.refused(Share, Unavailable, named(userID, "ann", 1)) // 6 a minute from now on
	b.after(5 * time.Second)
	b.must(named(userID, "ann", 1))
}
