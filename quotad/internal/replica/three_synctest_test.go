package replica

import (
	"errors"
	"os"
	"testing"
)

func TestThreeNodesSurviveTheirLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		nodes := startAll(t, cfgs)
		leader, others := leaderOf(t, nodes...)
		last := leader.seal("k")
		for _, n := range nodes {
			n.waitApplied(last.Index)
			if got := n.sealed("k"); got != 1 {
				t.Fatalf("%v: version %d, want 1", n, got)
			}
		}
		if leader.Status().Term == 0 {
			t.Fatalf("status: %+v", leader.Status())
		}
		healthy := func() bool {
			for _, m := range leader.Status().Members {
				if !m.Self && (m.Lag != 0 || m.LastContact.IsZero() || !m.Voter) {
					return false
				}
			}
			return true
		}
		for ctx := ctxFor(t); !healthy(); {
			if err := leader.Linearizable(ctx); err != nil { // sends a round of heartbeats
				t.Fatalf("Linearizable: %v; members as the leader sees them: %+v", err, leader.Status().Members)
			}
		}
		var notLeader ErrNotLeader
		_, err := others[0].Propose(ctxFor(t), sealOp("k"))
		if !errors.As(err, &notLeader) || notLeader.LeaderID != leader.cfg.ID ||
			notLeader.ClientAddress != leader.cfg.ID+":7070" || notLeader.AdminAddress != leader.cfg.ID+":7072" {
			t.Fatalf("Propose on a follower: %v", err)
		}
		if err := others[0].Linearizable(ctxFor(t)); !errors.As(err, &notLeader) {
			t.Fatalf("Linearizable on a follower: %v", err)
		}

		before := leader.Status().NowMS
		stopped := leader.cfg
		leader.stop()
		leader, others = leaderOf(t, others...)
		if r := leader.seal("k"); r.SealedVersion != 2 {
			t.Fatalf("after the failover: %+v", r)
		}
		if now := leader.Status().NowMS; now < before {
			t.Fatalf("time went back from %d to %d", before, now)
		}
		back := start(t, configOf(cfgs, stopped.ID))
		last = leader.seal("k")
		back.waitApplied(last.Index)
		others[0].waitApplied(last.Index)
		if a, b := back.sealed("k"), others[0].sealed("k"); a != 3 || b != 3 {
			t.Fatalf("versions: got %d and %d, want 3", a, b)
		}
	})
}

func configOf(cfgs []Config, id string) Config {
	for _, c := range cfgs {
		if c.ID == id {
			return c
		}
	}
	panic("no such node")
}

func TestSnapshotReachesALaggingFollower(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		nodes := startAll(t, cfgs)
		leader, others := leaderOf(t, nodes...)
		leader.seal("k")
		lagging, other := others[0], others[1]
		lagging.stop()
		var last Result
		for range 50 {
			last = leader.seal("k")
		}
		other.waitApplied(last.Index)
		leader.snapshot()
		other.snapshot()
		last = leader.seal("k")

		back := start(t, configOf(cfgs, lagging.cfg.ID))
		back.waitApplied(last.Index)
		if got := back.sealed("k"); got != 52 {
			t.Fatalf("version: got %d, want 52", got)
		}
		if got := back.Status().ClusterID; got != leader.Status().ClusterID {
			t.Fatalf("cluster: got %q, want %q", got, leader.Status().ClusterID)
		}
		list, err := back.store.Snapshots().List()
		if err != nil || len(list) == 0 {
			t.Fatalf("no snapshot was installed: %v, %v", list, err)
		}
		// The restored state is on disk, and replay goes on from it.
		back.stop()
		back = start(t, configOf(cfgs, lagging.cfg.ID))
		last = leader.seal("k")
		back.waitApplied(last.Index)
		if got := back.sealed("k"); got != 53 {
			t.Fatalf("version after a restart: got %d, want 53", got)
		}
	})
}

func TestWipedFollowerComesBackWithoutBootstrap(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		nodes := startAll(t, cfgs)
		leader, others := leaderOf(t, nodes...)
		leader.seal("k")
		wiped := configOf(cfgs, others[0].cfg.ID)
		others[0].stop()
		must(t, os.RemoveAll(wiped.DataDir))
		back := start(t, wiped)
		last := leader.seal("k")
		back.waitApplied(last.Index)
		if got, want := back.Status().ClusterID, leader.Status().ClusterID; got != want || back.sealed("k") != 2 {
			t.Fatalf("cluster %q, want %q; version %d, want 2", got, want, back.sealed("k"))
		}
	})
}
