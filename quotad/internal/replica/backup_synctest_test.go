package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// hashOf sums up all records of a node's state, at the entry at which it stands.
func (r *running) hashOf() string {
	r.t.Helper()
	if err := r.store.State().Flush(); err != nil {
		r.t.Fatal(err)
	}
	sum := sha256.New()
	var b bytes.Buffer
	err := r.store.State().Backup(ctxFor(r.t), &b, 0,
		func(uint64, func(string) []byte) (*raftlogv1.BackupHeader, error) {
			return &raftlogv1.BackupHeader{}, nil
		},
		func([]byte) bool { return true })
	if err == nil {
		_, _, err = store.ReadBackup(&b, func(key string, value []byte) error {
			sum.Write([]byte(key))
			sum.Write(value)
			return nil
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// TestRestoreIsReplicated: the state of a backup is the state of every node, also of one that was away and is brought up
// to date by a snapshot, and after restarts. Who makes up the cluster stays, and another restore goes on from there.
func TestRestoreIsReplicated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfgs, _ := three(t)
		leader, others := leaderOf(t, startAll(t, cfgs)...)
		leader.seal("k")
		var saved bytes.Buffer
		must(t, leader.Backup(ctxFor(t), &saved, "test"))
		b, err := ReadBackup(bytes.NewReader(saved.Bytes()))
		must(t, err)
		if b.GetClusterId() != leader.Status().ClusterID || b.SealKey["k"] != "k" || b.GetBuild() != "test" {
			t.Errorf("header %v, seals %v", b.BackupHeader, b.SealKey)
		}
		if err := others[0].Backup(ctxFor(t), &saved, "test"); !errors.As(err, &ErrNotLeader{}) {
			t.Errorf("a follower: %v", err)
		}
		for range 3 {
			leader.seal("k")
		}
		leader.seal("later")
		away := others[1]
		away.stop()
		for n := uint64(1); n <= 2; n++ {
			before := leader.Status()
			done, err := leader.Restore(ctxFor(t), bytes.NewReader(saved.Bytes()), false, "ann", "a test")
			if err != nil || done.Refusal != "" || done.Epoch <= before.Epoch || done.HoldMS <= 0 {
				t.Fatalf("restore %d: %+v, %v", n, done, err)
			}
			if leader.sealed("k") != 1 || leader.sealed("later") != 0 {
				t.Errorf("versions %d and %d", leader.sealed("k"), leader.sealed("later"))
			}
			if got := leader.Status(); got.ClusterID != before.ClusterID || got.ConfigVersion <= before.ConfigVersion || len(got.Members) != 3 {
				t.Errorf("status %+v", got)
			}
			leader.seal("k")
		}
		leader.snapshot()
		last := leader.seal("k").Index
		back := start(t, configOf(cfgs, away.cfg.ID))
		for _, n := range []*running{others[0], back} {
			n.waitApplied(last)
			if got, want := n.hashOf(), leader.hashOf(); got != want {
				t.Errorf("%v has another state than the leader", n)
			}
			if p, ok := n.peer(leader.cfg.ID); !ok || p.AdminAddress == "" {
				t.Errorf("%v forgot where the leader is", n)
			}
		}
		if leader.Status().Violations != 0 {
			t.Error("the books do not balance")
		}
		// What was restored is on disk.
		want := leader.hashOf()
		others[0].stop()
		again := start(t, configOf(cfgs, others[0].cfg.ID))
		again.waitApplied(last)
		if again.sealed("k") != 3 || again.hashOf() != want {
			t.Errorf("after a restart: version %d, want 3; the same state: %v", again.sealed("k"), again.hashOf() == want)
		}
	})
}

// TestHalfARestoreChangesNothing: pieces that are not all there, or of two restores, are not applied; they do not stay.
func TestHalfARestoreChangesNothing(t *testing.T) {
	n := start(t, single(t))
	n.untilServing()
	n.seal("k")
	chunk := func(id string, number uint32, data string) string {
		t.Helper()
		res, err := n.Propose(ctxFor(t), &raftlogv1.Op{Op: &raftlogv1.Op_RestoreChunk{RestoreChunk: &raftlogv1.RestoreChunk{
			Id: id, Number: number, Data: []byte(data),
		}}})
		must(t, err)
		return res[0].Restore.Refusal
	}
	commit := func(id string, chunks uint32, data string) string {
		t.Helper()
		sum := sha256.Sum256([]byte(data))
		res, err := n.Propose(ctxFor(t), &raftlogv1.Op{Op: &raftlogv1.Op_RestoreCommit{RestoreCommit: &raftlogv1.RestoreCommit{
			Id: id, Chunks: chunks, Sha256: sum[:],
		}}})
		must(t, err)
		return res[0].Restore.Refusal
	}
	if got := chunk("a", 0, "x"); got != "" {
		t.Fatal(got)
	}
	for what, refusal := range map[string]string{
		"a piece left out":        chunk("a", 2, "y"),
		"a piece of another":      chunk("b", 1, "y"),
		"fewer than were sent":    commit("a", 2, "xy"),
		"another's commit":        commit("b", 1, "x"),
		"a commit without a name": commit("", 0, ""),
	} {
		if refusal == "" {
			t.Errorf("%s is accepted", what)
		}
	}
	if got := commit("a", 1, "x"); got == "" { // it is no backup
		t.Error("nonsense is restored")
	}
	n.View(func(m *Machine) {
		if m.staging.bytes != 0 || m.Epoch() != 0 {
			t.Errorf("%d bytes stay, epoch %d", m.staging.bytes, m.Epoch())
		}
	})
	if n.sealed("k") != 1 {
		t.Error("the state has changed")
	}
}
