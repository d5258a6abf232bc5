package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-gateway/sluice/bench/memnet"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// secret is in the path of every webhook.
const secret = "T0K3N"

// call is one call of a webhook.
type call struct {
	at     time.Time
	host   string
	header http.Header
	body   string
}

// answer is what a webhook does.
type answer struct {
	status   int
	location string // of a redirect
	err      error  // nothing is answered, and this is why
	hangs    bool   // nothing is answered
}

var taken = answer{status: http.StatusNoContent}

// hooks are the webhooks of all teams as one node reaches them.
type hooks struct {
	mu     sync.Mutex
	calls  []call
	all    answer
	others map[string]answer // by host, where it is not all's
}

// RoundTrip implements http.RoundTripper.
func (h *hooks) RoundTrip(req *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.calls = append(h.calls, call{time.Now(), req.URL.Host, req.Header, string(b)})
	a, other := h.others[req.URL.Host]
	if !other {
		a = h.all
	}
	h.mu.Unlock()
	switch {
	case a.hangs:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case a.err != nil:
		return nil, a.err
	}
	resp := &http.Response{
		StatusCode: a.status, Status: fmt.Sprint(a.status), Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("so it is")),
	}
	if a.location != "" {
		resp.Header.Set("Location", a.location)
	}
	return resp, nil
}

// turn makes all webhooks answer so from now on, but for those at some hosts.
func (h *hooks) turn(all answer, others map[string]answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all, h.others = all, others
}

// called are the calls of one webhook so far, of all when host is empty.
func (h *hooks) called(host string) (out []call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if host == "" || c.host == host {
			out = append(out, c)
		}
	}
	return out
}

// member is a node that runs, and its teller.
type member struct {
	*replica.Node
	id, ip string
	teller *Teller
	hooks  *hooks
	logs   *observer.ObservedLogs
}

// cluster is a real one on a network in memory, in a bubble.
type cluster struct {
	t       *testing.T
	net     *memnet.Net
	members []*member
	spender uint64 // incarnation of the last process that spent
}

// inCluster plays in a cluster of so many nodes that knows teams with a budget of 1,000 each, alerts at half and all of
// it, and a webhook at <team>.example unless it is named quiet.
func inCluster(t *testing.T, nodes int, teams []string, play func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // raft goes on a little after its end
		c := &cluster{t: t, net: memnet.New(time.Millisecond)}
		var peers []replica.Peer
		for i := range nodes {
			m := &member{id: string(rune('a' + i)), ip: fmt.Sprintf("127.0.0.%d", i+1), hooks: &hooks{all: taken}}
			c.members = append(c.members, m)
			peers = append(peers, replica.Peer{ID: m.id, RaftAddress: m.ip + ":7071"})
			t.Cleanup(c.net.Host(m.ip).Exit)
		}
		for _, m := range c.members {
			c.start(m, peers)
		}
		c.leader()
		c.configure(teams)
		play(c)
	})
}

func (c *cluster) start(m *member, peers []replica.Peer) {
	host := c.net.Host(m.ip)
	node, err := replica.Open(replica.Config{
		ID: m.id, DataDir: c.t.TempDir(), RaftListen: m.ip + ":7071", Listen: host.Listen, Dial: host.Dial, Peers: peers,
		Bootstrap: true, FlushEvery: time.Hour,
	}, zap.NewNop())
	must(c.t, err)
	core, logs := observer.New(zapcore.DebugLevel)
	m.Node, m.logs = node, logs
	m.teller = New(node, &http.Client{Transport: m.hooks}, zap.New(core))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- node.Run(ctx) }()
	go func() { ended <- m.teller.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		must(c.t, <-ended)
		must(c.t, <-ended)
		must(c.t, node.Close())
	})
}

// leader waits for one among some members, or all.
func (c *cluster) leader(among ...*member) *member {
	c.t.Helper()
	if among == nil {
		among = c.members
	}
	for range 1000 {
		for _, m := range among {
			if _, _, _, self := m.Leader(); self {
				return m
			}
		}
		<-time.After(10 * time.Millisecond)
	}
	c.t.Fatal("no leader")
	return nil
}

func (c *cluster) propose(op *raftlogv1.Op) replica.Result {
	c.t.Helper()
	res, err := c.leader().Propose(c.t.Context(), op)
	must(c.t, err)
	return res[0]
}

func (c *cluster) configure(teams []string) {
	c.t.Helper()
	var yaml strings.Builder
	yaml.WriteString("version: 1\nteams:\n")
	for _, team := range teams {
		hook := fmt.Sprintf(", alerts: { webhook: https://%s.example/%s }", team, secret)
		if team == "quiet" {
			hook = ""
		}
		fmt.Fprintf(&yaml, "  %s: { budget: { monthly: 1000, alert_at: [0.5, 1.0] }%s }\n", team, hook)
	}
	objects, _, err := registry.ParseOrg("org.yaml", []byte(yaml.String()))
	must(c.t, err)
	period, err := replica.PeriodAt("", time.Now())
	must(c.t, err)
	change := &raftlogv1.Change{Periods: []*raftlogv1.Period{period}}
	for _, o := range objects {
		change.Objects = append(change.Objects, &raftlogv1.Object{Kind: o.Kind, Id: o.ID, SpecJson: o.Spec})
	}
	if r := c.propose(&raftlogv1.Op{Op: &raftlogv1.Op_Change{Change: change}}).Change.Refusal; r != nil {
		c.t.Fatal(r)
	}
}

// spend has dollars of each team's budget spent, all in one operation.
func (c *cluster) spend(dollars int64, teams ...string) {
	c.t.Helper()
	c.spender++
	take := &raftlogv1.Renew{Identity: "s", Incarnation: c.spender, Seq: 1}
	use := &raftlogv1.Renew{Identity: "s", Incarnation: c.spender, Seq: 2}
	amount := dollars * 1_000_000_000
	c.leader().View(func(m *replica.Machine) {
		for _, r := range m.Ledger.Resources() {
			if p, ok := r.Open(); ok && slices.Contains(teams, r.Spec.Owner) {
				take.Asks = append(take.Asks, &raftlogv1.Ask{
					Id: r.ID, Needs: []*raftlogv1.Need{{Resource: r.ID, Period: p.Period, Amount: amount}},
				})
				use.Counters = append(use.Counters, &raftlogv1.Counter{Resource: r.ID, Period: p.Period, Spent: amount})
			}
		}
	})
	granted := 0
	for _, renew := range []*raftlogv1.Renew{take, use} {
		reply := c.propose(&raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: renew}}).Renew
		if reply.Fenced || reply.Refusal != 0 {
			c.t.Fatalf("renew: %+v", reply)
		}
		for _, a := range reply.Asks {
			if a.Granted {
				granted++
			}
		}
	}
	if granted != len(teams) {
		c.t.Fatalf("%d of %d were granted their money", granted, len(teams))
	}
}

// untold are the alerts that the books say nobody was told of, as team and threshold.
func (c *cluster) untold(m *member) (out []string) {
	m.View(func(mm *replica.Machine) {
		for _, a := range mm.Ledger.Untold() {
			out = append(out, fmt.Sprintf("%s %d", a.Spec.Owner, a.Permille))
		}
	})
	return out
}

// discreet checks that no line of a member's log has a webhook's path.
func (c *cluster) discreet(m *member) {
	c.t.Helper()
	for _, e := range m.logs.All() {
		b, err := json.Marshal(e.ContextMap())
		must(c.t, err)
		if strings.Contains(e.Message+string(b), secret) {
			c.t.Errorf("in the log: %s %s", e.Message, b)
		}
	}
}

// said counts the lines of a member's log with a message.
func (m *member) said(message string) int { return m.logs.FilterMessage(message).Len() }
