package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// shared is org with runs, end users and rented limits; both teams can be sent to shared-d, and own-d is another
// account's.
func shared() string {
	text := strings.NewReplacer(
		"red: { budget: { monthly: 100 }", "red: { run_budget: { max: 2, max_calls: 5 }, end_user_limits: { rpm: 20 }, priority: standard, budget: { monthly: 100 }",
		"blue: { budget: { monthly: 50 }", "blue: { run_budget: { max_calls: 9 }, priority: interactive, budget: { monthly: 50 }",
		"red-chat: { targets: [{ deployment: red-d }]", "red-chat: { targets: [{ deployment: red-d }, { deployment: shared-d, priority: 2 }, { deployment: own-d, priority: 3 }]",
		"blue-chat: { targets: [{ deployment: blue-d }]", "blue-chat: { targets: [{ deployment: blue-d }, { deployment: shared-d }]",
		"  - { id: blue-d,", `  - { id: shared-d, provider: openai, base_url: "https://s/v1", model: m, credential: red-main, price: mid, limits: { rpm: 100, tpm: 5 } }
  - { id: own-d, provider: openai, base_url: "https://o/v1", model: m, credential: red-main, price: mid, account: other, limits: { rpm: 100 } }
  - { id: blue-d, limits: { rpm: 10 },`,
	).Replace(org())
	return text
}

// resourcesOf are the ledger's by "scope owner kind".
func (p *plane) resourcesOf() map[string]ledger.Resource {
	all := map[string]ledger.Resource{}
	p.node.View(func(m *replica.Machine) {
		for _, r := range m.Ledger.Resources() {
			all[fmt.Sprintf("%s %s %d", r.Spec.Scope, r.Spec.Owner, r.Spec.Kind)] = r
		}
	})
	return all
}

// TestSnapshotHasWhatIsOneForEachName: keys draw on the templates of runs and end users, deployments on their pools.
func TestSnapshotHasWhatIsOneForEachName(t *testing.T) {
	p := newPlane(t)
	p.apply(shared())
	_, snap, _ := p.connect("red-gw", 7)
	byID := map[uint64]*quotav1.Resource{}
	for _, r := range snap.GetResources() {
		if byID[r.GetId()] != nil {
			t.Errorf("twice: %v", r)
		}
		byID[r.GetId()] = r
	}
	named := func(ids []uint64) (out []string) {
		for _, id := range ids {
			r := byID[id]
			out = append(out, fmt.Sprintf("%s %s %d %d %s", r.GetScope(), r.GetOwner(), r.GetKind(), r.GetLimit(), r.GetEach()))
		}
		return out
	}
	if got, want := strings.Join(named(snap.GetKeys()[0].GetDraws()), "\n"), `run red 5 2000000000 EACH_NAME
run red 6 5 EACH_NAME
end_user red 1 20 EACH_NAME
team red 1 600 EACH_UNSPECIFIED
team red 5 100000000000 EACH_UNSPECIFIED`; got != want {
		t.Errorf("draws:\n%s\nwant\n%s", got, want)
	}
	if got := snap.GetKeys()[0].GetPriority(); got != "standard" {
		t.Errorf("priority %q", got)
	}
	for _, d := range snap.GetDeployments() {
		want := map[string]string{
			"red-d":    "",
			"shared-d": "deployment shared-d 1 90 EACH_CLAIMANT\ndeployment shared-d 4 4 EACH_CLAIMANT",
			"own-d":    "deployment own-d 1 90 EACH_CLAIMANT",
		}[d.GetId()]
		if got := strings.Join(named(d.GetPools()), "\n"); got != want {
			t.Errorf("pools of %s:\n%s\nwant\n%s", d.GetId(), got, want)
		}
	}
	if len(snap.GetResources()) != 8 {
		t.Errorf("%d resources, want 8", len(snap.GetResources()))
	}
}

// TestSnapshotIsInDollars: a sidecar counts dollars, whatever budgets are written in.
func TestSnapshotIsInDollars(t *testing.T) {
	p := newPlane(t)
	p.apply(strings.Replace(strings.NewReplacer(
		"version: 1\n", "version: 1\ncurrency: INR\nfx: { \"2026-01\": { INR: 80 } }\n",
		"monthly: 100 }", "monthly: 4000 }, request_cap: 40, run_budget: { max: 160 }",
	).Replace(org()), "monthly: 50 }", "monthly: 50, currency: USD }", 1))
	_, snap, _ := p.connect("gw", 7)
	got := map[string]int64{}
	for _, r := range snap.GetResources() {
		if r.GetKind() == quotav1.Kind_KIND_MONEY {
			got[r.GetScope()+" "+r.GetOwner()] = r.GetLimit()
		}
	}
	if want := "map[run red:2000000000 team blue:50000000000 team red:50000000000]"; fmt.Sprint(got) != want {
		t.Errorf("limits %v, want %s", got, want)
	}
	for _, k := range snap.GetKeys() {
		if want := map[string]int64{"red": 5e8, "blue": 0}[k.GetTeam()]; k.GetRequestCapNano() != want {
			t.Errorf("request cap of %s: %d, want %d", k.GetTeam(), k.GetRequestCapNano(), want)
		}
	}
}

// asked lists the names under which a resource was asked for in what was proposed.
func (n *seenNode) asked(resource uint64) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range n.seen {
		for _, a := range op.GetRenew().GetAsks() {
			for _, need := range a.GetNeeds() {
				if need.GetResource() == resource {
					names = append(names, need.GetName())
				}
			}
		}
	}
	return names
}

// TestForgedNamesNeverReachTheLedger: runs and users of other teams, claims in their name or above the own class, and
// claims where the team cannot be sent.
func TestForgedNamesNeverReachTheLedger(t *testing.T) {
	p := newPlane(t)
	p.apply(shared())
	all := p.resourcesOf()
	user := strings.Repeat("ab", 32)
	for i, tc := range []struct {
		name, identity, resource, as string
		passes                       bool
	}{
		{"own run", "red-gw", "run red 5", "run-1", true},
		{"own run's calls", "red-gw", "run red 6", "run-1", true},
		{"own user", "red-gw", "end_user red 1", user, true},
		{"users beyond the bound", "red-gw", "end_user red 1", "", true},
		{"run of another team", "red-gw", "run blue 6", "run-1", false},
		{"own class", "red-gw", "deployment shared-d 1", "standard/red", true},
		{"lower class", "red-gw", "deployment shared-d 1", "batch/red", true},
		{"forged class", "red-gw", "deployment shared-d 1", "interactive/red", false},
		{"another team", "red-gw", "deployment shared-d 1", "interactive/blue", false},
		{"no team", "red-gw", "deployment shared-d 1", "batch/nobody", false},
		{"a slash too many", "red-gw", "deployment shared-d 1", "batch/red/blue", false},
		{"a deployment of another account", "red-gw", "deployment own-d 1", "standard/red", false},
		{"a deployment no key is sent to", "red-gw", "deployment blue-d 1", "standard/red", false},
		{"all teams: a class above the team's", "gw", "deployment shared-d 1", "interactive/red", false},
		{"all teams: the team's class", "gw", "deployment shared-d 1", "interactive/blue", true},
		{"all teams: no team", "gw", "deployment shared-d 1", "batch/nobody", false},
		{"all teams: any run", "gw", "run blue 6", "run-1", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, ok := all[tc.resource]
			if !ok {
				t.Fatalf("no %s among %v", tc.resource, all)
			}
			node := &seenNode{Node: p.node}
			q := serve(t, node, p.ring)
			s, _, _ := q.connect(tc.identity, uint64(100+i))
			reply := s.renew(&quotav1.Renew{Incarnation: uint64(100 + i), Seq: 1, Asks: []*quotav1.Ask{
				{Id: 1, Needs: []*quotav1.Need{{Resource: r.ID, Amount: 1, Name: tc.as}}},
			}})
			if len(reply.GetAsks()) != 1 {
				t.Fatalf("reply: %v", reply)
			}
			if gone := reply.GetAsks()[0].GetShortage() == quotav1.Shortage_SHORTAGE_GONE; !tc.passes && !gone {
				t.Errorf("answered %v", reply.GetAsks()[0])
			}
			asked := node.asked(r.ID)
			if passed := len(asked) == 1 && asked[0] == tc.as; passed != tc.passes || !tc.passes && len(asked) > 0 {
				t.Errorf("the ledger heard %q, want it to: %v", asked, tc.passes)
			}
			if counted := q.server.Foreign() > 0; counted == tc.passes {
				t.Errorf("counted as foreign: %v", counted)
			}
		})
	}
}

// TestImpossibleNamesEndTheSession: a sidecar that sends what none could ever send is told so, and nothing of its
// message is applied.
func TestImpossibleNamesEndTheSession(t *testing.T) {
	p := newPlane(t)
	p.apply(shared())
	all := p.resourcesOf()
	need := func(resource, name string) *quotav1.Renew {
		return &quotav1.Renew{Incarnation: 7, Seq: 3, Asks: []*quotav1.Ask{
			{Id: 1, Needs: []*quotav1.Need{{Resource: all["team red 1"].ID, Amount: 1}}},
			{Id: 2, Needs: []*quotav1.Need{{Resource: all["team red 1"].ID, Amount: 1}, {Resource: all[resource].ID, Amount: 1, Name: name}}},
		}}
	}
	left := func(resource string, n int64) *quotav1.Renew {
		return &quotav1.Renew{Incarnation: 7, Seq: 3, Counters: []*quotav1.Counter{{Resource: all[resource].ID, ProviderLeft: &n}}}
	}
	const at = "renew 3: asks[1].needs[1].name: "
	for _, tc := range []struct {
		name  string
		renew *quotav1.Renew
		want  string
	}{
		{"too long", need("run red 5", strings.Repeat("x", nameBytesMax+1)), at + "must be visible ASCII, at most 128 bytes"},
		{"a space", need("run red 5", "a b"), at + "must be visible ASCII"},
		{"a control character", need("run red 5", "a\x00"), at + "must be visible ASCII"},
		{"not ASCII", need("end_user red 1", "jürgen"), at + "must be visible ASCII"},
		{"on what is whole", need("team red 5", "x"), at + "the resource is not one for each name"},
		{"an unknown class", need("deployment shared-d 1", "urgent/red"), at + "must be class/team, in a known class"},
		{"no class", need("deployment shared-d 1", "red"), at + "must be class/team"},
		{"no team", need("deployment shared-d 1", "batch/"), at + "must be class/team"},
		{"no claimant", need("deployment shared-d 1", ""), at + "must be class/team"},
		{"less than nothing left", left("deployment shared-d 1", -1), "renew 3: counters[0].provider_left: must not be negative"},
		{"left of no pool", left("team red 1", 5), "renew 3: counters[0].provider_left: resource"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &seenNode{Node: p.node}
			s, _, _ := serve(t, node, p.ring).connect("red-gw", 7)
			must(t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: tc.renew}}))
			_, err := s.Recv()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want InvalidArgument: %s", err, tc.want)
			}
			if len(node.seen) > 0 {
				t.Errorf("proposed: %v", node.seen)
			}
		})
	}
	name := strings.Repeat("x", nameBytesMax)
	node := &seenNode{Node: p.node}
	s, _, _ := serve(t, node, p.ring).connect("red-gw", 8)
	r := need("run red 6", name)
	r.Incarnation, r.Seq = 8, 1
	if reply := s.renew(r); len(reply.GetAsks()) != 2 || len(node.asked(all["run red 6"].ID)) != 1 {
		t.Errorf("the longest name: %v", reply)
	}
}

// TestCountersOfOthersAreGone: the ids of another team's runs and claims open nothing, and the provider's word on a pool
// counts only from who can call the provider.
func TestCountersOfOthersAreGone(t *testing.T) {
	p := newPlane(t)
	p.apply(shared())
	all := p.resourcesOf()
	node := &seenNode{Node: p.node}
	q := serve(t, node, p.ring)
	pool := all["deployment shared-d 1"].ID
	ask := func(s *stream, incarnation uint64, needs ...*quotav1.Need) (children []uint64) {
		r := &quotav1.Renew{Incarnation: incarnation, Seq: 1}
		for i, n := range needs {
			r.Asks = append(r.Asks, &quotav1.Ask{Id: uint64(i + 1), Needs: []*quotav1.Need{n}})
		}
		reply := s.renew(r)
		for _, n := range needs {
			for _, g := range reply.GetGrants() {
				if g.GetOf() == n.GetResource() && g.GetName() == n.GetName() && g.GetGranted() > 0 {
					children = append(children, g.GetResource())
				}
			}
		}
		if len(children) != len(needs) {
			t.Fatalf("not all was granted: %v", reply)
		}
		return children
	}
	blue, _, _ := q.connect("gw", 9)
	theirs := ask(blue, 9, &quotav1.Need{Resource: all["run blue 6"].ID, Amount: 1, Name: "r"}, &quotav1.Need{Resource: pool, Amount: 1, Name: "interactive/blue"})
	red, _, _ := q.connect("red-gw", 7)
	own := ask(red, 7, &quotav1.Need{Resource: all["run red 6"].ID, Amount: 1, Name: "r"}, &quotav1.Need{Resource: pool, Amount: 1, Name: "standard/red"})

	left := int64(50)
	reply := red.renew(&quotav1.Renew{Incarnation: 7, Seq: 2, Counters: []*quotav1.Counter{
		{Resource: theirs[0]}, {Resource: theirs[1], Demand: 5, ProviderLeft: &left},
		{Resource: own[0], Held: 1}, {Resource: own[1], Held: 1, ProviderLeft: &left, Granted: 1},
	}})
	for _, g := range reply.GetGrants() {
		if foreign := slices.Contains(theirs, g.GetResource()); g.GetGone() != foreign {
			t.Errorf("grant: %v", g)
		}
	}
	for _, id := range theirs {
		if node.counted(7, id) != nil {
			t.Errorf("the ledger heard of %d", id)
		}
	}
	if c := node.counted(7, own[1]); c.GetProviderLeft() != left || c.GetGranted() != 1 {
		t.Errorf("its own: %v", c)
	}

	// What it may no longer call it may only settle.
	p.apply(strings.Replace(shared(), "{ deployment: shared-d, priority: 2 }, ", "", 1))
	reply = red.renew(&quotav1.Renew{Incarnation: 7, Seq: 3, Epoch: 1, Counters: []*quotav1.Counter{
		{Resource: own[1], Spent: 1, Demand: 9, ProviderLeft: &left, Granted: 1},
	}})
	if len(reply.GetGrants()) == 0 || reply.GetGrants()[0].GetGone() {
		t.Errorf("the claim cannot be settled: %v", reply)
	}
	if c := node.counted(7, own[1]); c.GetSpent() != 1 || c.GetDemand() != 0 || c.ProviderLeft != nil || c.GetGranted() != 1 {
		t.Errorf("what was passed on: %v", c)
	}
	if last := node.seen[len(node.seen)-1].GetRenew(); last.GetEpoch() != 1 {
		t.Errorf("epoch %d", last.GetEpoch())
	}
}

// counted is what a process last said of a resource in what was proposed; nil when it said nothing.
func (n *seenNode) counted(incarnation, resource uint64) (last *raftlogv1.Counter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range n.seen {
		if op.GetRenew().GetIncarnation() != incarnation {
			continue
		}
		for _, c := range op.GetRenew().GetCounters() {
			if c.GetResource() == resource {
				last = c
			}
		}
	}
	return last
}

// TestReachIsOfTheVersion: a route that is taken away is no route at once.
func TestReachIsOfTheVersion(t *testing.T) {
	p := newPlane(t)
	p.apply(shared())
	may := func() (ok bool) {
		p.node.View(func(m *replica.Machine) {
			ok = p.server.permit(m, "red-gw").claims("shared-d", "batch/red")
			if p.server.permit(m, "red-gw").claims("shared-d", "") != ok {
				t.Error("what all claimants share is of those who may claim")
			}
			if p.server.permit(m, "stranger").claims("shared-d", "") {
				t.Error("a stranger may claim")
			}
		})
		return ok
	}
	if !may() {
		t.Error("at first")
	}
	p.apply(strings.Replace(shared(), "{ deployment: shared-d, priority: 2 }, ", "", 1))
	if may() {
		t.Error("after the target was taken out of the alias")
	}
}

func TestRanks(t *testing.T) {
	for i, class := range registry.Classes() {
		if rank(class) != i {
			t.Errorf("%s has rank %d", class, rank(class))
		}
	}
	if rank("urgent") >= 0 {
		t.Error("what is no class must rank before all")
	}
}
