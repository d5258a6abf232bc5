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
	fairness        ledger.Fairness
	pool            int64         // requests a minute of the deployment that all draw on; 0: there is none
	users           int           // names of end users of a team; 0 means users
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
	careful         bool             // nobody reserves too little where that would weigh in a hard budget
	lasts           [2]time.Duration // how long requests run, from and to
	faultMean       time.Duration
	mix             []fault      // of injected faults; none: none
	refundsLate     bool         // a window counts what is given back when it is, not where it was admitted
	marked          bool         // only the mark tells a disk that was rolled back: quotad has seen no later seq
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
	class  string // of its requests to a pool
	weight int64

	wished, got int // requests decided since they were counted from, and those of them that were granted
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
	p.teams = append(p.teams, team{name: owner, burst: tokens / 10, outage: outage, class: "interactive", weight: 1})
	p.specs = append(p.specs,
		ledger.Spec{Scope: "team", Owner: owner, Kind: ledger.Requests, Limit: requests, Burst: requests / 10},
		ledger.Spec{Scope: "team", Owner: owner, Kind: ledger.TotalTokens, Limit: tokens, Burst: tokens / 10})
}

// users are how many end users a team has. Each may have an eighth of the team's requests.
const users = 24

func (p *plan) addUsers(owner string, requests int64) {
	p.specs = append(p.specs, ledger.Spec{
		Scope: "end_user", Owner: owner, Kind: ledger.Requests, Each: ledger.EachName, Limit: requests / 8, Burst: requests / 40,
	})
}

// runsKept is longer than any world: what becomes of a run that is dropped is a matter of its own.
const runsKept = 4 * time.Hour

func (p *plan) addRuns(owner string, money, calls int64, kept time.Duration) {
	run := ledger.Spec{Scope: "run", Owner: owner, Each: ledger.EachName, Hard: true, KeepMS: kept.Milliseconds()}
	run.Kind, run.Limit = ledger.Money, money
	p.specs = append(p.specs, run)
	run.Kind, run.Limit = ledger.Calls, calls
	p.specs = append(p.specs, run)
}

// addPool makes everybody draw on one deployment, which is scarce in requests.
func (p *plan) addPool(requests int64) {
	p.pool = requests
	p.specs = append(p.specs,
		ledger.Spec{Scope: "deployment", Owner: "d", Kind: ledger.Requests, Each: ledger.EachClaimant, Limit: requests, Burst: requests / 10},
		ledger.Spec{Scope: "deployment", Owner: "d", Kind: ledger.TotalTokens, Each: ledger.EachClaimant, Limit: requests * 2000, Burst: requests * 200})
	for i := range p.teams {
		t := &p.teams[i]
		p.fairness.Weights = append(p.fairness.Weights, ledger.TeamWeight{Team: t.name, Weight: t.weight})
	}
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
		goneMille: pick(0, 50, 300), overrunMille: pick(0, 50, 250, 1000),
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
	pooled := rng.IntN(4) == 0
	if pooled {
		p.modest = rng.IntN(2) == 0
		p.teams, p.specs = nil, nil
		for i := range 2 + rng.IntN(2) {
			p.addTeam(fmt.Sprint("team-", i), 3000, 3000*500, lease.Outage(1+rng.IntN(3)))
			p.addBudget("team", p.teams[i].name, int64(pick(50, 300, 100_000))*1_000_000, rng.IntN(4) > 0)
			p.teams[i].class = classes[rng.IntN(len(classes))]
			p.teams[i].weight = 1 + rng.Int64N(3)
		}
		p.addPool(1200)
	}
	for i := range p.teams {
		t := &p.teams[i]
		if rng.IntN(2) == 0 {
			p.addUsers(t.name, p.limitOf(t.name))
		}
		if rng.IntN(2) == 0 {
			p.addRuns(t.name, int64(pick(1, 5, 20))*1_000_000, int64(pick(10, 40, 400)), runsKept)
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
	p.careful = rng.IntN(2) == 0
	return p
}

// classes are the priority classes of pools, and what each has reserved unless something else is said, in thousandths.
var (
	classes  = []string{"interactive", "standard", "batch"}
	reserves = map[string]int64{"interactive": 600, "standard": 250, "batch": 50}
)

// limitOf is a team's requests a minute.
func (p *plan) limitOf(owner string) int64 {
	for _, s := range p.specs {
		if s.Scope == "team" && s.Owner == owner && s.Kind == ledger.Requests {
			return s.Limit
		}
	}
	return 0
}
