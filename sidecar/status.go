package sidecar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/gateway"
	"github.com/sluice-gateway/sluice/sidecar/internal/link"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/internal/route"
	"github.com/sluice-gateway/sluice/sidecar/internal/usage"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// status is what GET /status shows. Names end in their unit; nano-dollars are decimal strings, as in quotad's API.
type status struct {
	Problems      []string       `json:"problems"` // what an operator should look at; empty when all is well
	Identity      string         `json:"identity"`
	Build         string         `json:"build"`
	Incarnation   string         `json:"incarnation"`
	Draining      bool           `json:"draining"`
	ConfigVersion uint64         `json:"config_version"`
	SnapshotFault string         `json:"snapshot_fault,omitempty"`
	Quotad        link.State     `json:"quotad"`
	Lease         leaseStatus    `json:"lease"`
	Usage         usage.Stats    `json:"usage"`
	Deployments   []route.Health `json:"deployments"`

	EndUsers gateway.NameCounts `json:"end_users"` // of keys whose team limits them; never who
	Runs     gateway.NameCounts `json:"runs"`
}

func (s *Sidecar) status() status {
	l := s.lease.Stats()
	out := status{
		Identity: s.cfg.Identity, Build: s.build, Incarnation: strconv.FormatUint(l.Incarnation, 10),
		Draining: s.gateway.Draining(), ConfigVersion: s.acked.Load(), SnapshotFault: s.snapshotFaults(), Quotad: s.link.State(),
		Lease: leaseStatusOf(l, s.policy.Rules()), Usage: s.usage.Stats(), Deployments: s.router.Health(time.Now()),
		EndUsers: s.gateway.Names(exchange.ScopeEndUser), Runs: s.gateway.Names(exchange.ScopeRun),
		Problems: []string{},
	}
	problem := func(is bool, text string) {
		if is {
			out.Problems = append(out.Problems, text)
		}
	}
	problem(!out.Quotad.Connected, "quotad is away")
	problem(!l.Journal.OK, "no lease journal: "+l.Journal.Why)
	problem(out.Usage.LastError != "", "usage events cannot be written: "+out.Usage.LastError)
	problem(out.SnapshotFault != "", out.SnapshotFault)
	tls := s.certs.problem(time.Now())
	problem(tls != "", tls)
	for _, d := range out.Deployments {
		problem(d.Problem != "", "deployment "+d.Deployment+" "+d.Problem)
	}
	out.Problems = append(out.Problems, s.gateway.Misconfigured()...)
	return out
}

// snapshotFaults says why the newest snapshot is not in force, and why the one in force is not on disk.
func (s *Sidecar) snapshotFaults() string {
	var faults []string
	if refused := s.snapshotFault.Load(); refused != nil {
		faults = append(faults, *refused)
	}
	if err := s.policy.Fault(); err != nil {
		faults = append(faults, err.Error())
	}
	return strings.Join(faults, "; ")
}

// leaseStatus is what this process may spend, and how it came to that.
type leaseStatus struct {
	LastReplyAgeMS *int64 `json:"last_reply_age_ms"` // of quotad; null before the first
	LimitsForMS    int64  `json:"limits_for_ms"`     // how much longer balances of limits may be used; 0 when they may not
	SharesForMS    int64  `json:"shares_for_ms"`     // how much longer standing shares may be used; 0 when they may not
	Leaving        bool   `json:"leaving"`

	Admissions struct {
		Lease uint64 `json:"lease"` // from balances, without a word to quotad
		Ask   uint64 `json:"ask"`   // granted by quotad
		Share uint64 `json:"share"` // from standing shares, while quotad was away
		Open  uint64 `json:"open"`  // past a soft budget, while quotad was away
	} `json:"admissions"`
	Refusals      map[string]uint64 `json:"refusals"`       // by reason
	Waiting       int               `json:"waiting"`        // requests that wait for quotad
	OpenHolds     int               `json:"open_holds"`     // reservations of running requests
	PendingFinals int               `json:"pending_finals"` // killed predecessors whose totals quotad has not taken yet
	Fences        uint64            `json:"fences"`         // times quotad fenced this process
	DoubleSettles uint64            `json:"double_settles"` // 0, or a fault of the sidecar
	StraySettles  uint64            `json:"stray_settles"`  // 0, or a fault of the sidecar

	Journal journalStatus  `json:"journal"`
	Limits  []limitStatus  `json:"limits"`
	Budgets []budgetStatus `json:"budgets"`
	Shares  []shareStatus  `json:"shares"`
}

type journalStatus struct {
	OK        bool   `json:"ok"`
	Why       string `json:"why,omitempty"` // when there is none
	UsedBytes int    `json:"used_bytes"`
	SizeBytes int    `json:"size_bytes"`
}

// resource names a resource by the configuration in force, or by its id alone when that does not have it.
type resource struct {
	ID    uint64 `json:"id,omitempty"`
	Scope string `json:"scope,omitempty"`
	Owner string `json:"owner,omitempty"`
	Kind  string `json:"kind,omitempty"` // as in the codes of refusals
	// Names is how many names have a balance here of what is one for each: end users, runs, the claimants of a pool. The
	// numbers are their sums.
	Names int `json:"names,omitempty"`
}

// limitStatus counts requests, tokens or calls, since this process began.
type limitStatus struct {
	resource
	Granted   int64 `json:"granted"`
	Spent     int64 `json:"spent"`
	Returned  int64 `json:"returned"`
	Forfeited int64 `json:"forfeited"`
	Held      int64 `json:"held"`
	Balance   int64 `json:"balance"` // what is left of granted; negative by debt
	Demand    int64 `json:"demand"`
}

// budgetStatus counts money in one period, or in runs.
type budgetStatus struct {
	resource
	Period        string `json:"period,omitempty"` // yyyy-mm; none for runs
	GrantedNano   int64  `json:"granted_nano,string"`
	SpentNano     int64  `json:"spent_nano,string"`
	ReturnedNano  int64  `json:"returned_nano,string"`
	ForfeitedNano int64  `json:"forfeited_nano,string"`
	HeldNano      int64  `json:"held_nano,string"`
	BalanceNano   int64  `json:"balance_nano,string"`
	DemandNano    int64  `json:"demand_nano,string"`
}

// shareStatus is what may be used of a limit while quotad is away.
type shareStatus struct {
	resource
	PerMinute int64 `json:"per_minute"`
}

func leaseStatusOf(l lease.Stats, rules *policy.Rules) leaseStatus {
	out := leaseStatus{
		LimitsForMS: l.UsableFor.Milliseconds(), SharesForMS: l.StandbyFor.Milliseconds(), Leaving: l.Leaving,
		Refusals: map[string]uint64{}, Waiting: l.Waiting, OpenHolds: l.OpenHolds, PendingFinals: l.PendingFinals,
		Fences: l.Fences, DoubleSettles: l.DoubleSettles, StraySettles: l.StraySettles,
		Journal: journalStatus{OK: l.Journal.OK, Why: l.Journal.Why, UsedBytes: l.Journal.Used, SizeBytes: l.Journal.Size},
		Limits:  []limitStatus{}, Budgets: []budgetStatus{}, Shares: []shareStatus{},
	}
	if l.LastReplyAge >= 0 {
		age := l.LastReplyAge.Milliseconds()
		out.LastReplyAgeMS = &age
	}
	out.Admissions.Lease, out.Admissions.Ask = l.LocalAdmissions, l.AskedAdmissions
	out.Admissions.Share, out.Admissions.Open = l.TrickleAdmissions, l.OpenAdmissions
	for r := lease.Throttled; r < lease.NumReasons; r++ {
		out.Refusals[r.String()] = l.Refusals[r]
	}
	for _, c := range l.Counters {
		name := resourceOf(c.Resource, rules)
		name.Names = c.Names
		period := ""
		if c.Period != 0 {
			period = fmt.Sprintf("%04d-%02d", c.Period/100, c.Period%100)
		} else if name.Kind != exchange.Money.String() {
			out.Limits = append(out.Limits, limitStatus{
				resource: name, Granted: c.Granted, Spent: c.Spent, Returned: c.Returned, Forfeited: c.Forfeited,
				Held: c.Held, Balance: c.Balance, Demand: c.Demand,
			})
			continue
		}
		out.Budgets = append(out.Budgets, budgetStatus{
			resource: name, Period: period,
			GrantedNano: c.Granted, SpentNano: c.Spent, ReturnedNano: c.Returned, ForfeitedNano: c.Forfeited,
			HeldNano: c.Held, BalanceNano: c.Balance, DemandNano: c.Demand,
		})
	}
	for _, s := range l.Shares {
		out.Shares = append(out.Shares, shareStatus{resourceOf(s.Resource, rules), s.PerMinute})
	}
	return out
}

func resourceOf(id uint64, rules *policy.Rules) resource {
	if rules != nil {
		if r := rules.Resource(id); r != nil {
			return resource{Scope: r.Scope, Owner: r.Owner, Kind: r.Kind.String()}
		}
	}
	return resource{ID: id}
}
