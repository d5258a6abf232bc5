package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// Image is a data directory that is looked at and never written to. Whatever could not be read stands in Damage, and
// the rest is there.
type Image struct {
	Dir       string
	NodeID    string
	ClusterID string
	WrittenBy string
	Files     []FileSize
	Damage    []string
	Snapshots []SnapshotInfo // newest first

	FirstIndex, LastIndex uint64 // of the log; 0 without one
	Term, Vote            uint64 // the newest term seen, and the one of the last vote
	VotedFor              string
	Servers               []raft.Server // of the newest configuration in log and snapshots
	Applied               uint64        // index of the state file

	lock *os.File
	log  *raftboltdb.BoltStore
}

// FileSize is one file, or a snapshot's directory.
type FileSize struct {
	Name  string
	Bytes int64
}

// SnapshotInfo is one snapshot.
type SnapshotInfo struct {
	Name  string
	Index uint64
	Term  uint64
	Bytes int64
}

// OpenImage looks at a directory. It returns ErrInUse when a process has it open, and what the disk says when there is
// no directory; anything else is damage.
func OpenImage(dir string) (*Image, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, err
	}
	m := &Image{Dir: dir}
	var err error
	if m.lock, err = shareDir(dir); err != nil {
		return nil, err
	}
	m.sizes()
	m.readMeta()
	m.readSnapshots()
	m.readLog()
	return m, nil
}

// shareDir makes sure that no process has the directory, and that none takes it meanwhile.
func shareDir(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nobody ever had it
	}
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s, by process %s: %w", dir, lockHolder(f), ErrInUse)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// What a file may be that there should be.
var (
	errMissing = errors.New("it is missing")
	errEmpty   = errors.New("it is empty")
)

// readJSON reads a small file.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errMissing
	case err != nil:
		return err
	case len(b) == 0:
		return errEmpty
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("it is not the JSON that was written: %w", err)
	}
	return nil
}

func (m *Image) damaged(what string, err error) {
	m.Damage = append(m.Damage, fmt.Sprintf("%s: %v", what, err))
}

// sizes lists the files.
func (m *Image) sizes() {
	err := filepath.WalkDir(m.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			m.damaged(path, err)
			return nil
		}
		if e.IsDir() {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			m.damaged(path, err)
			return nil
		}
		name, err := filepath.Rel(m.Dir, path)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, FileSize{Name: filepath.ToSlash(name), Bytes: info.Size()})
		return nil
	})
	if err != nil {
		m.damaged(m.Dir, err)
	}
}

func (m *Image) readMeta() {
	var v meta
	if err := readJSON(metaPath(m.Dir), &v); err != nil {
		m.damaged("meta.json", err)
		return
	}
	m.NodeID, m.ClusterID, m.WrittenBy = v.NodeID, v.ClusterID, v.WrittenBy
	if v.Format > formatVersion {
		m.damaged("meta.json", fmt.Errorf("format %d, last had by quotad %s: %w", v.Format, v.WrittenBy, ErrNewerFormat))
	}
}

func (m *Image) readSnapshots() {
	names, err := filepath.Glob(filepath.Join(m.Dir, "snapshots", "*", "meta.json"))
	if err != nil {
		m.damaged("snapshots", err)
		return
	}
	var newest raft.SnapshotMeta
	for _, name := range names {
		dir := filepath.Base(filepath.Dir(name))
		var v raft.SnapshotMeta
		if err := readJSON(name, &v); err != nil {
			m.damaged("snapshots/"+dir, err)
			continue
		}
		if filepath.Ext(dir) == ".tmp" {
			m.damaged("snapshots/"+dir, errors.New("it was never finished: the next start removes it"))
			continue
		}
		m.Snapshots = append(m.Snapshots, SnapshotInfo{Name: dir, Index: v.Index, Term: v.Term, Bytes: v.Size})
		if err := checkSnapshot(filepath.Join(filepath.Dir(name), "state.bin")); err != nil {
			m.damaged("snapshots/"+dir, err)
		}
		if v.Index >= newest.Index {
			newest = v
		}
	}
	slices.SortFunc(m.Snapshots, func(a, b SnapshotInfo) int { return int(int64(b.Index) - int64(a.Index)) })
	m.Servers = newest.Configuration.Servers
}

// checkSnapshot reads a snapshot to its end.
func checkSnapshot(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	stream, _, err := readHeader(f)
	if err != nil {
		return err
	}
	for rec, done := (&raftlogv1.SnapshotRecord{}), false; !done; {
		if done, err = stream.next(rec); err != nil {
			return err
		}
	}
	return nil
}

// readLog reads the log, and what raft keeps beside it.
func (m *Image) readLog() {
	path := filepath.Join(m.Dir, logName)
	cut, err := checkLog(path)
	if err == nil {
		err = m.openLog(path)
	}
	if err := cmp.Or(cut, err); err != nil { // of a file that is cut, err is what reading fell over
		m.damaged(logName, err)
	}
	bad := 0
	for i := m.FirstIndex; i != 0 && i <= m.LastIndex; i++ {
		e, err := m.Entry(i)
		switch {
		case err != nil:
			if bad++; bad == 1 {
				m.damaged(fmt.Sprintf("%s, entry %d", logName, i), err)
			}
		case e.Type == raft.LogConfiguration:
			m.Servers = raft.DecodeConfiguration(e.Data).Servers
		}
	}
	if bad > 1 {
		m.damaged(logName, fmt.Errorf("%d entries cannot be read", bad))
	}
}

// checkLog says why a file cannot be read as a log, or not all of it.
func checkLog(path string) (cut, err error) {
	err = guardDamage(func() (err error) {
		var db *bbolt.DB
		if db, cut, err = openToRead(path); err != nil {
			return err
		}
		return errors.Join(db.View(func(tx *bbolt.Tx) error {
			if tx.Bucket(logBucket) == nil && cut == nil {
				return errors.New("it holds no log")
			}
			return nil
		}), db.Close())
	})
	return cut, err
}

func (m *Image) openLog(path string) error {
	return guardDamage(func() (err error) {
		m.log, err = raftboltdb.New(raftboltdb.Options{
			Path: path, BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: openTimeout},
		})
		if err != nil {
			return err
		}
		if m.FirstIndex, err = m.log.FirstIndex(); err != nil {
			return err
		}
		if m.LastIndex, err = m.log.LastIndex(); err != nil {
			return err
		}
		m.Term, _ = m.log.GetUint64([]byte("CurrentTerm")) // absent before the first election
		m.Vote, _ = m.log.GetUint64([]byte("LastVoteTerm"))
		if b, err := m.log.Get([]byte("LastVoteCand")); err == nil {
			m.VotedFor = string(b)
		}
		if b, err := m.log.Get(ownerKey); err == nil && m.ClusterID != "" && string(b) != m.ClusterID {
			m.damaged(logName, fmt.Errorf("it is of cluster %s, meta.json of %s", b, m.ClusterID))
		}
		return nil
	})
}

// Entry reads an entry of the log.
func (m *Image) Entry(index uint64) (*raft.Log, error) {
	e := &raft.Log{}
	if m.log == nil {
		return nil, errors.New("there is no log")
	}
	err := guardDamage(func() error { return m.log.GetLog(index, e) })
	return e, err
}

// Records calls each with every record of the state file, sorted by key, and sets Applied. An error is each's, or says
// how far the file could be read.
func (m *Image) Records(each func(key string, value []byte) error) error {
	var failed, cut error // failed is each's; kept apart so that it is not taken for damage
	err := guardDamage(func() error {
		db, short, err := openToRead(filepath.Join(m.Dir, stateName))
		if err != nil {
			return err
		}
		cut = short
		err = db.View(func(tx *bbolt.Tx) error {
			records := tx.Bucket(recordsBucket)
			if records == nil || tx.Bucket(metaBucket) == nil {
				return errors.New("it holds no state")
			}
			if v := tx.Bucket(metaBucket).Get(formatKey); len(v) == 8 && v[7] > formatVersion {
				return fmt.Errorf("format %d: %w", v[7], ErrNewerFormat)
			}
			m.Applied = appliedIn(tx)
			c := records.Cursor()
			for k, v := c.First(); k != nil && failed == nil; k, v = c.Next() {
				failed = each(string(k), v)
			}
			return nil
		})
		return errors.Join(err, db.Close())
	})
	return errors.Join(failed, cmp.Or(cut, err))
}

// Close lets the directory go.
func (m *Image) Close() error {
	var errs []error
	if m.log != nil {
		errs = append(errs, m.log.Close())
	}
	if m.lock != nil {
		errs = append(errs, m.lock.Close())
	}
	return errors.Join(errs...)
}
