package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"
)

var (
	metaBucket    = []byte("meta")
	recordsBucket = []byte("records")
	appliedKey    = []byte("applied")
	formatKey     = []byte("format")
)

// Record is one piece of state. A nil Value deletes the key; an empty one is a value.
type Record struct {
	Key   string // never empty
	Value []byte // owned by the state file once given to it
}

// State is the state file and what is not written to it yet.
//
// Before it is written it is fed: it is given the records of what has changed. They gather in a generation, as does what
// is appended for a snapshot. A generation is closed by putting a new one in its place, O(1), and is written in one
// synced transaction together with the index it stands at. Generations are written in order, so the file is at all
// times the state after some entry: what comes after is in the log.
type State struct {
	path  string
	every time.Duration
	log   *zap.Logger

	// mu guards the memory side. It is never held during I/O, so Append does not wait for the disk.
	mu     sync.Mutex
	staged map[string][]byte // records of a state that is not whole yet
	open   *generation       // takes what is appended
	sealed []*generation     // oldest first
	stats  Stats
	feed   func()
	// The backlog's size and age, for Stats.
	waiting      int
	waitingSince time.Time

	// writing is held while the file is written or replaced. It is taken before mu.
	writing sync.Mutex
	file    *stateFile
	backlog *generation // could not be written; goes first
}

// generation is the records that changed over a span of entries.
type generation struct {
	records map[string][]byte // nil: deleted
	whole   bool              // they are all there are: whatever was before goes
	applied uint64            // index of the last entry in it, 0 for none
	since   time.Time         // of the first
	snap    *Snapshot         // wants to read the file right after this generation
}

func newGeneration() *generation { return &generation{records: map[string][]byte{}} }

// absorb puts a later generation on top of g.
func (g *generation) absorb(later *generation) {
	if later.whole {
		g.records, g.whole = map[string][]byte{}, true
	}
	for k, v := range later.records {
		g.records[k] = v
	}
	g.applied = max(g.applied, later.applied)
}

// Stats says how the state file is doing.
type Stats struct {
	Written       uint64        // index the file stands at
	Appended      uint64        // index the memory stands at
	Pending       int           // records that wait to be written
	PendingSince  time.Time     // since when the oldest of them waits; zero for none
	Flushes       uint64        // writes that succeeded
	Records       uint64        // records written
	LastFlush     time.Duration // how long the last write took
	MaxFlush      time.Duration // how long the longest took
	Failures      uint64        // writes that failed, in all
	FailedInARow  uint64        // since the last success; anything but 0 is a reason to look at the disk
	LastError     string        // of the last failure; empty after a success
	Rebuilt       bool          // the file was damaged or lost, and was made anew from snapshot and log
	SnapshotsMade uint64        // snapshot streams written
}

// stateFile is an open bbolt file. Readers keep it open after it has been replaced.
type stateFile struct {
	db *bbolt.DB

	mu      sync.Mutex
	readers int
	retired bool
}

// hold keeps the file open until release.
func (f *stateFile) hold() {
	f.mu.Lock()
	f.readers++
	f.mu.Unlock()
}

func (f *stateFile) release() error {
	f.mu.Lock()
	f.readers--
	last := f.retired && f.readers == 0
	f.mu.Unlock()
	if last {
		return f.db.Close()
	}
	return nil
}

// retire closes the file now or when its last reader is done. It never waits for one.
func (f *stateFile) retire() error {
	f.mu.Lock()
	f.retired = true
	now := f.readers == 0
	f.mu.Unlock()
	if now {
		return f.db.Close()
	}
	return nil
}

// openState opens or makes the state file. A damaged one is moved aside.
func openState(path string, every time.Duration, log *zap.Logger) (*State, error) {
	s := &State{path: path, every: every, log: log, open: newGeneration()}
	// A restore that did not finish left its file behind.
	if err := os.Remove(path + restoreSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove unfinished restore: %w", err)
	}
	file, applied, err := openStateFile(path, false)
	if errors.Is(err, ErrDamaged) {
		log.Error("state file is damaged, making a new one from snapshot and log", zap.String("path", path), zap.Error(err))
		return s, s.Reset()
	}
	if err != nil {
		return nil, err
	}
	s.attach(file, applied)
	return s, nil
}

// attach makes file the state file. The caller has s to itself or holds both locks.
func (s *State) attach(file *stateFile, applied uint64) {
	s.file, s.backlog = file, nil
	s.open, s.sealed, s.staged = newGeneration(), nil, map[string][]byte{}
	s.waiting, s.waitingSince = 0, time.Time{}
	s.stats.Written, s.stats.Appended = applied, applied
}

// Reset moves the state file aside and starts an empty one. It is for a file that cannot be read, before raft starts.
func (s *State) Reset() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.file != nil {
		// What a damaged file says when it is closed does not matter.
		_ = guardDamage(func() error { return s.file.retire() })
		s.file = nil
	}
	if err := os.Rename(s.path, s.path+".damaged"); err != nil {
		return fmt.Errorf("move damaged state file aside: %w", err)
	}
	file, applied, err := openStateFile(s.path, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attach(file, applied)
	s.stats.Rebuilt = true
	return syncDir(filepath.Dir(s.path))
}

// openStateFile opens or makes the file at path and returns the index it stands at. Throwaway says that nothing is
// synced until the caller does so.
func openStateFile(path string, throwaway bool) (f *stateFile, applied uint64, err error) {
	st, err := os.Stat(path)
	if err == nil && st.Size() > 0 {
		if err := hasHead(st.Size()); err != nil {
			return nil, 0, fmt.Errorf("open state file: %w", err)
		}
	}
	err = guardDamage(func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: openTimeout,
			NoSync:  throwaway,
			// The free list is read here, in this goroutine, and not found out by a walk in one of bbolt's own,
			// where a damaged page would end the process.
			PreLoadFreelist: true,
			FreelistType:    bbolt.FreelistMapType,
		})
		if err != nil {
			return err
		}
		f = &stateFile{db: db}
		if st != nil && st.Size() > 0 {
			if err := whole(db, st.Size()); err != nil {
				return err
			}
		}
		return db.Update(func(tx *bbolt.Tx) error { applied, err = prepare(tx); return err })
	})
	if err != nil && f != nil {
		_ = guardDamage(f.db.Close)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open state file: %w", err)
	}
	return f, applied, nil
}

// prepare makes a new file's buckets and checks an old one's format.
func prepare(tx *bbolt.Tx) (applied uint64, err error) {
	if _, err := tx.CreateBucketIfNotExists(recordsBucket); err != nil {
		return 0, err
	}
	m, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return 0, err
	}
	switch v := m.Get(formatKey); {
	case v == nil:
		if err := m.Put(formatKey, binary.BigEndian.AppendUint64(nil, formatVersion)); err != nil {
			return 0, err
		}
	case len(v) != 8:
		return 0, ErrDamaged
	case binary.BigEndian.Uint64(v) > formatVersion:
		return 0, fmt.Errorf("format %d, this version knows %d: %w", binary.BigEndian.Uint64(v), formatVersion, ErrNewerFormat)
	}
	switch v := m.Get(appliedKey); {
	case v == nil:
		return 0, nil
	case len(v) != 8:
		return 0, ErrDamaged
	default:
		return binary.BigEndian.Uint64(v), nil
	}
}

// Applied returns the index the appended state stands at.
func (s *State) Applied() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Appended
}

// Load calls each with every record, sorted by key. Key and value are only valid during the call. An error of each is
// returned. A file that cannot be read gives ErrDamaged. It is for the start, before anything is appended.
func (s *State) Load(each func(key string, value []byte) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return loadFile(s.file, each)
}

func loadFile(f *stateFile, each func(key string, value []byte) error) error {
	var failed error // of each; kept apart so that it is not taken for damage
	err := guardDamage(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket(recordsBucket).Cursor()
			for k, v := c.First(); k != nil && failed == nil; k, v = c.Next() {
				failed = each(string(k), v)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("read state file: %w", err)
	}
	return failed
}

// Append takes the records an entry changed. Applied is the entry's index; it must be above the last one's. It never
// blocks on the disk. Records of one key replace each other.
func (s *State) Append(applied uint64, records []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if applied <= s.stats.Appended {
		panic(fmt.Sprintf("BUG: store: entry %d appended after %d", applied, s.stats.Appended))
	}
	if s.open.applied == 0 {
		s.open.since = time.Now()
	}
	if len(s.open.records) == 0 {
		s.open.records, s.staged = s.staged, s.open.records
	}
	maps.Copy(s.open.records, s.staged)
	clear(s.staged)
	put(s.open.records, records)
	s.open.applied, s.stats.Appended = applied, applied
}

// Stage takes records ahead of the Append that they belong to. Nothing of them is written before it.
func (s *State) Stage(records []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(s.staged, records)
}

func put(into map[string][]byte, records []Record) {
	for _, r := range records {
		if r.Key == "" {
			panic("BUG: store: record without a key")
		}
		into[r.Key] = r.Value
	}
}

// Feed has f called before each write, to append what is to be written. It must be set before Run.
func (s *State) Feed(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed = f
}

// Replace takes the records that are the whole state after an entry. It is Append but for that.
func (s *State) Replace(applied uint64, records []Record) {
	s.mu.Lock()
	s.open.records, s.open.whole = map[string][]byte{}, true
	clear(s.staged)
	s.mu.Unlock()
	s.Append(applied, records)
}

// Stats returns how the file is doing. It does not block on the disk.
func (s *State) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	add := func(records int, since time.Time) {
		st.Pending += records
		if !since.IsZero() && (st.PendingSince.IsZero() || since.Before(st.PendingSince)) {
			st.PendingSince = since
		}
	}
	add(s.waiting, s.waitingSince)
	for _, g := range s.sealed {
		add(len(g.records), g.since)
	}
	add(len(s.open.records), s.open.since)
	return st
}

// run writes generations until ctx ends.
func (s *State) run(ctx context.Context) error {
	// Nodes that share a disk, or started together, should not all sync at the same moment.
	jitter := time.Duration(rand.Int64N(int64(s.every)/5 + 1))
	t := time.NewTimer(s.every - s.every/10 + jitter)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		next := s.every - s.every/10 + jitter
		if err := s.Flush(); err != nil {
			s.log.Error("state file could not be written, trying again", zap.Error(err))
			next = min(next, flushRetryEvery)
		}
		t.Reset(next)
	}
}

// close closes the file without writing.
func (s *State) close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.retire()
}
