package relay

import "errors"

// errChunk says that the framing of a chunked body is broken.
var errChunk = errors.New("relay: malformed chunk")

// chunker reads the framing of a chunked body, split anywhere. The data between is not its concern.
type chunker struct {
	state  chunkState
	left   int64 // bytes of data still to come in this chunk
	digits int   // of the size read so far
	meta   int   // bytes of extensions or trailers so far
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExt
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer // at the start of a trailer line
	chunkTrailerLine
	chunkTrailerLF
	chunkEndLF
	chunkEnd
)

// sizeDigitsMax keeps a chunk's size far inside int64.
const sizeDigitsMax = 15

// advance consumes framing from p until data begins, the body ends or p is used up. Only CRLF ends a line: a lone LF
// is how one message is smuggled inside another.
func (c *chunker) advance(p []byte) (int, error) {
	for i, b := range p {
		switch c.state {
		case chunkData, chunkEnd:
			return i, nil
		case chunkSize:
			if err := c.sizeByte(b); err != nil {
				return i, err
			}
		case chunkExt, chunkTrailerLine:
			if err := c.skipByte(b); err != nil {
				return i, err
			}
		case chunkDataCR:
			if b != '\r' {
				return i, errChunk
			}
			c.state = chunkDataLF
		case chunkTrailer:
			c.state = chunkTrailerLine
			if b == '\r' {
				c.state = chunkEndLF
			} else if err := c.skipByte(b); err != nil {
				return i, err
			}
		default:
			if b != '\n' {
				return i, errChunk
			}
			c.lineEnd()
		}
	}
	return len(p), nil
}

func (c *chunker) sizeByte(b byte) error {
	var d byte
	switch {
	case b >= '0' && b <= '9':
		d = b - '0'
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		d = (b | 0x20) - 'a' + 10
	case c.digits == 0:
		return errChunk
	case b == '\r':
		c.state = chunkSizeLF
		return nil
	case b == ';' || b == ' ' || b == '\t':
		c.state, c.meta = chunkExt, 0
		return nil
	default:
		return errChunk
	}
	if c.digits++; c.digits > sizeDigitsMax {
		return errChunk
	}
	c.left = c.left<<4 | int64(d)
	return nil
}

func (c *chunker) skipByte(b byte) error {
	c.meta++
	switch {
	case b == '\n' || c.meta > metaBytesMax:
		return errChunk
	case b == '\r' && c.state == chunkExt:
		c.state = chunkSizeLF
	case b == '\r':
		c.state = chunkTrailerLF
	}
	return nil
}

// lineEnd takes the LF of a CRLF.
func (c *chunker) lineEnd() {
	switch c.state {
	case chunkSizeLF:
		c.state = chunkData
		if c.left == 0 {
			c.state, c.meta = chunkTrailer, 0
		}
	case chunkDataLF:
		c.state, c.left, c.digits = chunkSize, 0, 0
	case chunkTrailerLF:
		c.state = chunkTrailer
	case chunkEndLF:
		c.state = chunkEnd
	default:
		panic("BUG: relay: chunk state without a line end")
	}
}

// took notes that n bytes of data were taken.
func (c *chunker) took(n int) {
	if c.left -= int64(n); c.left == 0 {
		c.state = chunkDataCR
	}
}
