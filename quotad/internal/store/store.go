// Package store keeps a node's files: the raft log and its votes, the snapshots, and the state file.
//
// A data directory holds
//
//	lock       taken by the process that has the directory open; holds its pid
//	meta.json  node id, cluster id, format
//	raft.db    raft log and stable state (bbolt, fsynced at each append); each entry with a check sum
//	snapshots/ raft snapshots: the state as a stream of records with a check sum
//	state.db   the state as records (bbolt), written behind the log
//
// The state file is a cache of what log and snapshots say, always consistent at one index: it makes a restart fast and
// can be looked into. Losing it costs time only, losing the log costs the node its place in the cluster.
package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"go.uber.org/zap"
)

const (
	logName   = "raft.db"
	stateName = "state.db"
)

// Config configures a Store.
type Config struct {
	Dir    string // made when absent
	NodeID string // whose directory it is; never empty
	Build  string // version of the program, noted in the directory
	// CompactBytes is how large a file of which most is free must be to be made smaller at the start; default 64 MiB.
	CompactBytes int64
	FlushEvery   time.Duration // how often the state file is written; default 30 s
}

// Store is an open data directory. Its methods may be called from any goroutine.
type Store struct {
	dir   string
	lock  *os.File
	raft  *raftboltdb.BoltStore
	log   checkedLog // raft, with sums
	snaps *raft.FileSnapshotStore
	state *State

	metaMu sync.Mutex
	meta   meta
}

// Open takes the directory and opens what is in it. Errors: ErrInUse, ErrOtherNode, ErrNewerFormat, ErrIncomplete,
// ErrLogDamaged, or what the disk says. A damaged state file is not an error: it is moved aside, and log and snapshots make a new one.
func Open(cfg Config, log *zap.Logger) (*Store, error) {
	if cfg.Dir == "" || cfg.NodeID == "" {
		return nil, errors.New("store: directory and node id must be set")
	}
	if cfg.CompactBytes <= 0 {
		cfg.CompactBytes = compactBytesDefault
	}
	if cfg.FlushEvery <= 0 {
		cfg.FlushEvery = flushEveryDefault
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: cfg.Dir, lock: lock}
	if err := s.open(cfg, log); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	return s, nil
}

func (s *Store) open(cfg Config, log *zap.Logger) (err error) {
	if s.meta, err = openMeta(s.dir, cfg.NodeID, cfg.Build); err != nil {
		return err
	}
	path := filepath.Join(s.dir, logName)
	entries, err := checkLogFile(path)
	if err != nil {
		return err
	}
	if err := tidy(s.dir, cfg.CompactBytes, log); err != nil {
		return err
	}
	err = guardDamage(func() (err error) {
		s.raft, err = raftboltdb.New(raftboltdb.Options{
			Path: path,
			// The free list of a log that was just truncated is long; writing it at each append would cost more than
			// the append. Instead it is found at the start, by way of all pages.
			BoltOptions: &bbolt.Options{Timeout: openTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		})
		return err
	})
	if errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%s: %w: %w", path, ErrLogDamaged, err)
	}
	if err != nil {
		return fmt.Errorf("open raft log: %w", err)
	}
	s.log = checkedLog{LogStore: s.raft, path: path}
	if err := s.log.checkAll(entries); err != nil {
		return err
	}
	if err := s.checkLogOwner(); err != nil {
		return err
	}
	s.snaps, err = raft.NewFileSnapshotStoreWithLogger(s.dir, snapshotsKept, HCLog(log, "snapshot"))
	if err != nil {
		return fmt.Errorf("open snapshots: %w", err)
	}
	s.state, err = openState(filepath.Join(s.dir, stateName), cfg.FlushEvery, log)
	return err
}

// Dir returns the data directory.
func (s *Store) Dir() string { return s.dir }

// Log returns the raft log.
func (s *Store) Log() raft.LogStore { return s.log }

// Stable returns raft's votes and terms.
func (s *Store) Stable() raft.StableStore { return s.raft }

// Snapshots returns raft's snapshots.
func (s *Store) Snapshots() raft.SnapshotStore { return s.snaps }

// State returns the state file.
func (s *Store) State() *State { return s.state }

// ClusterID returns the cluster the directory belongs to, empty while it belongs to none.
func (s *Store) ClusterID() string {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	return s.meta.ClusterID
}

// SetClusterID makes the directory part of a cluster, once. It returns ErrOtherCluster when it is part of another.
// It writes and syncs a small file the first time.
func (s *Store) SetClusterID(id string) error {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	switch s.meta.ClusterID {
	case id:
		return s.ownLog(id)
	case "":
		m := s.meta
		m.ClusterID = id
		if err := writeMeta(s.dir, m); err != nil {
			return err
		}
		s.meta = m
		return s.ownLog(id)
	default:
		return fmt.Errorf("%s: of cluster %q, not %q: %w", s.dir, s.meta.ClusterID, id, ErrOtherCluster)
	}
}

// ownerKey is where the log says which cluster it is of.
var ownerKey = []byte("SluiceCluster")

// ownLog notes in the log which cluster it is of.
func (s *Store) ownLog(id string) error {
	if have, err := s.raft.Get(ownerKey); err == nil && string(have) == id {
		return nil
	}
	if err := s.raft.Set(ownerKey, []byte(id)); err != nil {
		return fmt.Errorf("note the cluster in the raft log: %w", err)
	}
	return nil
}

// checkLogOwner refuses the log of another cluster than the directory's: somebody mixed files.
func (s *Store) checkLogOwner() error {
	have, err := s.raft.Get(ownerKey)
	switch {
	case errors.Is(err, raftboltdb.ErrKeyNotFound), err == nil && (s.meta.ClusterID == "" || string(have) == s.meta.ClusterID):
		return nil
	case err != nil:
		return fmt.Errorf("read raft log: %w", err)
	}
	return fmt.Errorf("%s: %s is of cluster %q, meta.json of %q: %w", s.dir, logName, have, s.meta.ClusterID, ErrOtherCluster)
}

// SnapshotNeeded says whether raft must restore the newest snapshot at its start, because the state file is behind it.
// It returns ErrIncomplete when state file, snapshots and log together do not make a whole: starting then would lose
// state silently.
func (s *Store) SnapshotNeeded() (bool, error) {
	list, err := s.snaps.List()
	if err != nil {
		return false, fmt.Errorf("list snapshots: %w", err)
	}
	var snapshot uint64
	if len(list) > 0 {
		snapshot = list[0].Index
	}
	first, err := s.raft.FirstIndex()
	if err != nil {
		return false, fmt.Errorf("read raft log: %w", err)
	}
	last, err := s.raft.LastIndex()
	if err != nil {
		return false, fmt.Errorf("read raft log: %w", err)
	}
	applied := s.state.Applied()
	switch {
	case first > snapshot+1:
		return false, fmt.Errorf("%s: log starts at %d, newest snapshot is of %d: %w", s.dir, first, snapshot, ErrIncomplete)
	case applied > max(last, snapshot):
		return false, fmt.Errorf("%s: state stands at %d, log ends at %d, newest snapshot is of %d: %w",
			s.dir, applied, last, snapshot, ErrIncomplete)
	}
	if applied >= snapshot {
		return false, nil
	}
	return true, s.checkRestorable(list, first)
}

// checkRestorable makes sure that the log begins right behind the newest snapshot that can be read: raft restores an older
// one when the newest is damaged, and what was cut off the log since would be missing.
func (s *Store) checkRestorable(list []*raft.SnapshotMeta, first uint64) error {
	var damaged error
	for _, m := range list {
		_, r, err := s.snaps.Open(m.ID)
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("snapshot %s: %w", m.ID, err))
			continue
		}
		if err := r.Close(); err != nil {
			return fmt.Errorf("read snapshot %s: %w", m.ID, err)
		}
		if first > m.Index+1 {
			return fmt.Errorf("%s: log starts at %d, newest snapshot that can be read is of %d: %w (%w)",
				filepath.Join(s.dir, "snapshots"), first, m.Index, ErrIncomplete, damaged)
		}
		return nil
	}
	return fmt.Errorf("%s: no snapshot can be read: %w (%w)", filepath.Join(s.dir, "snapshots"), ErrIncomplete, damaged)
}

// Run writes the state file from time to time, until ctx ends. It returns nil.
func (s *Store) Run(ctx context.Context) error { return s.state.run(ctx) }

// Close writes the state file a last time and closes everything. Raft must be shut down. An error means that the state
// file is behind, which the log makes up for.
func (s *Store) Close() error {
	err := s.state.Flush()
	return errors.Join(err, s.closeFiles())
}

// closeFiles closes what is open; the lock last, so that nobody else comes in before.
func (s *Store) closeFiles() error {
	var errs []error
	if s.state != nil {
		errs = append(errs, s.state.close())
	}
	if s.raft != nil {
		errs = append(errs, s.raft.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}
