package reply

import (
	"cmp"
	"strconv"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Single is a stream of chunks with one choice, for providers whose answers have no more.
type Single struct {
	Chunks
	// head and tail stand around every delta; they are made once, for they are most of every chunk.
	head, tail []byte
	begun      bool // the role chunk was appended
	calls      int  // begun so far
}

// NewSingle begins a stream.
func NewSingle(r *exchange.Request, a adapter.Annotate) Single {
	s := Single{Chunks: NewChunks(r, a)}
	s.frame()
	return s
}

func (s *Single) frame() {
	s.head = append(s.Open(s.head[:0]), `,"choices":[{"index":0,"delta":{`...)
	s.tail = s.Close(append(s.tail[:0], `},"finish_reason":null}]`...))
}

// Name takes the provider's id of the answer, unless there is none or the caller has seen another.
func (s *Single) Name(id string) {
	if id != "" && !s.begun {
		s.Chunks.Name(id)
		s.frame()
	}
}

// Begin appends the role chunk, once.
func (s *Single) Begin(dst []byte) []byte {
	if s.begun {
		return dst
	}
	s.begun = true
	return append(append(append(dst, s.head...), `"role":"assistant","content":""`...), s.tail...)
}

// Delta appends a chunk up to the members of its delta.
func (s *Single) Delta(dst []byte) []byte { return append(s.Begin(dst), s.head...) }

// Done ends a delta.
func (s *Single) Done(dst []byte) []byte { return append(dst, s.tail...) }

// Calls is how many calls have begun.
func (s *Single) Calls() int { return s.calls }

// Call appends a chunk that begins a call. One without an id gets one: results must find their calls.
func (s *Single) Call(dst []byte, id, name string) []byte {
	dst = append(appendIndex(s.Delta(dst), s.calls), ',')
	dst = AppendCall(dst, cmp.Or(id, adapter.CallID(s.ID, 0, s.calls)), name, "")
	s.Sent.Bytes += int64(len(name))
	s.calls++
	return s.Done(append(dst, `}]`...))
}

// Arguments appends a chunk with a piece of the last call's arguments, given escaped and with its decoded size.
func (s *Single) Arguments(dst, escaped []byte, size int64) []byte {
	dst = append(appendIndex(s.Delta(dst), s.calls-1), `,"function":{"arguments":"`...)
	s.Sent.Bytes += size
	return s.Done(append(append(dst, escaped...), `"}}]`...))
}

func appendIndex(dst []byte, call int) []byte {
	return strconv.AppendInt(append(dst, `"tool_calls":[{"index":`...), int64(call), 10)
}
