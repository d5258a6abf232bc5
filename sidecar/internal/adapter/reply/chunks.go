package reply

import (
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// Chunks is a stream of chunks in the making: what those of all providers share. The rest of an adapter.Stream is the
// adapter's.
type Chunks struct {
	ID   string            // of the answer; the request's until Name
	Sent adapter.Delivered // so far

	r      *exchange.Request
	note   adapter.Annotate
	broken bool           // an error was reported
	told   exchange.Usage // what the usage chunk said; no Source before
	open   []byte         // what every chunk begins with; made once, for it is most of a chunk
}

// NewChunks begins a stream.
func NewChunks(r *exchange.Request, a adapter.Annotate) Chunks {
	c := Chunks{r: r, note: a}
	c.Name(r.ID)
	return c
}

// Name sets the answer's id.
func (c *Chunks) Name(id string) {
	c.ID = id
	c.open = appendHead(append(c.open[:0], `data: {`...), c.r, id, "chat.completion.chunk")
}

// Open appends a chunk up to the members that differ between chunks.
func (c *Chunks) Open(dst []byte) []byte { return append(dst, c.open...) }

// Close ends a chunk. All but the last say that there is no usage yet, when the caller asked for it.
func (c *Chunks) Close(dst []byte) []byte {
	if c.r.IncludeUsage {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}

// Broke is the progress of an event that reports an error, or is none.
func (c *Chunks) Broke(f *exchange.Failure) adapter.Progress {
	c.broken = true
	return adapter.Progress{Failure: f}
}

// Cut is the failure of a stream that did not come to an end: it broke, or what must be there at its end is not.
func (c *Chunks) Cut(complete bool) *exchange.Failure {
	if complete && !c.broken {
		return nil
	}
	return &exchange.Failure{
		Kind: exchange.FailCut, Code: adapter.CodeCut, Message: "the provider's stream ended before the answer did",
	}
}

// End appends what stands behind the finish chunks: the usage chunk, if it was asked for, and [DONE]. members stand
// before its choices, each with a leading comma; write appends the usage.
func (c *Chunks) End(dst []byte, u exchange.Usage, members string, write func(dst []byte, t exchange.Tokens) []byte) []byte {
	if c.r.IncludeUsage {
		own, u := c.note(nil, u, c.Sent)
		c.told = u
		dst = append(append(c.Open(dst), members...), `,"choices":[],"usage":`...)
		dst = append(write(dst, u.Tokens), `,"x_gateway":`...)
		dst = append(append(dst, own...), "}\n\n"...)
	}
	return append(dst, sse.Done...)
}

// Told is the usage that the caller was told; ok is false before.
func (c *Chunks) Told() (u exchange.Usage, ok bool) { return c.told, c.told.Source != 0 }

// Delivered implements adapter.Stream.
func (c *Chunks) Delivered() adapter.Delivered { return c.Sent }

// Abort implements adapter.Stream.
func (c *Chunks) Abort(dst []byte, f *exchange.Failure) []byte {
	return adapter.AppendAbort(dst, f, c.Sent.Bytes)
}
