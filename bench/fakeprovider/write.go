package fakeprovider

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"time"
)

// bodyPlan is an answer in one piece.
type bodyPlan struct {
	contentType string // empty: application/json
	data        []byte
	served      Usage
	delay       time.Duration // from the request's arrival; 0: Behavior.First
	spoiled     bool          // the body itself is the fault
}

// body writes an answer in one piece, with its fault. A JSON answer is made whole before its first byte leaves, so all
// of it counts as served as soon as the head is written, whatever becomes of the body.
func (c *call) body(p bodyPlan) result {
	if c.b.Fault == FaultHang && c.b.strikesAt(0) == AfterHead {
		return c.hang(Usage{})
	}
	if !c.waitUntil(c.started.Add(max(p.delay, c.b.First))) {
		return c.cancelled(Usage{})
	}
	res := result{outcome: OutcomeCompleted, served: p.served}
	if p.spoiled {
		res.outcome = OutcomeFailed
	}
	if p.contentType == "" {
		p.contentType = "application/json"
	}
	send := p.data
	switch c.b.Fault {
	case FaultCut, FaultReset:
		if c.b.After == AfterHead {
			return result{outcome: OutcomeFailed, hangup: c.hangupKind()}
		}
		return c.halfBody(p)
	case FaultHang:
		return c.halfBody(p)
	case FaultTruncate, FaultBrokenJSON:
		send, res.outcome = p.data[:len(p.data)/2], OutcomeFailed
	case FaultErrorFirst, FaultErrorMid:
		send = []byte(c.dialect.errorBody("req_"+c.names.id, refusal{status: 500, code: c.b.Code, message: "Injected fault."}))
		res.outcome, res.served = OutcomeFailed, Usage{}
	case FaultEmpty:
		send, res.outcome, res.served = nil, OutcomeFailed, Usage{}
	case FaultContentType:
		p.contentType = "text/plain; charset=utf-8"
	case FaultGzip:
		send = zipped(p.data)
		c.w.Header().Set("Content-Encoding", "gzip")
	}
	c.w.Header().Set("Content-Length", strconv.Itoa(len(send)))
	c.head(http.StatusOK, p.contentType)
	if _, err := c.w.Write(send); err != nil {
		return c.cancelled(p.served)
	}
	if res.served.Output > 0 {
		c.produced(res.served.Output)
	}
	return res
}

// halfBody promises the whole body, writes half of it and strikes.
func (c *call) halfBody(p bodyPlan) result {
	c.w.Header().Set("Content-Length", strconv.Itoa(len(p.data)))
	c.head(http.StatusOK, p.contentType)
	if err := c.write(p.data[:len(p.data)/2]); err != nil {
		return c.cancelled(p.served)
	}
	if p.served.Output > 0 {
		c.produced(p.served.Output)
	}
	if c.b.Fault == FaultHang {
		return c.hang(p.served)
	}
	return result{outcome: OutcomeFailed, served: p.served, hangup: c.hangupKind()}
}

func (c *call) hangupKind() hangup {
	if c.b.Fault == FaultReset {
		return hangupReset
	}
	return hangupClose
}

// write sends data at once. A client that does not read blocks it until the client closes.
func (c *call) write(data []byte) error {
	if len(data) == 0 {
		return c.control.Flush()
	}
	parts := [2][]byte{data}
	if c.b.Style.Split {
		parts[0], parts[1] = splitMiddle(data)
	}
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		var err error
		if c.zip != nil {
			if _, err = c.zip.Write(part); err == nil {
				err = c.zip.Flush()
			}
		} else {
			_, err = c.w.Write(part)
		}
		if err == nil {
			err = c.control.Flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stream writes the answer as events. Tokens follow a fixed timetable, so that a slow write does not delay the later
// ones: burst k is due at First + k*Gap after the request's arrival.
func (c *call) stream(a *answer) result {
	total := a.total()
	strike := c.b.strikesAt(total)
	if strike == AfterHead {
		if res, done := c.strike(nil, Usage{}); done {
			return res
		}
		strike = 0 // broken JSON and the like need a head: they strike right after it
	}
	if !c.waitUntil(c.started.Add(c.b.Head)) {
		return c.cancelled(Usage{})
	}
	if c.b.Fault == FaultGzip {
		c.zip = gzip.NewWriter(c.w)
	}
	contentType := "text/event-stream; charset=utf-8"
	if c.b.Fault == FaultContentType {
		contentType = "text/plain; charset=utf-8"
	}
	c.w.Header().Set("Cache-Control", "no-cache")
	c.head(http.StatusOK, contentType)
	if c.b.Fault == FaultEmpty {
		return result{outcome: OutcomeFailed}
	}
	out := c.newStreamer(a)
	if c.b.Fault == FaultErrorFirst {
		if err := c.write(out.fail(nil)); err != nil {
			return c.cancelled(Usage{})
		}
		return result{outcome: OutcomeFailed}
	}
	if err := c.write(out.open(nil)); err != nil {
		return c.cancelled(Usage{})
	}
	return c.tokens(a, out, strike)
}

func (c *call) newStreamer(a *answer) streamer {
	switch {
	case c.dialect == anthropic:
		return newAnthropicStream(c.names, a, c.prompt, &c.b)
	case c.endpoint == EndpointResponses:
		return newResponsesStream(c.names, a, &c.b)
	}
	return newOpenAIStream(c.names, a, &c.req, &c.b)
}

// tokens writes the tokens, the end, and the fault that strikes after strike tokens (negative: none).
func (c *call) tokens(a *answer, out streamer, strike int64) result {
	var (
		buffer  []byte
		pending int64 // tokens in buffer
		sent    int64
		outcome = OutcomeCompleted
	)
	flush := func() bool {
		// Hidden reasoning makes no bytes, and an empty write would still flush.
		if len(buffer) > 0 {
			if err := c.write(buffer); err != nil {
				return false
			}
		}
		if pending > 0 {
			sent += pending
			c.produced(pending)
		}
		buffer, pending = buffer[:0], 0
		return true
	}
	var index int64
	strikeNow := func() (result, bool) {
		if index != strike {
			return result{}, false
		}
		if !flush() {
			return c.cancelled(c.usage(sent, a)), true
		}
		outcome = OutcomeFailed
		return c.strike(out, c.usage(sent, a))
	}
	burst := int64(-1)
	for p := range a.pieces() {
		if res, done := strikeNow(); done {
			return res
		}
		// A new burst goes out on its own time; the one before it leaves now.
		if next := p.step / c.b.Burst; next != burst {
			if !flush() || !c.waitUntil(c.started.Add(c.b.First+times(c.b.Gap, next))) {
				return c.cancelled(c.usage(sent, a))
			}
			burst = next
		}
		buffer = out.token(buffer, p)
		pending++
		index++
	}
	if res, done := strikeNow(); done {
		return res
	}
	// An answer without tokens still has its first moment.
	if a.total() == 0 && !c.waitUntil(c.started.Add(c.b.First)) {
		return c.cancelled(c.usage(sent, a))
	}
	buffer = out.close(buffer, c.usage(sent+pending, a))
	if !flush() {
		return c.cancelled(c.usage(sent, a))
	}
	if c.zip != nil {
		// An error here means that the client left after the last event; the answer was complete.
		_ = c.zip.Close()
	}
	return result{outcome: outcome, served: c.usage(sent, a)}
}

// strike carries out the fault. done is false when the answer goes on. Before the head (out is nil)
// only the faults that need no head are carried out.
func (c *call) strike(out streamer, served Usage) (res result, done bool) {
	res = result{outcome: OutcomeFailed, served: served}
	switch c.b.Fault {
	case FaultCut, FaultReset:
		res.hangup = c.hangupKind()
		return res, true
	case FaultHang:
		return c.hang(served), true
	}
	if out == nil {
		return res, false
	}
	switch c.b.Fault {
	case FaultTruncate:
		return res, true
	case FaultErrorMid:
		if err := c.write(out.fail(nil)); err != nil {
			return c.cancelled(served), true
		}
		return res, true
	case FaultBrokenJSON:
		if err := c.write(out.broken(nil)); err != nil {
			return c.cancelled(served), true
		}
		return res, false
	}
	panic("BUG: fault " + string(c.b.Fault) + " strikes")
}
