package replica

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// sizeOf is what the files of a directory take.
func sizeOf(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	}))
	return bytes
}

// TestDirectoryIsBounded writes many times what the log may hold: few large entries, which raft by itself would keep.
// What is left over in the files is given back at the next start.
func TestDirectoryIsBounded(t *testing.T) {
	const entry, written = 128 << 10, 160 << 20
	cfg := single(t)
	cfg.disk = diskBounds{log: 16 << 20, trailing: 1 << 20, compact: 1 << 20}
	n := start(t, cfg)
	n.untilServing()
	large := bytes.Repeat([]byte("x"), entry)
	most := int64(0)
	for i := range written / entry {
		_, err := n.Propose(ctxFor(t), &raftlogv1.Op{Op: &raftlogv1.Op_Seal{Seal: &raftlogv1.Seal{Name: "k", Sealed: large, KeyId: "k"}}})
		must(t, err)
		if i%8 == 0 { // as time would have it
			must(t, n.boundLog(t.Context()))
		}
		most = max(most, sizeOf(t, cfg.DataDir))
	}
	t.Logf("%d MiB written, the directory was never larger than %d MiB", written>>20, most>>20)
	// The log, twice over for the pages that bbolt copies, and the steps of 16 MiB in which its files grow.
	if bound := 2*(cfg.disk.log+cfg.disk.trailing) + 16<<20; most > bound {
		t.Errorf("the directory grew to %d bytes, the bound is %d", most, bound)
	}
	n.snapshot() // now most of the log is free
	n.stop()
	before := sizeOf(t, cfg.DataDir)
	n = start(t, cfg)
	n.untilServing()
	if after := sizeOf(t, cfg.DataDir); after > before*2/3 {
		t.Errorf("%d bytes before a restart, %d after it", before, after)
	}
	if got, want := n.sealed("k"), uint64(written/entry); got != want {
		t.Errorf("version %d, want %d", got, want)
	}
	if left, err := filepath.Glob(filepath.Join(cfg.DataDir, "*.compact")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestLeftoversAreRemoved: what a killed process left half done does not stay for ever.
func TestLeftoversAreRemoved(t *testing.T) {
	cfg := single(t)
	n := start(t, cfg)
	n.untilServing()
	n.stop()
	must(t, os.MkdirAll(filepath.Join(cfg.DataDir, "snapshots", "1-2-3.tmp"), 0o700))
	for _, name := range []string{"snapshots/1-2-3.tmp/state.bin", "scratch-1", "raft.db.compact"} {
		must(t, os.WriteFile(filepath.Join(cfg.DataDir, name), []byte("x"), 0o600))
	}
	start(t, cfg).untilServing()
	for _, name := range []string{"snapshots/1-2-3.tmp", "scratch-1", "raft.db.compact"} {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

// TestFilesOfTwoClusters: a log of one cluster beside the files of another is refused, whichever was moved.
func TestFilesOfTwoClusters(t *testing.T) {
	var dirs []Config
	for range 2 {
		cfg := single(t)
		n := start(t, cfg)
		n.untilServing()
		n.seal("k")
		n.stop()
		dirs = append(dirs, cfg)
	}
	for _, name := range []string{"raft.db", "state.db", "meta.json"} {
		mixed := dirs[0]
		mixed.DataDir = copyDir(t, dirs[0].DataDir)
		b, err := os.ReadFile(filepath.Join(dirs[1].DataDir, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(mixed.DataDir, name), b, 0o600))
		refusedToOpen(t, mixed, "another cluster")
	}
}

func refusedToOpen(t *testing.T, cfg Config, want string) {
	t.Helper()
	n, err := Open(cfg, zap.NewNop())
	if err == nil {
		must(t, n.Close())
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Open: got %v, want an error with %q", err, want)
	}
}
