package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
)

// TestImageSaysWhatIsWrong: whatever a file is, it is said in words, and the other files are read all the same.
func TestImageSaysWhatIsWrong(t *testing.T) {
	const records, entries = 3000, 300
	whole := t.TempDir()
	s, err := Open(Config{Dir: whole, NodeID: "a"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	var all []Record
	for i := range records {
		all = append(all, Record{Key: fmt.Sprintf("k%05d", i), Value: bytes.Repeat([]byte{'x'}, 100)})
	}
	s.State().Append(1, all)
	if err := s.State().Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if err := s.Log().StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Data: bytes.Repeat([]byte{'x'}, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	head := 2 * os.Getpagesize()
	noise := make([]byte, 4*head)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise) // never fails
	with := func(b []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, b, 0o600) }
	}
	cut := func(size int64) func(string) error { return func(path string) error { return os.Truncate(path, size) } }
	tooShort := fmt.Sprintf("1000 bytes are there, and its head alone has %d: file is damaged", head)
	size := func(file string) int64 {
		info, err := os.Stat(filepath.Join(whole, file))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for name, tc := range map[string]struct {
		file  string
		spoil func(path string) error
		want  string
	}{
		"no log":                 {"raft.db", os.Remove, "it is missing"},
		"an empty log":           {"raft.db", cut(0), "it is empty"},
		"less than a page":       {"raft.db", cut(1000), tooShort},
		"a log's head":           {"raft.db", cut(int64(head)), fmt.Sprintf("%d bytes of ", head)},
		"a third of a log":       {"raft.db", cut(size("raft.db") / 3), fmt.Sprintf("%d bytes of ", size("raft.db")/3)},
		"random bytes":           {"raft.db", with(noise), "file is damaged: invalid database"},
		"few of them":            {"raft.db", with(noise[:1000]), tooShort},
		"a state as log":         {"raft.db", func(p string) error { return os.Rename(filepath.Join(filepath.Dir(p), "state.db"), p) }, "it holds no log"},
		"no state":               {"state.db", os.Remove, "it is missing"},
		"an empty state":         {"state.db", cut(0), "it is empty"},
		"less than a page of it": {"state.db", cut(1000), tooShort},
		"a state's head":         {"state.db", cut(int64(head)), fmt.Sprintf("%d bytes of ", head)},
		"a third of a state":     {"state.db", cut(size("state.db") / 3), fmt.Sprintf("%d bytes of ", size("state.db")/3)},
		"a random state":         {"state.db", with(noise), "file is damaged: invalid database"},
		"a directory":            {"state.db", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, "it is not a file"},
		"no meta file":           {"meta.json", os.Remove, "it is missing"},
		"an empty one":           {"meta.json", cut(0), "it is empty"},
		"a random one":           {"meta.json", with(noise), "it is not the JSON that was written: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := tc.spoil(filepath.Join(dir, tc.file)); err != nil {
				t.Fatal(err)
			}
			m, err := OpenImage(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = m.Close() }()
			n := 0
			err = m.Records(func(string, []byte) error { n++; return nil })
			said := m.Damage
			if err != nil {
				said = append(said, "state.db: "+err.Error())
			}
			if !strings.HasPrefix(strings.Join(said, "\n"), tc.file+": "+tc.want) {
				t.Errorf("said %q, want %q", said, tc.want)
			}
			for _, odd := range []string{"runtime error", "assertion", "descriptor", dir} {
				if strings.Contains(said[0], odd) {
					t.Errorf("said %q", said[0])
				}
			}
			if tc.file != "state.db" && name != "a state as log" && n != records || tc.file != "raft.db" && m.LastIndex != entries {
				t.Errorf("%d records and %d entries were read", n, m.LastIndex)
			}
		})
	}
}
