// Package ledger is the quota state machine: resources, the sidecars that draw on them, and what each was granted.
//
// It is pure. It reads no clock, does no I/O and starts nothing; the same operations in the same order give the same
// state on every node. It is total: bad data gives a typed result and changes nothing. DESIGN.md has the nouns, the
// order of a renew and the invariants.
//
// Units: money in nano-dollars, tokens and requests as counts, times and durations in milliseconds of ledger time
// (ticked, see Advance). Only Period.EndsMS is Unix time; the ledger stores it and never compares it.
package ledger

// Kind is what a resource counts. The numbers are those of quota.v1.Kind.
type Kind uint8

// The kinds. Money and Calls are budgets: a cap a period. The others are buckets: limits a minute.
const (
	Requests     Kind = 1
	InputTokens  Kind = 2
	OutputTokens Kind = 3
	TotalTokens  Kind = 4
	Money        Kind = 5
	Calls        Kind = 6 // requests of a run
)

// Each says whether a resource is one, or one for each name. The numbers are those of quota.v1.Each.
//
// What is one for each name is a template: nothing is drawn on it, but on its children, which asks make by naming
// them. It has the standing shares.
type Each uint8

const (
	// Whole: one.
	Whole Each = 0
	// EachName: a limit for each name: the end users of a team, or its runs.
	EachName Each = 1
	// EachClaimant: a pool, which its claimants draw on together, each named "class/team".
	EachClaimant Each = 2
)

// Shortage is why something could not be granted. The numbers are those of quota.v1.Shortage.
type Shortage uint8

const (
	// ShortageNone: nothing was short.
	ShortageNone Shortage = 0
	// Throttled: a bucket is empty; it refills.
	Throttled Shortage = 1
	// Reserved: it fits once running requests settle or idle leases come back.
	Reserved Shortage = 2
	// Exhausted: the budget is spent; final until the period turns or the cap is raised.
	Exhausted Shortage = 3
	// TooLarge: the need is larger than the whole limit or cap; never.
	TooLarge Shortage = 4
	// Gone: the resource or its period is unknown, or no longer granted from.
	Gone Shortage = 5
)

// Refusal is why a whole Renew was not applied.
type Refusal uint8

const (
	// RefusedNot: it was applied, now or before, or its sender is fenced.
	RefusedNot Refusal = 0
	// RefusedMalformed: negative or absurd numbers, doubles, zero ids, or more than limits.go allows.
	RefusedMalformed Refusal = 1
	// RefusedFull: the ledger knows as many processes as it can.
	RefusedFull Refusal = 2
)

// CreditResult is the outcome of Credit.
type CreditResult uint8

const (
	// CreditApplied: the budget has the credit.
	CreditApplied CreditResult = 0
	// CreditRepeated: a credit with this id is already in; nothing changed.
	CreditRepeated CreditResult = 1
	// CreditGone: no such budget, or the period is not its open one.
	CreditGone CreditResult = 2
	// CreditInvalid: no id, a text that is too long, zero, or out of range.
	CreditInvalid CreditResult = 3
	// CreditFull: the period has had as many credits as it may.
	CreditFull CreditResult = 4
	// CreditOther: a credit with this id and another amount is in; nothing changed.
	CreditOther CreditResult = 5
)

// Credit is an operator's gift to a budget, or with a negative amount a debit.
type Credit struct {
	ID            string // makes it count once
	Amount        int64  // nano-dollars
	AtMS          int64  // when it was given; set by the ledger
	Actor, Reason string // kept of the newest ones
}

// Spec is a resource as it should be. Scope, Owner and Kind name it.
type Spec struct {
	Scope         string  // key, team, business_unit, org, end_user, run or deployment
	Owner         string  // id within the scope
	Kind          Kind    // what is counted
	Each          Each    // whether it is one for each name
	Limit         int64   // buckets: units a minute; budgets: the cap of a period, Money in nano of Currency
	Burst         int64   // buckets: capacity; 0 means Limit
	Hard          bool    // budgets: refuse when it is spent; else only alert
	Timezone      string  // budgets: IANA name whose months are its periods; empty is UTC
	AlertPermille []int64 // budgets: thresholds, thousandths of cap + credits
	Weight        int64   // weight among teams; 0 means 1
	KeepMS        int64   // runs: kept this long after the last use; 0 means a day
	Currency      string  // Money: what Limit is in; empty is USD
	Rates         []Rate  // Money in a Currency: at least one
}

// Rate is what a currency is worth in a month.
type Rate struct {
	Period     uint32 // yyyymm
	PerUSDNano int64  // units a USD, in billionths
}

// Fairness says how pools are divided among their claimants.
type Fairness struct {
	Weights  []TeamWeight   // a team that is not there has 1
	Reserves []ClassReserve // a class that is not there has its usual one
}

// TeamWeight is a team's weight among those of its class.
type TeamWeight struct {
	Team   string
	Weight int64 // at least 1
}

// ClassReserve is the part of each pool that a priority class gets whatever others want.
type ClassReserve struct {
	Class    string // interactive, standard or batch
	Permille int64
}

// Period is the open budget period of a time zone.
type Period struct {
	Timezone string // IANA name; empty is UTC
	Period   uint32 // yyyymm
	EndsMS   int64  // Unix milliseconds; stored, never compared
}

// Counter is a sidecar's word on one resource: totals that only grow, and two gauges.
type Counter struct {
	Resource uint64
	Period   uint32 // yyyymm; 0 for buckets
	Spent    int64  // S, total
	Returned int64  // R, total
	Held     int64  // open reservations now
	Demand   int64  // use wished for in one renew interval

	Close        bool   // children: the last word on it, see Renew
	ProviderLeft *int64 // pools: what the provider says is left of its limit to all; nil: nothing new
	Granted      int64  // G as far as the sidecar knows
}

// Need is an amount of one resource.
type Need struct {
	Resource uint64 // as in the configuration: never a child
	Period   uint32 // 0 for buckets and runs
	Amount   int64  // positive
	Name     string // which child; also empty is one
}

// Ask is the exact need of one waiting request, granted whole or not at all.
type Ask struct {
	ID    uint64 // unique within the incarnation
	Needs []Need
}

// Renew is the one lease message.
type Renew struct {
	Identity     string // the sidecar's name, checked by its session
	Incarnation  uint64 // the process; never 0
	Seq          uint64 // 1, 2, 3 … within the incarnation
	Counters     []Counter
	Asks         []Ask
	ShareVersion uint64 // highest share version in force at the sidecar
	Leaving      bool   // it stops for good: shares end, nothing more is granted
	Epoch        uint64 // of the last reply it had; 0 before the first
}

// FileFinal reports the totals of a dead process, by its successor on the same disk.
type FileFinal struct {
	Identity    string
	Incarnation uint64 // the dead process
	Seq         uint64 // of the last Renew it recorded
	Counters    []Counter
	Proven      bool   // the successor holds the journal's lock on the same boot: what was not spent is free
	Successor   uint64 // the process that files
}

// Grant is the ledger's side of a counter.
type Grant struct {
	Resource     uint64
	Period       uint32
	Granted      int64 // G, total
	Forfeited    int64 // F, total
	Gone         bool  // unknown resource or period: drop the counter
	Free         int64 // left to all; may be negative
	Shortage     Shortage
	RetryAfterMS int64  // at least 1 when Throttled or Reserved, else 0
	IdleMax      int64  // the most that should lie idle at the process; 0 says nothing
	Of           uint64 // a child: what it is a child of
	Name         string // and its name
}

// AskResult answers one Ask.
type AskResult struct {
	ID           uint64
	Granted      bool
	Resource     uint64 // when refused: what ran out, as the ask names it; a final shortage before a passing one
	Shortage     Shortage
	Left         int64 // what was left of that resource; may be negative
	RetryAfterMS int64 // at least 1 when Throttled or Reserved, else 0
}

// Share is a standing lease on a bucket, for the time quotad is away.
type Share struct {
	Resource  uint64
	PerMinute int64
}

// RenewReply answers a Renew. When Fenced is set or Refusal is not RefusedNot, only Seq stands beside it.
type RenewReply struct {
	Seq          uint64
	Epoch        uint64      // raised by each restore
	Grants       []Grant     // the Renew's counters in its order, then what else was granted
	Asks         []AskResult // one for each ask, in order
	UsableForMS  int64
	Shares       []Share // the whole set, by resource; those of 0 are left out
	ShareVersion uint64
	StandbyForMS int64
	Fenced       bool
	Refusal      Refusal
}

// EventKind tells the events apart.
type EventKind uint8

const (
	// AlertRaised: spending in a budget's period reached a threshold, see Untold. A hint.
	AlertRaised EventKind = 1
	// Wake: the process was refused something that may have become free. A hint.
	Wake EventKind = 2
	// PeriodOpened: a time zone has a new period.
	PeriodOpened EventKind = 3
)

// Event is something the world outside should hear of.
type Event struct {
	Kind        EventKind
	Incarnation uint64 // Wake
}

// Alert is a budget that reached a threshold of its cap.
type Alert struct {
	Resource uint64
	Period   uint32 // yyyymm
	Permille int64  // the threshold, thousandths of cap and credits
	Spec     Spec
	Spent    int64 // nano-USD now, what stands in suspense included
	Cap      int64 // nano-USD now, credits included
}

// Resource is the read view of one resource at the ledger's time.
type Resource struct {
	ID           uint64
	Spec         Spec   // filled in; of a child, its template's
	Of           uint64 // a child: its template
	Name         string // a child's
	UsedMS       int64  // a child: ledger time of its last use
	SetAside     int64  // a claimant: units of the pool's level set aside for it; below 0, what it drew ahead
	Children     int    // a template's
	Level        int64  // buckets: units left, rounded down; may be negative; of users, what a new one begins with
	Outstanding  int64  // buckets: granted and neither spent, returned nor forfeited
	Idle         int64  // buckets: part of Outstanding that no running request holds
	Sharers      int64  // buckets: live sidecars using it
	Shares       int64  // buckets: sum of the standing shares that may be in force anywhere, units a minute
	LapsedShares int64  // buckets: part of Shares at silent sidecars, taken out of the refill
	Periods      []BudgetPeriodState
}

// Open returns the budget's open period; ok is false for buckets and while none is open.
func (r Resource) Open() (p BudgetPeriodState, ok bool) {
	if n := len(r.Periods); n > 0 && !r.Periods[n-1].Closed {
		return r.Periods[n-1], true
	}
	return BudgetPeriodState{}, false
}

// Member is the read view of one process.
type Member struct {
	Incarnation  uint64
	Identity     string
	Seq          uint64 // the largest number once it was fenced for what it sent
	LapseAtMS    int64
	StandbyAtMS  int64
	JoinedMS     int64
	Lapsed       bool
	Fenced       bool
	Left         bool
	ShareVersion uint64
	ShareAcked   uint64
	Counters     int
}
