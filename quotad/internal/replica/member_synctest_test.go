package replica

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
)

// joiner returns the configuration of a further node on a machine of its own, and where it is.
func joiner(t *testing.T, net network, id, ip string) (Config, Peer) {
	t.Helper()
	net.ips[id] = ip
	host := net.Host(ip)
	t.Cleanup(host.Exit)
	return Config{
		ID: id, DataDir: t.TempDir(), RaftListen: ip + ":7071", Listen: host.Listen, Dial: host.Dial, FlushEvery: time.Hour,
	}, Peer{ID: id, RaftAddress: ip + ":7071", ClientAddress: id + ":7070", AdminAddress: id + ":7072"}
}

// votes waits until a node votes, as the leader sees it.
func (r *running) votes(id string) {
	r.t.Helper()
	for ctx := ctxFor(r.t); ; {
		for _, m := range r.Status().Members {
			if m.ID == id && m.Voter {
				return
			}
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("%s never votes: %+v", id, r.Status().Members)
		case <-time.After(10 * time.Millisecond): // on a virtual clock
		}
	}
}

// endsWith waits for the end of Run, which must return that error.
func (r *running) endsWith(want error) {
	r.t.Helper()
	r.once.Do(func() {
		select {
		case err := <-r.ended:
			if !errors.Is(err, want) {
				r.t.Errorf("Run of %s: got %v, want %v", r.cfg.ID, err, want)
			}
		case <-time.After(patience):
			r.t.Errorf("Run of %s does not end", r.cfg.ID)
			r.cancel()
			<-r.ended
		}
		if err := r.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

func TestMembersComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		leader, others := leaderOf(t, startAll(t, cfgs)...)
		leader.seal("k")
		cfg, where := joiner(t, net, "d", "127.0.0.4")
		// Added before it runs: it counts for nothing until it has caught up.
		must(t, leader.AddMember(ctxFor(t), where))
		for _, m := range leader.Status().Members {
			if m.ID == "d" && m.Voter {
				t.Fatal("it votes before it runs")
			}
		}
		d := start(t, cfg)
		leader.votes("d")
		must(t, leader.AddMember(ctxFor(t), where)) // again: nothing changes
		last := leader.seal("k")
		d.waitApplied(last.Index)
		for _, n := range append(others, d) {
			n.waitApplied(last.Index)
			if p, ok := n.peer("d"); !ok || p != where {
				t.Errorf("%v knows d as %+v", n, p)
			}
			var notLeader ErrNotLeader
			if _, err := n.Propose(ctxFor(t), sealOp("k")); !errors.As(err, &notLeader) || notLeader.AdminAddress != leader.cfg.ID+":7072" {
				t.Errorf("%v names as the leader: %v", n, err)
			}
		}

		// One that runs hears of its removal and ends.
		gone := others[0]
		must(t, leader.RemoveMember(ctxFor(t), gone.cfg.ID, false))
		gone.endsWith(ErrRemoved)
		must(t, leader.RemoveMember(ctxFor(t), gone.cfg.ID, false)) // again

		// One that is away hears of it when it is back.
		away := others[1]
		away.stop()
		must(t, leader.RemoveMember(ctxFor(t), away.cfg.ID, false))
		back := start(t, configOf(cfgs, away.cfg.ID))
		back.endsWith(ErrRemoved)

		// It may come back, with what it has.
		p, _ := configPeer(cfgs, away.cfg.ID)
		must(t, leader.AddMember(ctxFor(t), p))
		again := start(t, configOf(cfgs, away.cfg.ID))
		leader.votes(away.cfg.ID)
		last = leader.seal("k")
		again.waitApplied(last.Index)

		// A leader that is to go hands over first: whoever asked is told whom to ask.
		var next ErrNotLeader
		if err := leader.RemoveMember(ctxFor(t), leader.cfg.ID, false); !errors.As(err, &next) || next.LeaderID == leader.cfg.ID {
			t.Fatalf("the leader removes itself: %v", err)
		}
		heir, _ := leaderOf(t, d, again)
		must(t, heir.RemoveMember(ctxFor(t), leader.cfg.ID, false))
		leader.endsWith(ErrRemoved)
		if got := heir.seal("k"); got.SealedVersion != 4 {
			t.Errorf("version %d, want 4", got.SealedVersion)
		}
	})
}

func configPeer(cfgs []Config, id string) (Peer, bool) {
	for _, p := range cfgs[0].Peers {
		if p.ID == id {
			return p, true
		}
	}
	return Peer{}, false
}

func TestRefusalsToChangeMembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		leader, others := leaderOf(t, startAll(t, cfgs)...)
		leader.seal("k")
		for _, tt := range []struct {
			name string
			do   func() error
			want error
		}{
			{"an unknown node", func() error { return leader.RemoveMember(ctxFor(t), "z", false) }, ErrUnknownNode},
			{"an address of another", func() error {
				return leader.AddMember(ctxFor(t), Peer{ID: "z", RaftAddress: net.ips[others[0].cfg.ID] + ":7071", ClientAddress: "z:1", AdminAddress: "z:2"})
			}, ErrAddressTaken},
			{"where another answers", func() error {
				return leader.AddMember(ctxFor(t), Peer{ID: leader.cfg.ID + "x", RaftAddress: "127.0.0.9:7071", ClientAddress: "z:1", AdminAddress: "z:2"})
			}, nil}, // nobody is there yet: it may come
		} {
			if err := tt.do(); !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
		}
		var notLeader ErrNotLeader
		if err := others[0].RemoveMember(ctxFor(t), "a", false); !errors.As(err, &notLeader) || notLeader.LeaderID != leader.cfg.ID {
			t.Errorf("on a follower: %v", err)
		}
		// A node of another cluster is not taken in.
		alien, where := joiner(t, net, "alien", "127.0.0.5")
		alien.Bootstrap, alien.Peers = true, []Peer{where}
		start(t, alien).untilServing()
		if err := leader.AddMember(ctxFor(t), where); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("a node of another cluster: %v", err)
		}

		others[0].stop()
		<-time.After(silentAfter)
		if err := leader.RemoveMember(ctxFor(t), others[1].cfg.ID, false); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("the only other one that answers: %v", err)
		}
		must(t, leader.RemoveMember(ctxFor(t), others[0].cfg.ID, false))
		must(t, leader.RemoveMember(ctxFor(t), others[1].cfg.ID, false))
		others[1].endsWith(ErrRemoved)
		if err := leader.RemoveMember(ctxFor(t), leader.cfg.ID, true); !errors.Is(err, ErrLastVoter) {
			t.Errorf("the last voter: %v", err)
		}
		leader.seal("k")
	})
}

func TestANodeThatMovedIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		leader, others := leaderOf(t, startAll(t, cfgs)...)
		leader.seal("k")
		moved := configOf(cfgs, others[0].cfg.ID)
		others[0].stop()
		elsewhere, where := joiner(t, net, moved.ID, "127.0.0.7")
		moved.RaftListen, moved.Listen, moved.Dial = elsewhere.RaftListen, elsewhere.Listen, elsewhere.Dial
		back := start(t, moved)
		must(t, leader.AddMember(ctxFor(t), where))
		last := leader.seal("k")
		back.waitApplied(last.Index)
		others[1].waitApplied(last.Index)
		if p, _ := others[1].peer(moved.ID); p != where {
			t.Errorf("the others know it as %+v", p)
		}
		for _, m := range leader.Status().Members {
			if m.ID == moved.ID && (!m.Voter || m.RaftAddress != where.RaftAddress) {
				t.Errorf("%+v", m)
			}
		}
	})
}

func TestWipedNodesMakeNoCluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		nodes := startAll(t, cfgs)
		leader, others := leaderOf(t, nodes...)
		leader.seal("k")
		cluster := leader.Status().ClusterID
		wiped := configOf(cfgs, others[0].cfg.ID)
		others[0].stop()
		others[1].stop()
		leader.stop()
		must(t, os.RemoveAll(wiped.DataDir))
		blank := start(t, wiped)
		<-time.After(time.Minute)
		if got := blank.raft.LastIndex(); got != 0 {
			t.Fatalf("alone, it made a cluster: index %d", got)
		}
		// Beside one that has the state it neither makes a cluster nor helps to elect: with what it forgot, the entry above
		// could be lost.
		one := start(t, configOf(cfgs, others[1].cfg.ID))
		<-time.After(time.Minute)
		if blank.raft.LastIndex() != 0 || one.raft.State() == raft.Leader {
			t.Fatalf("index %d, the other is %v", blank.raft.LastIndex(), one.raft.State())
		}
		two := start(t, configOf(cfgs, leader.cfg.ID))
		now, _ := leaderOf(t, one, two)
		blank.waitApplied(now.seal("k").Index)
		if got := blank.Status().ClusterID; got != cluster {
			t.Errorf("cluster %q, want %q", got, cluster)
		}
	})
}

func TestADirectoryOfAnotherClusterIsNotRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		leader, others := leaderOf(t, startAll(t, cfgs)...)
		leader.seal("k")
		// Somebody gives one of the nodes a directory of a node of the same name of another cluster.
		wrong := configOf(cfgs, others[0].cfg.ID)
		others[0].stop()
		wrong.DataDir = t.TempDir()
		alone, where := joiner(t, net, wrong.ID, "127.0.0.8")
		alone.DataDir, alone.Bootstrap, alone.Peers = wrong.DataDir, true, []Peer{where}
		a := start(t, alone)
		a.untilServing()
		a.stop()
		n, err := Open(wrong, zap.NewNop())
		must(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Run(ctx); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("Run: %v", err)
		}
		must(t, n.Close())
		leader.seal("k")
	})
}
