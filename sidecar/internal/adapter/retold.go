package adapter

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Retold is a stream of chat chunks that a face tells its callers in their own dialect. What the inner stream appends
// goes to a Tell, chunk by chunk.
type Retold struct {
	Stream
	chunks []byte // what the inner stream appended last
}

// Tell appends what a chunk becomes, or fails where the dialect cannot say it.
type Tell func(dst []byte, chunk gjson.Result) ([]byte, *exchange.Failure)

// Pass has an event's chunks told.
func (r *Retold) Pass(dst, name, data []byte, tell Tell) ([]byte, Progress) {
	var p Progress
	if r.chunks, p = r.Stream.Event(r.chunks[:0], name, data); p.Failure == nil {
		dst, p.Failure = r.told(dst, tell)
	}
	return dst, p
}

// Finish has the chunks told that the inner stream ends with.
func (r *Retold) Finish(dst []byte, tell Tell) ([]byte, *exchange.Failure) {
	var f *exchange.Failure
	if r.chunks, f = r.Stream.End(r.chunks[:0]); f != nil {
		return dst, f
	}
	return r.told(dst, tell)
}

func (r *Retold) told(dst []byte, tell Tell) ([]byte, *exchange.Failure) {
	before := len(dst)
	for rest := r.chunks; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n\n"))
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok || len(data) == 0 || data[0] != '{' {
			continue // [DONE]
		}
		var f *exchange.Failure
		if dst, f = tell(dst, gjson.ParseBytes(data)); f != nil {
			return dst[:before], f
		}
	}
	return dst, nil
}

// Fault is the error object that the inner stream breaks off with.
func (r *Retold) Fault(f *exchange.Failure) gjson.Result {
	r.chunks = r.Stream.Abort(r.chunks[:0], f)
	return gjson.GetBytes(bytes.TrimPrefix(r.chunks, []byte("data: ")), "error")
}
