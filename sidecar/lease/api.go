// Package lease is the sidecar's half of the lease protocol: what this process may spend, what it has reserved and
// spent, and what it asks quotad for.
//
// Machine is the pure core: it takes the time as an argument and does no I/O except appending to its journal.
// The journal is a mapped file that survives kill -9. Client drives both and is what the gateway and the owner of
// the session stream use. See DESIGN.md.
package lease

import (
	"errors"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// ErrLocked means that another live process uses the directory. Two processes must never share a journal.
var ErrLocked = errors.New("the lease directory is in use by another process")

// Need is an amount of one resource, in its unit: requests, tokens, calls or nano-dollars. Amount is not negative.
//
// Of a resource that is one for each name, Resource is its id in the snapshot and Name says which one: the user, the
// run, or the claimant of a pool. An empty name is the one that all names share which no longer have their own. Of a
// resource that is whole, Name means nothing.
type Need struct {
	Resource uint64
	Amount   int64
	Name     string
}

// Outage is what a request does while quotad is away; the numbers are those of quota.v1.Outage. 0 is Share.
type Outage uint8

// The modes.
const (
	Share  Outage = iota + 1 // trickle at the standing share; money from what is on lease
	Open                     // as Share, but soft budgets pass and are recorded
	Closed                   // refuse once the leases have ended
)

// Reason is how an Acquire ended.
type Reason uint8

// The reasons.
const (
	Granted     Reason = iota
	Throttled          // a bucket is empty: wait for RetryAfter
	Reserved           // the budget fits once running requests settle: retry after RetryAfter
	Exhausted          // the budget is spent: final until the period turns or the cap is raised
	TooLarge           // the need is larger than the whole limit or cap: never
	Unavailable        // quotad is away and nothing more may be used without it, or the resource is unknown
	CallerGone         // done was closed while the request waited
	Leaving            // this process stops
	NumReasons         // how many there are, for tables indexed by Reason
)

func (r Reason) String() string {
	switch r {
	case Granted:
		return "granted"
	case Throttled:
		return "throttled"
	case Reserved:
		return "reserved"
	case Exhausted:
		return "exhausted"
	case TooLarge:
		return "too_large"
	case Unavailable:
		return "unavailable"
	case CallerGone:
		return "caller_gone"
	case Leaving:
		return "leaving"
	}
	return "unknown"
}

// Verdict is the answer to an Acquire. When OK is false, Resource names what ran out and the numbers are about it.
type Verdict struct {
	OK         bool
	Reason     Reason
	Resource   uint64
	Left       int64         // what was left to all, as far as known here; may be negative
	Needed     int64         // the request's need of it
	Limit      int64         // a minute, or the cap of the period; for TooLarge of a bucket its burst
	RetryAfter time.Duration // at least 1 ms for Throttled, Reserved and Unavailable, else 0
	Waited     time.Duration // time spent waiting for quotad
}

// Hold is an open reservation. It is a small value; the zero Hold is invalid. It must be settled exactly once.
type Hold struct {
	h  *hold
	id uint64
}

// Valid reports whether the Hold came from a granted Acquire. It does not tell whether it has been settled.
func (h Hold) Valid() bool { return h.h != nil }

// LostHold is a reservation that a dead predecessor had open. It counts as spent in full.
type LostHold struct {
	Note  []byte // as given to Acquire
	Needs []Need // as reserved; what is one of many goes by its own id
}

// Sender puts a message on the session stream. It never blocks and never changes the message. False means that there
// is no session any more; Client.Connected will be called for the next one.
type Sender interface {
	Send(*quotav1.SessionRequest) bool
}

// Config sets a Client up. Zero fields take their defaults.
type Config struct {
	// Dir holds the journal and its lock, and belongs to this process alone. Empty means no journal: money that is
	// outstanding when the process is killed then stays in suspense.
	Dir string
	// MarkDir is memory that outlives the process and not the boot. A mark there says how far the journal was written, so
	// that a disk which was put back to an older state is noticed; where there is none it is not. Default /dev/shm.
	MarkDir string
	// Identity is the sidecar's name, for logs.
	Identity string
	// RenewEvery is the time between regular renews, jittered by a fifth. Default 2 s.
	RenewEvery time.Duration
	// AskWait is how long a request waits for quotad in all. It must be below the time leases are usable. Default 2.5 s.
	AskWait time.Duration
	// MinRenewGap is the least time between the first sends of two renews; up to half of it is added at random. Default
	// 50 ms.
	MinRenewGap time.Duration
	// ResendEvery is the time between sends of an unanswered renew. Default 700 ms.
	ResendEvery time.Duration
	// LowWaterPercent of what is aimed for (twice the demand of a renew interval): a balance below it renews early.
	// Default 25.
	LowWaterPercent int64
	// SegmentBytes is the size of each of the journal's two files. Half of it bounds the open reservations. Default
	// 8 MiB.
	SegmentBytes int
	// Now reads a clock in nanoseconds that never steps and goes on while the machine sleeps. Default: the
	// system's boot-time clock.
	Now func() int64
}

// WithDefaults fills in zero fields.
func (c Config) WithDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.RenewEvery, 2*time.Second)
	set(&c.AskWait, 2500*time.Millisecond)
	set(&c.MinRenewGap, 50*time.Millisecond)
	set(&c.ResendEvery, 700*time.Millisecond)
	if c.LowWaterPercent == 0 {
		c.LowWaterPercent = 25
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = segmentBytesDefault
	}
	if c.MarkDir == "" {
		c.MarkDir = "/dev/shm"
	}
	if c.Now == nil {
		c.Now = bootClock
	}
	return c
}

// Validate reports every fault of a Config with defaults filled in.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, text string) {
		if !ok {
			faults = append(faults, errors.New(text))
		}
	}
	check(c.RenewEvery > 0, "lease: RenewEvery must be positive")
	check(c.AskWait > 0, "lease: AskWait must be positive")
	check(c.MinRenewGap > 0 && c.MinRenewGap <= c.RenewEvery, "lease: MinRenewGap must be positive and at most RenewEvery")
	check(c.ResendEvery > 0, "lease: ResendEvery must be positive")
	check(c.LowWaterPercent >= 0 && c.LowWaterPercent <= 100, "lease: LowWaterPercent must be 0 to 100")
	check(c.SegmentBytes >= segmentBytesMin && c.SegmentBytes <= segmentBytesMax, "lease: SegmentBytes out of range")
	return errors.Join(faults...)
}

// Stats is a picture of the client for /status and /metrics. The slices are the caller's.
type Stats struct {
	Connected    bool
	Incarnation  uint64
	Seq          uint64        // of the newest Renew
	LastReplyAge time.Duration // -1 before the first reply
	UsableFor    time.Duration // rest of the bucket leases, 0 when ended
	StandbyFor   time.Duration // rest of the standing shares, 0 when ended
	Leaving      bool

	LocalAdmissions   uint64 // from balances, without a word to quotad
	AskedAdmissions   uint64 // granted by quotad
	TrickleAdmissions uint64 // from standing shares
	OpenAdmissions    uint64 // past a soft budget while quotad was away
	Refusals          [NumReasons]uint64
	DoubleSettles     uint64 // settles of a Hold that was not open: a fault of the caller
	StraySettles      uint64 // settled resources that the Hold had not reserved: a fault of the caller
	Fences            uint64 // times this process was fenced and went on under a new incarnation

	Waiting       int // requests that wait for quotad
	OpenHolds     int
	PendingFinals int // dead predecessors whose totals quotad has not taken yet
	ShareVersion  uint64
	Counters      []CounterStats // by resource, then period
	Shares        []ShareStats   // by resource
	Journal       JournalStats
}

// CounterStats is one counter: G, S, R, F and the gauges. Of a resource that is one for each name it is the sum over
// the names that are known here.
type CounterStats struct {
	Resource  uint64 // as in the snapshot
	Period    uint32
	Names     int // how many; 0 for a resource that is whole
	Granted   int64
	Spent     int64
	Returned  int64
	Forfeited int64
	Held      int64
	Balance   int64 // granted - spent - returned - forfeited - held; negative by debt
	Demand    int64
}

// ShareStats is one standing share.
type ShareStats struct {
	Resource  uint64
	PerMinute int64
}

// JournalStats says how the journal is.
type JournalStats struct {
	OK       bool
	Why      string // when not OK: why there is none
	Segments uint64 // segments begun by this process
	Used     int    // bytes used in the present one
	Size     int    // bytes of one
}
