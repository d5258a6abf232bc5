package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Refusals to open a directory. Each comes wrapped with the directory and what was found.
var (
	// ErrInUse: another process has the directory open.
	ErrInUse = errors.New("data directory is in use")
	// ErrOtherNode: the directory belongs to a node of another name.
	ErrOtherNode = errors.New("data directory belongs to another node")
	// ErrOtherCluster: the directory belongs to another cluster.
	ErrOtherCluster = errors.New("data directory belongs to another cluster")
	// ErrNewerFormat: the directory was written by a newer version.
	ErrNewerFormat = errors.New("it was written by a newer version of quotad")
	// ErrIncomplete: log, snapshots and state file do not belong together: something was deleted by hand.
	ErrIncomplete = errors.New("data directory is incomplete")
)

// lockDir takes the directory for this process. The lock ends with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s, by process %s: %w", dir, lockHolder(f), ErrInUse)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	// The pid is only for the error above: a stale one does no harm.
	if err := writePID(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return f, nil
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func lockHolder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return pid
	}
	return "unknown"
}

// meta says whose directory it is.
type meta struct {
	Format    int    `json:"format"`
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id,omitempty"`
	// WrittenBy is the version of quotad that had the directory last, for messages.
	WrittenBy string `json:"written_by,omitempty"`
}

func metaPath(dir string) string { return filepath.Join(dir, "meta.json") }

// openMeta reads the directory's meta file and checks it, or makes one for a new directory.
func openMeta(dir, nodeID, build string) (meta, error) {
	want := meta{Format: formatVersion, NodeID: nodeID, WrittenBy: build}
	b, err := os.ReadFile(metaPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		// Without the meta file a directory with data in it is not new: whose it is cannot be told.
		for _, name := range []string{logName, stateName} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return meta{}, fmt.Errorf("%s has %s but no meta.json: %w", dir, name, ErrIncomplete)
			}
		}
		return want, writeMeta(dir, want)
	}
	if err != nil {
		return meta{}, fmt.Errorf("read meta file: %w", err)
	}
	var m meta
	if err := json.Unmarshal(b, &m); err != nil {
		return meta{}, fmt.Errorf("read %s: %w", metaPath(dir), err)
	}
	if m.Format > formatVersion {
		return meta{}, fmt.Errorf("%s: format %d, last had by quotad %s; this version, %s, knows %d: %w", metaPath(dir), m.Format,
			cmp.Or(m.WrittenBy, "?"), cmp.Or(build, "?"), formatVersion, ErrNewerFormat)
	}
	if m.NodeID != nodeID {
		return meta{}, fmt.Errorf("%s: of node %q, not %q: %w", dir, m.NodeID, nodeID, ErrOtherNode)
	}
	if build != "" && m.WrittenBy != build {
		m.WrittenBy = build
		return m, writeMeta(dir, m)
	}
	return m, nil
}

// writeMeta replaces the meta file: after a crash either the old or the new one is there, whole.
func writeMeta(dir string, m meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode meta file: %w", err)
	}
	tmp := metaPath(dir) + ".tmp"
	if err := writeSynced(tmp, append(b, '\n')); err != nil {
		return fmt.Errorf("write meta file: %w", err)
	}
	if err := os.Rename(tmp, metaPath(dir)); err != nil {
		return fmt.Errorf("put meta file in place: %w", err)
	}
	return syncDir(dir)
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open directory to sync it: %w", err)
	}
	defer func() { _ = d.Close() }() // only opened to sync it
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
