package exchange

import (
	"math"
	"time"
)

// Kind is what a resource counts; the numbers are those of quota.v1.Kind.
type Kind uint8

// The kinds.
const (
	Requests Kind = iota + 1
	InputTokens
	OutputTokens
	TotalTokens
	Money // nano-dollars a month, or in one run
	Calls // requests in one run: a cap that never comes back
)

// String is the kind in a resource's name, empty for one that is not known.
func (k Kind) String() string {
	switch k {
	case Requests:
		return "requests_per_minute"
	case InputTokens:
		return "input_tokens_per_minute"
	case OutputTokens:
		return "output_tokens_per_minute"
	case TotalTokens:
		return "tokens_per_minute"
	case Money:
		return "budget"
	case Calls:
		return "calls"
	}
	return ""
}

// Each says whether a resource is one thing or one for each name; the numbers are those of quota.v1.Each.
type Each uint8

// The ways.
const (
	Whole        Each = iota
	EachName          // one for each name, with the resource's limit: end users, runs
	EachClaimant      // a pool: the names share the limit
)

// The scopes whose resources are one for each name.
const (
	ScopeEndUser    = "end_user"
	ScopeRun        = "run"
	ScopeDeployment = "deployment"
)

// Resource is one limited thing in one scope.
type Resource struct {
	ID           uint64
	Scope        string // key, team, business_unit, org, end_user, run or deployment
	Owner        string // of end users and runs the team
	Kind         Kind
	Each         Each
	Limit        int64 // a minute, or the cap of the period or run, in nano-dollars or calls
	Burst        int64
	PeriodEndsAt time.Time // money: when the month turns; zero while no period is open
	Hard         bool      // money: refuse when spent
}

// Name is the resource as a refusal names it, for example key_tokens_per_minute.
func (r *Resource) Name() string {
	if kind := r.Kind.String(); kind != "" {
		return r.Scope + "_" + kind
	}
	return r.Scope
}

// Priorities are the classes of requests, the lowest first: a batch waits first.
var Priorities = [...]string{"batch", "standard", "interactive"}

// Most is the largest need of it that can ever be met.
func (r *Resource) Most() int64 {
	switch {
	case r.Kind == Money && r.Each == Whole:
		return math.MaxInt64 // a soft one lets all pass, and of a hard one quotad knows best
	case r.Kind == Money, r.Kind == Calls:
		return r.Limit
	}
	return r.Burst
}

// Outage is what a key does while quotad is away; the numbers are those of quota.v1.Outage.
type Outage uint8

// The modes.
const (
	OutageShare Outage = iota + 1
	OutageOpen
	OutageClosed
)

// Principal is who a key speaks for, and what it may do.
type Principal struct {
	Key              string // id
	Team             string
	App              string
	Aliases          map[string]bool // nil: all
	Draws            []*Resource     // a request takes from all of them at once
	ExpiresAt        time.Time       // zero: never
	Revoked          bool
	Outage           Outage
	Priority         string // one of Priorities
	MaxDataClass     string
	DefaultDataClass string
	Account          string
	RequestCap       NanoUSD // 0: none
	PaysFailed       bool    // the team pays for failed attempts, not the platform
}

// Alias is a model name for callers.
type Alias struct {
	Name             string
	Targets          []Target // by priority, then as configured
	Timeouts         Timeouts
	MaxAttempts      int
	DefaultMaxOutput int64
	ReserveCap       bool // reserve the whole output cap, never the learned size
	Needs            []string
	AllowDropped     []string // members of a request that may go where they cannot be honoured
}

// Target is one deployment of an alias.
type Target struct {
	Deployment *Deployment
	Priority   int
	Weight     int
}
