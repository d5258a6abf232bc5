package system

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fingerprint sums up every file of a directory.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s %d %v %x\n", path, info.Size(), info.ModTime(), sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

type inspected struct {
	Damage    []string
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id"`
	Applied   uint64
	LastIndex uint64 `json:"last_index"`
	StateHash string `json:"state_hash"`
	Members   []struct{ ID, Raft, Role string }
	Budgets   []struct {
		Settled int64 `json:"settled_nano"`
	}
	Log []struct{ Ops []string }
}

// TestInspect looks into the directories of stopped nodes: what they hold is what the cluster said, the same on each;
// nothing is written; one in use is refused; a damaged one is read as far as it goes, and what is damaged is named.
func TestInspect(t *testing.T) {
	s := start(t, 3, 1, func(base string) string { return org(base, "{ monthly: 1, hard: true }", "{ rpm: 600 }") })
	for range 3 {
		if a := s.chat(s.sidecars[0], say("tokens=300", "")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	spent := s.fake.Witness(0).Totals.CostNano
	s.eventually("it is settled", func() bool { return s.budget("t").Settled == spent })
	if out, err := s.verb(s.nodes[0], "status"); err != nil {
		t.Fatal(out)
	}
	inspect := func(dir string, args ...string) (string, error) {
		cmd := append([]string{"inspect", dir}, args...)
		return runVerb(cmd...)
	}
	if out, err := inspect(s.nodes[0].dir); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("a directory in use: %v %s", err, out)
	}
	s.sidecars[0].Term(t)
	for _, nd := range s.nodes {
		nd.Term(t)
	}
	hashes := map[uint64]string{}
	for _, nd := range s.nodes {
		before := fingerprint(t, nd.dir)
		var got inspected
		out, err := inspect(nd.dir, "-o", "json", "--log", "50")
		if err != nil {
			t.Fatal(out)
		}
		s.decode(out, &got)
		if got.NodeID != nd.id || got.ClusterID == "" || len(got.Damage) > 0 || len(got.Members) != 3 || len(got.Budgets) != 1 ||
			got.Budgets[0].Settled != spent || got.Applied == 0 || !strings.Contains(out, "renew {") || !strings.Contains(out, "seal main with key") {
			t.Errorf("%s: %s", nd.id, out)
		}
		if have := hashes[got.Applied]; have != "" && have != got.StateHash {
			t.Errorf("two states at %d: %s and %s", got.Applied, have, got.StateHash)
		}
		hashes[got.Applied] = got.StateHash
		if out, err := inspect(nd.dir, "--log", "3"); err != nil || !strings.Contains(out, "state hash "+got.StateHash) || !strings.Contains(out, "quotad-1  voter") {
			t.Errorf("as a table: %v %s", err, out)
		}
		if fingerprint(t, nd.dir) != before {
			t.Errorf("inspecting %s wrote to it", nd.dir)
		}
	}
	for _, tt := range []struct {
		name  string
		spoil func(dir string) error
		want  []string
	}{
		{"state file overwritten", func(dir string) error {
			return edit(filepath.Join(dir, "state.db"), func(b []byte) []byte { return bytes.Repeat([]byte{0x5a}, len(b)) })
		}, []string{"DAMAGED state.db", "node quotad-0", "term "}},
		{"state file cut short", func(dir string) error {
			return edit(filepath.Join(dir, "state.db"), func(b []byte) []byte { return b[:len(b)/3] })
		}, []string{"DAMAGED state.db", "node quotad-0"}},
		{"a page of the state overwritten", func(dir string) error {
			return edit(filepath.Join(dir, "state.db"), func(b []byte) []byte { copy(b[4*4096:], bytes.Repeat([]byte{0xff}, 4096)); return b })
		}, []string{"node quotad-0"}},
		{"log overwritten", func(dir string) error {
			return edit(filepath.Join(dir, "raft.db"), func(b []byte) []byte { return bytes.Repeat([]byte{0x5a}, len(b)) })
		}, []string{"DAMAGED raft.db", "state hash", "team   t"}},
		{"meta file gone", func(dir string) error { return os.Remove(filepath.Join(dir, "meta.json")) },
			[]string{"DAMAGED meta.json", "state hash", "team   t"}},
		{"all gone", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "raft.db")) },
			[]string{"DAMAGED raft.db", "state hash"}},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(s.nodes[0].dir)); err != nil {
			t.Fatal(err)
		}
		if err := tt.spoil(dir); err != nil {
			t.Fatal(err)
		}
		out, err := inspect(dir, "--log", "5")
		if damaged := strings.Contains(out, "DAMAGED"); damaged != (err != nil) || damaged && !strings.Contains(out, dir+" is damaged") {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %v: no %q in\n%s", tt.name, err, want, out)
			}
		}
	}
}

func edit(path string, change func([]byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, change(b), 0o600)
}
