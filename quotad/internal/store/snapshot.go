package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

// snapPhase is where a snapshot stands. Guarded by State.mu.
type snapPhase int

const (
	snapWaits    snapPhase = iota // for Persist or Release
	snapStreams                   // Persist has begun; the file may be written up to it
	snapReleased                  // Release came before Persist
)

// Snapshot is the state after one entry. It is a raft.FSMSnapshot.
type Snapshot struct {
	state   *State
	applied uint64
	phase   snapPhase // guarded by state.mu

	// Set once by ready, under state.writing.
	done bool
	file *stateFile
	view *bbolt.Tx
	err  error
}

// Snapshot marks the state as it is now. It takes O(1) and does no I/O, so it may be called between two entries. Each
// snapshot must be released; until it is streamed or released the state file stands still.
func (s *State) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open
	if g.applied == 0 {
		g.applied, g.since = s.stats.Appended, time.Now()
	}
	g.snap = &Snapshot{state: s, applied: g.applied}
	s.sealed = append(s.sealed, g)
	s.open = newGeneration()
	return g.snap
}

// Applied returns the index the snapshot stands at.
func (p *Snapshot) Applied() uint64 { return p.applied }

// ready tells the snapshot that the file stands at its index, or why it does not. The caller holds state.writing.
func (p *Snapshot) ready(file *stateFile, view *bbolt.Tx, err error) {
	p.done, p.file, p.view, p.err = true, file, view, err
	if view != nil {
		file.hold()
	}
}

// Persist writes the state file up to the snapshot, then streams the snapshot to sink and closes it. On failure it
// cancels the sink. It blocks on the disk, and does not hold up Append.
func (p *Snapshot) Persist(sink raft.SnapshotSink) error {
	fault.Pass("persist")
	if err := p.stream(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	fault.Pass("snapshot")
	if err := sink.Close(); err != nil {
		return fmt.Errorf("close snapshot: %w", err)
	}
	s := p.state
	s.mu.Lock()
	s.stats.SnapshotsMade++
	s.mu.Unlock()
	return nil
}

func (p *Snapshot) stream(sink raft.SnapshotSink) error {
	if err := p.reach(); err != nil {
		return err
	}
	err := guardDamage(func() error { return writeStream(sink, p.applied, p.view) })
	return errors.Join(err, p.view.Rollback(), p.file.release())
}

// reach has the file written up to the snapshot.
func (p *Snapshot) reach() error {
	s := p.state
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	if p.phase == snapWaits {
		p.phase = snapStreams
	}
	s.mu.Unlock()
	if p.done {
		return p.err
	}
	if err := s.flushLocked(); err != nil {
		return err
	}
	if !p.done {
		// Raft has one snapshot at a time under way and releases each.
		panic("BUG: store: snapshot behind another that was never released")
	}
	return p.err
}

// Release lets the state file go on without the snapshot. After Persist it does nothing.
func (p *Snapshot) Release() {
	s := p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.phase != snapWaits {
		return
	}
	p.phase = snapReleased
	for _, g := range s.sealed {
		if g.snap == p {
			g.snap = nil
		}
	}
}
