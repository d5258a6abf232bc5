package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

func TestCutOffLeaderIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		nodes := startAll(t, cfgs)
		old, others := leaderOf(t, nodes...)
		old.seal("k")
		began, before := time.Now(), old.Status().NowMS

		net.cut(old.cfg.ID)
		// What is on its way when the leader is cut off has an unknown outcome.
		if _, err := old.Propose(ctxFor(t), sealOp("lost")); !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNoLeader) {
			t.Fatalf("Propose on a leader that was cut off: %v", err)
		}
		next, _ := leaderOf(t, others...)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("failover took %v", took)
		}
		old.until("it no longer serves", func() bool { return old.serving.Load() == nil })
		if err := old.Linearizable(ctxFor(t)); !errors.Is(err, ErrNoLeader) {
			t.Fatalf("Linearizable on the old leader: %v", err)
		}
		if r := next.seal("k"); r.SealedVersion != 2 {
			t.Fatalf("after the failover: %+v", r)
		}
		passed := time.Since(began).Milliseconds()
		if got := next.Status().NowMS - before; got < passed-1500 || got > passed+1500 {
			t.Errorf("cluster time moved by %d ms while %d ms passed", got, passed)
		}

		net.Heal()
		last := next.seal("k")
		old.waitApplied(last.Index)
		if got := old.sealed("k"); got != 3 || old.sealed("lost") != next.sealed("lost") {
			t.Fatalf("healed: version %d, want 3; lost %d and %d", got, old.sealed("lost"), next.sealed("lost"))
		}
	})
}

// hungLog is a log whose writes can be made to hang.
type hungLog struct {
	raft.LogStore
	gate chan struct{} // holds a token while writes pass
}

func (l hungLog) StoreLogs(es []*raft.Log) error {
	<-l.gate
	defer func() { l.gate <- struct{}{} }()
	return l.LogStore.StoreLogs(es)
}

func TestLeaderWithAHungDiskIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		gates := map[string]chan struct{}{}
		for i := range cfgs {
			gate := make(chan struct{}, 1)
			gate <- struct{}{}
			gates[cfgs[i].ID] = gate
			cfgs[i].wrapLog = func(l raft.LogStore) raft.LogStore { return hungLog{l, gate} }
		}
		nodes := startAll(t, cfgs)
		old, others := leaderOf(t, nodes...)
		last := old.seal("k")
		for _, n := range others {
			n.waitApplied(last.Index)
		}

		<-gates[old.cfg.ID] // from now on its writes hang
		began := time.Now()
		if _, err := old.Propose(ctxFor(t), sealOp("k")); !errors.Is(err, ErrUnknown) {
			t.Fatalf("Propose while the disk hangs: %v", err)
		}
		if _, err := old.Propose(ctxFor(t), sealOp("k")); errors.Is(err, ErrUnknown) || err == nil {
			t.Fatalf("Propose once the stall is known: %v", err)
		}
		if !old.Status().Stalled {
			t.Fatal("the stall is not shown")
		}
		next, rest := leaderOf(t, others...)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a leader with a hung disk was replaced after %v", took)
		}
		next.seal("other")
		gates[old.cfg.ID] <- struct{}{}

		last = next.seal("other")
		old.waitApplied(last.Index)
		rest[0].waitApplied(last.Index)
		if a, b := old.sealed("k"), rest[0].sealed("k"); a != b || a != next.sealed("k") {
			t.Fatalf("after the disk came back: %d, %d and %d", a, b, next.sealed("k"))
		}
		if old.Status().Stalled {
			t.Fatal("the stall is still shown")
		}
	})
}

// fullLog is a log whose writes can be made to fail, as on a disk without room.
type fullLog struct {
	raft.LogStore
	full *atomic.Bool
}

var errNoSpace = errors.New("no space left on device")

func (l fullLog) StoreLogs(es []*raft.Log) error {
	if l.full.Load() {
		return errNoSpace
	}
	return l.LogStore.StoreLogs(es)
}

// TestLeaderWithAFullDiskStandsAside: such a leader steps down at its first write, and is the first to stand again: its
// votes are still written. It must not win, or nobody leads for as long as its disk is full.
func TestLeaderWithAFullDiskStandsAside(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		disks := map[string]*atomic.Bool{}
		for i := range cfgs {
			full := &atomic.Bool{}
			disks[cfgs[i].ID] = full
			cfgs[i].wrapLog = func(l raft.LogStore) raft.LogStore { return fullLog{l, full} }
		}
		nodes := startAll(t, cfgs)
		for range 5 { // whose turn it is to stand is chance
			old, others := leaderOf(t, nodes...)
			last := old.seal("k")
			for _, n := range others {
				n.waitApplied(last.Index)
			}
			disks[old.cfg.ID].Store(true)
			began := time.Now()
			if _, err := old.Propose(ctxFor(t), sealOp("k")); err == nil {
				t.Fatal("a leader said yes to what it could not write")
			}
			next, _ := leaderOf(t, others...)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("a leader with a full disk was replaced after %v", took)
			}
			next.seal("k")
			disks[old.cfg.ID].Store(false)
			last = next.seal("k")
			old.waitApplied(last.Index)
			if a, b := old.sealed("k"), next.sealed("k"); a != b {
				t.Fatalf("after there was room again: %d and %d", a, b)
			}
		}
	})
}

func renewOp(incarnation, seq uint64) *raftlogv1.Op {
	return &raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: &raftlogv1.Renew{Identity: "s", Incarnation: incarnation, Seq: seq}}}
}

// lapsed reports whether the process has lapsed by the node's state.
func (r *running) lapsed(incarnation uint64) (lapsed bool) {
	r.View(func(m *Machine) {
		s, ok := m.Ledger.MemberState(incarnation)
		lapsed = ok && s.Lapsed
	})
	return lapsed
}

func TestSilentSidecarLapsesByACommittedTick(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, net := three(t)
		nodes := startAll(t, cfgs)
		old, others := leaderOf(t, nodes...)
		began := time.Now()
		res, err := old.Propose(ctxFor(t), renewOp(7, 1))
		if err != nil || res[0].Renew.Seq != 1 {
			t.Fatalf("renew: %+v, %v", res, err)
		}
		others[0].waitApplied(res[0].Index)
		others[1].waitApplied(res[0].Index)

		// A leader that was cut off lapses nobody, however long it waits.
		net.cut(old.cfg.ID)
		next, _ := leaderOf(t, others...)
		for ctx := ctxFor(t); !next.lapsed(7); {
			if err := next.WaitApplied(ctx, next.Status().Applied+1); err != nil {
				t.Fatalf("no tick came: %v", err)
			}
		}
		took := time.Since(began)
		if took < 11100*time.Millisecond || took > 13*time.Second {
			t.Errorf("lapsed after %v, want 11.1 s and a little", took)
		}
		if old.lapsed(7) {
			t.Error("lapsed on a node that cannot have heard of it")
		}
		net.Heal()
		old.waitApplied(next.Status().Applied)
		if !old.lapsed(7) {
			t.Error("did not lapse on the healed node")
		}
	})
}

func TestBudgetPeriodsFollowTheCalendar(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// A bubble begins at the turn of 1999 to 2000, UTC. In the Azores it is an hour earlier.
		addr, tr := raft.NewInmemTransport("a")
		cfg := Config{ID: "a", DataDir: t.TempDir(), Bootstrap: true, Transport: tr, FlushEvery: 24 * time.Hour,
			Peers: []Peer{{ID: "a", RaftAddress: string(addr)}}}
		n := start(t, cfg)
		n.untilServing()
		op := changeOp(teamObject(t, "t", "Atlantic/Azores", 1e9, 60))
		op.GetChange().Periods = nil // the leader opens what the proposer did not
		res, err := n.Propose(ctxFor(t), op)
		if err != nil || res[0].Change.Refusal != nil {
			t.Fatalf("change: %+v, %v", res, err)
		}
		period := func() (p uint32) {
			n.View(func(m *Machine) {
				for _, z := range m.Ledger.Periods() {
					p = z.Period
				}
			})
			return p
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
		defer cancel()
		var turns []uint32
		for len(turns) < 2 {
			if err := n.WaitApplied(ctx, n.Status().Applied+1); err != nil {
				t.Fatalf("periods so far %v: %v", turns, err)
			}
			if p := period(); len(turns) == 0 || turns[len(turns)-1] != p {
				turns = append(turns, p)
			}
		}
		if turns[0] != 199912 || turns[1] != 200001 {
			t.Fatalf("periods: got %v, want 199912 and 200001", turns)
		}
		want := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
		if late := time.Since(want); late < 0 || late > time.Second {
			t.Fatalf("the year turned at %v, want %v", time.Now(), want)
		}
	})
}
