package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// TestBackupIsWholeOrRefused: a backup reads back as it was written, and with any byte missing or changed it does not.
func TestBackupIsWholeOrRefused(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), NodeID: "a"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	want := map[string]string{}
	var records []Record
	for i := range 50 {
		k, v := fmt.Sprintf("k/%02d", i), fmt.Sprint(i*i)
		want[k] = v
		records = append(records, Record{Key: k, Value: []byte(v)})
	}
	s.State().Append(7, append(records, Record{Key: "x/1", Value: []byte("not kept")}))
	var b bytes.Buffer
	err = s.State().Backup(t.Context(), &b, 7, func(applied uint64, get func(string) []byte) (*raftlogv1.BackupHeader, error) {
		return &raftlogv1.BackupHeader{Applied: applied, ClusterId: string(get("k/03"))}, nil
	}, func(key []byte) bool { return key[0] == 'k' })
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) (map[string]string, *raftlogv1.BackupHeader, error) {
		got := map[string]string{}
		h, _, err := ReadBackup(bytes.NewReader(b), func(k string, v []byte) error { got[k] = string(v); return nil })
		return got, h, err
	}
	got, h, err := read(b.Bytes())
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || h.GetApplied() != 7 || h.GetClusterId() != "9" {
		t.Fatalf("got %v %v %v", got, h, err)
	}
	whole, head := b.Bytes(), len(backupMagic)
	for n := range whole {
		want := "it does not begin like one: bad backup"
		if n >= head {
			want = fmt.Sprintf("it is cut short: it ends at byte %d, after ", n)
		}
		if _, _, err := read(whole[:n]); !errors.Is(err, ErrBadBackup) || !strings.HasPrefix(err.Error(), want) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1 << (n % 8)
		if _, _, err := read(flipped); err == nil || !inWords(err) {
			t.Fatalf("a bit of byte %d flipped: %v", n, err)
		}
	}
	seventh := bytes.Index(whole, []byte("k/07")) - 3 // before it: its length, tag and length of the key
	bent := bytes.Clone(whole)
	bent[seventh+1] = 0x07 // a wire type that there is not
	for name, tc := range map[string]struct {
		b    []byte
		want string
	}{
		"its last byte":         {whole[:len(whole)-1], fmt.Sprintf("it is cut short: it ends at byte %d, after 50 records: bad backup", len(whole)-1)},
		"a record":              {bent, fmt.Sprintf("it is damaged at byte %d, after 7 records: bad backup", seventh)},
		"a length without end":  {append(bytes.Clone(whole[:seventh]), bytes.Repeat([]byte{0xff}, 20)...), fmt.Sprintf("it is damaged at byte %d, after 7 records: bad backup", seventh)},
		"with more at its end":  {append(bytes.Clone(whole), 0), "something follows its end: bad backup"},
		"nothing but its title": {whole[:head], fmt.Sprintf("it is cut short: it ends at byte %d, after 0 records: bad backup", head)},
	} {
		if _, _, err := read(tc.b); !errors.Is(err, ErrBadBackup) || err.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	broken := errors.New("the disk broke")
	for _, n := range []int{0, 5, head, seventh, seventh + 2, len(whole)} {
		from := io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(broken))
		if _, _, err := ReadBackup(from, func(string, []byte) error { return nil }); !errors.Is(err, broken) || errors.Is(err, ErrBadBackup) {
			t.Errorf("a disk that breaks at byte %d: %v", n, err)
		}
	}
}

// inWords reports whether an error is free of what libraries call things.
func inWords(err error) bool {
	for _, odd := range []string{"EOF", "proto", "varint", "\n"} {
		if strings.Contains(err.Error(), odd) {
			return false
		}
	}
	return true
}

// TestSnapshotIsWholeOrRefused: a stream with any byte missing or changed is refused, in words.
func TestSnapshotIsWholeOrRefused(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), NodeID: "a"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.State().Append(7, []Record{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")}})
	file, view, applied, err := s.State().view()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(writeStream(&b, applied, view), view.Rollback(), file.release()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.bin")
	check := func(b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return checkSnapshot(path)
	}
	if err := check(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		err := check(b.Bytes()[:n])
		if want := fmt.Sprintf("it is cut short: it ends at byte %d, after ", n); !errors.Is(err, ErrBadSnapshot) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
		flipped := bytes.Clone(b.Bytes())
		flipped[n] ^= 1 << (n % 8)
		if err := check(flipped); err == nil || !inWords(err) {
			t.Errorf("a bit of byte %d flipped: %v", n, err)
		}
	}
	if err := check(append(b.Bytes(), 0)); !errors.Is(err, ErrBadSnapshot) || !strings.HasPrefix(err.Error(), "something follows its end") {
		t.Errorf("with more at its end: %v", err)
	}
}

// TestReplaceLeavesNothing: after Replace only what it brought is there, in memory's order with what comes later.
func TestReplaceLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, NodeID: "a"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s.State().Append(1, []Record{{Key: "old", Value: []byte("1")}})
	if err := s.State().Flush(); err != nil {
		t.Fatal(err)
	}
	s.State().Append(2, []Record{{Key: "unwritten", Value: []byte("2")}})
	s.State().Replace(3, []Record{{Key: "new", Value: []byte("3")}})
	s.State().Append(4, []Record{{Key: "later", Value: []byte("4")}})
	if err := s.State().Flush(); err != nil {
		t.Fatal(err)
	}
	got := ""
	if err := s.State().Load(func(k string, v []byte) error { got += k + "=" + string(v) + " "; return nil }); err != nil {
		t.Fatal(err)
	}
	if got != "later=4 new=3 " {
		t.Errorf("got %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
