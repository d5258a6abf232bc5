package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// A backup is a line that says what it is, and protobuf messages, each after its length as a varint: a BackupHeader, a
// SnapshotRecord for every record, sorted by key, and a SnapshotRecord without a key, whose value is the BackupTrailer.

const backupMagic = "sluice backup\n"

// ErrBadBackup is returned for a backup that is cut short, damaged, or not one.
var ErrBadBackup = errors.New("bad backup")

// Backup writes the state as it is at one moment, at the entry atLeast or after it. head makes the header of that
// moment, keep says which records go into it. It blocks on the disk and on w, and grows the file while it does, so w
// should be a file.
func (s *State) Backup(ctx context.Context, w io.Writer, atLeast uint64,
	head func(applied uint64, get func(key string) []byte) (*raftlogv1.BackupHeader, error), keep func(key []byte) bool,
) error {
	file, view, applied, err := s.viewAt(ctx, atLeast)
	if err != nil {
		return err
	}
	err = guardDamage(func() error {
		records := view.Bucket(recordsBucket)
		h, err := head(applied, func(key string) []byte { return records.Get([]byte(key)) })
		if err != nil {
			return err
		}
		return writeBackup(w, h, func(each func(k, v []byte) error) error {
			return records.ForEach(func(k, v []byte) error {
				if !keep(k) {
					return nil
				}
				return each(k, v)
			})
		})
	})
	return errors.Join(err, view.Rollback(), file.release())
}

// viewAt has the file written up to an entry and opens a view of it. A snapshot that is being streamed is waited for.
func (s *State) viewAt(ctx context.Context, atLeast uint64) (*stateFile, *bbolt.Tx, uint64, error) {
	for {
		file, view, applied, err := s.view()
		if err != nil || applied >= atLeast {
			return file, view, applied, err
		}
		if err := errors.Join(view.Rollback(), file.release()); err != nil {
			return nil, nil, 0, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, 0, ctx.Err()
		case <-time.After(viewRetryEvery):
		}
	}
}

func (s *State) view() (*stateFile, *bbolt.Tx, uint64, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.feedAndFlush(); err != nil {
		return nil, nil, 0, err
	}
	view, err := s.file.db.Begin(false)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("open a view of the state: %w", err)
	}
	s.file.hold()
	return s.file, view, appliedIn(view), nil
}

func appliedIn(view *bbolt.Tx) uint64 {
	if v := view.Bucket(metaBucket).Get(appliedKey); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func writeBackup(to io.Writer, h *raftlogv1.BackupHeader, records func(each func(k, v []byte) error) error) error {
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), streamBufferBytes)
	s := &streamWriter{w: w}
	if _, err := w.WriteString(backupMagic); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	h.Format = backupFormat
	if err := s.message(h); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	t := &raftlogv1.BackupTrailer{}
	rec := &raftlogv1.SnapshotRecord{}
	err := records(func(k, v []byte) error {
		t.Records++
		rec.Key, rec.Value = k, v
		return s.message(rec)
	})
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	t.Sha256 = sum.Sum(nil)
	b, err := proto.Marshal(t)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := s.message(&raftlogv1.SnapshotRecord{Value: b}); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

// ReadBackup reads a backup to its end and calls each with every record. It returns the header, and how many records
// there were. Errors: ErrBadBackup, also for what was read already; ErrNewerFormat; each's; the reader's.
func ReadBackup(r io.Reader, each func(key string, value []byte) error) (*raftlogv1.BackupHeader, uint64, error) {
	b := &backupReader{frames: frames{r: bufio.NewReaderSize(r, streamBufferBytes), bad: ErrBadBackup}, sum: sha256.New()}
	if err := b.begin(); err != nil {
		return nil, 0, err
	}
	h := &raftlogv1.BackupHeader{}
	if _, err := b.message(h); err != nil {
		return nil, 0, err
	}
	if h.GetFormat() > backupFormat {
		return nil, 0, fmt.Errorf("backup of format %d, made by quotad %s; this version knows %d: %w", h.GetFormat(), h.GetBuild(),
			backupFormat, ErrNewerFormat)
	}
	for ; ; b.records++ {
		rec := &raftlogv1.SnapshotRecord{}
		before, err := b.message(rec)
		if err != nil {
			return nil, 0, err
		}
		if len(rec.GetKey()) == 0 {
			return h, b.records, b.judge(rec.GetValue(), before)
		}
		if err := each(string(rec.GetKey()), rec.GetValue()); err != nil {
			return nil, 0, err
		}
	}
}

type backupReader struct {
	frames
	sum hash.Hash
}

// begin reads the line that says what it is.
func (b *backupReader) begin() error {
	line := make([]byte, len(backupMagic))
	n, err := io.ReadFull(b.r, line)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(line[:n]) != backupMagic {
		return fmt.Errorf("it does not begin like one: %w", ErrBadBackup)
	}
	b.at += int64(n)
	b.sum.Write(line)
	return nil
}

// message reads one message and returns the sum of everything before it, for the last one.
func (b *backupReader) message(m proto.Message) (before []byte, err error) {
	frame, err := b.frames.message(m)
	if err != nil {
		return nil, err
	}
	if rec, ok := m.(*raftlogv1.SnapshotRecord); ok && len(rec.GetKey()) == 0 {
		before = b.sum.Sum(nil)
	}
	b.sum.Write(frame)
	return before, nil
}

// judge compares with the trailer, after which nothing may follow.
func (b *backupReader) judge(trailer, sum []byte) error {
	t := &raftlogv1.BackupTrailer{}
	switch err := proto.Unmarshal(trailer, t); {
	case err != nil:
		return fmt.Errorf("it is damaged in its last bytes, after %d records: %w", b.records, ErrBadBackup)
	case t.GetRecords() != b.records:
		return fmt.Errorf("it is damaged: %d records of %d are there: %w", b.records, t.GetRecords(), ErrBadBackup)
	case !bytes.Equal(t.GetSha256(), sum):
		return fmt.Errorf("it is damaged: its SHA-256 is %x, not %x: %w", sum, t.GetSha256(), ErrBadBackup)
	}
	return b.end()
}
