package ledger

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// honest is a sidecar that keeps its totals, as far as this page needs one: a budget and a bucket.
type honest struct {
	renew   Renew // the last one sent
	budget  Counter
	bucket  Counter
	f       int64 // forfeited of the bucket
	want    int64 // per cent of the budget and the bucket that it asks for with its renews
	usable  int64 // until when the bucket's balance may be used
	pending bool  // renew is not answered
}

func (h *honest) money() int64 {
	return h.budget.Granted - h.budget.Spent - h.budget.Returned - h.budget.Held
}
func (h *honest) tokens() int64 {
	return h.bucket.Granted - h.bucket.Spent - h.bucket.Returned - h.f - h.bucket.Held
}

// recovery is a ledger that is restored, its sidecars, and a witness of what they truly spent.
type recovery struct {
	t       *rapid.T
	l       *Ledger
	budget  uint64
	bucket  uint64
	next    uint64
	cars    []*honest
	spent   int64    // by all, ever
	since   int64    // since the backup, by those who are gone
	served  []served // from the bucket
	saved   records  // the backup
	usage   int64    // in it
	resumed Restored // with it
	hourMS  int64    // in which all of it is spent
}

type served struct{ at, n int64 }

// Large leases: what is lost with one shows.
var recoveryConfig = Config{IdleLeasePermille: 300}

const (
	recoveryCap   = 1_000_000
	recoveryLimit = 600
)

func newRecovery(t *rapid.T) *recovery {
	r := &recovery{t: t, l: New(recoveryConfig), hourMS: rapid.SampledFrom([]int64{0, dayMS, 30*dayMS - hourInMS}).Draw(t, "hour")}
	r.l.OpenPeriods([]Period{{Period: 202611, EndsMS: 30 * dayMS}})
	must(t, r.l.Define(1, []Spec{
		{Scope: "team", Owner: "t", Kind: Money, Limit: recoveryCap, Hard: true},
		{Scope: "team", Owner: "t", Kind: Requests, Limit: recoveryLimit},
	}, Fairness{}))
	for _, res := range r.l.Resources() {
		if res.Spec.Kind == Money {
			r.budget = res.ID
		} else {
			r.bucket = res.ID
		}
	}
	return r
}

func must(t interface{ Fatal(args ...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (r *recovery) join() *honest {
	r.next++
	h := &honest{
		renew:  Renew{Identity: "s", Incarnation: r.next},
		budget: Counter{Resource: r.budget, Period: 202611, Demand: 20_000}, bucket: Counter{Resource: r.bucket, Demand: 20},
	}
	r.cars = append(r.cars, h)
	return h
}

// exchange sends a renew, or the unanswered one again, and may lose the answer.
func (r *recovery) exchange(h *honest, lost bool) {
	if !h.pending {
		h.renew.Seq++
		h.renew.Counters = []Counter{h.budget, h.bucket}
		h.renew.Asks = nil
		if want := h.want; want > 0 {
			h.renew.Asks = []Ask{{ID: h.renew.Seq, Needs: []Need{
				{Resource: r.budget, Period: 202611, Amount: want * recoveryCap / 100}, {Resource: r.bucket, Amount: want * recoveryLimit / 100},
			}}}
		}
	}
	sent := r.l.Now()
	reply := r.l.Renew(h.renew)
	must(r.t, r.l.Check())
	if reply.Fenced || reply.Refusal != RefusedNot {
		r.t.Fatalf("an honest sidecar is refused: %+v to %+v", reply, h.renew)
	}
	if h.pending = lost; lost || reply.Epoch < h.renew.Epoch {
		return
	}
	for i, a := range reply.Asks {
		if a.Granted {
			h.budget.Held += h.renew.Asks[i].Needs[0].Amount
			h.bucket.Held += h.renew.Asks[i].Needs[1].Amount
			r.served = append(r.served, served{r.l.Now(), h.renew.Asks[i].Needs[1].Amount})
		}
	}
	h.renew.Epoch, h.renew.ShareVersion = reply.Epoch, reply.ShareVersion
	for _, g := range reply.Grants {
		switch {
		case g.Gone:
			r.t.Fatalf("gone: %+v", g)
		case g.Resource == r.budget:
			h.budget.Granted = max(h.budget.Granted, g.Granted)
		default:
			h.bucket.Granted, h.f = max(h.bucket.Granted, g.Granted), max(h.f, g.Forfeited)
			h.usable = sent + r.l.cfg.UsableForMS
		}
	}
}

// spend settles what is held and uses part of the balances. Its usage is known at once.
func (r *recovery) spend(h *honest, part int64) {
	n := h.budget.Held
	h.bucket.Spent += h.bucket.Held
	h.budget.Held, h.bucket.Held = 0, 0
	h.budget.Spent += n
	more := max(0, h.money()*part/100)
	h.budget.Spent += more
	r.spent, r.since = r.spent+n+more, r.since+n+more
	r.l.Learn("team", "t", r.hourMS, n+more)
	if n := h.tokens() * part / 100; n > 0 && r.l.Now() < h.usable {
		h.bucket.Spent += n
		r.served = append(r.served, served{r.l.Now(), n})
	}
}

// check: the budget is never passed, nor is the bucket in any window.
func (r *recovery) check() {
	if r.spent > recoveryCap {
		r.t.Fatalf("%d spent of %d", r.spent, recoveryCap)
	}
	for i := range r.served {
		sum := int64(0)
		for _, s := range r.served[i:] {
			sum += s.n
			if bound := recoveryLimit + recoveryLimit*(s.at-r.served[i].at)/60_000 + 1; sum > bound*105/100 {
				r.t.Fatalf("%d admitted in %d ms, the bound is %d", sum, s.at-r.served[i].at, bound)
			}
		}
	}
}

// TestRestoreSpendsNothingTwice: whatever happened since the backup — grants, spending, lost answers, new processes,
// processes that ended and left only their usage — no budget is passed and no bucket bursts twice, over any number of
// restores; and no honest sidecar is fenced.
func TestRestoreSpendsNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecovery(t)
		r.join()
		draw := func(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, label) }
		step := func() {
			h := r.cars[draw("who", 0, len(r.cars)-1)]
			switch draw("what", 0, 9) {
			case 0:
				if len(r.cars) < 5 {
					r.join()
				}
			case 1, 2, 3:
				r.l.Advance(r.l.Now() + int64(draw("ms", 50, 2_000)))
			case 4, 5, 6:
				h.want = int64(draw("want", -20, 40))
				r.exchange(h, draw("lost", 0, 4) == 0)
			default:
				r.spend(h, int64(draw("part", 1, 100)))
			}
			r.check()
		}
		for range draw("before", 5, 30) {
			step()
		}
		for range draw("restores", 1, 3) {
			if r.saved.Resources == nil || draw("a new backup", 0, 1) == 0 {
				r.saved, r.resumed, r.since, r.usage = recordsOf(r.l), r.l.Restored(), 0, r.spent
			}
			for range draw("after", 5, 30) {
				step()
			}
			r.restore(draw("one ends", 0, 1) == 0 && len(r.cars) > 1)
		}
		// To the end of the budget.
		for range 60 {
			for _, h := range r.cars {
				h.want = 2
				r.exchange(h, false)
				r.spend(h, 100)
			}
			r.l.Advance(r.l.Now() + 2_000)
			r.check()
		}
	})
}

// restore replaces the ledger by the backup. Before the hold ends every sidecar has renewed twice, as it does in
// reality many times, and the usage since the backup has come in. One of them may have ended meanwhile.
func (r *recovery) restore(ends bool) {
	now := r.l.Now()
	l := New(recoveryConfig)
	must(r.t, r.saved.load(l))
	l.Resume(r.resumed)
	l.Recall("team", "t", r.hourMS, r.usage)
	l.Restore(max(r.l.Restored().Epoch, r.resumed.Epoch)+1, now)
	r.l = l
	must(r.t, l.Check())
	if ends {
		r.cars = r.cars[:len(r.cars)-1]
	}
	again := r.since
	for range 3 {
		l.Advance(l.Now() + 1_500)
		for _, h := range r.cars {
			h.want = min(h.want, 5)
			r.exchange(h, false)
		}
		l.Learn("team", "t", r.hourMS, again/3+1)
		must(r.t, l.Check())
		r.check()
	}
	if l.holdMS() == 0 {
		r.t.Fatal("the hold is over before it is known what sidecars hold")
	}
	l.Advance(l.Now() + l.holdMS())
}

func TestDaysIn(t *testing.T) {
	for period, want := range map[uint32]int64{202602: 28, 202802: 29, 210002: 28, 200002: 29, 202611: 30, 202612: 31} {
		if got := daysIn(period); got != want {
			t.Errorf("%d: got %d, want %d", period, got, want)
		}
	}
}

// TestHoursOfMonths: from its first hour to its last a month's usage is that month's, wherever it is counted.
func TestHoursOfMonths(t *testing.T) {
	const november, december = 202611, 202612
	for name, c := range map[string]struct {
		zone          string
		first, second int64 // when November and December end; 0: December is not open
		hour          int64
		want          uint32
	}{
		"the first hour":                {first: 30 * dayMS, hour: 0, want: november},
		"the hour before":               {first: 30 * dayMS, hour: -hourInMS},
		"the last hour":                 {first: 30 * dayMS, hour: 30*dayMS - hourInMS, want: november},
		"the hour behind":               {first: 30 * dayMS, hour: 30 * dayMS},
		"the next month's first":        {first: 30 * dayMS, second: 61 * dayMS, hour: 30 * dayMS, want: december},
		"the last before the next":      {first: 30 * dayMS, second: 61 * dayMS, hour: 30*dayMS - hourInMS, want: november},
		"clocks set back":               {zone: "America/New_York", first: 30*dayMS + hourInMS, hour: 0, want: november},
		"clocks set forward":            {zone: "Europe/Berlin", first: 30*dayMS - hourInMS, hour: 0, want: november},
		"set back, next":                {zone: "America/New_York", first: 30*dayMS + hourInMS, second: 61*dayMS + hourInMS, hour: 30 * dayMS, want: november},
		"an hour of two months":         {zone: "Asia/Kolkata", first: 30*dayMS - hourInMS/2, second: 61*dayMS - hourInMS/2, hour: 30*dayMS - hourInMS, want: december},
		"of two, the next not open yet": {zone: "Asia/Kolkata", first: 30*dayMS - hourInMS/2, hour: 30*dayMS - hourInMS, want: november},
		"from another zone":             {zone: "Asia/Kolkata", first: 30*dayMS + 8*hourInMS, second: 61 * dayMS, hour: 30 * dayMS, want: december},
		"a month that was never open":   {first: 30 * dayMS, second: 61 * dayMS, hour: 62 * dayMS},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{})
			must(t, l.Define(1, []Spec{{Scope: "team", Owner: "t", Kind: Money, Limit: 9, Hard: true, Timezone: c.zone}}, Fairness{}))
			l.OpenPeriods([]Period{{Timezone: c.zone, Period: november, EndsMS: c.first}})
			if c.second > 0 {
				l.OpenPeriods([]Period{{Timezone: c.zone, Period: december, EndsMS: c.second}})
			}
			got := uint32(0)
			if p := l.periodOf("team", "t", c.hour); p != nil {
				got = p.period
			}
			if got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestNothingIsGrantedDuringTheHold: not by asks, not by demand; and then it is.
func TestNothingIsGrantedDuringTheHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecovery(t)
		h := r.join()
		r.exchange(h, false)
		r.saved = recordsOf(r.l)
		before := fmt.Sprint(h.budget.Granted, h.bucket.Granted)
		h.want = 5
		r.restore(false)
		if after := fmt.Sprint(h.budget.Granted, h.bucket.Granted); after != before {
			t.Fatalf("granted during the hold: %s, before it %s", after, before)
		}
		r.exchange(h, false)
		if h.budget.Held != 50_000 {
			t.Fatalf("after the hold: %+v", h.budget)
		}
	})
}
