package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

// restoreSuffix marks a state file that is being made.
const restoreSuffix = ".restore"

// Restore replaces the state by that of a snapshot stream and returns the index it stands at.
//
// The new file is made beside the old one; build is called with its contents before it takes the old one's place, and
// an error of build leaves everything as it was. Whatever was appended and not yet written is dropped, and so are
// snapshots that were not yet streamed. Errors: ErrBadSnapshot, ErrNewerFormat, build's, or what the disk says. It
// blocks on the disk, and must not run beside Append.
func (s *State) Restore(r io.Reader, build func(load func(each func(key string, value []byte) error) error) error) (uint64, error) {
	tmp := s.path + restoreSuffix
	file, applied, err := makeFile(tmp, r)
	if err != nil {
		return 0, errors.Join(err, removeIfThere(tmp))
	}
	err = build(func(each func(string, []byte) error) error { return loadFile(file, each) })
	if err != nil {
		return 0, errors.Join(err, file.retire(), removeIfThere(tmp))
	}

	s.writing.Lock()
	defer s.writing.Unlock()
	fault.Pass("rename")
	// The open file keeps its contents and its lock under the new name.
	if err := os.Rename(tmp, s.path); err != nil {
		return 0, fmt.Errorf("put restored state file in place: %w", errors.Join(err, file.retire(), removeIfThere(tmp)))
	}
	fault.Pass("renamed")
	old := s.file
	s.mu.Lock()
	for _, g := range s.sealed {
		if g.snap != nil {
			g.snap.ready(nil, nil, ErrSuperseded)
		}
	}
	s.attach(file, applied)
	s.mu.Unlock()
	return applied, errors.Join(syncDir(filepath.Dir(s.path)), old.retire())
}

// makeFile makes a state file out of a snapshot stream, and syncs it.
func makeFile(path string, r io.Reader) (*stateFile, uint64, error) {
	if err := removeIfThere(path); err != nil {
		return nil, 0, err
	}
	stream, applied, err := readHeader(r)
	if err != nil {
		return nil, 0, fmt.Errorf("read snapshot: %w", err)
	}
	f, _, err := openStateFile(path, true)
	if err != nil {
		return nil, 0, err
	}
	for done := false; !done && err == nil; {
		err = f.db.Update(func(tx *bbolt.Tx) error { done, err = copyRecords(tx, stream); return err })
	}
	if err == nil {
		err = f.db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(metaBucket).Put(appliedKey, binary.BigEndian.AppendUint64(nil, applied))
		})
	}
	if err == nil {
		err = f.db.Sync()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read snapshot: %w", errors.Join(err, f.retire()))
	}
	// From here on it is the state file, and every write counts.
	f.db.NoSync = false
	return f, applied, nil
}

// copyRecords puts one transaction's worth of records.
func copyRecords(tx *bbolt.Tx, stream *streamReader) (done bool, err error) {
	b := tx.Bucket(recordsBucket)
	b.FillPercent = 0.9 // they come sorted
	for range restoreTxRecords {
		rec := &raftlogv1.SnapshotRecord{}
		if done, err = stream.next(rec); err != nil || done {
			return done, err
		}
		if err := b.Put(rec.GetKey(), rec.GetValue()); err != nil {
			return false, err
		}
	}
	return false, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
