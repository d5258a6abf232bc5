package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

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
	for n := range b.Len() {
		if _, _, err := read(b.Bytes()[:n]); !errors.Is(err, ErrBadBackup) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		flipped := bytes.Clone(b.Bytes())
		flipped[n] ^= 1 << (n % 8)
		if _, _, err := read(flipped); err == nil {
			t.Fatalf("a bit of byte %d flipped: accepted", n)
		}
	}
	if _, _, err := read(append(b.Bytes(), 0)); !errors.Is(err, ErrBadBackup) {
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
