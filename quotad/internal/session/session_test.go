package session

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

func TestHelloIsRefused(t *testing.T) {
	p := newPlane(t)
	for _, tc := range []struct {
		name  string
		first *quotav1.SessionRequest
		code  codes.Code
		want  string
	}{
		{"no hello", &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: &quotav1.Renew{}}}, codes.InvalidArgument, "must be hello"},
		{"nothing in it", &quotav1.SessionRequest{}, codes.InvalidArgument, "must be hello"},
		{"no identity", hello(&quotav1.Hello{Incarnation: 1}), codes.InvalidArgument, "hello.identity"},
		{"long identity", hello(&quotav1.Hello{Identity: strings.Repeat("x", identityMax+1), Incarnation: 1}), codes.InvalidArgument, "hello.identity"},
		{"no incarnation", hello(&quotav1.Hello{Identity: "gw"}), codes.InvalidArgument, "hello.incarnation"},
		{"other cluster", hello(&quotav1.Hello{Identity: "gw", Incarnation: 1, ClusterId: "other"}), codes.PermissionDenied, "belongs to cluster other"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := p.open()
			must(t, s.Send(tc.first))
			_, err := s.Recv()
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", err, tc.code, tc.want)
			}
		})
	}
	if got := p.server.Sidecars(); len(got) != 0 {
		t.Errorf("sessions are left: %v", got)
	}
}

func TestHelloOfASecurePlaneNeedsACertificate(t *testing.T) {
	p := newPlane(t)
	p.server.secure = true
	s := p.open()
	must(t, s.Send(hello(&quotav1.Hello{Identity: "gw", Incarnation: 1})))
	if _, err := s.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
}

func TestWelcomeSnapshotCredentials(t *testing.T) {
	p := newPlane(t)
	version := p.apply(org())
	p.setCredential("red-main", "sk-red")
	p.setCredential("blue-main", "sk-blue")
	_, snap, creds := p.connect("gw", 7)
	if snap.GetVersion() != version || len(snap.GetKeys()) != 2 || len(snap.GetAliases()) != 2 || len(snap.GetDeployments()) != 2 ||
		len(snap.GetResources()) != 4 || len(snap.GetPrices()) != 1 {
		t.Errorf("snapshot: %v", snap)
	}
	if len(creds.GetItems()) != 2 {
		t.Errorf("%d credentials, want 2", len(creds.GetItems()))
	}
	for _, k := range snap.GetKeys() {
		if k.GetPaysFailedAttempts() != (k.GetTeam() == "blue") {
			t.Errorf("who pays for failed attempts of %s", k.GetTeam())
		}
		if len(k.GetDraws()) != 2 || k.GetOutage() != quotav1.Outage_OUTAGE_SHARE || len(k.GetSecretSha256()) != 32 {
			t.Errorf("key: %v", k)
		}
	}
	got := p.server.Sidecars()
	if len(got) != 1 || got[0].GetIdentity() != "gw" || got[0].GetIncarnation() != 7 || got[0].GetBuild() != "b1" || got[0].GetLastRenewMs() != -1 {
		t.Errorf("sidecars: %v", got)
	}
}

func TestSidecarOfOneTeamSeesOnlyIt(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	p.setCredential("red-main", "sk-red")
	p.setCredential("blue-main", "sk-blue")
	s, snap, creds := p.connect("red-gw", 7)
	if len(snap.GetKeys()) != 1 || snap.GetKeys()[0].GetId() != "red-app" || len(snap.GetAliases()) != 1 ||
		snap.GetAliases()[0].GetName() != "red-chat" || len(snap.GetDeployments()) != 1 || snap.GetDeployments()[0].GetId() != "red-d" {
		t.Errorf("snapshot: %v", snap)
	}
	for _, r := range snap.GetResources() {
		if r.GetOwner() != "red" {
			t.Errorf("resource of %s: %v", r.GetOwner(), r)
		}
	}
	if items := creds.GetItems(); len(items) != 1 || items[0].GetName() != "red-main" || string(items[0].GetSecret()) != "sk-red" {
		t.Errorf("credentials: %d, want the one of red", len(items))
	}
	if strings.Contains(snap.String(), "blue") {
		t.Error("the snapshot names the other team")
	}

	ack := s.batch(&quotav1.UsageBatch{Source: "s", FromSeq: 1, ToSeq: 2, Rows: []*quotav1.UsageRow{usageRow("red", 1), usageRow("blue", 2), usageRow(platform, 4)}})
	if ack.GetLastSeq() != 2 {
		t.Errorf("ack: %v", ack)
	}
	for team, want := range map[string]int64{"red": 1, "blue": 0, platform: 4} {
		if got := p.cost(team); got != want {
			t.Errorf("usage of %s: %d, want %d", team, got, want)
		}
	}
	for _, team := range []string{"blue", "", platform} {
		if r := s.query(&quotav1.UsageQuery{Id: 1, Team: team, ToMs: time.Now().Add(time.Hour).UnixMilli()}); r.GetError() == "" || len(r.GetRows()) != 0 {
			t.Errorf("query of team %q: %v", team, r)
		}
	}
	if _, snap, creds := p.connect("stranger", 8); len(snap.GetKeys())+len(snap.GetResources())+len(snap.GetDeployments())+len(creds.GetItems()) != 0 {
		t.Errorf("an unknown sidecar gets %v", snap)
	}
}

func usageRow(team string, cost int64) *quotav1.UsageRow {
	return &quotav1.UsageRow{
		HourMs: time.Now().Truncate(time.Hour).UnixMilli(), Team: team, Key: "k", Alias: "a", Deployment: "d", Feature: "f", PriceVersion: "p1",
		Attempts: 3, Requests: 2, Errors: 1, CostNano: cost, Estimated: 1,
		Tokens: &usagev1.Tokens{Input: 4, CacheRead: 5, CacheWrite_5M: 6, CacheWrite_1H: 7, Output: 8, Reasoning: 9,
			InputAudio: 10, OutputAudio: 11, InputImage: 12, WebSearches: 13},
	}
}

func (p *plane) cost(team string) (sum int64) {
	p.t.Helper()
	var out quotav1.UsageResult
	p.node.View(func(m *replica.Machine) {
		p.server.query(m, &quotav1.UsageQuery{Team: team, ToMs: time.Now().Add(time.Hour).UnixMilli()}, &out)
	})
	for _, r := range out.GetRows() {
		sum += r.GetCostNano()
	}
	return sum
}

func resource(t *testing.T, snap *quotav1.Snapshot, owner string, kind quotav1.Kind) *quotav1.Resource {
	t.Helper()
	for _, r := range snap.GetResources() {
		if r.GetOwner() == owner && r.GetKind() == kind {
			return r
		}
	}
	t.Fatalf("no resource %v of %s", kind, owner)
	return nil
}

func TestRenew(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	s, snap, _ := p.connect("gw", 7)
	money := resource(t, snap, "red", quotav1.Kind_KIND_MONEY)
	if money.GetPeriod() == 0 || money.GetLimit() != 100e9 {
		t.Fatalf("the budget is not open: %v", money)
	}
	ask := &quotav1.Ask{Id: 1, Needs: []*quotav1.Need{{Resource: money.GetId(), Period: money.GetPeriod(), Amount: 3e9}}}
	first := &quotav1.Renew{Incarnation: 7, Seq: 1, Asks: []*quotav1.Ask{ask}}
	r := s.renew(first)
	if r.GetSeq() != 1 || r.GetUsableForMs() <= 0 || len(r.GetAsks()) != 1 || !r.GetAsks()[0].GetGranted() || r.GetFenced() {
		t.Fatalf("first: %v", r)
	}
	granted := r.GetGrants()[0].GetGranted()
	if granted < 3e9 || granted > 100e9 {
		t.Fatalf("granted %d", granted)
	}
	if again := s.renew(first); again.GetGrants()[0].GetGranted() != granted || !again.GetAsks()[0].GetGranted() {
		t.Fatalf("sent again it must grant nothing more: %v", again)
	}
	if got := p.server.Sidecars(); got[0].GetLastRenewMs() < 0 {
		t.Errorf("sidecars: %v", got)
	}
	// A session belongs to one incarnation: another one's renew goes unanswered, and counts for nothing.
	must(t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: &quotav1.Renew{Incarnation: 8, Seq: 1}}}))
	if r := s.renew(&quotav1.Renew{Incarnation: 7, Seq: 2}); r.GetSeq() != 2 {
		t.Errorf("after it: %v", r)
	}
	s.stop()
	successor, _, _ := p.connect("gw", 9)
	if r := successor.renew(&quotav1.Renew{Incarnation: 9, Seq: 1}); r.GetSeq() != 1 {
		t.Fatalf("successor: %v", r)
	}
	p.node.View(func(m *replica.Machine) {
		for _, member := range m.Ledger.Members() {
			if member.Incarnation == 8 {
				t.Error("incarnation 8 was made by the session of 7")
			}
		}
	})
	unknown := &quotav1.FileFinal{Incarnation: 12345, Seq: 1}
	must(t, successor.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_FileFinal{FileFinal: unknown}}))
	if f := until(successor, (*quotav1.SessionResponse).GetFileFinalReply); !f.GetDone() || f.GetIncarnation() != 12345 {
		t.Errorf("final totals of an unknown process: %v", f)
	}
}

func TestUsageCountsOnce(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	s, _, _ := p.connect("gw", 7)
	b := &quotav1.UsageBatch{Source: "s", FromSeq: 1, ToSeq: 1, Rows: []*quotav1.UsageRow{usageRow("red", 11)}}
	for range 3 {
		if ack := s.batch(b); ack.GetSource() != "s" || ack.GetLastSeq() != 1 {
			t.Fatalf("ack: %v", ack)
		}
	}
	gap := &quotav1.UsageBatch{Source: "s", FromSeq: 5, ToSeq: 6, Rows: []*quotav1.UsageRow{usageRow("red", 1000)}}
	if ack := s.batch(gap); ack.GetLastSeq() != 1 {
		t.Fatalf("ack after a gap: %v", ack)
	}
	r := s.query(&quotav1.UsageQuery{Id: 5, Team: "red", ToMs: time.Now().Add(time.Hour).UnixMilli(), GroupBy: []string{"feature"}})
	if r.GetId() != 5 || r.GetError() != "" || len(r.GetRows()) != 1 {
		t.Fatalf("query: %v", r)
	}
	row, want := r.GetRows()[0], usageRow("red", 11)
	if row.GetCostNano() != 11 || row.GetFeature() != "f" || row.GetAttempts() != 3 || row.GetRequests() != 2 || row.GetErrors() != 1 ||
		row.GetEstimated() != 1 || row.GetTokens().String() != want.GetTokens().String() {
		t.Errorf("row: %v", row)
	}
	if r := s.query(&quotav1.UsageQuery{Id: 6, ToMs: 1, GroupBy: []string{"colour"}}); r.GetId() != 6 || !strings.Contains(r.GetError(), "colour") {
		t.Errorf("bad query: %v", r)
	}
}

func TestChangesArePushed(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	s, _, creds := p.connect("red-gw", 7)
	if len(creds.GetItems()) != 0 {
		t.Fatal("there are no credentials yet")
	}
	p.setCredential("red-main", "sk-1")
	until(s, func(m *quotav1.SessionResponse) *quotav1.Credential {
		for _, i := range m.GetCredentials().GetItems() {
			return i
		}
		return nil
	})
	version := p.apply(strings.Replace(org(), "monthly: 100", "monthly: 90", 1))
	snap := until(s, func(m *quotav1.SessionResponse) *quotav1.Snapshot {
		if m.GetSnapshot().GetVersion() == version {
			return m.GetSnapshot()
		}
		return nil
	})
	if money := resource(t, snap, "red", quotav1.Kind_KIND_MONEY); money.GetLimit() != 90e9 {
		t.Errorf("pushed: %v", money)
	}
	must(t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_ConfigAck{ConfigAck: &quotav1.ConfigAck{Version: version}}}))
	s.renew(&quotav1.Renew{Incarnation: 7, Seq: 1}) // comes after the ack
	if got := p.server.Sidecars(); got[0].GetConfigVersion() != version {
		t.Errorf("sidecars: %v", got)
	}
	// The team moves to another sidecar: what this one knew is taken away.
	p.apply(strings.Replace(org(), "red-gw, teams: [red]", "red-gw, teams: [blue]", 1))
	taken := until(s, func(m *quotav1.SessionResponse) *quotav1.Snapshot {
		if keys := m.GetSnapshot().GetKeys(); len(keys) == 1 && keys[0].GetId() == "blue-app" {
			return m.GetSnapshot()
		}
		return nil
	})
	if strings.Contains(taken.String(), "red-") {
		t.Errorf("still there: %v", taken)
	}
	if ack := s.batch(&quotav1.UsageBatch{Source: "s", FromSeq: 1, ToSeq: 1, Rows: []*quotav1.UsageRow{usageRow("red", 5)}}); ack.GetLastSeq() != 1 || p.cost("red") != 0 {
		t.Errorf("red was written after it was taken away: %d", p.cost("red"))
	}
}

// wakingNode adds wake-ups to what a node signals.
type wakingNode struct {
	Node
	wakes chan replica.Signal
}

func (n wakingNode) Watch(ctx context.Context) <-chan replica.Signal {
	out := make(chan replica.Signal)
	go func() {
		defer close(out)
		for {
			select {
			case s := <-n.wakes:
				out <- s
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func TestWakeReachesOnlyTheOneNamed(t *testing.T) {
	p := newPlane(t)
	n := wakingNode{Node: p.node, wakes: make(chan replica.Signal)}
	q := serve(t, n, p.ring)
	one, _, _ := q.connect("gw", 1)
	two, _, _ := q.connect("gw", 2)
	n.wakes <- replica.Signal{Wake: []uint64{2}}
	n.wakes <- replica.Signal{Credentials: true} // comes to both, after it
	if two.next().GetWake() == nil {
		t.Error("two was not woken")
	}
	if m := one.next(); m.GetCredentials() == nil {
		t.Errorf("one got %v", m)
	}
}

// fickleNode leads, or not.
type fickleNode struct {
	wakingNode
	follows *atomic.Bool
}

func (n fickleNode) Leader() (id, clientAddr, adminAddr string, self bool) {
	if n.follows.Load() {
		return "b", "b:7070", "b:7072", false
	}
	return n.Node.Leader()
}

func TestFollowerNamesTheLeader(t *testing.T) {
	p := newPlane(t)
	n := fickleNode{wakingNode: wakingNode{Node: p.node, wakes: make(chan replica.Signal)}, follows: new(atomic.Bool)}
	q := serve(t, n, p.ring)
	s, _, _ := q.connect("gw", 1)
	n.follows.Store(true)
	check := func(err error) {
		t.Helper()
		st := status.Convert(err)
		if st.Code() != codes.FailedPrecondition || len(st.Details()) != 1 {
			t.Fatalf("got %v", err)
		}
		if d, ok := st.Details()[0].(*quotav1.NotLeader); !ok || d.GetLeaderId() != "b" || d.GetLeaderAddress() != "b:7070" {
			t.Fatalf("details: %v", st.Details())
		}
	}
	_, err := q.open().Recv()
	check(err)
	n.wakes <- replica.Signal{Leadership: true} // a session that was there ends too
	_, err = s.Recv()
	check(err)
}

// lateNode stops to lead while a hello is checked, and no signal of it ever reaches the sessions.
type lateNode struct {
	fickleNode
}

func (n lateNode) View(read func(*replica.Machine)) {
	n.fickleNode.View(read)
	n.follows.Store(true)
}

func TestLeadershipThatGoesDuringTheWelcomeEndsTheSession(t *testing.T) {
	p := newPlane(t)
	n := lateNode{fickleNode{wakingNode: wakingNode{Node: p.node, wakes: make(chan replica.Signal)}, follows: new(atomic.Bool)}}
	q := serve(t, n, p.ring)
	s := q.open()
	must(t, s.Send(hello(&quotav1.Hello{Identity: "gw", Incarnation: 1})))
	for {
		if _, err := s.Recv(); err != nil {
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("got %v", err)
			}
			return
		}
	}
}

// electingNode knows no leader until it is elected.
type electingNode struct {
	Node
	elected chan struct{}
	watched chan struct{} // one for each watch
}

func (n electingNode) Leader() (id, clientAddr, adminAddr string, self bool) {
	select {
	case <-n.elected:
		return n.Node.Leader()
	default:
		return "", "", "", false
	}
}

func (n electingNode) Watch(ctx context.Context) <-chan replica.Signal {
	out := make(chan replica.Signal, 1)
	go func() {
		defer close(out)
		select {
		case <-n.elected:
			out <- replica.Signal{Leadership: true}
			<-ctx.Done()
		case <-ctx.Done():
		}
	}()
	n.watched <- struct{}{}
	return out
}

func TestHelloIsHeldDuringAnElection(t *testing.T) {
	p := newPlane(t)
	n := electingNode{Node: p.node, elected: make(chan struct{}), watched: make(chan struct{}, 2)}
	q := serve(t, n, p.ring)
	s := q.open()
	must(t, s.Send(hello(&quotav1.Hello{Identity: "gw", Incarnation: 1})))
	<-n.watched // by the server
	<-n.watched // by the hello
	close(n.elected)
	m, err := s.Recv()
	if err != nil || m.GetWelcome() == nil {
		t.Fatalf("got %v, %v", m, err)
	}
}

// slowNode holds every renew until it is let go.
type slowNode struct {
	Node
	proposals atomic.Int64
	goOn      chan struct{}
}

func (n *slowNode) Renew(ctx context.Context, r *ledger.Renew) (ledger.RenewReply, error) {
	n.proposals.Add(1)
	<-n.goOn
	return n.Node.Renew(ctx, r)
}

// TestRenewSentAgain: a renew that is sent again while it is under way is proposed once and answered once;
// until then its sender is told that quotad is busy.
func TestRenewSentAgain(t *testing.T) {
	p := newPlane(t)
	p.apply(org())
	slow := &slowNode{Node: p.node, goOn: make(chan struct{})}
	p = serve(t, slow, p.ring)
	s, _, _ := p.connect("gw", 7)
	renew := func(seq uint64) {
		t.Helper()
		must(t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: &quotav1.Renew{Incarnation: 7, Seq: seq}}}))
	}
	for range 3 {
		renew(1)
	}
	for range 2 {
		if b := until(s, (*quotav1.SessionResponse).GetBusy); b.GetSeq() != 1 {
			t.Errorf("busy with %d", b.GetSeq())
		}
	}
	close(slow.goOn)
	seqs := []uint64{}
	for range 2 {
		for {
			m, err := s.Recv()
			must(t, err)
			if r := m.GetRenewReply(); r != nil {
				seqs = append(seqs, r.GetSeq())
				break
			}
		}
		if len(seqs) == 1 {
			renew(2)
		}
	}
	if n := slow.proposals.Load(); n != 2 || !slices.Equal(seqs, []uint64{1, 2}) {
		t.Errorf("%d proposals, answers to %v", n, seqs)
	}
}
