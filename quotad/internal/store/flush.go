package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

// ErrSuperseded is returned when the state that a snapshot was to be made of was replaced by a restore.
var ErrSuperseded = errors.New("snapshot superseded by a restore")

// Flush has the state file fed, writes everything appended and returns when it is on disk, or the reason why it could
// not be written. Nothing is lost then: it goes first the next time. While a snapshot waits to be streamed, what came
// after it stays in memory and Flush returns early with nil.
func (s *State) Flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.feedAndFlush()
}

// feedAndFlush is Flush for a caller that holds writing.
func (s *State) feedAndFlush() error {
	s.mu.Lock()
	feed := s.feed
	s.mu.Unlock()
	if feed != nil {
		feed()
	}
	return s.flushLocked()
}

// flushLocked writes generations in order, as they are. The caller holds writing.
func (s *State) flushLocked() error {
	var failed error
	for _, g := range s.seal() {
		if s.backlog != nil {
			s.backlog.absorb(g)
			s.backlog.snap = g.snap
		} else {
			s.backlog = g
		}
		if failed == nil {
			failed = s.writeBacklog()
			continue
		}
		// Behind a generation that could not be written the others wait too.
		if g.snap != nil {
			g.snap.ready(nil, nil, failed)
			s.backlog.snap = nil
		}
		s.noteBacklog()
	}
	if s.backlog != nil && failed == nil {
		failed = s.writeBacklog()
	}
	return failed
}

// noteBacklog keeps the size of the backlog where Stats can see it without waiting for the disk.
func (s *State) noteBacklog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.waitingSince = 0, time.Time{}
	if s.backlog != nil {
		s.waiting, s.waitingSince = len(s.backlog.records), s.backlog.since
	}
}

// seal takes the generations that may be written now, at most up to a snapshot: the file must not go past it before
// the snapshot's view of the file is open, and while the view is opened by the same goroutine that would write on, not
// in the same call either, since a file that grows waits for its readers. A snapshot that is not being streamed yet
// is not written at all: its view, opened too early, could wait for raft's main loop, which may itself wait for a
// restore, which waits for this file.
func (s *State) seal() []*generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.sealed {
		if g.snap == nil {
			continue
		}
		if g.snap.phase == snapStreams {
			i++
		}
		ready := slices.Clone(s.sealed[:i])
		s.sealed = slices.Clone(s.sealed[i:])
		return ready
	}
	ready := s.sealed
	s.sealed = nil
	if s.open.applied != 0 {
		ready = append(ready, s.open)
		s.open = newGeneration()
	}
	return ready
}

// writeBacklog writes the backlog and, when a snapshot wants it, opens a view of the file as it then is. A failure
// leaves the records in the backlog and fails the snapshot, which raft will take again.
func (s *State) writeBacklog() error {
	g := s.backlog
	fault.Pass("flush")
	start := time.Now()
	err := s.file.write(g)
	took := time.Since(start)

	fault.Pass("flushed")
	snap := g.snap
	g.snap = nil
	var view *bbolt.Tx
	if err == nil && snap != nil {
		view, err = s.file.db.Begin(false)
	}
	if snap != nil {
		snap.ready(s.file, view, err)
	}
	if err == nil {
		s.backlog = nil
	}
	s.noteBacklog()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Failures++
		s.stats.FailedInARow++
		s.stats.LastError = err.Error()
		return fmt.Errorf("write state file: %w", err)
	}
	s.stats.Written = g.applied
	s.stats.Flushes++
	s.stats.Records += uint64(len(g.records))
	s.stats.LastFlush, s.stats.MaxFlush = took, max(s.stats.MaxFlush, took)
	s.stats.FailedInARow, s.stats.LastError = 0, ""
	return nil
}

// write makes one synced transaction of the generation. Sorted keys keep the pages it touches few.
func (f *stateFile) write(g *generation) error {
	keys := make([]string, 0, len(g.records))
	for k := range g.records {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return f.db.Update(func(tx *bbolt.Tx) error {
		if g.whole {
			if err := tx.DeleteBucket(recordsBucket); err != nil {
				return err
			}
			if _, err := tx.CreateBucket(recordsBucket); err != nil {
				return err
			}
		}
		b := tx.Bucket(recordsBucket)
		for _, k := range keys {
			if err := write(b, k, g.records[k]); err != nil {
				return err
			}
		}
		return tx.Bucket(metaBucket).Put(appliedKey, binary.BigEndian.AppendUint64(nil, g.applied))
	})
}

func write(b *bbolt.Bucket, key string, value []byte) error {
	if value == nil {
		return b.Delete([]byte(key))
	}
	if err := b.Put([]byte(key), value); err != nil {
		return fmt.Errorf("record %q of %d bytes: %w", key, len(value), err)
	}
	return nil
}
