package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// plan is what a world is like.
type plan struct {
	sidecars        int
	teams           []team
	specs           []ledger.Spec // of the beginning
	duration        time.Duration // of load under faults, at least
	ledger          ledger.Config
	driftMillionths int64 // of sidecars' clocks, fast or slow, at most
	hungry          bool  // everybody wants more than there is all the time
	modest          bool  // in saturation one sidecar wants less than its part
	patient         bool  // saturation is long enough to compare what each got
	pulses          bool  // all callers rest now and then, and come back together
	dropMille       int   // messages
	repeatMille     int
	lateMille       int
	goneMille       int              // callers that wait
	overrunMille    int              // requests
	lasts           [2]time.Duration // how long requests run, from and to
	faultMean       time.Duration
	mix             []fault      // of injected faults; none: none
	sameFile        bool         // a disk that is rolled back keeps its inodes: nothing tells the old state by them
	refundsLate     bool         // a window counts what is given back when it is, not where it was admitted
	unseen          bool         // and back to a state with a seq that quotad has not seen surpassed
	script          func(*world) // a scenario's own course of events; nil: none
}

// shortStandby lets standing shares end within a run. The clocks at both ends may differ by 5%.
var shortStandby = ledger.Config{StandbyForMS: standbyFor.Milliseconds(), StandbyMarginMS: standbyLate.Milliseconds()}

var requestLasts = [2]time.Duration{50 * time.Millisecond, 4 * time.Second}

// team is one payer.
type team struct {
	name   string
	burst  int64 // of its tokens
	outage lease.Outage
}

// calm is a world in which nothing goes wrong.
func calm(sidecars, teams int) plan {
	p := plan{sidecars: sidecars, ledger: shortStandby, duration: 100 * time.Second, lasts: requestLasts}
	for i := range teams {
		p.addTeam(fmt.Sprint("team-", i), 900, 180_000, lease.Share)
		p.addBudget("team", fmt.Sprint("team-", i), plenty, true)
	}
	return p
}

func (p *plan) addTeam(owner string, requests, tokens int64, outage lease.Outage) {
	p.teams = append(p.teams, team{name: owner, burst: tokens / 10, outage: outage})
	p.specs = append(p.specs,
		ledger.Spec{Scope: "team", Owner: owner, Kind: ledger.Requests, Limit: requests, Burst: requests / 10},
		ledger.Spec{Scope: "team", Owner: owner, Kind: ledger.TotalTokens, Limit: tokens, Burst: tokens / 10})
}

func (p *plan) addBudget(scope, owner string, limit int64, hard bool) {
	p.specs = append(p.specs, ledger.Spec{
		Scope: scope, Owner: owner, Kind: ledger.Money, Limit: limit, Hard: hard, AlertPermille: []int64{500, 800, 1000},
	})
}

// drawPlan makes the world of a seed. Every world has some of the faults only, so that rare ones meet each other.
func drawPlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(ns ...int) int { return ns[rng.IntN(len(ns))] }
	p := plan{
		ledger: shortStandby, lasts: requestLasts,
		sidecars: 2 + rng.IntN(6), duration: time.Duration(90+rng.IntN(90)) * time.Second,
		driftMillionths: int64(pick(0, 500, 10_000, 50_000)),
		dropMille:       pick(0, 5, 50, 150), repeatMille: pick(0, 20, 100), lateMille: pick(0, 10, 50),
		goneMille: pick(0, 50, 300), overrunMille: pick(0, 50, 250),
		faultMean: time.Duration(pick(2, 4, 8)) * time.Second,
	}
	for i := range 1 + rng.IntN(3) {
		owner := fmt.Sprint("team-", i)
		requests := int64(pick(300, 600, 1200))
		p.addTeam(owner, requests, requests*int64(pick(150, 300)), lease.Outage(1+rng.IntN(3)))
		p.addBudget("team", owner, int64(pick(5, 50, 300, 100_000))*1_000_000, rng.IntN(4) > 0)
		if rng.IntN(3) == 0 {
			p.addBudget("key", owner, int64(pick(1, 20, 200))*1_000_000, rng.IntN(4) > 0)
		}
	}
	if rng.IntN(2) == 0 {
		p.addBudget("org", "o", int64(pick(100, 500, 1_000_000))*1_000_000, rng.IntN(3) > 0)
	}
	p.hungry, p.pulses = rng.IntN(3) == 0, rng.IntN(3) == 0
	p.patient = p.driftMillionths <= 10_000 && rng.IntN(8) == 0
	for f := messageFaults; f < numFaults; f++ {
		if rng.IntN(3) == 0 {
			p.mix = append(p.mix, f)
		}
	}
	p.mix = append(p.mix, cutBoth, killKept, leaderChange)
	return p
}
