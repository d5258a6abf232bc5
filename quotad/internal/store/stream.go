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

// frames reads messages, each after its length as a varint, and says where it got when one cannot be read.
type frames struct {
	r       *bufio.Reader
	bad     error  // that it is not whole
	at      int64  // bytes read
	records uint64 // read
	failed  error  // the reader's, its end included
}

// ReadByte counts for the lengths.
func (f *frames) ReadByte() (byte, error) {
	b, err := f.r.ReadByte()
	if err != nil {
		f.failed = err
		return 0, err
	}
	f.at++
	return b, nil
}

// message reads one message. frame is its bytes, the length included.
func (f *frames) message(m proto.Message) (frame []byte, err error) {
	start := f.at
	size, err := binary.ReadUvarint(f)
	switch {
	case f.failed != nil:
		return nil, f.ended()
	case err != nil || size > recordBytesMax:
		return nil, f.damaged(start)
	}
	frame = protowire.AppendVarint(make([]byte, 0, binary.MaxVarintLen64+int(size)), size)
	head := len(frame)
	frame = frame[:head+int(size)]
	n, err := io.ReadFull(f.r, frame[head:])
	f.at += int64(n)
	if err != nil {
		f.failed = err
		return nil, f.ended()
	}
	if proto.Unmarshal(frame[head:], m) != nil {
		return nil, f.damaged(start)
	}
	return frame, nil
}

// ended is why nothing more can be read.
func (f *frames) ended() error {
	if errors.Is(f.failed, io.EOF) || errors.Is(f.failed, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is cut short: it ends at byte %d, after %d records: %w", f.at, f.records, f.bad)
	}
	return f.failed
}

func (f *frames) damaged(at int64) error {
	return fmt.Errorf("it is damaged at byte %d, after %d records: %w", at, f.records, f.bad)
}

// end makes sure that nothing follows.
func (f *frames) end() error {
	switch _, err := f.ReadByte(); {
	case err == nil:
		return fmt.Errorf("something follows its end: %w", f.bad)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// streamReader reads what streamWriter wrote.
type streamReader struct {
	frames
	crc    uint32 // of everything before the last message
	crcAll uint32
}

// readHeader starts to read a stream.
func readHeader(r io.Reader) (*streamReader, uint64, error) {
	s := &streamReader{frames: frames{r: bufio.NewReaderSize(r, streamBufferBytes), bad: ErrBadSnapshot}}
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
		s.records++
		return false, nil
	}
	mark := rec.GetValue()
	if len(mark) != endMarkBytes {
		return false, fmt.Errorf("end mark of %d bytes: %w", len(mark), ErrBadSnapshot)
	}
	if n := binary.BigEndian.Uint64(mark); n != s.records {
		return false, fmt.Errorf("%d records of %d: %w", s.records, n, ErrBadSnapshot)
	}
	if sum := binary.BigEndian.Uint32(mark[8:]); sum != s.crc {
		return false, fmt.Errorf("it is damaged: its check sum is %08x, not %08x: %w", s.crc, sum, ErrBadSnapshot)
	}
	return true, s.end()
}

func (s *streamReader) message(m proto.Message) error {
	frame, err := s.frames.message(m)
	s.crc = s.crcAll
	s.crcAll = crc32.Update(s.crcAll, crcTable, frame)
	return err
}
