package store

import (
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
	b, err := os.ReadFile(metaPath(m.Dir))
	if err != nil {
		m.damaged("meta.json", err)
		return
	}
	var v meta
	if err := json.Unmarshal(b, &v); err != nil {
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
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err != nil {
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

// readLog opens the log and reads what raft keeps beside it.
func (m *Image) readLog() {
	path := filepath.Join(m.Dir, logName)
	if _, err := os.Stat(path); err != nil {
		m.damaged(logName, err)
		return
	}
	err := guardDamage(func() (err error) {
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
	if err != nil {
		m.damaged(logName, err)
		return
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
	path := filepath.Join(m.Dir, stateName)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	var failed error // of each; kept apart so that it is not taken for damage
	err := guardDamage(func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
		if err != nil {
			return err
		}
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
	return errors.Join(failed, err)
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
