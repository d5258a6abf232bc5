package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/sluice-gateway/sluice/quotad/internal/fault"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// errHalted is the reason for Run to end when an entry cannot be applied. Applying what comes after it would make this
// node differ from the others for ever, so nothing is.
var errHalted = errors.New("replica: halted")

// fsm is the thin layer between raft and the machine. Raft calls Apply, Snapshot and Restore from one goroutine.
type fsm struct {
	cfg   Config
	state *store.State
	hub   *hub
	log   *zap.Logger
	// clusterID is the cluster this node's directory belongs to, empty for none.
	clusterID func() string
	decoder   decoder
	restored  func() // tells that a snapshot was restored

	level atomic.Uint32 // of the machine

	mu         sync.RWMutex // guards the rest; reading the machine needs a read lock only
	machine    *Machine
	applied    uint64
	advanced   time.Time // when the last entry was applied or loaded, by this node's monotonic clock
	violations uint64
	waiters    map[*waiter]struct{}
	halted     error
	haltedCh   chan struct{} // closed when halted is set
	clusterCh  chan struct{} // holds one token after the cluster's id became known
}

type waiter struct {
	index uint64
	done  chan struct{}
}

func newFSM(cfg Config, st *store.Store, h *hub, log *zap.Logger) *fsm {
	return &fsm{
		cfg: cfg, state: st.State(), clusterID: st.ClusterID, hub: h, log: log,
		waiters: map[*waiter]struct{}{}, haltedCh: make(chan struct{}), clusterCh: make(chan struct{}, 1),
	}
}

// load reads the machine from the state file. A file that cannot be read is replaced by an empty one: log and
// snapshots bring the state back.
func (f *fsm) load() error {
	m, err := loadMachine(f.cfg.Ledger, f.state.Load)
	if errors.Is(err, store.ErrDamaged) || errors.Is(err, errBadRecord) {
		f.log.Error("state file is damaged, making a new one from snapshot and log", zap.Error(err))
		if err := f.state.Reset(); err != nil {
			return err
		}
		m, err = loadMachine(f.cfg.Ledger, f.state.Load)
	}
	if err != nil {
		return err
	}
	f.set(m, f.state.Applied())
	f.state.Feed(f.gather)
	return nil
}

// set puts a loaded machine in place.
func (f *fsm) set(m *Machine, applied uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.machine, f.applied, f.advanced = m, applied, fault.Now()
	f.level.Store(m.level)
	f.wake()
	f.noteCluster()
	f.hub.publish(Signal{ConfigVersion: m.ConfigVersion(), Credentials: true})
}

// Apply applies one entry and returns its []Result. Raft delivers entries after the newest snapshot again at each
// start; those the state file had are skipped.
func (f *fsm) Apply(l *raft.Log) any {
	fault.Pass("apply")
	e, err := f.decoder.decode(l.Data)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.halted != nil || l.Index <= f.applied:
		return nil
	case err != nil:
		f.halted = fmt.Errorf("%w: raft.db, entry %d: %w", errHalted, l.Index, err)
		close(f.haltedCh)
		return nil
	}
	results := f.machine.Apply(l.Index, e)
	if err := f.machine.Ledger.CheckTouched(); err != nil {
		f.violations++
		f.log.Error("the books do not balance", zap.Uint64("index", l.Index), zap.Error(err))
	}
	if whole := f.machine.brought(); whole != nil {
		f.state.Replace(l.Index, whole)
	}
	signal := f.machine.signal()
	f.applied, f.advanced = l.Index, fault.Now()
	f.level.Store(f.machine.level)
	f.wake()
	f.noteCluster()
	if !signal.empty() {
		f.hub.publish(signal)
	}
	return results
}

// wake tells those who wait for an index that is reached. The caller holds mu.
func (f *fsm) wake() {
	for w := range f.waiters {
		if w.index <= f.applied {
			close(w.done)
			delete(f.waiters, w)
		}
	}
}

// noteCluster says once that the cluster's id is known and not yet in the directory. The caller holds mu.
func (f *fsm) noteCluster() {
	if f.machine.GroupID() == "" || f.machine.GroupID() == f.clusterID() {
		return
	}
	select {
	case f.clusterCh <- struct{}{}:
	default:
	}
}

// gather hands what changed to the state file. Records are made here, and not when they change: what is busy changes a
// hundred times between two writes. It is done piece by piece, so that entries need not wait for long.
func (f *fsm) gather() {
	for f.gatherSome(collectMax) {
	}
}

// gatherSome reports whether there is more.
func (f *fsm) gatherSome(most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.collect(most)
}

// collect is gatherSome for callers that hold mu.
func (f *fsm) collect(most int) bool {
	if f.applied <= f.state.Applied() { // nothing was applied, or a snapshot is just being restored
		return false
	}
	records, more := f.machine.collect(most)
	if more {
		f.state.Stage(records)
	} else {
		f.state.Append(f.applied, records)
	}
	return more
}

// Snapshot marks the state for a snapshot. It makes a record of all that changed since the state file was written last.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.halted != nil {
		return nil, f.halted
	}
	f.collect(math.MaxInt)
	return f.state.Snapshot(), nil
}

// Restore replaces the state by a snapshot's. A bad one changes nothing.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }() // only read
	var m *Machine
	applied, err := f.state.Restore(r, func(load func(func(string, []byte) error) error) (err error) {
		if m, err = loadMachine(f.cfg.Ledger, load); err != nil {
			return err
		}
		if own := f.clusterID(); own != "" && m.GroupID() != own {
			return fmt.Errorf("snapshot of cluster %q, not %q: %w", m.GroupID(), own, store.ErrOtherCluster)
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.set(m, applied)
	f.restored()
	return nil
}

func (f *fsm) view(read func(*Machine)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	read(f.machine)
}

// clock returns the ledger's time, and the monotonic time that has passed here since.
func (f *fsm) clock() (nowMS int64, since time.Duration) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machine.Ledger.Now(), fault.Now().Sub(f.advanced)
}

func (f *fsm) wait(ctx context.Context, index uint64) error {
	w := &waiter{index: index, done: make(chan struct{})}
	f.mu.Lock()
	if index <= f.applied {
		f.mu.Unlock()
		return nil
	}
	f.waiters[w] = struct{}{}
	f.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.waiters, w)
		return ctx.Err()
	}
}
