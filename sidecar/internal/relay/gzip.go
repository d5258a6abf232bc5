package relay

import (
	"compress/gzip"
	"errors"
	"io"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// inflater decodes a body that is gzipped although identity was asked for. It gives what the sender flushed as soon as
// that has arrived.
type inflater struct {
	b   *body
	zr  *gzip.Reader
	cur []byte // of the body, not decoded yet
	out []byte
	err error
}

func (z *inflater) next(block bool) ([]byte, error) {
	if z.err != nil {
		return nil, z.err
	}
	if !block {
		// Whether the bytes at hand decode to anything cannot be known without trying, and trying may wait.
		return nil, errNoBytes
	}
	n, err := z.inflate()
	if err != nil {
		z.err = err
	}
	if n > 0 {
		return z.out[:n], nil
	}
	return nil, z.err
}

func (z *inflater) inflate() (int, error) {
	if z.zr == nil {
		zr, err := gzip.NewReader(z)
		if err != nil {
			return 0, z.explain(err)
		}
		z.zr, z.out = zr, make([]byte, readBufferBytes)
	}
	for {
		if n, err := z.zr.Read(z.out); n > 0 || err != nil {
			return n, z.explain(err)
		}
	}
}

// explain passes on the ends and failures of the body below and names those of the decoder.
func (z *inflater) explain(err error) error {
	var f *exchange.Failure
	switch {
	case err == nil || errors.Is(err, io.EOF) || errors.As(err, &f) || errors.Is(err, ErrCallerGone):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return asFailure(err)
	}
	z.b.abort()
	return fail(exchange.FailInvalid, "the provider's gzip is broken")
}

// Read and ReadByte feed the decoder. With ReadByte there it does not read ahead of what it needs.
func (z *inflater) Read(p []byte) (int, error) {
	if err := z.fill(); err != nil {
		return 0, err
	}
	n := copy(p, z.cur)
	z.cur = z.cur[n:]
	return n, nil
}

func (z *inflater) ReadByte() (byte, error) {
	if err := z.fill(); err != nil {
		return 0, err
	}
	c := z.cur[0]
	z.cur = z.cur[1:]
	return c, nil
}

func (z *inflater) fill() error {
	for len(z.cur) == 0 {
		p, err := z.b.next(true)
		if err != nil {
			return err
		}
		z.cur = p
	}
	return nil
}
