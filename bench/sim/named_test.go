package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// namedWorld is a few real machines and one real ledger, with users, runs and a pool. Unless it is calm, messages and
// answers are lost, machines are killed with their journals kept, and for half a minute nobody answers.
type namedWorld struct {
	calm    bool
	call    func(w *namedWorld, s *namedMachine) // each tick
	t       *testing.T
	rng     *rand.Rand
	l       *ledger.Ledger
	index   uint64
	now     time.Duration
	ms      []*namedMachine
	last    uint64 // incarnation
	finals  []finalOf
	ids     map[string]uint64 // of the resources, by scope and kind
	uses    map[string][]use  // of buckets, by resource and name: what was admitted
	money   map[string]int64  // of runs
	calls   map[string]int64
	refused map[lease.Reason]int
	granted int
	shares  uint64 // of those, from standing shares
}

type finalOf struct {
	identity  string
	final     *quotav1.FileFinal
	successor uint64
}

type use struct {
	at     time.Duration
	amount int64
}

type namedMachine struct {
	name    string
	m       *lease.Machine
	running []*namedRequest
	waiting []*namedRequest
	quiet   bool // nobody calls
}

type namedRequest struct {
	hold  lease.Hold
	w     *lease.Waiting
	needs []lease.Need
	uses  []lease.Need
	from  time.Duration
	until time.Duration
}

// The resources.
const (
	userRequests = "end_user1"
	runMoney     = "run5"
	runCallsMade = "run6"
	poolTokens   = "deployment4"
)

const (
	namedUsers   = 6
	userBurst    = 20
	userLimit    = 120
	poolBurst    = 4000
	poolLimit    = 60_000
	runCap       = 20_000
	runCalls     = 20
	namedOutage  = 30 * time.Second
	namedTick    = 20 * time.Millisecond
	namedLasts   = 120 * time.Second
	namedOutFrom = 60 * time.Second
)

func newNamedWorld(t *testing.T, seed uint64) *namedWorld {
	w := &namedWorld{
		t: t, rng: rand.New(rand.NewPCG(seed, 11)), call: mixedCalls, l: ledger.New(ledger.Config{}), ids: map[string]uint64{},
		uses: map[string][]use{}, money: map[string]int64{}, calls: map[string]int64{}, refused: map[lease.Reason]int{},
	}
	w.enter()
	w.must(w.l.Define(w.index, []ledger.Spec{
		{Scope: "end_user", Owner: "t", Kind: ledger.Requests, Each: ledger.EachName, Limit: userLimit, Burst: userBurst},
		{Scope: "run", Owner: "t", Kind: ledger.Money, Each: ledger.EachName, Limit: runCap, Hard: true},
		{Scope: "run", Owner: "t", Kind: ledger.Calls, Each: ledger.EachName, Limit: runCalls, Hard: true},
		{Scope: "deployment", Owner: "d", Kind: ledger.TotalTokens, Each: ledger.EachClaimant, Limit: poolLimit, Burst: poolBurst},
	}, ledger.Fairness{}))
	for _, r := range w.l.Resources() {
		w.ids[fmt.Sprint(r.Spec.Scope, r.Spec.Kind)] = r.ID
	}
	for i := range 3 {
		s := &namedMachine{name: fmt.Sprint("sidecar-", i)}
		w.start(s)
		w.ms = append(w.ms, s)
	}
	return w
}

func (w *namedWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("at %v: %v", w.now, err)
	}
}

func (w *namedWorld) enter() {
	w.index++
	w.l.Enter(w.index)
	w.l.Advance(w.ledgerTime())
}

// ledgerTime stands still while there is no leader.
func (w *namedWorld) ledgerTime() int64 {
	if w.calm {
		return w.now.Milliseconds()
	}
	if w.now > namedOutFrom+namedOutage {
		return (w.now - namedOutage).Milliseconds()
	}
	return min(w.now, namedOutFrom).Milliseconds()
}

func (w *namedWorld) away() bool {
	return !w.calm && w.now >= namedOutFrom && w.now < namedOutFrom+namedOutage
}

func (w *namedWorld) start(s *namedMachine) {
	w.last++
	s.m = lease.NewMachine(lease.Config{}, w.last, int64(w.now))
	var rs []*quotav1.Resource
	for _, r := range w.l.Resources() {
		rs = append(rs, &quotav1.Resource{
			Id: r.ID, Scope: r.Spec.Scope, Owner: r.Spec.Owner, Kind: quotav1.Kind(r.Spec.Kind), Limit: r.Spec.Limit,
			Burst: r.Spec.Burst, Hard: r.Spec.Hard, Each: quotav1.Each(r.Spec.Each),
		})
	}
	s.m.Configure(int64(w.now), rs)
	s.m.Connected(int64(w.now))
}

// mixedCalls are requests of users at a pool, some of them in a run.
func mixedCalls(w *namedWorld, s *namedMachine) {
	if w.rng.IntN(8) != 0 {
		return
	}
	user := fmt.Sprint("user-", w.rng.IntN(namedUsers))
	run := fmt.Sprint("run-", int(w.now/(20*time.Second)), "-", w.rng.IntN(4))
	claimant := []string{"interactive/a", "standard/b", "batch/c"}[w.rng.IntN(3)]
	tokens, money := 20+w.rng.Int64N(200), 1+w.rng.Int64N(4000)
	r := w.newRequest(50*time.Millisecond + time.Duration(w.rng.Int64N(int64(3*time.Second))))
	r.draw(w, userRequests, user, 1, 1)
	r.draw(w, poolTokens, claimant, tokens, 1+w.rng.Int64N(tokens))
	if w.rng.IntN(2) == 0 {
		r.draw(w, runMoney, run, money, 1+w.rng.Int64N(money))
		r.draw(w, runCallsMade, run, 1, 1)
	}
	w.admit(s, r)
}

func (w *namedWorld) newRequest(lasts time.Duration) *namedRequest {
	return &namedRequest{from: w.now, until: w.now + lasts}
}

func (r *namedRequest) draw(w *namedWorld, resource, name string, need, use int64) {
	r.needs = append(r.needs, lease.Need{Resource: w.ids[resource], Amount: need, Name: name})
	r.uses = append(r.uses, lease.Need{Resource: w.ids[resource], Amount: use, Name: name})
}

func (w *namedWorld) admit(s *namedMachine, r *namedRequest) {
	h, v, ask := s.m.Reserve(int64(w.now), lease.Share, r.needs, nil)
	if ask {
		if r.w, v = s.m.Ask(int64(w.now), lease.Share, r.needs, nil); r.w != nil {
			s.waiting = append(s.waiting, r)
			return
		}
	}
	w.decide(s, r, h, v)
}

func (w *namedWorld) decide(s *namedMachine, r *namedRequest, h lease.Hold, v lease.Verdict) {
	if !v.OK {
		w.refused[v.Reason]++
		return
	}
	w.granted++
	r.hold = h
	s.running = append(s.running, r)
	note := func(key string, amount int64) { w.uses[key] = append(w.uses[key], use{w.now, amount}) }
	for _, u := range r.uses {
		switch u.Resource {
		case w.ids[userRequests]:
			note("user "+u.Name, u.Amount)
		case w.ids[poolTokens]:
			note("pool", u.Amount)
			note(u.Name, u.Amount)
		case w.ids[runCallsMade]:
			w.calls[u.Name]++
		}
	}
}

// bill counts what a request cost its run.
func (w *namedWorld) bill(amounts []lease.Need) {
	for _, n := range amounts {
		if n.Resource == w.ids[runMoney] {
			w.money[n.Name] += n.Amount
		}
	}
}

// settle ends what has run long enough.
func (w *namedWorld) settle(s *namedMachine, all bool) {
	s.running = slices.DeleteFunc(s.running, func(r *namedRequest) bool {
		if !all && w.now < r.until {
			return false
		}
		s.m.Settle(r.hold, r.uses)
		w.bill(r.uses)
		return true
	})
}

// kill ends a process whose journal is found whole. What ran is billed as it was reserved, as the journal says.
func (w *namedWorld) kill(s *namedMachine) {
	for _, r := range s.running {
		w.bill(r.needs)
	}
	final := s.m.Final(true)
	shares, till := s.m.Shares(int64(w.now))
	w.shares += s.m.Stats(int64(w.now)).TrickleAdmissions
	s.running, s.waiting = nil, nil
	w.start(s)
	s.m.Inherit(int64(w.now), shares, till)
	if final.Seq > 0 || len(final.Counters) > 0 {
		w.finals = append(w.finals, finalOf{s.name, final, w.last})
	}
}

func (w *namedWorld) loses() bool { return !w.calm && w.rng.IntN(20) == 0 }

func (w *namedWorld) poll(s *namedMachine) {
	now := int64(w.now)
	r := s.m.Poll(now)
	if r != nil && !w.away() && !w.loses() {
		w.enter()
		rep := w.l.Renew(toLedger(s.name, r))
		if rep.Refusal != ledger.RefusedNot || rep.Fenced {
			w.t.Fatalf("at %v: renew %v of %s: %+v", w.now, r, s.name, rep)
		}
		w.must(w.l.Check())
		if !w.loses() {
			s.m.Apply(now, fromLedger(rep), 0)
		}
	}
	for range s.m.Finished() { // waiting is looked through below
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(r *namedRequest) bool {
		if !r.w.Done() && w.now-r.from >= 2500*time.Millisecond {
			s.m.Withdraw(now, r.w, false)
		}
		if r.w.Done() {
			w.decide(s, r, r.w.Hold, r.w.Verdict)
		}
		return r.w.Done()
	})
}

func (w *namedWorld) step() {
	w.now += namedTick
	for _, s := range w.ms {
		w.settle(s, false)
		if !s.quiet {
			w.call(w, s)
		}
		if !w.calm && !s.quiet && w.rng.IntN(1500) == 0 {
			w.kill(s)
		}
		if !w.calm && w.rng.IntN(2000) == 0 {
			s.m.ProviderLeft(int64(w.now), w.ids[poolTokens], poolBurst/2+w.rng.Int64N(poolBurst/2))
		}
		w.poll(s)
	}
	if !w.away() {
		for _, e := range w.l.Events() {
			for _, s := range w.ms {
				if e.Kind == ledger.Wake && e.Incarnation == s.m.Incarnation() {
					s.m.Wake()
				}
			}
		}
		w.finals = slices.DeleteFunc(w.finals, func(f finalOf) bool {
			w.enter()
			return w.l.FileFinal(finalToLedger(f.identity, f.final, f.successor))
		})
	}
}

// checkWindows: in any stretch of time no more was admitted than the burst and the refill, and a twentieth.
func (w *namedWorld) checkWindows(key string, limit, burst int64) {
	w.t.Helper()
	us := w.uses[key]
	for i := range us {
		sum := int64(0)
		for _, u := range us[i:] {
			sum += u.amount
			allowed := burst + limit*(u.at-us[i].at).Milliseconds()/60_000
			if sum > allowed+allowed/20+1 {
				w.t.Fatalf("%s: %d from %v to %v, %d allowed", key, sum, us[i].at, u.at, allowed)
			}
		}
	}
}

func TestUsersRunsAndPools(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newNamedWorld(t, seed)
			for w.now < namedLasts {
				w.step()
			}
			for _, s := range w.ms {
				s.quiet = true
			}
			for end := w.now + time.Minute; w.now < end; {
				w.step()
			}
			for key := range w.uses {
				if strings.HasPrefix(key, "user ") {
					w.checkWindows(key, userLimit, userBurst)
				}
			}
			w.checkWindows("pool", poolLimit, poolBurst)
			w.checkRuns()
			w.checkClosed()
			for _, s := range w.ms {
				w.shares += s.m.Stats(int64(w.now)).TrickleAdmissions
			}
			if w.granted < 500 || w.shares == 0 || w.refused[lease.Throttled] == 0 || w.refused[lease.Exhausted] == 0 || w.refused[lease.Unavailable] == 0 {
				t.Errorf("%d granted, refused %v: the world is too calm", w.granted, w.refused)
			}
		})
	}
}

// checkRuns: what quotad has settled of each run is what was billed, and no more than its cap.
func (w *namedWorld) checkRuns() {
	w.t.Helper()
	for key, billed := range map[string]map[string]int64{runMoney: w.money, runCallsMade: w.calls} {
		kids := w.l.Children(w.ids[key])
		if len(kids) < 10 {
			w.t.Errorf("only %d runs", len(kids))
		}
		for _, kid := range kids {
			p := kid.Periods[0]
			if p.Settled != billed[kid.Name] || p.Outstanding+p.Suspense != 0 || p.Settled > p.Cap {
				w.t.Errorf("%s of %s: %+v, billed %d", key, kid.Name, p, billed[kid.Name])
			}
		}
	}
}

// checkClosed: quotad keeps no counter on anything of a name that nobody uses.
func (w *namedWorld) checkClosed() {
	w.t.Helper()
	for _, s := range w.ms {
		for _, c := range w.l.Counters(s.m.Incarnation()) {
			if r, ok := w.l.Resource(c.Resource); !ok || r.Of != 0 {
				w.t.Errorf("%s: %+v of %q", s.name, c, r.Name)
			}
		}
		if got := s.m.Stats(int64(w.now)).Counters; len(got) != 0 {
			w.t.Errorf("%s keeps %+v", s.name, got)
		}
	}
}
