package lease

import (
	"fmt"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

func TestNameIsAskedForUntilItIsKnown(t *testing.T) {
	b := newNamedBed(t)
	w := b.ask(need(1, 1), named(userID, "ann", 1), named(runID, "r1", 500))
	r := b.exchange()
	if n := r.Asks[0].Needs; len(n) != 3 || n[1].Resource != userID || n[1].Name != "ann" || n[2].Name != "r1" || n[2].Period != 0 {
		t.Fatalf("asks %v", r.Asks)
	}
	ann := b.of(userID, "ann")
	if !w.Verdict.OK || ann == nil || ann.held != 1 || ann.key.resource != b.l.childOf[nameKey{userID, "ann"}] {
		t.Fatalf("verdict %+v, counter %+v", w.Verdict, ann)
	}
	b.m.Settle(w.Hold, []Need{need(1, 1), need(userID, 1), need(runID, 700)})
	if run := b.of(runID, "r1"); run.spent != 700 || run.open != 0 || b.m.stats.straySettles != 0 {
		t.Fatalf("run %+v, want 700 spent", run)
	}
	b.renew()
	b.must(named(userID, "ann", 1)) // her first request counts as demand, which has brought a lease
	b.ask(named(userID, "bob", 1))  // who is another
}

func TestQuietNameIsClosed(t *testing.T) {
	b := newNamedBed(t)
	b.m.Settle(b.granted(named(runID, "r1", 500)), []Need{need(runID, 300)})
	child := b.l.childOf[nameKey{runID, "r1"}]
	for i := 0; b.of(runID, "r1") != nil; i++ {
		if i > 2*quietWindows {
			t.Fatal("never closed")
		}
		b.renew()
	}
	if len(b.l.accounts) != 0 || len(b.m.counters) != 0 {
		t.Fatalf("quotad keeps %v, the machine %v", b.l.accounts, b.m.counters)
	}
	b.m.Settle(b.granted(named(runID, "r1", 99_700)), nil) // what is left of the run, so it is the same one
	if c := b.of(runID, "r1"); c.spent != 0 || c.granted != 99_700 || c.key.resource != child {
		t.Fatalf("got %+v, want a counter that begins at 0", c)
	}
	w := b.ask(named(runID, "r1", 99_701))
	b.after(75 * time.Millisecond)
	b.exchange()
	if w.Verdict.Reason != Exhausted || w.Verdict.Resource != runID || w.Verdict.Limit != 100_000 {
		t.Fatalf("got %+v, want the run to be exhausted", w.Verdict)
	}
}

func TestRequestWhileItsNameIsClosed(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprint("quotad disagrees ", stubborn), func(t *testing.T) {
			b := newNamedBed(t)
			b.l.stubborn = stubborn
			b.m.Settle(b.granted(named(userID, "ann", 1)), []Need{need(userID, 1)})
			r := b.closing(userID, "ann")
			w := b.ask(named(userID, "ann", 1))
			b.answer(r)
			if got := b.of(userID, "ann") != nil; got != stubborn {
				t.Fatalf("there is a counter: %v, want %v", got, stubborn)
			}
			b.after(75 * time.Millisecond)
			b.exchange()
			if !w.Verdict.OK || b.of(userID, "ann").held != 1 {
				t.Fatalf("got %+v", w.Verdict)
			}
		})
	}
}

func TestNameThatWaitsIsNotClosed(t *testing.T) {
	b := newNamedBed(t)
	b.m.Settle(b.granted(named(userID, "ann", 10)), []Need{need(userID, 10)})
	for range quietWindows + 1 { // the last of them would close it
		b.now = max(b.now, b.m.NextPoll())
		if b.of(userID, "ann").quiet == quietWindows-1 {
			break
		}
		b.renew()
	}
	w := b.ask(named(userID, "ann", 1))
	b.now = max(b.now, b.m.nextRegular)
	for _, c := range b.exchange().Counters {
		if c.Close {
			t.Fatalf("closes what it asks for: %v", c)
		}
	}
	if w.Verdict.Reason != Throttled {
		t.Fatalf("got %+v", w.Verdict)
	}
}

func TestEvictedNameIsAskedForAgain(t *testing.T) {
	b := newNamedBed(t)
	b.l.stingy = true
	b.m.Settle(b.granted(named(userID, "ann", 1)), []Need{need(userID, 1)})
	b.renew()
	old := b.of(userID, "ann")
	b.l.evict(userID, "ann", false)
	w := b.ask(named(userID, "ann", 1))
	b.after(75 * time.Millisecond)
	b.exchange() // gone, and granted
	if !w.Verdict.OK || !old.gone || b.of(userID, "ann") == old || b.of(userID, "ann").held != 1 {
		t.Fatalf("got %+v, old counter %+v", w.Verdict, old)
	}
	b.l.evict(runID, "r1", true)
	b.refusedNot(named(runID, "r1", 1))
}

// refusedNot: the needs are not refused here; quotad is asked at least.
func (b *bed) refusedNot(needs ...Need) {
	b.t.Helper()
	if _, v, ask := b.m.Reserve(b.now, Share, needs, nil); !ask && !v.OK {
		b.t.Fatalf("got %+v", v)
	}
}

// TestRunThatEnded: what still runs settles to nobody, and the name is not refused for it.
func TestRunThatEnded(t *testing.T) {
	b := newNamedBed(t)
	h := b.granted(named(runID, "r1", 500))
	b.l.evict(runID, "r1", true)
	b.renew()
	b.m.Settle(h, []Need{need(runID, 500)})
	b.granted(named(runID, "r1", 100_000))
	if b.m.stats.straySettles != 0 {
		t.Fatalf("stats %+v", b.m.stats)
	}
}

func TestRefusalIsOfAName(t *testing.T) {
	b := newNamedBed(t)
	b.granted(named(userID, "ann", 10))
	w := b.ask(named(userID, "ann", 1))
	b.after(75 * time.Millisecond)
	b.exchange()
	if w.Verdict.Reason != Throttled || w.Verdict.Resource != userID || w.Verdict.Limit != 120 {
		t.Fatalf("got %+v", w.Verdict)
	}
	b.refused(Share, Throttled, named(userID, "ann", 1))
	b.granted(named(userID, "bob", 1))

	b.l.childOf[nameKey{runID, "r9"}], b.l.nameOf[1900] = 1900, nameKey{runID, "r9"} // spent by others
	b.l.silent = true
	w = b.ask(named(runID, "r9", 1))
	b.after(75 * time.Millisecond)
	b.exchange()
	if w.Verdict.Reason != Exhausted || b.of(runID, "r9") != nil {
		t.Fatalf("got %+v", w.Verdict)
	}
	b.refused(Share, Exhausted, named(runID, "r9", 1)) // remembered of a name that has no counter
	b.after(time.Second)
	b.ask(named(runID, "r9", 1))
}

// TestRefusedNameSaysWhatItWishes: quotad divides what comes to a pool by the wishes of its claimants.
func TestRefusedNameSaysWhatItWishes(t *testing.T) {
	b := newNamedBed(t)
	b.m.Settle(b.granted(named(poolID, "interactive/t", 600)), []Need{need(poolID, 600)})
	k := counterKey{b.l.childOf[nameKey{poolID, "interactive/t"}], 0}
	b.l.childOf[nameKey{poolID, "batch/t"}], b.l.nameOf[1900] = 1900, nameKey{poolID, "batch/t"}
	w := b.ask(named(poolID, "batch/t", 50))
	b.after(75 * time.Millisecond)
	b.exchange()
	if w.Verdict.Reason != Throttled {
		t.Fatalf("got %+v", w.Verdict)
	}
	for _, c := range b.renew().Counters {
		if c.Resource != k.resource && c.Demand != 50 {
			t.Fatalf("got %v, want a wish of 50", c)
		}
	}
	if b.of(poolID, "batch/t") == nil {
		t.Fatal("no counter to wish on")
	}
}

func TestNamesThatQuotadHasTooManyOf(t *testing.T) {
	b := newNamedBed(t)
	b.l.namesMost = 1
	b.m.Settle(b.granted(named(userID, "ann", 1)), nil)
	first := b.granted(named(userID, "bob", 4))
	second := b.granted(named(userID, "eve", 4))
	if c := b.of(userID, ""); c.held != 8 || b.of(userID, "bob") != nil {
		t.Fatalf("shared counter %+v", c)
	}
	b.m.Settle(first, []Need{need(userID, 4)})
	b.m.Settle(second, []Need{need(userID, 4)})
	w := b.ask(named(userID, "joe", 4))
	b.after(75 * time.Millisecond)
	b.exchange()
	if w.Verdict.Reason != Throttled {
		t.Fatalf("got %+v, want what all share to be used up", w.Verdict)
	}
}

// known makes a machine know n names that all have counters.
func (b *bed) known(n int) {
	for i := range n {
		r := b.m.one(b.m.resources[userID], fmt.Sprint("user ", i))
		r.current = b.m.addCounter(r, counterKey{uint64(10_000 + i), 0})
	}
}

func TestNamesAreBounded(t *testing.T) {
	b := newNamedBed(t)
	b.known(maxNames)
	w := b.ask(named(userID, "one more", 1))
	if r := b.m.Poll(b.now); r.Asks[0].Needs[0].Name != "" {
		t.Fatalf("asks %v, want the name that all share", r.Asks)
	}
	if len(b.m.named) != maxNames+1 || w.Done() {
		t.Fatalf("%d names", len(b.m.named))
	}
}

// TestStrangersDoNotFillTheNames: names that were only refused make room for others, those with counters stay.
func TestStrangersDoNotFillTheNames(t *testing.T) {
	b := newNamedBed(t)
	b.known(maxNames / 2)
	for i := range 3 * maxNames {
		b.m.Reserve(b.now, Share, []Need{named(runID, fmt.Sprint(i), 1)}, nil)
	}
	if len(b.m.named) > maxNames+1 {
		t.Fatalf("%d names", len(b.m.named))
	}
	if err := checkMachine(b.m); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, r := range b.m.named {
		if r.current != nil {
			kept++
		}
	}
	if kept != maxNames/2 {
		t.Fatalf("%d names with counters are left", kept)
	}
}

func TestTemplateLeavesTheSnapshot(t *testing.T) {
	b := newNamedBed(t)
	h := b.granted(named(userID, "ann", 1))
	waiting := b.ask(named(userID, "bob", 1))
	b.after(75 * time.Millisecond)
	r := b.m.Poll(b.now)
	b.m.Configure(b.now, []*quotav1.Resource{bucketOf(1, 600, 60)})
	b.answer(r)
	if !waiting.Verdict.OK {
		t.Fatalf("got %+v", waiting.Verdict)
	}
	b.refused(Share, Unavailable, named(userID, "ann", 1))
	b.m.Settle(h, []Need{need(userID, 1)})
	b.m.Settle(waiting.Hold, []Need{need(userID, 1)})
	for range quietWindows {
		b.renew()
	}
	if len(b.m.named) != 0 || len(b.l.accounts) != 0 {
		t.Fatalf("%d names, accounts %v", len(b.m.named), b.l.accounts)
	}
	b.m.Configure(b.now, []*quotav1.Resource{bucketOf(1, 600, 60)})
	if len(b.m.resources) != 1 {
		t.Fatalf("%d resources, want 1", len(b.m.resources))
	}
}

func TestLimitsOfNamesFollowTheTemplate(t *testing.T) {
	b := newNamedBed(t)
	b.m.Settle(b.granted(named(userID, "ann", 10)), nil)
	if v := b.refused(Share, TooLarge, named(userID, "ann", 11)); v.Limit != 10 {
		t.Fatalf("got %+v", v)
	}
	b.m.Configure(b.now, []*quotav1.Resource{usersOf(userID, 240, 20)})
	b.ask(named(userID, "ann", 11))
	if _, limit, _, _, ok := b.m.Remaining(userID, "ann"); !ok || limit != 240 {
		t.Fatalf("limit %d, known %v", limit, ok)
	}
	if _, _, _, _, ok := b.m.Remaining(userID, "bob"); ok {
		t.Fatal("something is said of a name that is not known")
	}
}

func TestNeedOfNothingOfAName(t *testing.T) {
	b := newNamedBed(t)
	h := b.granted(named(runID, "r1", 0)) // what it costs in the end must reach the run
	b.m.Settle(h, []Need{need(runID, 400)})
	if c := b.of(runID, "r1"); c.spent != 400 || c.balance() != -399 {
		t.Fatalf("got %+v", c)
	}
	b.must(named(runID, "r1", 0))
}

func TestCallsAreCounted(t *testing.T) {
	b := newNamedBed(t)
	for range 3 {
		b.m.Settle(b.granted(named(callsID, "r1", 1)), []Need{need(callsID, 1)})
		b.l.stingy = true
	}
	w := b.ask(named(callsID, "r1", 1))
	b.after(75 * time.Millisecond)
	b.exchange()
	if w.Verdict.Reason != Exhausted || w.Verdict.RetryAfter != 0 {
		t.Fatalf("got %+v", w.Verdict)
	}
}

func TestProviderLeft(t *testing.T) {
	b := newNamedBed(t)
	b.m.ProviderLeft(b.now, userID, 1) // no pool
	b.m.ProviderLeft(b.now, 99, 1)
	b.granted(named(poolID, "standard/t", 1), named(userID, "ann", 1))
	b.m.ProviderLeft(b.now, poolID, 900)
	b.m.ProviderLeft(b.m.NextPoll()-int64(2*time.Second), poolID, 100)
	said := func(r *quotav1.Renew) (out []int64) {
		for _, c := range r.Counters {
			if c.ProviderLeft != nil {
				out = append(out, *c.ProviderLeft)
			}
		}
		return out
	}
	if got := said(b.renew()); len(got) != 1 || got[0] != 300 { // 6000 a minute come back
		t.Fatalf("told %v, want 300 once", got)
	}
	if got := said(b.renew()); got != nil {
		t.Fatalf("told again: %v", got)
	}
	b.m.ProviderLeft(b.now, poolID, -5)
	if got := said(b.renew()); len(got) != 1 || got[0] <= 0 {
		t.Fatalf("told %v, want what has come back since", got)
	}
	b.m.ProviderLeft(b.now, poolID, 0)
	b.after(time.Minute)
	if got := said(b.exchange()); got != nil {
		t.Fatalf("told %v of a pool that is full by now", got)
	}
}

func TestRepliesOfAnOlderEpochAreDropped(t *testing.T) {
	b := newNamedBed(t)
	b.l.epoch = 4
	b.granted(need(1, 1))
	b.after(75 * time.Millisecond)
	w := b.ask(need(moneyID, 1))
	r := b.m.Poll(b.now)
	if r.Epoch != 4 || r.Counters[0].Granted != b.counter(1, 0).granted {
		t.Fatalf("got %v, want epoch 4 and what was granted", r)
	}
	rep, err := b.l.renew(r)
	if err != nil {
		t.Fatal(err)
	}
	rep.Epoch = 3
	if b.m.Apply(b.now, rep, 8); w.Done() || b.m.inflight != r {
		t.Fatal("a reply from before the restore was taken")
	}
	rep.Epoch = 5
	if b.m.Apply(b.now, rep, 8); !w.Verdict.OK || b.m.epoch != 5 {
		t.Fatalf("got %+v in epoch %d", w.Verdict, b.m.epoch)
	}
}

func TestStatsSumNames(t *testing.T) {
	b := newNamedBed(t)
	b.granted(need(1, 1), named(userID, "ann", 2))
	b.granted(named(userID, "bob", 3), need(moneyID, 1))
	s := b.m.Stats(b.now).Counters
	if len(s) != 3 || s[0].Resource != 1 || s[0].Names != 0 || s[1].Resource != moneyID || s[2].Resource != userID ||
		s[2].Names != 2 || s[2].Held != 5 {
		t.Fatalf("got %+v", s)
	}
}
