package session

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// seenNode records what is proposed.
type seenNode struct {
	Node
	mu   sync.Mutex
	seen []*raftlogv1.Op
}

func (n *seenNode) Renew(ctx context.Context, r *ledger.Renew) (ledger.RenewReply, error) {
	said := &raftlogv1.Renew{Identity: r.Identity, Incarnation: r.Incarnation, Seq: r.Seq, Epoch: r.Epoch}
	for _, c := range r.Counters {
		said.Counters = append(said.Counters, &raftlogv1.Counter{
			Resource: c.Resource, Period: c.Period, Spent: c.Spent, Returned: c.Returned, Held: c.Held, Demand: c.Demand,
			Close: c.Close, ProviderLeft: c.ProviderLeft, Granted: c.Granted,
		})
	}
	for _, a := range r.Asks {
		ask := &raftlogv1.Ask{Id: a.ID}
		for _, n := range a.Needs {
			ask.Needs = append(ask.Needs, &raftlogv1.Need{Resource: n.Resource, Period: n.Period, Amount: n.Amount, Name: n.Name})
		}
		said.Asks = append(said.Asks, ask)
	}
	n.mu.Lock()
	n.seen = append(n.seen, &raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: said}})
	n.mu.Unlock()
	return n.Node.Renew(ctx, r)
}

func (n *seenNode) Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]replica.Result, error) {
	n.mu.Lock()
	n.seen = append(n.seen, ops...)
	n.mu.Unlock()
	return n.Node.Propose(ctx, ops...)
}

// names reports whether anything proposed names a resource or a team.
func (n *seenNode) names(resource uint64, team string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range n.seen {
		for _, c := range op.GetRenew().GetCounters() {
			if c.GetResource() == resource {
				return true
			}
		}
		for _, a := range op.GetRenew().GetAsks() {
			for _, need := range a.GetNeeds() {
				if need.GetResource() == resource {
					return true
				}
			}
		}
		for _, c := range op.GetFileFinal().GetCounters() {
			if c.GetResource() == resource {
				return true
			}
		}
		for _, r := range op.GetUsageBatch().GetRows() {
			if r.GetTeam() == team {
				return true
			}
		}
	}
	return false
}

// nested adds to org what several teams share.
func nested() string {
	text := strings.Replace(org(), "red: { budget", "red: { business_unit: retail, budget", 1)
	text = strings.Replace(text, "blue: { budget", "blue: { business_unit: lab, budget", 1)
	text = strings.Replace(text, "blue-app, team: blue,", "blue-app, team: blue, limits: { rpm: 30 },", 1)
	return text + "org: { budget: { monthly: 1000 } }\n" +
		"business_units: { retail: { budget: { monthly: 100 } }, lab: { budget: { monthly: 100 } } }\n"
}

// TestForeignResourcesAreGone: a sidecar that guesses the ids of another team's resources is answered as if there were
// none, and the ledger never hears of it.
func TestForeignResourcesAreGone(t *testing.T) {
	p := newPlane(t)
	p.apply(nested())
	node := &seenNode{Node: p.node}
	q := serve(t, node, p.ring)
	all := map[string]ledger.Resource{}
	p.node.View(func(m *replica.Machine) {
		for _, r := range m.Ledger.Resources() {
			name := r.Spec.Scope + " " + r.Spec.Owner
			if r.Spec.Kind == ledger.Money {
				name += " money"
			}
			all[name] = r
		}
	})
	s, _, _ := q.connect("red-gw", 7)
	seq := uint64(0)
	for name, own := range map[string]bool{
		"team red": true, "team red money": true, "business_unit retail money": true, "org org money": true,
		"team blue": false, "team blue money": false, "business_unit lab money": false, "key blue-app": false,
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := all[name]
			if !ok {
				t.Fatalf("no such resource among %d", len(all))
			}
			open, _ := r.Open()
			before := q.server.Foreign()
			seq++
			reply := s.renew(&quotav1.Renew{
				Incarnation: 7, Seq: seq,
				Counters: []*quotav1.Counter{{Resource: r.ID, Period: open.Period, Demand: 5}},
				Asks:     []*quotav1.Ask{{Id: seq, Needs: []*quotav1.Need{{Resource: r.ID, Period: open.Period, Amount: 1}}}},
			})
			if len(reply.GetGrants()) != 1 || len(reply.GetAsks()) != 1 {
				t.Fatalf("reply: %v", reply)
			}
			g, a := reply.GetGrants()[0], reply.GetAsks()[0]
			if g.GetGone() == own || g.GetResource() != r.ID || g.GetPeriod() != open.Period ||
				a.GetGranted() != own || a.GetId() != seq || (a.GetShortage() == quotav1.Shortage_SHORTAGE_GONE) == own {
				t.Errorf("reply: %v", reply)
			}
			if !own && (g.GetFree() != 0 || a.GetLeft() != 0) {
				t.Errorf("the reply tells what is left: %v", reply)
			}
			if node.names(r.ID, "") != own {
				t.Errorf("the ledger heard of it: %v, want %v", !own, own)
			}
			if counted := q.server.Foreign() - before; counted > 0 == own {
				t.Errorf("counted as foreign: %d", counted)
			}
		})
	}
	// One message with both: what it may name is served.
	red, blue := all["team red"], all["team blue"]
	reply := s.renew(&quotav1.Renew{Incarnation: 7, Seq: seq + 1, Counters: []*quotav1.Counter{{Resource: blue.ID}, {Resource: red.ID}}, Asks: []*quotav1.Ask{
		{Id: 100, Needs: []*quotav1.Need{{Resource: red.ID, Amount: 1}, {Resource: blue.ID, Amount: 1}}},
		{Id: 101, Needs: []*quotav1.Need{{Resource: red.ID, Amount: 1}}},
	}})
	for _, a := range reply.GetAsks() {
		if a.GetGranted() != (a.GetId() == 101) {
			t.Errorf("ask: %v", a)
		}
	}
	for _, g := range reply.GetGrants() {
		if g.GetGone() != (g.GetResource() == blue.ID) {
			t.Errorf("grant: %v", g)
		}
	}
	if len(reply.GetAsks()) != 2 || len(reply.GetGrants()) != 2 {
		t.Errorf("reply: %v", reply)
	}
	s.batch(&quotav1.UsageBatch{Source: "s", FromSeq: 1, ToSeq: 1, Rows: []*quotav1.UsageRow{usageRow("blue", 1), usageRow("red", 1)}})
	if node.names(0, "blue") || !node.names(0, "red") {
		t.Error("of the usage, red's must pass and blue's must not")
	}
	// Totals of a process that quotad has never met are booked without a counter, but only where it might spend.
	money, _ := all["team red money"].Open()
	before := q.server.Foreign()
	must(t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_FileFinal{FileFinal: &quotav1.FileFinal{
		Incarnation: 6, Seq: 1, Proven: true, Counters: []*quotav1.Counter{
			{Resource: all["team red money"].ID, Period: money.Period, Spent: 5},
			{Resource: all["key blue-app"].ID, Spent: 5},
			{Resource: all["business_unit lab money"].ID, Period: money.Period, Spent: 5},
		},
	}}}))
	if f := until(s, (*quotav1.SessionResponse).GetFileFinalReply); !f.GetDone() {
		t.Errorf("final totals: %v", f)
	}
	p.node.View(func(m *replica.Machine) {
		for name, want := range map[string]int64{"team red money": 5, "business_unit lab money": 0} {
			r, _ := m.Ledger.Resource(all[name].ID)
			if open, _ := r.Open(); open.Settled != want {
				t.Errorf("%s: settled %d, want %d", name, open.Settled, want)
			}
		}
	})
	if n := q.server.Foreign() - before; n != 2 {
		t.Errorf("counted as foreign: %d", n)
	}
	if n := q.strays.Load(); n != 1 {
		t.Errorf("it was logged %d times, want once", n)
	}
}

// TestATeamThatWasTakenAwayMaySettle: what was granted before is accounted for to the end, and nothing is added.
func TestATeamThatWasTakenAwayMaySettle(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	s, snap, _ := p.connect("red-gw", 7)
	money := resource(t, snap, "red", quotav1.Kind_KIND_MONEY)
	ask := func(id uint64) []*quotav1.Ask {
		return []*quotav1.Ask{{Id: id, Needs: []*quotav1.Need{{Resource: money.GetId(), Period: money.GetPeriod(), Amount: 1e9}}}}
	}
	if r := s.renew(&quotav1.Renew{Incarnation: 7, Seq: 1, Asks: ask(1)}); !r.GetAsks()[0].GetGranted() {
		t.Fatalf("first: %v", r)
	}
	p.apply(strings.Replace(org(), "red-gw, teams: [red]", "red-gw, teams: [blue]", 1))
	r := s.renew(&quotav1.Renew{Incarnation: 7, Seq: 2, Asks: ask(2), Counters: []*quotav1.Counter{
		{Resource: money.GetId(), Period: money.GetPeriod(), Spent: 4e8, Returned: 6e8, Demand: 1e9},
	}})
	if a := r.GetAsks(); len(a) != 1 || a[0].GetGranted() || a[0].GetShortage() != quotav1.Shortage_SHORTAGE_GONE {
		t.Errorf("ask: %v", a)
	}
	p.node.View(func(m *replica.Machine) {
		res, _ := m.Ledger.Resource(money.GetId())
		if open, _ := res.Open(); open.Settled != 4e8 || open.Outstanding != 0 || open.Free != 100e9-4e8 {
			t.Errorf("the budget: %+v", open)
		}
	})
}

// TestARenewIsAnsweredOnTheStreamOfItsProcess: a reply names no incarnation. It need not: a stream is of one process,
// and carries the answers to that one's renews alone.
func TestARenewIsAnsweredOnTheStreamOfItsProcess(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	old, snap, _ := p.connect("gw", 7)
	fresh, _, _ := p.connect("gw", 9)
	bucket := resource(t, snap, "red", quotav1.Kind_KIND_REQUESTS).GetId()
	counter := []*quotav1.Counter{{Resource: bucket, Demand: 5}}
	if r := old.renew(&quotav1.Renew{Incarnation: 7, Seq: 1, Counters: counter}); r.GetGrants()[0].GetGranted() == 0 {
		t.Fatalf("the first got nothing: %v", r)
	}
	// The renew of the old one, sent again on the stream of the new one: as if the new process had taken over a queue.
	must(t, fresh.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: &quotav1.Renew{
		Incarnation: 7, Seq: 1, Counters: counter,
	}}}))
	// The same number, of the new process: its answer is the first on this stream, and has none of the other's grants.
	r := fresh.renew(&quotav1.Renew{Incarnation: 9, Seq: 1, Counters: []*quotav1.Counter{{Resource: bucket}}})
	if len(r.GetGrants()) != 1 || r.GetGrants()[0].GetGranted() != 0 {
		t.Errorf("the new one got %v", r)
	}
	if r := fresh.renew(&quotav1.Renew{Incarnation: 9, Seq: 2}); r.GetSeq() != 2 {
		t.Errorf("then %v", r)
	}
}

// TestASidecarThatDoesNotReadIsCut: it must not keep what is pushed in quotad's memory, nor hold up the others.
func TestASidecarThatDoesNotReadIsCut(t *testing.T) {
	p := newPlane(t)
	version := p.apply(org())
	n := wakingNode{Node: p.node, wakes: make(chan replica.Signal)}
	q := serve(t, n, p.ring)
	deaf, _, _ := q.connect("gw", 1)
	reader, _, _ := q.connect("gw", 2)
	deadline := time.Now().Add(patience)
	for cut := false; !cut; {
		if time.Now().After(deadline) {
			t.Fatal("it was not cut")
		}
		select {
		case <-q.gone:
			cut = true
		case n.wakes <- replica.Signal{ConfigVersion: version}:
			if reader.next().GetSnapshot() == nil || reader.next().GetCredentials() == nil {
				t.Fatal("the other one is not served in order")
			}
		}
	}
	if got := q.server.Sidecars(); len(got) != 1 || got[0].GetIncarnation() != 2 {
		t.Errorf("left are %v, want the one that reads", got)
	}
	for { // when it reads at last, it finds out why
		if _, err := deaf.Recv(); err != nil {
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "does not read") {
				t.Errorf("got %v", err)
			}
			break
		}
	}
	if r := reader.renew(&quotav1.Renew{Incarnation: 2, Seq: 1}); r.GetSeq() != 1 {
		t.Errorf("the one that reads: %v", r)
	}
}
