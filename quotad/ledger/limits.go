package ledger

import (
	"cmp"
	"math"
	"slices"
)

// Bounds on what one message may carry. A Renew beyond them is RefusedMalformed; a FileFinal beyond them is answered
// as done and changes nothing.
const (
	countersMax = 4096 // counters in a message, and of one process; a counter beyond is answered as gone
	asksMax     = 1024 // asks in a Renew
	needsMax    = 64   // needs of one ask
	nameMax     = 512  // bytes of an identity, scope, owner, time zone or credit id, or of who gave a credit
)

// Bounds on the state.
const (
	membersMax       = 1 << 15 // processes, dead ones still remembered included; beyond: RefusedFull
	resourcesMax     = 1 << 20 // beyond: Define fails
	ordinalsMax      = 1 << 12 // resources made by one Define; beyond: it fails
	indexMax         = 1 << 50 // Raft index
	zonesMax         = 1024    // time zones; periods of further ones are ignored
	periodsMax       = 3       // periods a budget keeps; opening another drops the oldest
	creditsMax       = 1024    // credits of a budget in a period; beyond: CreditFull
	creditNotesMax   = 64      // newest of them that keep who gave them and why
	reasonMax        = 1024    // bytes of why; beyond: CreditInvalid
	alertsMax        = 16      // alert thresholds of a budget; beyond: Define fails
	sharesMax        = 8       // unacknowledged versions of a share; beyond, it does not change until acknowledged
	namesMax         = 4096    // children of a bucket or pool; further names share one. It is dropped like the others
	runsMax          = 1 << 16 // children of a run budget; likewise
	childrenMax      = 1 << 20 // children of all templates; likewise
	entryChildrenMax = 1024    // children made by one Raft entry; an ask that would make more is refused for a moment
	ratesMax         = 1200    // rates of a currency; beyond: Define fails
	teamsMax         = 1 << 16 // weights of teams; beyond: Define fails
	eventsMax        = 1 << 16 // pending wakes; beyond, they are dropped: they are hints

	restoreMarginMS = 1_100      // after a restore nothing is granted for the time of a lapse and this
	learnMS         = 86_400_000 // and for this long usage shows what was spent
)

// Bounds on numbers. They are chosen so that no sum in this package overflows an int64.
const (
	totalMax    = 1 << 60           // S, R, held, demand, a need, a cap, and the sum of a period's credits
	bucketMax   = 1e12              // limit and burst of a bucket
	poolMax     = 1e10              // limit and burst of a pool
	wantMax     = 1 << 47           // wish of one counter; × membersMax fits
	accountMax  = poolMax * perUnit // what is set aside for a claimant, or drawn ahead by it; × namesMax fits
	claimMax    = 1 << 34           // wish of one counter of a claimant; × membersMax × namesMax fits
	periodMax   = 999912            // yyyymm
	rateMax     = 1e18              // units a USD, in billionths
	grantedMax  = 1 << 62           // G; nothing is granted beyond
	freeMin     = -(1 << 61)        // grants and overruns that would take a budget lower are refused
	permilleMax = 1_000_000         // alert threshold
	weightMax   = 1 << 20           // weight of a team
	stampMax    = 1 << 60           // ledger time
	durationMax = 1 << 40           // durations of Config
	perUnit     = int64(60e3)       // level of one unit: limit × ms is exact
)

// Policy that needs no knob.
const (
	// overrunFactor and the floors in debtMax bound the overrun one message may report: a process that claims more
	// than its leases could have caused is fenced, and what it claims is not booked.
	overrunFactor   = 8
	overrunFloor    = 1_000_000_000 // nano-dollars
	debtMinutes     = 60            // a bucket owes at most its burst and this many minutes of refill
	demandRenews    = 2             // leases of buckets cover this many renew intervals of demand
	moneyRenews     = 300           // leases of money cover this many, ten minutes: they must do while quotad is away
	typicalDivisor  = 8             // a money lease is at least this part of the demand, or of what may lie idle
	reservedRetryMS = 500           // RESERVED: leases come back with the renews of others
	idleReturnMS    = 2000          // a bucket whose room is taken by idle leases: they come back with the next renews
	stalledRetryMS  = 60_000        // a bucket whose whole refill is away as silent sidecars' shares: they may end any time
	retryMaxMS      = 3_600_000     // longest retry-after
	overrunCalls    = 16            // calls of a run; as overrunFloor
	childKeepMS     = 60_000        // an end user or claimant is dropped this long after its last use
	expireEveryMS   = 1000          // children are dropped at whole seconds
	runKeepMS       = 86_400_000    // a run likewise, unless its budget says otherwise
	evictTries      = 4             // children looked at to make room for one
	divideEveryMS   = 100           // what refills in a contested pool is divided this often
	providerReserve = 9             // a pool's limit over the part of the provider's that is not ours: 90% over 10%
	clockError      = 200           // standby outlives the sidecar's by this part: clocks are off by up to 0.5%
	firstMarginMS   = 1_100         // by RulesFirst, standby outlives the sidecar's by this
	goneKeepMS      = 86_400_000    // a silent process is remembered this long after standby; a fenced or gone one is not
)

// malformed says that r breaks a bound. It looks at r alone, so that a refused message costs no look-ups.
func malformed(r *Renew) bool {
	if r.Incarnation == 0 || r.Seq == 0 || r.Seq == math.MaxUint64 || len(r.Identity) > nameMax {
		return true
	}
	if malformedCounters(r.Counters) || len(r.Asks) > asksMax {
		return true
	}
	ids := make([]uint64, 0, len(r.Asks))
	for i := range r.Asks {
		if malformedNeeds(r.Asks[i].Needs) {
			return true
		}
		ids = append(ids, r.Asks[i].ID)
	}
	return doubles(ids, cmp.Compare[uint64])
}

func malformedFinal(f *FileFinal) bool {
	return f.Incarnation == 0 || f.Incarnation == f.Successor || len(f.Identity) > nameMax || malformedCounters(f.Counters)
}

func malformedCounters(cs []Counter) bool {
	if len(cs) > countersMax {
		return true
	}
	sorted := true
	for i := range cs {
		c := &cs[i]
		if !inTotal(c.Spent) || !inTotal(c.Returned) || !inTotal(c.Held) || !inTotal(c.Demand) ||
			c.Granted < 0 || c.Granted > grantedMax || c.ProviderLeft != nil && !inTotal(*c.ProviderLeft) {
			return true
		}
		if i > 0 && compareKey(cs[i-1].Resource, cs[i-1].Period, c.Resource, c.Period) >= 0 {
			sorted = false
		}
	}
	if sorted {
		return false
	}
	return doubles(slices.Clone(cs), func(a, b Counter) int {
		return compareKey(a.Resource, a.Period, b.Resource, b.Period)
	})
}

func malformedNeeds(ns []Need) bool {
	if len(ns) == 0 || len(ns) > needsMax {
		return true
	}
	for i := range ns {
		if ns[i].Amount <= 0 || ns[i].Amount > totalMax {
			return true
		}
		if len(ns[i].Name) > nameMax {
			return true
		}
		for j := range i {
			if ns[i].Resource == ns[j].Resource && ns[i].Period == ns[j].Period {
				return true
			}
		}
	}
	return false
}

// doubles says whether two elements are equal. It sorts s.
func doubles[T any](s []T, compare func(a, b T) int) bool {
	slices.SortFunc(s, compare)
	for i := 1; i < len(s); i++ {
		if compare(s[i-1], s[i]) == 0 {
			return true
		}
	}
	return false
}

func compareKey(r1 uint64, p1 uint32, r2 uint64, p2 uint32) int {
	if c := cmp.Compare(r1, r2); c != 0 {
		return c
	}
	return cmp.Compare(p1, p2)
}

func inTotal(x int64) bool { return x >= 0 && x <= totalMax }
