package adapter

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Retold is a stream of chat chunks that a face tells its callers in their own dialect. What the inner stream appends
// goes to a Teller, chunk by chunk.
type Retold struct {
	Stream
	chunks []byte // what the inner stream appended last

	form    Form // of the newest chunk, if it was ordinary
	thought bool // what such a chunk brings was thought
	holes   []Hole
}

// Teller says in another dialect what chat chunks say.
type Teller interface {
	// Tell appends what a chunk becomes, or fails where the dialect cannot say it.
	Tell(dst []byte, chunk gjson.Result) ([]byte, *exchange.Failure)

	// Say does what Tell does with an ordinary chunk that is like the one before, but for its text: one that brings
	// nothing else, said or thought. The text is escaped, and not empty.
	Say(dst, escaped []byte, thought bool) ([]byte, *exchange.Failure)
}

// Pass has an event's chunks told.
func (r *Retold) Pass(dst, name, data []byte, to Teller) ([]byte, Progress) {
	var p Progress
	if r.chunks, p = r.Stream.Event(r.chunks[:0], name, data); p.Failure == nil {
		dst, p.Failure = r.told(dst, to)
	}
	return dst, p
}

// Finish has the chunks told that the inner stream ends with.
func (r *Retold) Finish(dst []byte, to Teller) ([]byte, *exchange.Failure) {
	var f *exchange.Failure
	if r.chunks, f = r.Stream.End(r.chunks[:0]); f != nil {
		return dst, f
	}
	return r.told(dst, to)
}

func (r *Retold) told(dst []byte, to Teller) ([]byte, *exchange.Failure) {
	if r.form.Match(r.chunks) { // nearly always: one chunk, an ordinary one
		if text := r.form.In[0]; text.To > text.From {
			return to.Say(dst, r.chunks[text.From:text.To], r.thought)
		}
	}
	before := len(dst)
	for rest := r.chunks; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n\n"))
		data, ok := bytes.CutPrefix(line, []byte(chunkField))
		if !ok || len(data) == 0 || data[0] != '{' {
			continue // [DONE]
		}
		r.form.Forget()
		chunk := gjson.ParseBytes(data)
		var f *exchange.Failure
		if dst, f = to.Tell(dst, chunk); f != nil {
			return dst[:before], f
		}
		r.learn(chunk, data)
	}
	return dst, nil
}

const chunkField = "data: "

// learn remembers the form of a chunk that has been told, if it was ordinary. The newest one alone: then nothing has
// been told since that could make the next of its form mean anything else.
func (r *Retold) learn(chunk gjson.Result, data []byte) {
	choice := chunk.Get("choices.0")
	if given(choice.Get("logprobs")) || given(choice.Get("finish_reason")) {
		return
	}
	r.holes = r.holes[:0]
	plain := true
	delta := choice.Get("delta")
	delta.ForEach(func(k, v gjson.Result) bool {
		switch {
		case k.Str == "role", !given(v), v.Type == gjson.String && v.Str == "":
		case k.Str == "content", k.Str == "reasoning_content":
			h, ok := HoleIn(data, v)
			plain = plain && ok && delta.Get(k.Str).Index == v.Index // of two of a name the first is told
			r.holes, r.thought = append(r.holes, h), k.Str != "content"
		default:
			plain = false
		}
		return plain
	})
	if !plain || len(r.holes) != 1 {
		return
	}
	if h, ok := HoleIn(data, chunk.Get("obfuscation")); ok {
		if h.From < r.holes[0].From {
			return // no server puts it there
		}
		r.holes = append(r.holes, h)
	}
	for i := range r.holes {
		r.holes[i].From, r.holes[i].To = r.holes[i].From+len(chunkField), r.holes[i].To+len(chunkField)
	}
	r.form.Learn(append(append([]byte(chunkField), data...), "\n\n"...), r.holes)
}

func given(v gjson.Result) bool { return v.Exists() && v.Type != gjson.Null }

// Fault is the error object that the inner stream breaks off with.
func (r *Retold) Fault(f *exchange.Failure) gjson.Result {
	r.chunks = r.Stream.Abort(r.chunks[:0], f)
	return gjson.GetBytes(bytes.TrimPrefix(r.chunks, []byte("data: ")), "error")
}
