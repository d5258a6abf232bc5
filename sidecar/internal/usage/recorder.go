package usage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"go.uber.org/zap"
)

const (
	sendEvery = time.Second
	// resendAfter is how long an unanswered batch is waited for.
	resendAfter = 3 * time.Second
	// batchMax bounds the events summed into one batch.
	batchMax = 5_000

	openSuffix = ".jsonl"
	doneSuffix = ".sent.jsonl"
)

// Sender carries messages to quotad. Send never blocks; false means that there is no session.
type Sender interface {
	Send(*quotav1.SessionRequest) bool
}

// Recorder writes events and sends their sums. All methods are safe for concurrent use; Run is called once.
type Recorder struct {
	dir string // "" keeps events in memory only
	log *zap.Logger

	mu      sync.Mutex
	own     *source
	older   []*source // files of dead processes whose events quotad may not have, oldest first
	sender  Sender
	stats   Stats
	wake    chan struct{}
	pending *flight
}

// source is one event file: its events are numbered from 1.
type source struct {
	id     string
	path   string
	file   *os.File
	last   uint64 // newest event
	acked  uint64 // newest event quotad has counted
	unsent []numbered
}

type numbered struct {
	seq   uint64
	event *usagev1.Event
	line  []byte // not on disk yet; nil once it is
}

type flight struct {
	source string
	toSeq  uint64
	at     time.Time
}

// Stats is the state of the recorder, for /status and /metrics.
type Stats struct {
	Recorded     uint64 `json:"recorded"`
	Unsent       int    `json:"unsent"`        // not yet counted by quotad
	Unwritten    int    `json:"unwritten"`     // not yet on disk
	WriteErrors  uint64 `json:"write_errors"`  // writes that failed and are tried again
	LastError    string `json:"last_error"`    // empty when the last write went well
	OlderSources int    `json:"older_sources"` // files of earlier processes still being sent
}

// Open starts the event file of this process under dir and finds those of earlier ones. name must be new for each
// process. A dir that cannot be written is no reason not to start: events then stay in memory until they are sent,
// and Stats says so. Only a dir that cannot be read is an error.
func Open(dir, name string, log *zap.Logger) (*Recorder, error) {
	r := &Recorder{dir: dir, log: log, wake: make(chan struct{}, 1), own: &source{id: name}}
	if dir == "" {
		return r, nil
	}
	r.own.path = filepath.Join(dir, name+openSuffix) // made with the first event
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.fault(err)
		return r, nil
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+openSuffix))
	if err != nil {
		return nil, fmt.Errorf("list event files: %w", err)
	}
	for _, path := range names {
		if strings.HasSuffix(path, doneSuffix) {
			continue
		}
		s, err := readSource(path)
		if err != nil {
			return nil, err
		}
		r.older = append(r.older, s)
	}
	return r, nil
}

// readSource reads an earlier process's file. A torn last line was never seen by anyone as recorded: it is dropped.
func readSource(path string) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read event file: %w", err)
	}
	defer func() { _ = f.Close() }()
	s := &source{id: strings.TrimSuffix(filepath.Base(path), openSuffix), path: path}
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		b, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read event file %s: %w", path, err)
		}
		seq, e, err := decode(bytes.TrimSpace(b))
		if err != nil || seq <= s.last {
			continue // torn by a full disk; its money is in the lease journal
		}
		s.last = seq
		s.unsent = append(s.unsent, numbered{seq: seq, event: e})
	}
}

func (r *Recorder) openOwn() {
	f, err := os.OpenFile(r.own.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.fault(err)
		return
	}
	r.own.file = f
}

func (r *Recorder) fault(err error) {
	r.stats.WriteErrors++
	r.stats.LastError = err.Error()
}

// Record takes an event. When it returns the event has been handed to the operating system, so that it survives the
// death of the process, or stands in memory to be written as soon as the disk allows.
func (r *Recorder) Record(e *usagev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own.last++
	r.stats.Recorded++
	n := numbered{seq: r.own.last, event: e}
	if b, err := encode(n.seq, e); err != nil {
		r.fault(err)
	} else if r.dir != "" {
		n.line = b
	}
	r.own.unsent = append(r.own.unsent, n)
	r.write()
}

// write puts lines on disk that are not there yet, in order. A line that is half written is ended first, so that the
// next one begins on its own line.
func (r *Recorder) write() {
	if r.dir == "" {
		return
	}
	if r.own.file == nil {
		if r.openOwn(); r.own.file == nil {
			return
		}
	}
	u := r.own.unsent
	first := len(u)
	for first > 0 && u[first-1].line != nil {
		first--
	}
	for i := first; i < len(u); i++ {
		at, err := r.own.file.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = r.own.file.Write(u[i].line)
		}
		if err != nil {
			r.fault(err)
			if terr := r.own.file.Truncate(at); terr != nil {
				r.fault(terr)
			}
			return
		}
		u[i].line = nil
		r.stats.LastError = ""
	}
}

// Connected gives the recorder a session; what was in flight in the last one is sent again.
func (r *Recorder) Connected(s Sender) {
	r.mu.Lock()
	r.sender, r.pending = s, nil
	r.mu.Unlock()
	r.poke()
}

// Disconnected takes the session away.
func (r *Recorder) Disconnected() {
	r.mu.Lock()
	r.sender, r.pending = nil, nil
	r.mu.Unlock()
}

func (r *Recorder) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// HandleAck takes quotad's word on how far a source is counted.
func (r *Recorder) HandleAck(a *quotav1.UsageAck) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending != nil && r.pending.source == a.GetSource() {
		r.pending = nil
	}
	if a.GetSource() == r.own.id {
		r.own.ack(a.GetLastSeq())
	}
	for i, s := range r.older {
		if s.id != a.GetSource() {
			continue
		}
		s.ack(a.GetLastSeq())
		if s.acked >= s.last {
			r.retire(i)
		}
		break
	}
	r.poke()
}

func (s *source) ack(seq uint64) {
	s.acked = max(s.acked, seq)
	i := 0
	for i < len(s.unsent) && s.unsent[i].seq <= s.acked && s.unsent[i].line == nil {
		i++
	}
	s.unsent = append([]numbered(nil), s.unsent[i:]...)
}

// retire renames the file of a dead process once quotad has all of it. The file stays for whoever collects events.
func (r *Recorder) retire(i int) {
	s := r.older[i]
	r.older = append(r.older[:i:i], r.older[i+1:]...)
	if s.last == 0 {
		_ = os.Remove(s.path) // empty; it may stay
		return
	}
	to := strings.TrimSuffix(s.path, openSuffix) + doneSuffix
	if err := os.Rename(s.path, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("event file is sent but could not be renamed", zap.String("file", s.path), zap.Error(err))
	}
}

// Run sends sums until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.wake:
		}
		r.send(time.Now())
	}
}

// send puts one batch on its way unless one is.
func (r *Recorder) send(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write()
	if r.sender == nil || (r.pending != nil && now.Sub(r.pending.at) < resendAfter) {
		return
	}
	for len(r.older) > 0 && r.older[0].acked >= r.older[0].last {
		r.retire(0)
	}
	s := r.own
	if len(r.older) > 0 {
		s = r.older[0]
	}
	b := s.batch()
	if b == nil {
		return
	}
	if r.sender.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_UsageBatch{UsageBatch: b}}) {
		r.pending = &flight{source: s.id, toSeq: b.GetToSeq(), at: now}
	}
}

// batch sums the next events quotad has not counted, nil when there are none. Its range has no gap to the last one.
func (s *source) batch() *quotav1.UsageBatch {
	sum := rows{}
	from, to := s.acked+1, uint64(0)
	for _, n := range s.unsent {
		if n.seq < from {
			continue
		}
		sum.add(n.event)
		if to = n.seq; to-from >= batchMax {
			break
		}
	}
	if to == 0 {
		return nil
	}
	b := &quotav1.UsageBatch{Source: s.id, FromSeq: from, ToSeq: to}
	for _, row := range sum {
		b.Rows = append(b.Rows, row)
	}
	return b
}

// Flush waits until quotad has counted everything, or ctx ends; the error says how much is left.
func (r *Recorder) Flush(ctx context.Context) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		r.mu.Lock()
		left := int(r.own.last-r.own.acked) + len(r.older)
		r.mu.Unlock()
		if left == 0 {
			return nil
		}
		r.poke()
		select {
		case <-ctx.Done():
			return fmt.Errorf("usage: %d events are not yet counted by quotad; the next start sends them", left)
		case <-t.C:
		}
	}
}

// Stats returns the state.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Unsent, s.OlderSources = len(r.own.unsent), len(r.older)
	for _, n := range r.own.unsent {
		if n.line != nil {
			s.Unwritten++
		}
	}
	for _, o := range r.older {
		s.Unsent += len(o.unsent)
	}
	return s
}

// Close closes the event file.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write()
	if r.own.file == nil {
		return nil
	}
	return r.own.file.Close()
}
