package usage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
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
	// unwrittenMax bounds the events kept for a full disk once quotad has counted them.
	unwrittenMax = 100_000

	openSuffix = ".jsonl"
	doneSuffix = ".sent.jsonl"
)

// Sender carries messages to quotad. Send never blocks; false means that there is no session.
type Sender interface {
	Send(*quotav1.SessionRequest) bool
}

// Config sets a Recorder up.
type Config struct {
	Dir       string // of the event files; "" keeps events in memory until quotad has counted them
	Name      string // of this process's files; new for each process
	FileBytes int64  // a file that has grown to this is followed by another; default 64 MiB
	KeepBytes int64  // event files that are sent are kept up to this, the newest of them; 0 keeps all
}

// Recorder writes events and sends their sums. All methods are safe for concurrent use; Run is called once.
type Recorder struct {
	cfg Config
	log *zap.Logger

	mu      sync.Mutex
	own     *source
	files   int // of this process
	file    *os.File
	size    int64
	torn    bool       // the file may end within a line
	queue   []numbered // of own, not on disk yet
	older   []*source  // complete, and not counted by quotad; oldest first
	sender  Sender
	stats   Stats
	wake    chan struct{}
	pending *flight
	epoch   uint64 // quotad's
	offered uint64 // epoch in which all files were offered
}

type numbered struct {
	seq  uint64
	line []byte
}

type flight struct {
	source string
	at     time.Time
}

// Stats is the state of the recorder, for /status and /metrics.
type Stats struct {
	Recorded     uint64 `json:"recorded"`
	Unsent       int    `json:"unsent"`        // not yet counted by quotad, in the files read so far
	Unwritten    int    `json:"unwritten"`     // not yet on disk
	Dropped      uint64 `json:"dropped"`       // counted by quotad, and never written: the disk was full for too long
	WriteErrors  uint64 `json:"write_errors"`  // writes and reads that failed and are tried again
	LastError    string `json:"last_error"`    // empty when the last write went well
	OlderSources int    `json:"older_sources"` // complete files that are still being sent
}

// Open starts the event file of this process and finds those of earlier ones. A directory that cannot be written is no
// reason not to start: events then stay in memory until they are sent, and Stats says so.
func Open(cfg Config, log *zap.Logger) (*Recorder, error) {
	if cfg.FileBytes == 0 {
		cfg.FileBytes = 64 << 20
	}
	r := &Recorder{cfg: cfg, log: log, wake: make(chan struct{}, 1), own: newSource(cfg.Name, cfg.Dir)}
	if cfg.Dir == "" {
		return r, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		r.fault(err)
		return r, nil
	}
	r.offered = readEpoch(cfg.Dir)
	var err error
	r.older, err = unreadSources(cfg.Dir)
	return r, err
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
	seq := r.own.last + 1
	r.own.add(seq, e)
	r.stats.Recorded++
	if r.cfg.Dir == "" {
		return
	}
	b, err := encode(seq, e)
	if err != nil {
		r.fault(err)
		return
	}
	r.queue = append(r.queue, numbered{seq, b})
	r.write()
}

// write puts on disk what is not there yet, in order, and goes over to the next file when this one is full.
func (r *Recorder) write() {
	for len(r.queue) > 0 {
		if err := r.append(r.queue[0].line); err != nil {
			r.fault(err)
			for len(r.queue) > unwrittenMax && r.queue[0].seq <= r.own.acked {
				r.queue = r.queue[1:]
				r.stats.Dropped++
			}
			return
		}
		r.queue = r.queue[1:]
		r.stats.LastError = ""
	}
	r.queue = nil
	if r.size >= r.cfg.FileBytes {
		r.rotate()
	}
}

// append writes a line. Half a line is taken back, or else ended before the next.
func (r *Recorder) append(line []byte) error {
	if r.file == nil {
		f, err := os.OpenFile(r.own.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		r.file, r.size, r.torn = f, 0, false
	}
	if r.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := r.file.Write(line)
	if err == nil {
		r.size, r.torn = r.size+int64(n), false
		return nil
	}
	if n > 0 {
		if terr := r.file.Truncate(r.size); terr != nil {
			r.torn, r.size = true, r.size+int64(n)
			return errors.Join(err, terr)
		}
	}
	return err
}

// rotate ends this file and begins the next. Everything of it must be written.
func (r *Recorder) rotate() {
	if err := r.file.Close(); err != nil {
		r.fault(err)
	}
	r.older = append(r.older, r.own)
	r.files++
	r.file, r.size = nil, 0
	r.own = newSource(fmt.Sprintf("%s-%d", r.cfg.Name, r.files+1), r.cfg.Dir)
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
	defer r.poke()
	if a.GetSource() == r.own.id {
		if !r.own.ack(a.GetLastSeq()) && len(r.queue) == 0 && r.file != nil {
			r.own.unread = true // as a file that no longer grows it can be read again
			r.rotate()
		}
		return
	}
	for _, s := range r.older {
		if s.id == a.GetSource() && !s.unread {
			s.unread = !s.ack(a.GetLastSeq())
		}
	}
}

// Run sends sums until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	r.prune()
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.wake:
		}
		r.step(time.Now())
	}
}

// step puts one batch on its way unless one is, oldest files first.
func (r *Recorder) step(now time.Time) {
	r.mu.Lock()
	r.write()
	r.mu.Unlock()
	r.offerAgain(now)
	if r.settleOldest() {
		r.prune()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sender == nil || r.pending != nil && now.Sub(r.pending.at) < resendAfter {
		return
	}
	s := r.own
	if i := slices.IndexFunc(r.older, func(o *source) bool { return !o.unread }); i >= 0 {
		s = r.older[i]
	}
	b := s.next()
	if b == nil {
		return
	}
	if r.sender.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_UsageBatch{UsageBatch: b}}) {
		r.pending = &flight{source: s.id, at: now}
	}
}

// settleOldest reads the oldest files, and sets aside those of which quotad has everything; it reports whether there
// were any. Only Run changes what is read here, so that requests need not wait for the disk.
func (r *Recorder) settleOldest() (retired bool) {
	for {
		r.mu.Lock()
		if len(r.older) == 0 {
			r.mu.Unlock()
			return retired
		}
		s := r.older[0]
		unread, done := s.unread, s.done()
		r.mu.Unlock()
		switch {
		case unread:
			read, err := s.read()
			if errors.Is(err, fs.ErrNotExist) {
				read, err = &source{id: s.id, acked: s.acked}, nil // someone took it away
			}
			r.mu.Lock()
			if err != nil {
				r.fault(err)
				r.older = append(r.older[1:len(r.older):len(r.older)], s) // the others first
				r.mu.Unlock()
				return retired
			}
			r.older[0] = read
			r.mu.Unlock()
		case done:
			r.retire(s)
			retired = true
		default:
			return retired
		}
	}
}

// retire renames a file of which quotad has everything. It stays for whoever collects events.
func (r *Recorder) retire(s *source) {
	r.mu.Lock()
	r.older = r.older[1:]
	r.mu.Unlock()
	if s.path == "" {
		return
	}
	if err := setAside(s.path); err != nil {
		r.log.Warn("event file is sent but could not be set aside", zap.Error(err))
	}
}

// prune deletes the oldest of the files that are sent, when there are too many.
func (r *Recorder) prune() {
	if r.cfg.Dir == "" || r.cfg.KeepBytes == 0 {
		return
	}
	if err := keepNewest(r.cfg.Dir, r.cfg.KeepBytes); err != nil {
		r.log.Warn("old event files were not deleted", zap.Error(err))
	}
}

// Flush waits until quotad has counted everything, or ctx ends; the error says how much is left.
func (r *Recorder) Flush(ctx context.Context) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		r.mu.Lock()
		left := r.own.waiting() + len(r.older)
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
	s.Unsent, s.Unwritten, s.OlderSources = r.own.waiting(), len(r.queue), len(r.older)
	for _, o := range r.older {
		s.Unsent += o.waiting()
	}
	return s
}

// Close closes the event file.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Dir != "" {
		r.write()
	}
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
