package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// A snapshot is a stream of protobuf messages, each after its length as a varint: a SnapshotHeader, a SnapshotRecord
// for every record, sorted by key, and an end mark: a SnapshotRecord without a key, whose value is the number of
// records (8 bytes, big endian) and the CRC-32C of all bytes before the mark (4 bytes).

// ErrBadSnapshot is returned for a snapshot stream that is cut short, damaged, or not one.
var ErrBadSnapshot = errors.New("bad snapshot")

var crcTable = crc32.MakeTable(crc32.Castagnoli)

const endMarkBytes = 12

// streamWriter frames messages and sums them up.
type streamWriter struct {
	w   *bufio.Writer
	crc uint32
	buf []byte // reused
}

func (s *streamWriter) message(m proto.Message) error {
	b := protowire.AppendVarint(s.buf[:0], uint64(proto.Size(m)))
	b, err := proto.MarshalOptions{UseCachedSize: true, Deterministic: true}.MarshalAppend(b, m)
	if err != nil {
		return fmt.Errorf("encode snapshot: %w", err)
	}
	s.buf = b
	s.crc = crc32.Update(s.crc, crcTable, b)
	_, err = s.w.Write(b)
	return err
}

// writeStream writes the records that view sees.
func writeStream(w io.Writer, applied uint64, view *bbolt.Tx) error {
	s := &streamWriter{w: bufio.NewWriterSize(w, streamBufferBytes)}
	if err := s.message(&raftlogv1.SnapshotHeader{Format: snapshotFormat, Applied: applied}); err != nil {
		return err
	}
	var count uint64
	rec := &raftlogv1.SnapshotRecord{}
	err := view.Bucket(recordsBucket).ForEach(func(k, v []byte) error {
		count++
		rec.Key, rec.Value = k, v
		return s.message(rec)
	})
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	mark := binary.BigEndian.AppendUint64(nil, count)
	mark = binary.BigEndian.AppendUint32(mark, s.crc)
	if err := s.message(&raftlogv1.SnapshotRecord{Value: mark}); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// streamReader reads what streamWriter wrote.
type streamReader struct {
	r      *bufio.Reader
	crc    uint32 // of everything before the last message
	crcAll uint32
	count  uint64
}

// readHeader starts to read a stream.
func readHeader(r io.Reader) (*streamReader, uint64, error) {
	s := &streamReader{r: bufio.NewReaderSize(r, streamBufferBytes)}
	h := &raftlogv1.SnapshotHeader{}
	if err := s.message(h); err != nil {
		return nil, 0, err
	}
	if h.GetFormat() > snapshotFormat {
		return nil, 0, fmt.Errorf("snapshot of format %d, this version knows %d: %w", h.GetFormat(), snapshotFormat, ErrNewerFormat)
	}
	if h.GetFormat() == 0 {
		return nil, 0, fmt.Errorf("no header: %w", ErrBadSnapshot)
	}
	return s, h.GetApplied(), nil
}

// next returns the next record; done is true after the last, when number and sum were right and nothing follows.
func (s *streamReader) next(rec *raftlogv1.SnapshotRecord) (done bool, err error) {
	if err := s.message(rec); err != nil {
		return false, err
	}
	if len(rec.GetKey()) != 0 {
		s.count++
		return false, nil
	}
	mark := rec.GetValue()
	if len(mark) != endMarkBytes {
		return false, fmt.Errorf("end mark of %d bytes: %w", len(mark), ErrBadSnapshot)
	}
	if n := binary.BigEndian.Uint64(mark); n != s.count {
		return false, fmt.Errorf("%d records of %d: %w", s.count, n, ErrBadSnapshot)
	}
	if sum := binary.BigEndian.Uint32(mark[8:]); sum != s.crc {
		return false, fmt.Errorf("check sum %08x, not %08x: %w", s.crc, sum, ErrBadSnapshot)
	}
	if _, err := s.r.ReadByte(); err != io.EOF {
		return false, fmt.Errorf("data after the end mark: %w", errors.Join(ErrBadSnapshot, err))
	}
	return true, nil
}

func (s *streamReader) message(m proto.Message) error {
	size, err := binary.ReadUvarint(s.r)
	if err != nil {
		return fmt.Errorf("cut short: %w", errors.Join(ErrBadSnapshot, err))
	}
	if size > recordBytesMax {
		return fmt.Errorf("record of %d bytes: %w", size, ErrBadSnapshot)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return fmt.Errorf("cut short: %w", errors.Join(ErrBadSnapshot, err))
	}
	s.crc = s.crcAll
	s.crcAll = crc32.Update(crc32.Update(s.crcAll, crcTable, protowire.AppendVarint(nil, size)), crcTable, b)
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("decode: %w", errors.Join(ErrBadSnapshot, err))
	}
	return nil
}
