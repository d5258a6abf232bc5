package session

import (
	"slices"
	"strings"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Ledger and rollup know no teams: whoever names a resource may use it. What a sidecar may name is decided here, by
// the teams its identity may serve, at the moment of each message.
//
// What it may not name is answered as gone, and the session goes on: an honest sidecar does it for a moment after a
// team was taken from it or given a lower class, and sends the same message again until it is answered. What no
// sidecar could ever name ends the session, see checkRenew.

// permit is what one identity may name. It is good for as long as the machine stands still.
type permit struct {
	m     *replica.Machine
	reach func() *reach
	teams []string
	all   bool
}

func (s *Server) permit(m *replica.Machine, identity string) permit {
	p := permit{m: m, reach: func() *reach { return s.reachOf(m.Registry) }}
	p.teams, p.all = m.Registry.TeamsOf(identity)
	return p
}

// serves reports whether a team is one of the identity's. The empty name stands for all teams.
func (p permit) serves(team string) bool { return p.all || slices.Contains(p.teams, team) }

// uses reports whether a request of one of its teams could draw on a resource. One that the ledger does not know is
// the ledger's to refuse.
func (p permit) uses(resource uint64) bool {
	spec, _, name, ok := p.m.Ledger.Spec(resource)
	return !ok || p.draws(spec, name)
}

// draws reports whether a request of one of its teams could draw on a resource under a name; the empty one is what all
// names share once there are too many.
func (p permit) draws(spec *ledger.Spec, name string) bool {
	if spec.Scope == registry.ScopeDeployment {
		return p.claims(spec.Owner, name)
	}
	if p.all {
		return true
	}
	switch spec.Scope {
	case registry.ScopeTeam, registry.ScopeRun, registry.ScopeEndUser:
		return p.serves(spec.Owner)
	case registry.ScopeKey:
		k, ok := p.m.Registry.Key(spec.Owner)
		return ok && p.serves(k.Team)
	case registry.ScopeBusinessUnit:
		return slices.ContainsFunc(p.teams, func(team string) bool {
			t, ok := p.m.Registry.Team(team)
			return ok && t.BusinessUnit == spec.Owner
		})
	case registry.ScopeOrg:
		return len(p.teams) > 0
	}
	return false
}

// claims reports whether it may claim of a deployment's pools under a name: in no class above the team's own, and only
// where a key of the team could be sent.
func (p permit) claims(deployment, name string) bool {
	if name == "" {
		return p.reaches(deployment)
	}
	class, team, _ := strings.Cut(name, "/")
	t, ok := p.m.Registry.Team(team)
	return ok && p.serves(team) && rank(class) >= rank(t.Priority) && p.reach().of[team][deployment]
}

// rank orders the classes, the highest first; what is none of them comes before all.
func rank(class string) int { return slices.Index(registry.Classes(), class) }

// reaches reports whether a request of one of its teams could be sent to a deployment.
func (p permit) reaches(deployment string) bool {
	for team, deployments := range p.reach().of {
		if deployments[deployment] && p.serves(team) {
			return true
		}
	}
	return false
}

// renew fills into with what of a renew the ledger may see, and returns how much it may not. A counter that the process
// already has was granted while it might: what runs on it may settle, and it gets nothing more.
func (p permit) renew(identity string, r *quotav1.Renew, into *renewal) (foreign int) {
	into.Renew = ledger.Renew{
		Identity: identity, Incarnation: r.GetIncarnation(), Seq: r.GetSeq(), ShareVersion: r.GetShareVersion(),
		Leaving: r.GetLeaving(), Epoch: r.GetEpoch(), Counters: into.Counters[:0], Asks: into.Asks[:0],
	}
	for _, c := range r.GetCounters() {
		switch {
		case p.uses(c.GetResource()):
			into.Counters = append(into.Counters, counterOf(c))
		case p.has(r.GetIncarnation(), c):
			settles := counterOf(c)
			settles.Demand, settles.ProviderLeft = 0, nil
			into.Counters = append(into.Counters, settles)
		default:
			foreign++
		}
	}
	into.needs = into.needs[:0]
	for _, a := range r.GetAsks() {
		if slices.ContainsFunc(a.GetNeeds(), p.forbids) {
			foreign++
			continue
		}
		from := len(into.needs)
		for _, n := range a.GetNeeds() {
			into.needs = append(into.needs, ledger.Need{
				Resource: n.GetResource(), Period: n.GetPeriod(), Amount: n.GetAmount(), Name: n.GetName(),
			})
		}
		into.Asks = append(into.Asks, ledger.Ask{ID: a.GetId(), Needs: into.needs[from:len(into.needs):len(into.needs)]})
	}
	return foreign
}

// final returns what of a dead process's totals the ledger may see, and how much it may not.
func (p permit) final(f *quotav1.FileFinal) (passed *quotav1.FileFinal, foreign int) {
	passed = &quotav1.FileFinal{Incarnation: f.GetIncarnation(), Seq: f.GetSeq(), Proven: f.GetProven()}
	for _, c := range f.GetCounters() {
		if p.uses(c.GetResource()) || p.has(f.GetIncarnation(), c) {
			passed.Counters = append(passed.Counters, c)
		} else {
			foreign++
		}
	}
	return passed, foreign
}

func (p permit) forbids(n *quotav1.Need) bool {
	spec, _, _, ok := p.m.Ledger.Spec(n.GetResource())
	return ok && !p.draws(spec, n.GetName())
}

func (p permit) has(incarnation uint64, c *quotav1.Counter) bool {
	_, ok := p.m.Ledger.CounterState(ledger.CounterKey{
		Incarnation: incarnation, Resource: c.GetResource(), Period: c.GetPeriod(),
	})
	return ok
}

// complete answers what the ledger did not see as if the resource were gone, so that each counter and ask has its
// answer.
func complete(r *quotav1.Renew, reply *quotav1.RenewReply) {
	if reply.GetFenced() {
		return
	}
	type key struct {
		resource uint64
		period   uint32
	}
	granted := map[key]bool{}
	for _, g := range reply.GetGrants() {
		granted[key{g.GetResource(), g.GetPeriod()}] = true
	}
	for _, c := range r.GetCounters() {
		if !granted[key{c.GetResource(), c.GetPeriod()}] {
			reply.Grants = append(reply.Grants, &quotav1.Grant{
				Resource: c.GetResource(), Period: c.GetPeriod(), Gone: true, Shortage: quotav1.Shortage_SHORTAGE_GONE,
			})
		}
	}
	answered := map[uint64]bool{}
	for _, a := range reply.GetAsks() {
		answered[a.GetId()] = true
	}
	for _, a := range r.GetAsks() {
		if !answered[a.GetId()] { // it has needs, or else the ledger would have refused the message
			reply.Asks = append(reply.Asks, &quotav1.AskResult{
				Id: a.GetId(), Resource: a.GetNeeds()[0].GetResource(), Shortage: quotav1.Shortage_SHORTAGE_GONE,
			})
		}
	}
}

// platform is the account of failed attempts that no team pays for. No team can be called so.
const platform = "(platform)"

// rows returns the rows of teams that the identity may serve and of the platform's account, and how many others there
// were: a sidecar must not write into other teams' accounts.
func (p permit) rows(in []*quotav1.UsageRow) (passed []*quotav1.UsageRow, foreign int) {
	for _, r := range in {
		if r.GetTeam() == platform || p.serves(r.GetTeam()) {
			passed = append(passed, r)
		}
	}
	return passed, len(in) - len(passed)
}
