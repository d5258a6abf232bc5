package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	"go.uber.org/zap"
)

var entryText = []byte("an entry that can be found in the file again")

func writeLog(t *testing.T, dir string) {
	t.Helper()
	s := openStore(t, dir)
	for i := uint64(1); i <= 20; i++ {
		if err := s.Log().StoreLog(&raft.Log{Index: i, Term: 1, Data: bytes.Repeat(entryText, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	abandon(t, s)
}

func TestDamagedLogIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"a flipped bit": func(b []byte) []byte { // on every page, since some of them are free now
			return bytes.ReplaceAll(b, []byte("found in"), []byte("found On"))
		},
		"a bucket that is none": func(b []byte) []byte {
			for page := range slices.Chunk(b, 4096) {
				if elements := page[pageHead:]; page[8] == leafPage && bytes.Contains(page, logBucket) {
					clear(elements[:4]) // the flags of the first two: the buckets "conf" and "logs"
					clear(elements[elementHead:][:4])
				}
			}
			return b
		},
		"torn":          func(b []byte) []byte { return b[:len(b)/2] },
		"a lost page":   func(b []byte) []byte { clear(b[len(b)/2:][:4096]); return b },
		"cut to a page": func(b []byte) []byte { return b[:4096] },
		"not a log":     func([]byte) []byte { return bytes.Repeat([]byte("?"), 1<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeLog(t, dir)
			file := filepath.Join(dir, logName)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, spoil(b), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(Config{Dir: dir, NodeID: "a"}, zap.NewNop())
			if err == nil {
				abandon(t, s)
			}
			if !errors.Is(err, ErrLogDamaged) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v, want that %s is damaged", err, file)
			}
		})
	}
}

// TestNoDamageEndsTheProcess: whatever a disk does to the log, it is read or refused by name. Bbolt has goroutines of its
// own, in which damage would end this very process.
func TestNoDamageEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	for i := uint64(1); i <= 400; i++ { // entries of few bytes and of many, so that pages of every kind are there
		if err := s.Log().StoreLog(&raft.Log{Index: i, Term: 1, Data: bytes.Repeat(entryText, int(i%7*i%50))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Log().DeleteRange(1, 40); err != nil {
		t.Fatal(err)
	}
	abandon(t, s)
	file := filepath.Join(dir, logName)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page, sector = 4096, 512
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 400 {
		spoiled := bytes.Clone(b)
		at := rng.IntN(len(b))
		switch rng.IntN(4) {
		case 0:
			spoiled[at] ^= 1 << rng.IntN(8)
		case 1: // the head of a page and of its first elements, which is where most of its sense is
			spoiled[at/page*page+rng.IntN(64)] ^= 1 << rng.IntN(8)
		case 2:
			clear(spoiled[at/sector*sector:][:sector])
		case 3:
			copy(spoiled[at/page*page:], b[rng.IntN(len(b)/page)*page:][:page])
		}
		if err := os.WriteFile(file, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir, NodeID: "a"}, zap.NewNop())
		switch {
		case err == nil:
			abandon(t, s)
		case errors.Is(err, ErrLogDamaged) && strings.Contains(err.Error(), file):
			refused++
		default:
			t.Errorf("got %v, want that %s is damaged", err, file)
		}
	}
	if refused == 0 || refused == 400 {
		t.Errorf("%d of 400 were refused", refused)
	}
}

func TestLogOfAnEarlierVersionIsRead(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	if err := s.raft.StoreLogs([]*raft.Log{{Index: 1, Data: entryText}, {Index: 9, Data: entryText}}); err != nil { // with a gap
		t.Fatal(err)
	}
	abandon(t, s)
	s = openStore(t, dir)
	var e raft.Log
	if err := s.Log().GetLog(9, &e); err != nil || !bytes.Equal(e.Data, entryText) {
		t.Errorf("got %v, %v", e, err)
	}
}

func TestEntryOfAnotherNodeIsChecked(t *testing.T) {
	s := openStore(t, t.TempDir())
	e := &raft.Log{Index: 1, Term: 1, Data: []byte("sent")}
	e.Extensions = sumOf(e)
	e.Data = []byte("came")
	if err := s.Log().StoreLogs([]*raft.Log{e}); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("got %v", err)
	}
	if last, err := s.Log().LastIndex(); err != nil || last != 0 {
		t.Errorf("it was written: %d, %v", last, err)
	}
}

// TestFreePagesThatAreCutOffAreMissed: a file that lost nothing but free pages reads well, and the next write to them
// ends the process.
func TestFreePagesThatAreCutOffAreMissed(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	for i := uint64(1); i <= 400; i++ {
		r := set("r", strings.Repeat("v", 9000))
		if i == 400 {
			r = deleted("r")
		}
		s.State().Append(i, []Record{r})
		flush(t, s.State())
	}
	var used int64
	if err := s.State().file.db.View(func(tx *bbolt.Tx) error { used = tx.Size(); return nil }); err != nil {
		t.Fatal(err)
	}
	abandon(t, s)
	path := filepath.Join(dir, stateName)
	if err := os.Truncate(path, used-1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openStateFile(path, false); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}
