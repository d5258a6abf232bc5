package lease

import "time"

// Every bound of the package. Times are nanoseconds where they meet the machine's clock.
const (
	// MaxNeeds is how many resources one request may draw on. More is a BUG panic. Key, team, unit and organization have
	// five each, an end user, a run and a pool have four at most.
	MaxNeeds = 32
	// MaxNoteBytes is how long a reservation's note may be. More is a BUG panic.
	MaxNoteBytes = 272
	// MaxNameBytes is how long the name of a need may be. More is a BUG panic: quotad would refuse the whole renew.
	MaxNameBytes = 256
	// maxAsksPerRenew bounds a message; further requests wait for the next one.
	maxAsksPerRenew = 256
	// maxWaiting bounds the requests that wait for quotad; beyond it they are refused at once as throttled or
	// reserved.
	maxWaiting = 2048
	// maxCounters bounds the counters of one incarnation; a need of a further resource is refused as unavailable.
	maxCounters = 4096
	// maxNames bounds the end users, runs and claimants that are known at a time, each of each resource. Further ones
	// share the one of the empty name.
	maxNames = 3072
	// countersForNames is how many counters there may be when a further name gets one. What is above is for what is whole.
	countersForNames = 3584
	// evictTries is how many names are looked at to make room for another.
	evictTries = 16
	// maxFinals bounds the dead predecessors carried until quotad has taken their totals. The oldest are dropped:
	// their money stays in suspense.
	maxFinals = 64
	// maxDemand keeps sums and products of demands inside int64.
	maxDemand = int64(1) << 56
	// maxAmount bounds one need; a larger one is refused as too large.
	maxAmount = int64(1) << 56
	// maxMemory is how long a final refusal, or one that others can lift, is repeated without asking again.
	maxMemory = int64(time.Second)
	// shortGap is the least time between early renews for the low balance of one counter: leases of money are kept
	// small, so that a busy one may always be low.
	shortGap = int64(250 * time.Millisecond)
	// queueFullRetry is what requests are told that find the queue full.
	queueFullRetry = time.Second
	// finalEvery is the time between sends of an unanswered FileFinal.
	finalEvery = int64(2 * time.Second)
	// quietWindows without use end a counter's demand, so that an idle sidecar hands everything back.
	quietWindows = 4
	// moneyRenews is how many renew intervals of demand are kept of money: ten minutes, for the time quotad is away.
	moneyRenews = 300
	// trickleDepth bounds what an idle standing share gathers.
	trickleDepth = int64(5 * time.Second)
	// maxPerMinute bounds limits and shares so that units x 60,000 stay inside int64.
	maxPerMinute = int64(1) << 40

	segmentBytesDefault = 8 << 20
	segmentBytesMin     = 16 << 10
	segmentBytesMax     = 1 << 30
)
