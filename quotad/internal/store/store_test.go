package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
)

// openStore opens the directory and closes it at the end of the test.
func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, NodeID: "a"}, zap.NewNop())
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.closeFiles() })
	return s
}

func reopen(t *testing.T, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return openStore(t, s.dir)
}

// abandon closes the files without writing, as a crash would.
func abandon(t *testing.T, s *Store) {
	t.Helper()
	if err := s.closeFiles(); err != nil {
		t.Fatalf("closeFiles: %v", err)
	}
}

func contents(t *testing.T, s *State) map[string]string {
	t.Helper()
	got := map[string]string{}
	if err := s.Load(func(k string, v []byte) error { got[k] = string(v); return nil }); err != nil {
		t.Fatalf("Load: %v", err)
	}
	return got
}

func wantContents(t *testing.T, s *State, want map[string]string) {
	t.Helper()
	if got := contents(t, s); !maps.Equal(got, want) {
		t.Fatalf("records: got %v, want %v", got, want)
	}
}

func set(k, v string) Record  { return Record{Key: k, Value: []byte(v)} }
func deleted(k string) Record { return Record{Key: k} }

func flush(t *testing.T, s *State) {
	t.Helper()
	if err := s.Flush(); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

func TestGenerationsAreWrittenWithTheirIndex(t *testing.T) {
	s := openStore(t, t.TempDir())
	st := s.State()
	st.Append(3, []Record{set("r/1", "one"), set("r/2", "two")})
	st.Append(4, []Record{set("r/1", "uno"), set("m/", "")})
	wantContents(t, st, map[string]string{}) // behind
	if got := st.Stats(); got.Pending != 3 || got.Appended != 4 || got.Written != 0 || got.PendingSince.IsZero() {
		t.Fatalf("stats before: %+v", got)
	}
	flush(t, st)
	wantContents(t, st, map[string]string{"r/1": "uno", "r/2": "two", "m/": ""})
	st.Append(9, []Record{deleted("r/2"), deleted("absent")})
	flush(t, st)
	if got := st.Stats(); got.Pending != 0 || got.Written != 9 || got.Flushes != 2 || !got.PendingSince.IsZero() {
		t.Fatalf("stats after: %+v", got)
	}
	flush(t, st) // nothing to do
	if got := st.Stats().Flushes; got != 2 {
		t.Fatalf("flushes: got %d, want 2", got)
	}

	s = reopen(t, s)
	wantContents(t, s.State(), map[string]string{"r/1": "uno", "m/": ""})
	if got := s.State().Applied(); got != 9 {
		t.Fatalf("applied: got %d, want 9", got)
	}
}

// What is staged is of a state that is not whole, and is written with the rest of it or never.
func TestStagedRecordsWaitForTheirState(t *testing.T) {
	s := openStore(t, t.TempDir())
	st := s.State()
	st.Append(1, []Record{set("a", "1")})
	st.Stage([]Record{set("a", "2"), set("b", "2")})
	flush(t, st)
	wantContents(t, st, map[string]string{"a": "1"})
	st.Stage([]Record{set("b", "3"), set("c", "3")})
	snap := st.Snapshot()
	snap.Release()
	st.Append(4, []Record{set("c", "4")})
	flush(t, st)
	wantContents(t, st, map[string]string{"a": "2", "b": "3", "c": "4"})

	st.Stage([]Record{set("a", "5")})
	st.Replace(6, []Record{set("d", "6")})
	flush(t, st)
	wantContents(t, st, map[string]string{"d": "6"})
	st.Stage([]Record{set("d", "7")})
	s = reopen(t, s)
	wantContents(t, s.State(), map[string]string{"d": "6"})
}

// The state file is fed before each write, also the one at the end and the one before a backup's view.
func TestStateIsFedBeforeItIsWritten(t *testing.T) {
	s := openStore(t, t.TempDir())
	st, index := s.State(), uint64(0)
	st.Feed(func() {
		for range 3 {
			index++
			st.Stage([]Record{set(fmt.Sprint(index), "staged")})
		}
		st.Append(index, []Record{set("last", fmt.Sprint(index))})
	})
	flush(t, st)
	wantContents(t, st, map[string]string{"1": "staged", "2": "staged", "3": "staged", "last": "3"})
	file, view, applied, err := st.viewAt(t.Context(), 5)
	if err != nil || applied != 6 {
		t.Fatalf("view at %d: %v", applied, err)
	}
	if err := errors.Join(view.Rollback(), file.release()); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	if got := contents(t, s.State())["last"]; got != "9" {
		t.Fatalf("at the end: %s, want 9", got)
	}
}

func TestCloseFlushesAndACrashDoesNot(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.State().Append(1, []Record{set("k", "1")})
	s = reopen(t, s)
	wantContents(t, s.State(), map[string]string{"k": "1"})

	s.State().Append(2, []Record{set("k", "2")})
	abandon(t, s)
	s = openStore(t, s.dir)
	wantContents(t, s.State(), map[string]string{"k": "1"})
	if got := s.State().Applied(); got != 1 {
		t.Fatalf("applied: got %d, want 1", got)
	}
}

func TestAppendOutOfOrderIsABug(t *testing.T) {
	for name, records := range map[string]struct {
		index uint64
		rec   []Record
	}{
		"same index again": {index: 5},
		"older index":      {index: 4},
		"empty key":        {index: 6, rec: []Record{set("", "v")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			s.State().Append(5, nil)
			defer func() {
				if p := recover(); p == nil || !strings.HasPrefix(fmt.Sprint(p), "BUG:") {
					t.Fatalf("panic: got %v, want a BUG", p)
				}
			}()
			s.State().Append(records.index, records.rec)
		})
	}
}

func TestFailedFlushIsRetriedAndSeen(t *testing.T) {
	s := openStore(t, t.TempDir())
	st := s.State()
	st.Append(1, []Record{set("small", "1")})
	flush(t, st)
	st.file.db.MaxSize = 1 // as a full disk: the file cannot grow
	big := strings.Repeat("x", 1<<20)
	st.Append(2, []Record{set("big", big), set("small", "2")})
	for range 2 {
		if err := st.Flush(); err == nil {
			t.Fatal("Flush on a full disk: got nil, want an error")
		}
	}
	snap := st.Snapshot() // is refused, not wrong
	sink := &memSink{}
	if err := snap.Persist(sink); err == nil || !sink.cancelled {
		t.Fatalf("Persist on a full disk: got %v, cancelled %v", err, sink.cancelled)
	}
	snap.Release()
	st.Append(3, []Record{set("small", "3"), deleted("none")})
	got := st.Stats()
	if got.Failures != 3 || got.FailedInARow != 3 || got.LastError == "" || got.Written != 1 || got.Pending < 3 || got.PendingSince.IsZero() {
		t.Fatalf("stats while full: %+v", got)
	}
	st.file.db.MaxSize = 0
	flush(t, st)
	if got := st.Stats(); got.FailedInARow != 0 || got.LastError != "" || got.Written != 3 || got.Pending != 0 {
		t.Fatalf("stats after: %+v", got)
	}
	wantContents(t, st, map[string]string{"big": big, "small": "3"})
}

// memSink is a snapshot sink in memory.
type memSink struct {
	bytes.Buffer
	closed, cancelled bool
}

func (m *memSink) ID() string    { return "mem" }
func (m *memSink) Close() error  { m.closed = true; return nil }
func (m *memSink) Cancel() error { m.cancelled = true; return nil }

// keep builds nothing.
func keep(func(func(string, []byte) error) error) error { return nil }

func TestSnapshotIsOfItsMoment(t *testing.T) {
	s := openStore(t, t.TempDir())
	st := s.State()
	st.Append(1, []Record{set("a", "1"), set("b", "1"), set("empty", "")})
	flush(t, st)
	st.Append(2, []Record{set("a", "2"), deleted("b")})
	snap := st.Snapshot()
	st.Append(3, []Record{set("a", "3"), set("c", "3")})
	flush(t, st) // must not go past the snapshot
	if got := st.Stats().Written; got != 1 {
		t.Fatalf("written while a snapshot waits: got %d, want 1", got)
	}
	sink := &memSink{}
	if err := snap.Persist(sink); err != nil || !sink.closed {
		t.Fatalf("Persist: %v, closed %v", err, sink.closed)
	}
	snap.Release()
	flush(t, st)
	wantContents(t, st, map[string]string{"a": "3", "c": "3", "empty": ""})

	other := openStore(t, t.TempDir())
	other.State().Append(1, []Record{set("old", "x")}) // dropped by the restore
	waiting := other.State().Snapshot()
	var built map[string]string
	applied, err := other.State().Restore(sink, func(load func(func(string, []byte) error) error) error {
		built = map[string]string{}
		return load(func(k string, v []byte) error { built[k] = string(v); return nil })
	})
	if err != nil || applied != 2 || snap.Applied() != 2 {
		t.Fatalf("Restore: got %d, %v; want 2", applied, err)
	}
	want := map[string]string{"a": "2", "empty": ""}
	if !maps.Equal(built, want) {
		t.Fatalf("built of: got %v, want %v", built, want)
	}
	if err := waiting.Persist(&memSink{}); !errors.Is(err, ErrSuperseded) {
		t.Fatalf("Persist of a snapshot from before the restore: got %v, want ErrSuperseded", err)
	}
	wantContents(t, other.State(), want)
	other.State().Append(7, []Record{set("a", "7")})
	other = reopen(t, other)
	wantContents(t, other.State(), map[string]string{"a": "7", "empty": ""})
	if got := other.State().Applied(); got != 7 {
		t.Fatalf("applied: got %d, want 7", got)
	}
}

func TestReleaseWithoutPersistFreesTheFile(t *testing.T) {
	s := openStore(t, t.TempDir())
	st := s.State()
	st.Append(1, []Record{set("a", "1")})
	snap := st.Snapshot()
	st.Append(2, []Record{set("a", "2")})
	snap.Release()
	flush(t, st)
	wantContents(t, st, map[string]string{"a": "2"})
}

// blockingSink holds a stream until it is told to go on.
type blockingSink struct {
	memSink
	began, goOn chan struct{}
}

func (b *blockingSink) Write(p []byte) (int, error) {
	if b.began != nil {
		close(b.began)
		b.began = nil
		<-b.goOn
	}
	return b.memSink.Write(p)
}

func TestRestoreDoesNotWaitForAStream(t *testing.T) {
	s := openStore(t, t.TempDir())
	st := s.State()
	st.Append(1, []Record{set("a", "1")})
	first := &memSink{}
	if err := st.Snapshot().Persist(first); err != nil {
		t.Fatalf("Persist: %v", err)
	}
	st.Append(2, []Record{set("a", "2")})
	snap := st.Snapshot()
	began := make(chan struct{})
	sink := &blockingSink{began: began, goOn: make(chan struct{})}
	streamed := make(chan error, 1)
	go func() { streamed <- snap.Persist(sink) }()
	<-began
	// Both would deadlock if they waited for the reader, who waits for us.
	if _, err := st.Restore(first, keep); err != nil {
		t.Fatalf("Restore: %v", err)
	}
	st.Append(5, []Record{set("a", "5")})
	flush(t, st)
	close(sink.goOn)
	if err := <-streamed; err != nil {
		t.Fatalf("Persist: %v", err)
	}
	wantContents(t, st, map[string]string{"a": "5"})
	if _, err := st.Restore(sink, keep); err != nil {
		t.Fatalf("Restore of the stream that overlapped: %v", err)
	}
	wantContents(t, st, map[string]string{"a": "2"})
}

func TestBadSnapshotsChangeNothing(t *testing.T) {
	src := openStore(t, t.TempDir())
	src.State().Append(4, []Record{set("a", "1"), set("b", "2")})
	sink := &memSink{}
	if err := src.State().Snapshot().Persist(sink); err != nil {
		t.Fatalf("Persist: %v", err)
	}
	good := sink.Bytes()
	type row struct {
		name string
		data []byte
	}
	rows := []row{{"data behind the end", append(bytes.Clone(good), 0)}, {"empty", nil}}
	for i := range good {
		rows = append(rows, row{fmt.Sprintf("cut at %d", i), good[:i]})
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x10
		rows = append(rows, row{fmt.Sprintf("bit flipped at %d", i), flipped})
	}
	s := openStore(t, t.TempDir())
	s.State().Append(1, []Record{set("mine", "1")})
	flush(t, s.State())
	for _, r := range rows {
		if _, err := s.State().Restore(bytes.NewReader(r.data), keep); err == nil {
			t.Fatalf("%s: restored", r.name)
		}
	}
	refused := errors.New("refused")
	if _, err := s.State().Restore(bytes.NewReader(good), func(func(func(string, []byte) error) error) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("build's error: got %v", err)
	}
	wantContents(t, s.State(), map[string]string{"mine": "1"})
	if _, err := os.Stat(filepath.Join(s.dir, stateName+restoreSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("unfinished file: got %v, want none", err)
	}
	if _, err := s.State().Restore(bytes.NewReader(good), keep); err != nil {
		t.Fatalf("the good one: %v", err)
	}
}

func TestDirectoryIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		node string
		harm func(t *testing.T, s *Store)
		want error
	}{
		{name: "of another node", node: "b", want: ErrOtherNode},
		{name: "of a newer format", node: "a", want: ErrNewerFormat, harm: func(t *testing.T, s *Store) {
			if err := writeMeta(s.dir, meta{Format: formatVersion + 1, NodeID: "a"}); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "without meta file", node: "a", want: ErrIncomplete, harm: func(t *testing.T, s *Store) {
			if err := os.Remove(metaPath(s.dir)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			if tt.harm != nil {
				tt.harm(t, s)
			}
			_, err := Open(Config{Dir: s.dir, NodeID: tt.node}, zap.NewNop())
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), s.dir) {
				t.Fatalf("Open: got %v, want %v naming the directory", err, tt.want)
			}
		})
	}
}

func TestSecondOpenerIsTold(t *testing.T) {
	s := openStore(t, t.TempDir())
	_, err := Open(Config{Dir: s.dir, NodeID: "a"}, zap.NewNop())
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("second Open: got %v, want ErrInUse", err)
	}
	for _, want := range []string{s.dir, fmt.Sprint(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("second Open: %q does not name %s", err, want)
		}
	}
	reopen(t, s) // the refused one did no harm
}

func TestClusterIDIsSetOnce(t *testing.T) {
	s := openStore(t, t.TempDir())
	if err := s.SetClusterID("c1"); err != nil {
		t.Fatalf("SetClusterID: %v", err)
	}
	s = reopen(t, s)
	if got := s.ClusterID(); got != "c1" {
		t.Fatalf("cluster: got %q, want c1", got)
	}
	if err := s.SetClusterID("c1"); err != nil {
		t.Fatalf("the same again: %v", err)
	}
	if err := s.SetClusterID("c2"); !errors.Is(err, ErrOtherCluster) {
		t.Fatalf("another: got %v, want ErrOtherCluster", err)
	}
}

func TestSnapshotNeeded(t *testing.T) {
	for _, tt := range []struct {
		name            string
		logLo, logHi    uint64 // 0: empty
		snapshot, state uint64 // 0: none
		want            bool
		fault           error
		older           uint64 // another snapshot
		torn            bool   // the newer of them
	}{
		{name: "new directory"},
		{name: "log only", logLo: 1, logHi: 9},
		{name: "state ahead of the snapshot", logLo: 1, logHi: 9, snapshot: 5, state: 7},
		{name: "state at the snapshot", logLo: 6, logHi: 9, snapshot: 5, state: 5},
		{name: "state behind the snapshot", logLo: 6, logHi: 9, snapshot: 5, state: 4, want: true},
		{name: "state lost", logLo: 6, logHi: 9, snapshot: 5, want: true},
		{name: "state and snapshot lost", logLo: 6, logHi: 9, fault: ErrIncomplete},
		{name: "snapshot too old for the log", logLo: 6, logHi: 9, snapshot: 4, state: 8, fault: ErrIncomplete},
		{name: "snapshot damaged and not needed", logLo: 6, logHi: 9, snapshot: 5, torn: true, state: 5},
		{name: "snapshot damaged, none older", logLo: 6, logHi: 9, snapshot: 5, torn: true, state: 4, want: true, fault: ErrIncomplete},
		{name: "snapshot damaged, log behind the older", logLo: 4, logHi: 9, older: 3, snapshot: 5, torn: true, want: true},
		{name: "snapshot damaged, log cut off since the older", logLo: 5, logHi: 9, older: 3, snapshot: 5, torn: true, want: true, fault: ErrIncomplete},
		{name: "log lost", snapshot: 5, state: 7, fault: ErrIncomplete},
		{name: "log and snapshots lost", state: 7, fault: ErrIncomplete},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			for i := tt.logLo; i != 0 && i <= tt.logHi; i++ {
				if err := s.Log().StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
					t.Fatal(err)
				}
			}
			for _, index := range []uint64{tt.older, tt.snapshot} {
				if index == 0 {
					continue
				}
				sink, err := s.Snapshots().Create(raft.SnapshotVersionMax, index, 1, raft.Configuration{}, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := sink.Write([]byte("contents")); err != nil {
					t.Fatal(err)
				}
				if err := sink.Close(); err != nil {
					t.Fatal(err)
				}
				if tt.torn && index == tt.snapshot {
					if err := os.Truncate(filepath.Join(s.dir, "snapshots", sink.ID(), "state.bin"), 3); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tt.state != 0 {
				s.State().Append(tt.state, nil)
			}
			got, err := s.SnapshotNeeded()
			if got != tt.want || !errors.Is(err, tt.fault) {
				t.Fatalf("got %v, %v; want %v, %v", got, err, tt.want, tt.fault)
			}
		})
	}
}

func TestDamagedStateFileIsReplaced(t *testing.T) {
	fill := func(t *testing.T) (dir string) {
		s := openStore(t, t.TempDir())
		for i := range uint64(40) {
			s.State().Append(i+1, []Record{set(fmt.Sprintf("r/%04d", i), strings.Repeat("v", 900))})
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return s.dir
	}
	size := func(t *testing.T, path string) int64 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	overwrite := func(from, to int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(min(to, size(t, path))-from)), from); err != nil {
				t.Fatal(err)
			}
		}
	}
	truncate := func(to int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Truncate(path, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name string
		harm func(t *testing.T, path string)
	}{
		{"a few bytes left", truncate(100)},
		{"one page left", truncate(4096)},
		{"cut after the head", truncate(8192)},
		{"cut in the middle", truncate(20480)},
		{"head overwritten", overwrite(0, 8192)},
		{"body overwritten", overwrite(8192, 1<<40)},
		{"not a database", func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("text "), 9000), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := fill(t)
			path := filepath.Join(dir, stateName)
			tt.harm(t, path)
			s := openStore(t, dir)
			err := s.State().Load(func(string, []byte) error { return nil })
			if errors.Is(err, ErrDamaged) {
				err = s.State().Reset()
			}
			if err != nil {
				t.Fatalf("damage was not recognised: %v", err)
			}
			wantContents(t, s.State(), map[string]string{})
			if st := s.State().Stats(); !st.Rebuilt || st.Appended != 0 {
				t.Fatalf("stats: %+v", st)
			}
			if size(t, path+".damaged") == 0 {
				t.Fatal("the damaged file was not kept")
			}
			s.State().Append(1, []Record{set("k", "v")})
			s = reopen(t, s)
			wantContents(t, s.State(), map[string]string{"k": "v"})
		})
	}
}

func TestUnfinishedRestoreIsRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, stateName+restoreSuffix)
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("unfinished restore: got %v, want it removed", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir(), NodeID: "a", FlushEvery: time.Hour}, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := bytes.Repeat([]byte("v"), 100)
	records := make([]Record, 100)
	for i := range records {
		records[i] = Record{Key: fmt.Sprintf("c/%016x", i), Value: value}
	}
	b.ReportAllocs()
	var index uint64
	for b.Loop() {
		index++
		s.State().Append(index, records)
	}
}
