package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// bare connects nodes as the first version does: raft speaks at once.
type bare struct {
	net.Listener
	cfg Config
}

func (b bare) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := b.cfg.Dial(ctx, "tcp", string(address))
	if err != nil || b.cfg.TLS == nil {
		return c, err
	}
	return tls.Client(c, b.config(string(address))), nil
}

func (b bare) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil || b.cfg.TLS == nil {
		return c, err
	}
	return tls.Server(c, b.config("")), nil
}

func (b bare) config(address string) *tls.Config {
	c := b.cfg.TLS().Clone()
	c.NextProtos, c.ClientAuth = []string{alpnRaft}, tls.RequireAndVerifyClientCert
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// ServerAddr implements raft.ServerAddressProvider.
func (b bare) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	p, ok := configPeer([]Config{b.cfg}, string(id))
	if !ok {
		return "", fmt.Errorf("node %s is not configured", id)
	}
	return raft.ServerAddress(p.RaftAddress), nil
}

// olderOf is the configuration of a node of the first version.
func olderOf(t *testing.T, cfg Config) Config {
	t.Helper()
	l, err := cfg.Listen("tcp", cfg.RaftListen)
	must(t, err)
	b := bare{Listener: l, cfg: cfg}
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: b, Stream: b, MaxPool: peerConnsMax, Timeout: peerIOTimeout, Logger: store.HCLog(zap.NewNop(), "raft-net"),
	})
	cfg.Transport, cfg.older = transport, true
	return cfg
}

// poolObject is a deployment with a limit, which the first version keeps and makes nothing of.
func poolObject(id string) *raftlogv1.Object {
	return object("deployment", id, `{"provider":"openai","base_url":"http://h","model":"m","unpriced":"allow","limits":{"rpm":100}}`)
}

// pools lists the ids of pools.
func (r *running) pools() (ids []uint64) {
	r.View(func(m *Machine) {
		for _, res := range m.Ledger.Resources() {
			if res.Spec.Each == ledger.EachClaimant {
				ids = append(ids, res.ID)
			}
		}
	})
	return ids
}

// isOlder checks that err names a node as of an older build.
func isOlder(t *testing.T, what string, err error, node string) {
	t.Helper()
	var older ErrOlderBuild
	if !errors.As(err, &older) || older.Node != node || older.Err != nil {
		t.Errorf("%s: got %v, want that %s runs an older build", what, err, node)
	}
}

// TestNodesAreUpgradedOneByOne: there is a leader with any mixture of versions, nothing is done that the older do not know,
// and from the moment that all are new it is.
func TestNodesAreUpgradedOneByOne(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls %v", secure), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				cfgs, _ := three(t)
				ca := newAuthority(t)
				var nodes []*running
				for i := range cfgs {
					if own := ca.config(t, "spiffe://example.org/quotad/"+cfgs[i].ID); secure {
						cfgs[i].TLS = func() *tls.Config { return own }
					}
					nodes = append(nodes, start(t, olderOf(t, cfgs[i])))
				}
				leader, _ := leaderOf(t, nodes...)
				_, err := leader.Propose(ctxFor(t), changeOp(teamObject(t, "t1", "", 1e9, 60), poolObject("before")))
				must(t, err)

				for i := range nodes {
					nodes[i].stop()
					nodes[i] = start(t, cfgs[i])
					leader, _ = leaderOf(t, nodes...)
					last := leader.seal("k")
					for _, n := range nodes {
						n.waitApplied(last.Index)
					}
				}
				for _, n := range nodes {
					n.until("it knows all nodes", func() bool {
						level, known := uint32(0), 0
						n.View(func(m *Machine) { level, known = m.Level(), len(m.Nodes()) })
						return level == levelKnown && known == 3
					})
				}
				// What the configuration had all along is there now, under the same name everywhere.
				_, err = leader.Propose(ctxFor(t), changeOp(poolObject("after")))
				must(t, err)
				last := leader.seal("k")
				var hashes []string
				for _, n := range nodes {
					n.waitApplied(last.Index)
					_, sum := n.StateHash()
					hashes = append(hashes, fmt.Sprintf("%x", sum))
					if got, want := n.pools(), leader.pools(); len(got) != 2 || !slices.Equal(got, want) {
						t.Errorf("pools of %v: %v, want those of the leader, %v", n, got, want)
					}
				}
				if hashes[0] != hashes[1] || hashes[0] != hashes[2] {
					t.Errorf("the states differ: %v", hashes)
				}
			})
		})
	}
}

func TestAMixedClusterRefusesWhatSomeDoNotKnow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		older := start(t, olderOf(t, cfgs[2]))
		rest := []*running{start(t, olderOf(t, cfgs[0])), start(t, olderOf(t, cfgs[1]))}
		leader, _ := leaderOf(t, append(rest, older)...)
		_, err := leader.Propose(ctxFor(t), changeOp(teamObject(t, "t1", "", 1e9, 60), poolObject("before")))
		must(t, err)
		for i := range rest {
			rest[i].stop()
			rest[i] = start(t, cfgs[i])
		}
		// The older one cannot lead while it is cut off.
		net.cut(older.cfg.ID)
		leader, _ = leaderOf(t, rest...)
		net.Heal()
		older.waitApplied(leader.seal("k").Index)
		name := older.cfg.ID

		_, where := joiner(t, net, "d", "127.0.0.4")
		isOlder(t, "AddMember", leader.AddMember(ctxFor(t), where), name)
		isOlder(t, "RemoveMember", leader.RemoveMember(ctxFor(t), leaderOther(leader, rest).cfg.ID, false), name)
		_, err = leader.Restore(ctxFor(t), strings.NewReader("anything"), false, "ops", "")
		isOlder(t, "Restore", err, name)
		runs := registry.Team{ID: "t2", Weight: 1, RunBudget: &registry.RunBudget{MaxCalls: 5, Lifetime: 60_000}}.Object()
		for _, o := range []*raftlogv1.Object{poolObject("new"), object("currency", "org", `{"code":"INR"}`), objectTo(runs)} {
			_, err = leader.Propose(ctxFor(t), changeOp(o))
			isOlder(t, "change of "+o.GetKind(), err, name)
		}
		// What all of them know is done, and on all of them the same.
		_, err = leader.Propose(ctxFor(t), changeOp(teamObject(t, "t3", "", 1e9, 60)))
		must(t, err)
		last := leader.seal("k")
		older.waitApplied(last.Index)
		if got := leader.pools(); got != nil {
			t.Errorf("pools that the older node has not: %v", got)
		}
		// One that does not answer may be of any build.
		older.stop()
		var silent ErrOlderBuild
		if _, err = leader.Propose(ctxFor(t), changeOp(poolObject("new"))); !errors.As(err, &silent) || silent.Err == nil {
			t.Errorf("with a voter away: %v", err)
		}
		// It can be taken out all the same, and then nobody is older.
		must(t, leader.RemoveMember(ctxFor(t), name, false))
		_, err = leader.Propose(ctxFor(t), changeOp(poolObject("new")))
		must(t, err)
		back := start(t, cfgs[2])
		back.endsWith(ErrRemoved)
	})
}

// leaderOther is one of the nodes that is not the leader.
func leaderOther(leader *running, nodes []*running) *running {
	i := slices.IndexFunc(nodes, func(n *running) bool { return n != leader })
	return nodes[i]
}

// TestARefusalIsNotAnOlderBuild: who answers a greeting with a refusal is not spoken to without one.
func TestARefusalIsNotAnOlderBuild(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  func(net.Conn)
		want    error
		dialled int
	}{
		{"it refuses", func(c net.Conn) {
			_, _ = readGreeting(c)
			_ = writeGreeting(c, greeting{ID: "a", Group: "h", Refusal: "cluster"})
		}, ErrOtherCluster, 1},
		{"another node answers", func(c net.Conn) {
			_, _ = readGreeting(c)
			_ = writeGreeting(c, greeting{ID: "z", Group: "g"})
		}, errOtherNode, 1},
		{"it answers nonsense", func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request") }, errGreeting, 1},
		{"it closes", func(net.Conn) {}, nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				cfgs, network := three(t)
				l, err := network.Host("127.0.0.9").Listen("tcp", "127.0.0.9:1")
				must(t, err)
				dialled := make(chan int)
				go func() {
					n := 0
					for ; ; n++ {
						c, err := l.Accept()
						if err != nil {
							break
						}
						if n == 0 {
							tt.answer(c)
							_, _ = c.Read(make([]byte, 4096)) // or else what is unread would reset the connection
						}
						_ = c.Close()
					}
					dialled <- n
				}()
				s := &streams{
					dial: cfgs[0].Dial, self: func() greeting { return greeting{ID: "b", Group: "g"} },
					book:  newBook([]Peer{{ID: "a", RaftAddress: "127.0.0.9:1"}}, func(string) (Peer, bool) { return Peer{}, false }),
					first: func() bool { return true }, refused: func(string, error) {}, removed: func(string) bool { return false },
				}
				c, err := s.Dial("a", time.Second)
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if c != nil {
					_ = c.Close()
				}
				_ = l.Close()
				if n := <-dialled; n != tt.dialled {
					t.Errorf("dialled %d times, want %d", n, tt.dialled)
				}
			})
		})
	}
}

// TestAHigherLevelIsNotRead: a node stops at what a newer version wrote.
func TestAHigherLevelIsNotRead(t *testing.T) {
	entry := encoded(t, &raftlogv1.Entry{Ops: []*raftlogv1.Op{{Op: &raftlogv1.Op_Upgrade{Upgrade: &raftlogv1.Upgrade{Level: levelKnown + 1}}}}})
	if _, err := (&decoder{knows: levelKnown}).decode(entry); !errors.Is(err, store.ErrNewerFormat) {
		t.Errorf("an entry: %v", err)
	}
	state := disk{levelKey: encoded(t, &raftlogv1.LevelState{Level: levelKnown + 1})}
	if _, err := loadMachine(ledger.Config{}, state.load); !errors.Is(err, store.ErrNewerFormat) {
		t.Errorf("a state: %v", err)
	}
}

// TestLevelIsNotRaisedByHalves: where the configuration needs more resources than one entry can make, it stays.
func TestLevelIsNotRaisedByHalves(t *testing.T) {
	m := newMachine(ledger.Config{})
	var index uint64
	one := func(op *raftlogv1.Op) Result {
		index++
		return apply(m, index, &raftlogv1.Entry{Ops: []*raftlogv1.Op{op}})[0]
	}
	upgrade := &raftlogv1.Op{Op: &raftlogv1.Op_Upgrade{Upgrade: &raftlogv1.Upgrade{Level: levelKnown}}}
	deployments := func(delete bool) *raftlogv1.Op {
		var all []*raftlogv1.Object
		for i := range 2500 {
			o := object("deployment", fmt.Sprint("d", i),
				`{"provider":"openai","base_url":"http://h","model":"m","unpriced":"allow","limits":{"rpm":100,"tpm":100}}`)
			if delete {
				o.SpecJson = nil
			}
			all = append(all, o)
		}
		return changeOp(all...)
	}
	if r := one(deployments(false)); r.Change.Refusal != nil {
		t.Fatal(r.Change.Refusal)
	}
	if one(upgrade); m.Level() != 0 || len(m.Ledger.Resources()) != 0 {
		t.Fatalf("level %d with %d resources", m.Level(), len(m.Ledger.Resources()))
	}
	one(deployments(true))
	if one(upgrade); m.Level() != levelKnown {
		t.Fatalf("level %d", m.Level())
	}
	if r := one(changeOp(poolObject("d"))); r.Change.Refusal != nil || len(m.Ledger.Resources()) != 1 {
		t.Fatalf("%+v, %d resources", r, len(m.Ledger.Resources()))
	}
	if one(&raftlogv1.Op{Op: &raftlogv1.Op_Upgrade{Upgrade: &raftlogv1.Upgrade{}}}); m.Level() != levelKnown {
		t.Fatalf("it went back to %d", m.Level())
	}
}
