package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

func marks(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "sluice-lease-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestDiskPutBack: the same files, of the same boot, whole, and older than what the process had written. Only the mark
// can tell; without it the journal is taken at its word.
func TestDiskPutBack(t *testing.T) {
	for _, tc := range []struct {
		name           string
		back, unmarked bool
		proven         bool
	}{
		{name: "as it was left", proven: true},
		{name: "put back", back: true},
		{name: "put back, and no mark", back: true, unmarked: true, proven: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := onDisk(t.TempDir())
			cfg.MarkDir = t.TempDir()
			begin := func() *Client {
				c, err := New(cfg, zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			end := func(c *Client) {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
			c := begin()
			rich(c)
			if h, v := c.Acquire(nil, 0, Share, []Need{need(3, 10)}, nil); v.OK {
				c.Settle(h, []Need{need(3, 10)})
			}
			old := map[string][]byte{}
			for i := range 2 {
				path := filepath.Join(cfg.Dir, fmt.Sprint("journal.", i))
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				old[path] = b
			}
			c.Acquire(nil, 0, Share, []Need{need(3, 500)}, nil)
			end(c)
			if tc.back {
				for path, b := range old {
					if err := os.WriteFile(path, b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.unmarked {
				for _, path := range marks(t, cfg.MarkDir) {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			c = begin()
			if got := c.m.finals[0].msg.Proven; got != tc.proven || (len(c.m.shares) > 0) != tc.proven {
				t.Fatalf("proven %v, %d shares inherited, want %v", got, len(c.m.shares), tc.proven)
			}
			end(c)
			c = begin() // what it wrote itself is the newest again
			if got := c.m.finals; len(got) != 1 || got[0].msg.Proven != tc.proven {
				t.Fatalf("finals %v", got)
			}
			if n := len(marks(t, cfg.MarkDir)); n != 1 {
				t.Fatalf("%d marks, want 1", n)
			}
			end(c)
		})
	}
}

// TestMarkAtEveryStore: the journal may be found as it is between any two stores, and no older.
func TestMarkAtEveryStore(t *testing.T) {
	m := journaled(segmentBytesMin)
	j := m.journal
	j.mark.mem = make([]byte, markBytes)
	m.checkpoint()
	var before uint64
	for i := range 1500 { // some segments
		word := readBoth(contents(j)).tail
		if j.mark.denies(word) {
			t.Fatalf("step %d: the newest is denied", i)
		}
		if before != 0 && !j.mark.denies(before) {
			t.Fatalf("step %d: an older state is not", i)
		}
		before = word
		j.mark.about(tailWord(j.seed, j.pos+50)) // killed before the tail is stored
		if j.mark.denies(word) {
			t.Fatalf("step %d: denied while the next record is written", i)
		}
		if j.mark.denies(tailWord(j.seed, j.pos+50)) {
			t.Fatalf("step %d: denied before the mark says that it is done", i)
		}
		if h, v, _ := m.Reserve(2e9, Share, []Need{need(3, 1)}, nil); v.OK {
			m.Settle(h, nil)
		}
	}
	if j.begun < 4 {
		t.Fatalf("%d segments", j.begun)
	}
}

// TestMarkInASwitch: while a checkpoint is written the old segment is the newest, then either, then the new one.
func TestMarkInASwitch(t *testing.T) {
	m := journaled(segmentBytesMin)
	j := m.journal
	j.mark.mem = make([]byte, markBytes)
	m.checkpoint()
	old := readBoth(contents(j)).tail
	j.start()
	j.append(recordRenew, make([]byte, 8))
	if j.mark.denies(old) {
		t.Fatal("the old segment is denied before the switch")
	}
	j.finish(m.incarnation)
	if word := readBoth(contents(j)).tail; j.mark.denies(word) || !j.mark.denies(old) || word == old {
		t.Fatal("the new segment does not count after the switch")
	}
}

// TestMarkOfAProcessThatWasServedStays: it goes only where there is nothing that an old state could hide. Also what left in
// order had shares, which an old state would give to the next process.
func TestMarkOfAProcessThatWasServedStays(t *testing.T) {
	for _, served := range []bool{false, true} {
		cfg := onDisk(t.TempDir())
		cfg.MarkDir = t.TempDir()
		c, err := New(cfg, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if served {
			rich(c)
			c.m.Leave()
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if got := len(marks(t, cfg.MarkDir)) == 1; got != served {
			t.Errorf("served %v: there is a mark: %v", served, got)
		}
	}
}

// TestNoPlaceForAMark: then there is none, and all else is as ever.
func TestNoPlaceForAMark(t *testing.T) {
	cfg := onDisk(t.TempDir())
	cfg.MarkDir = filepath.Join(t.TempDir(), "nowhere")
	for range 2 {
		c, err := New(cfg, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		rich(c)
		if s := c.Stats(); !s.Journal.OK {
			t.Fatalf("journal %+v", s.Journal)
		}
		if f := c.m.finals; len(f) > 0 && !f[0].msg.Proven {
			t.Fatalf("final %v", f[0].msg)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
