package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"google.golang.org/protobuf/proto"
)

// snapshotFile holds the SHA-256 of a snapshot, then the snapshot: a flipped bit may make a valid one of it.
const snapshotFile = "snapshot.pb"

// keepAgain is how often a snapshot that could not be written is tried again.
const keepAgain = 2 * time.Second

var errDamaged = errors.New("last good snapshot is damaged")

// Store keeps the rules in force, and the provider secrets, which are never written anywhere.
// All methods may be called from any goroutine; Install has one caller at a time.
type Store struct {
	dir     string
	rules   atomic.Pointer[Rules]
	secrets atomic.Pointer[map[string]*quotav1.Credential]
	fault   atomic.Pointer[error] // of the newest write

	disk   sync.Mutex        // held while the file is written
	unkept *quotav1.Snapshot // the one in force, while it is not on disk; guarded by disk
}

// NewStore makes a store with its last good snapshot in dir; an empty dir keeps none.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// Rules returns the rules in force, nil before the first snapshot.
func (s *Store) Rules() *Rules { return s.rules.Load() }

// Secret returns a credential's secret. ok is false when quotad has not sent it.
func (s *Store) Secret(name string) (secret []byte, ok bool) {
	m := s.secrets.Load()
	if m == nil {
		return nil, false
	}
	c, ok := (*m)[name]
	return c.GetSecret(), ok
}

// SetSecrets replaces all secrets. It tells whose are others now, or were set again.
func (s *Store) SetSecrets(c *quotav1.Credentials) (changed map[string]bool) {
	before := s.secrets.Load()
	m := make(map[string]*quotav1.Credential, len(c.GetItems()))
	changed = map[string]bool{}
	for _, it := range c.GetItems() {
		m[it.GetName()] = it
		changed[it.GetName()] = before == nil || !proto.Equal((*before)[it.GetName()], it)
	}
	s.secrets.Store(&m)
	return changed
}

// Install puts rules in force and then the snapshot they were compiled from on disk. An error means that only the
// latter failed: until Run has made up for it, a restart without quotad would have the snapshot before.
func (s *Store) Install(r *Rules, snap *quotav1.Snapshot) error {
	s.rules.Store(r)
	if s.dir == "" {
		return nil
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	s.unkept = snap
	s.keep()
	return s.Fault()
}

// Fault says why the snapshot in force is not on disk, nil when it is.
func (s *Store) Fault() error {
	if err := s.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Run tries again, until ctx ends, to put on disk what could not be put there.
func (s *Store) Run(ctx context.Context) error {
	again := time.NewTicker(keepAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			s.disk.Lock()
			if s.unkept != nil {
				s.keep()
			}
			s.disk.Unlock()
		}
	}
}

// keep puts unkept on disk. It is called with disk held.
func (s *Store) keep() {
	b, err := proto.Marshal(s.unkept)
	if err == nil {
		sum := sha256.Sum256(b)
		err = writeFile(filepath.Join(s.dir, snapshotFile), append(sum[:], b...))
	}
	if err != nil {
		err = fmt.Errorf("keep snapshot %d on disk: %w", s.unkept.GetVersion(), err)
		s.fault.Store(&err)
		return
	}
	s.unkept = nil
	s.fault.Store(nil)
}

// Load puts the last good snapshot on disk in force. It returns the snapshot, or nil when there is none.
func (s *Store) Load() (*quotav1.Snapshot, error) {
	if s.dir == "" {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(s.dir, snapshotFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last good snapshot: %w", err)
	}
	if len(b) < sha256.Size || sha256.Sum256(b[sha256.Size:]) != [sha256.Size]byte(b) {
		return nil, errDamaged
	}
	snap := &quotav1.Snapshot{}
	if err := proto.Unmarshal(b[sha256.Size:], snap); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	r, err := Compile(snap)
	if err != nil {
		return nil, fmt.Errorf("last good snapshot: %w", err)
	}
	s.rules.Store(r)
	return snap, nil
}

// writeFile replaces a file in one step, so that a crash leaves the old one or the new one.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
