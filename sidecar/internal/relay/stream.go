package relay

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// Status says how a stream ended.
type Status uint8

// The ways.
const (
	StatusOK        Status = iota + 1
	StatusPartial          // it broke once it was the caller's, who was told
	StatusCancelled        // the caller left
	StatusFailed           // it broke through a fault of ours
)

// Outcome is how a stream ended and what it brought.
type Outcome struct {
	Status     Status
	Failure    *exchange.Failure // nil when OK
	Usage      exchange.Usage
	Delivered  adapter.Delivered
	Duration   time.Duration
	FirstToken time.Duration
	Early      bool // it ended before the first real token: the caller had nothing but signs of life
}

// WriteDeadliner is the caller's connection as far as the stream needs it. A *fasthttp.RequestCtx is best: fasthttp
// then lifts the deadline again before the connection's next request.
type WriteDeadliner interface {
	SetWriteDeadline(time.Time) error
}

// Stream pumps a provider's stream to the caller. It is made for fasthttp's SetBodyStream(s, -1): WriteTo runs on the
// handler's goroutine and starts none. While the caller is slow nothing is read from the provider.
//
// What WriteTo returns decides how the caller's connection ends: nil ends the body properly, after [DONE] or after an
// error event; an error cuts it. One user at a time.
type Stream struct {
	// Caller gets a deadline before each write; nil for none.
	Caller WriteDeadliner
	// OnEnd is called exactly once: when the end of the stream is known, before its last bytes are written (client
	// libraries hang up on [DONE]), or when it is cut, cancelled, closed early, or an adapter panics.
	OnEnd func(Outcome)

	c          *Client
	src        source
	body       *body
	rd         framing // nil for a replay
	st         adapter.Stream
	ans        *Answer
	start      time.Time
	firstToken time.Duration

	box      *[]byte // holds out, unless that is small
	out      []byte  // translated, not yet written
	off      int     // of out, for Read
	early    bool    // no real token yet, though the caller has the stream: it was silent for too long
	events   int64
	used     bool // rd has no event left in what it was fed
	eof      bool // the provider's body has ended
	replayed bool // made of a complete answer: there are no events
	ended    bool // End was called and had no complaint: out holds the last bytes
	settled  bool // OnEnd was called
	err      error
	w        io.Writer
	small    [smallBytes]byte
}

// turn is what one step of the stream brought.
type turn uint8

const (
	turnWait   turn = iota // nothing more without waiting
	turnEvent              // an event was translated
	turnReal               // so was one with a real token
	turnEnd                // the provider has said everything
	turnFailed             // it broke
)

// step moves on by one event. Without block it returns turnWait instead of waiting for the provider.
func (s *Stream) step(block bool) (turn, *exchange.Failure) {
	if s.replayed {
		return turnEnd, nil
	}
	for {
		if !s.used {
			ev, ok, err := s.rd.Next()
			if err != nil {
				return turnFailed, unframed(err)
			}
			if ok {
				return s.event(ev)
			}
			s.used = true
		}
		if s.eof {
			return turnEnd, nil
		}
		p, err := s.src.next(block)
		switch err {
		case nil:
			s.rd.Feed(p)
			s.used = false
		case errNoBytes: //nolint:errorlint // for each chunk, and a source returns its sentinels bare
			return turnWait, nil
		case io.EOF:
			s.eof, s.used = true, false
			s.rd.End()
		default:
			return turnFailed, asFailure(err)
		}
	}
}

func (s *Stream) event(ev *sse.Event) (turn, *exchange.Failure) {
	s.events++
	s.borrow(len(ev.Data) + envelopeBytes)
	var p adapter.Progress
	s.out, p = s.st.Event(s.out, ev.Name, ev.Data)
	switch {
	case p.Failure != nil:
		return turnFailed, p.Failure
	case p.Done:
		return turnEnd, nil
	case p.Real:
		return turnReal, nil
	}
	return turnEvent, nil
}

// hold reads up to the first real token, or to the end of a stream that has none. The caller sees nothing meanwhile, but
// not beyond patience: then the stream becomes the caller's as it is, and early.
func (s *Stream) hold(patience time.Time) *exchange.Failure {
	if s.src == source(s.body) { // a decoder cannot be left in mid-event
		s.body.beater, s.body.beatAt = impatient{}, patience
		defer func() { s.body.beater = nil }()
	}
	for {
		t, f := s.step(true)
		switch t {
		case turnFailed:
			return f
		case turnEnd:
			if f := s.end(); f != nil {
				return f
			}
			s.token()
			return nil
		case turnReal:
			s.token()
			return nil
		case turnWait:
			s.early = true
			return nil
		}
		if len(s.out) > heldBytesMax {
			return fail(exchange.FailInvalid, "the provider sent much, but no token")
		}
	}
}

// impatient is a beater that ends the wait.
type impatient struct{}

func (impatient) beat(time.Time) error { return errNoBytes }

// token notes that the first real token is there: the idle deadline takes over.
func (s *Stream) token() {
	s.early = false
	s.firstToken = time.Since(s.start)
	s.ans.FirstToken = s.firstToken
	s.body.dl.token, s.body.dl.idle = false, true
}

// end asks the adapter for the last bytes.
func (s *Stream) end() *exchange.Failure {
	if s.events == 0 && !s.replayed {
		return fail(exchange.FailInvalid, "the provider's stream is empty")
	}
	s.borrow(batchBytes)
	var f *exchange.Failure
	if s.out, f = s.st.End(s.out); f != nil {
		return f
	}
	s.ended = true
	s.body.release()
	return nil
}

// advance fills out with what should be written next, gathering what has arrived. It waits for the provider only while
// there is nothing to write. After it, either out has bytes, or the stream is settled.
func (s *Stream) advance() {
	for !s.settled && !s.ended && len(s.out) < batchBytes {
		if len(s.out) == 0 {
			s.release()
		}
		t, f := s.step(len(s.out) == 0)
		if t == turnEnd {
			f = s.end()
		}
		if s.early && f == nil && (t == turnReal || t == turnEnd) {
			s.token()
		}
		if f != nil {
			s.breakOff(f)
			return
		}
		if t == turnWait {
			return
		}
	}
	if s.ended && !s.settled {
		s.settle(StatusOK, nil)
	}
}

// breakOff ends a stream that broke once it was the caller's. The caller is told, unless it is the caller who left.
func (s *Stream) breakOff(f *exchange.Failure) {
	s.body.abort()
	if f.Kind == exchange.FailCancelled {
		s.drop(f)
		return
	}
	f = afterToken(f)
	s.borrow(batchBytes)
	s.out = s.st.Abort(s.out, f)
	s.settle(StatusPartial, f)
}

// drop ends a stream whose caller is gone.
func (s *Stream) drop(f *exchange.Failure) {
	s.body.abort()
	s.release()
	s.err = ErrCallerGone
	if !s.settled {
		s.settle(StatusCancelled, f)
	}
}

func (s *Stream) settle(status Status, f *exchange.Failure) {
	s.settled = true
	s.body.beater = nil
	if s.OnEnd == nil {
		return
	}
	s.OnEnd(Outcome{
		Status: status, Failure: f, Usage: s.st.Usage(), Delivered: s.st.Delivered(),
		Duration: time.Since(s.start), FirstToken: s.firstToken, Early: s.early,
	})
}

// SupportsBodyWriteTo lets fasthttp use WriteTo.
func (s *Stream) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the stream to w, one Write per batch, until it has ended. It returns ErrCallerGone when the caller
// cannot be written to, or when the request was cancelled.
func (s *Stream) WriteTo(w io.Writer) (int64, error) {
	fine := false
	defer s.guard(&fine)
	s.w = w
	s.body.beater, s.body.beatAt = s, time.Now()
	if !s.early {
		s.body.beatAt = s.body.beatAt.Add(s.c.cfg.Heartbeat)
	}
	var n int64
	for s.err == nil {
		s.advance()
		if len(s.out) == 0 {
			break
		}
		m, err := s.write(s.out)
		n += int64(m)
		s.release()
		if err != nil {
			s.drop(failCancelled())
		}
	}
	fine = true
	return n, s.err
}

// Read is WriteTo for those who pull. It sends no heartbeats.
func (s *Stream) Read(p []byte) (int, error) {
	if s.off == len(s.out) {
		fine := false
		defer s.guard(&fine)
		s.release()
		if s.err == nil {
			s.advance()
		}
		fine = true
	}
	if s.off == len(s.out) {
		if s.err != nil {
			return 0, s.err
		}
		return 0, io.EOF
	}
	n := copy(p, s.out[s.off:])
	s.off += n
	return n, nil
}

// Close ends a stream that was not written to its end, as if the caller had left. fasthttp always calls it.
func (s *Stream) Close() error {
	if !s.settled {
		s.drop(failCancelled())
	}
	s.body.abort()
	s.release()
	return nil
}

// write writes to the caller, within the deadline.
func (s *Stream) write(p []byte) (int, error) {
	now := time.Now()
	if s.Caller != nil {
		if err := s.Caller.SetWriteDeadline(now.Add(s.c.cfg.WriteWait)); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCallerGone, err)
		}
	}
	n, err := s.w.Write(p)
	if err != nil {
		return n, fmt.Errorf("%w: %w", ErrCallerGone, err)
	}
	s.body.beatAt = now.Add(s.c.cfg.Heartbeat)
	return n, nil
}

// beat is called from inside the wait for the provider: the caller has seen nothing for a while.
func (s *Stream) beat(time.Time) error {
	alive := sse.KeepAlive
	if p, ok := s.st.(adapter.Pinger); ok {
		alive = p.Ping()
	}
	_, err := s.write([]byte(alive))
	return err
}

// guard settles a stream out of which a panic passes. The panic goes on: fasthttp then cuts the caller's connection.
func (s *Stream) guard(fine *bool) {
	if *fine {
		return
	}
	s.body.abort()
	if !s.settled {
		s.settle(StatusFailed, fail(exchange.FailCut, "a fault inside the gateway broke the stream"))
	}
}

// borrow makes out ready for about n bytes more. Between batches a stream holds no buffer but the small one, which is its
// own: lending one for each small event would be a sixth of what that costs.
func (s *Stream) borrow(n int) {
	switch {
	case s.box != nil:
	case len(s.out)+n > len(s.small):
		s.box = s.c.buffer()
		s.out = append(*s.box, s.out...)
	case s.out == nil:
		s.out = s.small[:0]
	}
}

// release gives the buffer of what has been written back.
func (s *Stream) release() {
	if s.box != nil {
		*s.box = s.out
		s.c.giveBack(s.box)
		s.box = nil
	}
	s.out, s.off = nil, 0
}
