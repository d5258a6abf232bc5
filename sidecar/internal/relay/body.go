package relay

import (
	"errors"
	"io"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// source gives the decoded bytes of an answer.
type source interface {
	// next returns bytes, valid until the next call, or io.EOF once the body has ended as its framing says.
	// Without block it returns errNoBytes instead of waiting.
	next(block bool) ([]byte, error)
}

// How the end of a body is known; other values of body.kind are a Content-Length.
const (
	kindChunked    = -1
	kindUntilClose = -2
)

// body reads one answer's body off its connection, under the attempt's deadlines.
type body struct {
	c      *Client
	o      *origin
	k      *conn
	cancel *Canceller

	kind  int
	left  int64 // of a body with Content-Length
	chunk chunker
	lent  int  // bytes handed out, to be discarded at the next call
	keep  bool // the connection may be used again
	over  bool // the connection was given back or closed
	err   error

	dl     deadlines
	armed  time.Time // the read deadline that is set; zero when unknown
	beater beater    // nil when nobody wants to be woken
	beatAt time.Time
}

// beater is woken from inside a wait for bytes.
type beater interface{ beat(now time.Time) error }

func (b *body) next(block bool) ([]byte, error) {
	if b.over {
		return nil, b.err
	}
	p, err := b.read(block)
	switch err {
	case nil, errNoBytes: //nolint:errorlint // for each chunk, and read returns its sentinels bare
		return p, err
	case io.EOF:
		b.finish()
	default:
		b.abort()
	}
	b.err = err
	return nil, err
}

func (b *body) read(block bool) ([]byte, error) {
	if b.lent > 0 {
		_, _ = b.k.br.Discard(b.lent)
		b.lent = 0
	}
	switch b.kind {
	case kindChunked:
		return b.readChunked(block)
	case kindUntilClose:
		b.keep = false
		return b.take(block, -1)
	}
	if b.left == 0 {
		return nil, io.EOF
	}
	p, err := b.take(block, b.left)
	b.left -= int64(len(p))
	return p, ended(err)
}

func (b *body) readChunked(block bool) ([]byte, error) {
	for {
		switch b.chunk.state {
		case chunkEnd:
			return nil, io.EOF
		case chunkData:
			p, err := b.take(block, b.chunk.left)
			if err != nil {
				return nil, ended(err)
			}
			b.chunk.took(len(p))
			return p, nil
		}
		if err := b.wait(block); err != nil {
			return nil, ended(err)
		}
		p, _ := b.k.br.Peek(b.k.br.Buffered())
		n, err := b.chunk.advance(p)
		_, _ = b.k.br.Discard(n)
		if err != nil {
			return nil, fail(exchange.FailInvalid, "the framing of the provider's answer is broken")
		}
	}
}

// take hands out up to limit buffered bytes, -1 for all.
func (b *body) take(block bool, limit int64) ([]byte, error) {
	if err := b.wait(block); err != nil {
		return nil, err
	}
	n := b.k.br.Buffered()
	if limit >= 0 && int64(n) > limit {
		n = int(limit)
	}
	b.lent = n
	return b.k.br.Peek(n)
}

// ended is for bodies whose framing says where they end: there the end of the connection comes too early.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return asFailure(err)
	}
	return err
}

// wait returns once a byte is buffered.
func (b *body) wait(block bool) error {
	br := b.k.br
	if br.Buffered() > 0 {
		return nil
	}
	if !block {
		return errNoBytes
	}
	began := time.Now()
	for now := began; ; {
		end, why := b.dl.next(began)
		b.arm(end)
		_, err := br.Peek(1)
		if err == nil {
			return nil
		}
		now = time.Now()
		switch {
		case b.cancel.Cancelled():
			return failCancelled()
		case err == io.EOF:
			return io.EOF
		case !isTimeout(err):
			return fail(exchange.FailCut, "the connection to the provider broke")
		case !now.Before(end):
			return b.dl.failure(why)
		}
		b.armed = time.Time{}
		if b.beater != nil && !now.Before(b.beatAt) {
			if err := b.beater.beat(now); err != nil {
				return err
			}
		}
	}
}

// arm sets the read deadline: end, or the next beat when that is earlier. A deadline that is a little early is left as
// it is, since setting one costs more than waking once for nothing; wait looks at the true times when it wakes.
func (b *body) arm(end time.Time) {
	if b.beater != nil && b.beatAt.Before(end) {
		end = b.beatAt
	}
	if !b.armed.IsZero() && !b.armed.After(end) && end.Sub(b.armed) < b.dl.slack() {
		return
	}
	_ = b.k.c.SetReadDeadline(end) // fails only on a closed connection, and then the read says so
	b.armed = end
}

// finish gives the connection back, if nothing speaks against it.
func (b *body) finish() {
	b.over = true
	ok := b.cancel.attach(nil, nil)
	if !ok || !b.keep || b.k.br.Buffered() > 0 {
		b.k.close()
		return
	}
	b.o.put(b.k, &b.c.cfg)
}

// abort ends the body where it stands. It is harmless after finish.
func (b *body) abort() {
	if b.over {
		return
	}
	b.over, b.err = true, errAborted
	b.cancel.attach(nil, nil)
	b.k.abort()
}

// release is for a stream of which everything that matters has been read: it finishes the body if its end has
// arrived already, and otherwise leaves that to the drain workers, off the caller's path.
func (b *body) release() {
	for !b.over {
		_, err := b.next(false)
		if errors.Is(err, errNoBytes) {
			b.c.leave(b)
		}
	}
}

// drain reads to the end of a body nobody waits for, for the sake of its connection.
func (b *body) drain() {
	b.dl.until(time.Now().Add(drainWait))
	b.armed = time.Time{}
	for n := 0; n <= drainBytesMax; {
		p, err := b.next(true)
		if err != nil {
			return
		}
		n += len(p)
	}
	b.abort()
}
