package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// ErrLogDamaged says that the raft log cannot be read, or says something else than was written. What it held this node had
// promised to keep, so it cannot go on from there: it comes back with an empty directory, as a node that lost its disk.
var ErrLogDamaged = errors.New("raft log is damaged")

// checkedLog sums up every entry when it is written and checks the sum when it is read. bbolt does not: a bit that
// turned on the disk would be applied on this node alone, and nobody would know. The sum is part of the entry and goes
// to the other nodes with it. Entries of earlier versions have none and pass.
type checkedLog struct {
	raft.LogStore
	path string
}

const sumBytes = 4

func sumOf(e *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], e.Index)
	binary.BigEndian.PutUint64(head[8:], e.Term)
	head[16] = byte(e.Type)
	sum := crc32.Update(crc32.Checksum(head[:], crcTable), crcTable, e.Data)
	return binary.BigEndian.AppendUint32(nil, sum)
}

func (l checkedLog) check(e *raft.Log) error {
	if len(e.Extensions) == sumBytes && string(sumOf(e)) != string(e.Extensions) {
		return fmt.Errorf("%s: entry %d is not what was written: %w", l.path, e.Index, ErrLogDamaged)
	}
	return nil
}

// StoreLog writes one entry.
func (l checkedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs writes entries. One that came from another node with a wrong sum is refused: the leader sends it again.
func (l checkedLog) StoreLogs(es []*raft.Log) error {
	for _, e := range es {
		if len(e.Extensions) == 0 {
			e.Extensions = sumOf(e)
		} else if err := l.check(e); err != nil {
			return err
		}
	}
	return l.LogStore.StoreLogs(es)
}

// GetLog reads one entry.
func (l checkedLog) GetLog(index uint64, e *raft.Log) error {
	if err := l.LogStore.GetLog(index, e); err != nil {
		return err
	}
	return l.check(e)
}

// checkAll reads every entry once. Raft would meet a damaged one later, and crash.
func (l checkedLog) checkAll(entries []uint64) error {
	for _, index := range entries {
		e := raft.Log{}
		err := l.GetLog(index, &e)
		if err == nil && e.Index != index {
			err = fmt.Errorf("it says that it is %d", e.Index)
		}
		if err != nil && !errors.Is(err, ErrLogDamaged) {
			err = fmt.Errorf("%s: entry %d: %w: %w", l.path, index, ErrLogDamaged, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// logBucket is where raft-boltdb has the entries, by index.
var logBucket = []byte("logs")

// checkLogFile checks the pages of the log's file before it is opened for good, and returns the indexes of the entries.
// There may be gaps: a snapshot that came from the leader makes them.
func checkLogFile(path string) (entries []uint64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // bbolt makes one
	}
	if err != nil {
		return nil, fmt.Errorf("open raft log: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	st, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open raft log: %w", err)
	}
	if st.Size() == 0 {
		return nil, nil // bbolt begins it
	}
	if err := hasHead(st.Size()); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrLogDamaged, err)
	}
	err = guardDamage(func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
		if err != nil {
			return err
		}
		if err := whole(db, st.Size()); err != nil { // the walk would only say what it fell over
			return errors.Join(err, db.Close())
		}
		return errors.Join(db.View(func(tx *bbolt.Tx) error {
			if err := checkPages(file, tx); err != nil {
				return fmt.Errorf("%w: %w", err, ErrDamaged)
			}
			b := tx.Bucket(logBucket)
			if b == nil {
				return nil
			}
			return b.ForEach(func(k, _ []byte) error {
				if len(k) == 8 {
					entries = append(entries, binary.BigEndian.Uint64(k))
				}
				return nil
			})
		}), db.Close())
	})
	if errors.Is(err, ErrDamaged) {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrLogDamaged, err)
	}
	return entries, err
}
