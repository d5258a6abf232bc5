package relay

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// attempt is one call to one deployment, up to the point where it is known what the answer is.
type attempt struct {
	c      *Client
	cancel *Canceller
	target *target
	lefts  bool // Upstream.Lefts
	// patience is when a stream without a token becomes the caller's.
	patience time.Time
	dl       deadlines
	k        *conn
	b        *body // once the head has been read
	ans      *Answer
}

// send opens or reuses a connection and sends the request. A connection that broke before it accepted a byte is
// replaced once, by a new one: nothing has left, so nothing can happen twice.
func (a *attempt) send(call *adapter.Call) *exchange.Failure {
	for fresh := false; ; fresh = true {
		k, f := a.c.connect(a.cancel, a.target.origin, &a.dl, fresh)
		if f != nil {
			return f
		}
		a.k = k
		before := k.raw.wrote
		end, why := a.dl.next(a.dl.start)
		_ = k.c.SetDeadline(end) // fails only on a closed connection, and then the write says so
		err := a.write(call)
		sent := k.raw.wrote > before
		a.ans.Sent = a.ans.Sent || sent
		switch {
		case err == nil:
			return nil
		case a.cancel.Cancelled():
			a.drop()
			return failCancelled()
		case isTimeout(err):
			a.drop()
			return a.dl.failure(why)
		case sent:
			// A server may answer and close before it has read the request: too large, too many, not allowed.
			_ = k.c.SetReadDeadline(earlier(end, time.Now().Add(lateHeadWait)))
			return nil
		}
		a.drop()
		if !k.reused {
			return fail(exchange.FailConnect, "the connection to the provider broke before the request was sent")
		}
	}
}

// write sends head and body. It copies the start of the body behind the head, so that a small request is one write.
func (a *attempt) write(call *adapter.Call) error {
	box := a.c.buffer()
	defer a.c.giveBack(box)
	p := a.appendHead((*box)[:0], call)
	n := min(len(call.Body), max(0, sendBytesMax-len(p)))
	p = append(p, call.Body[:n]...)
	*box = p
	if _, err := a.k.c.Write(p); err != nil {
		return err
	}
	if n < len(call.Body) {
		if _, err := a.k.c.Write(call.Body[n:]); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) appendHead(p []byte, call *adapter.Call) []byte {
	p = append(append(p, cmp.Or(call.Method, "POST")...), ' ')
	p = append(p, a.target.path...)
	p = append(p, call.Path...)
	p = append(p, " HTTP/1.1\r\n"...)
	p = appendField(p, "Host", a.target.host)
	agent, kind := false, false
	for _, f := range call.Header {
		switch {
		case ownField(f.Name):
			continue
		case strings.EqualFold(f.Name, "User-Agent"):
			agent = true
		case strings.EqualFold(f.Name, "Content-Type"):
			kind = true
		}
		p = appendField(p, f.Name, f.Value)
	}
	if !agent {
		p = appendField(p, "User-Agent", a.c.cfg.UserAgent)
	}
	if !kind {
		p = appendField(p, "Content-Type", "application/json")
	}
	p = appendField(p, "Accept-Encoding", "identity")
	p = append(p, "Content-Length: "...)
	p = strconv.AppendInt(p, int64(len(call.Body)), 10)
	return append(p, "\r\n\r\n"...)
}

func appendField(p []byte, name, value string) []byte {
	p = append(p, name...)
	p = append(p, ": "...)
	p = append(p, value...)
	return append(p, "\r\n"...)
}

// ownField reports fields that are this client's to set, whatever a call holds.
func ownField(name string) bool {
	for _, own := range [...]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding",
		"Expect", "Keep-Alive", "Te", "Trailer", "Upgrade", "Proxy-Connection"} {
		if strings.EqualFold(name, own) {
			return true
		}
	}
	return false
}

// checkCall refuses what would break out of the head. A value may stem from the caller's request.
func checkCall(call *adapter.Call) *exchange.Failure {
	if !strings.HasPrefix(call.Path, "/") || strings.ContainsFunc(call.Path, outsidePath) {
		return fail(exchange.FailRequest, "the path of the call cannot be sent")
	}
	for _, f := range call.Header {
		if f.Name == "" || strings.ContainsFunc(f.Name, outsideToken) || strings.ContainsFunc(f.Value, outsideValue) {
			return fail(exchange.FailRequest, "a header field of the call cannot be sent")
		}
	}
	return nil
}

func outsidePath(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }

func outsideToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
}

func outsideValue(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// readHead reads the head of the answer, past interim ones.
func (a *attempt) readHead(h *fasthttp.ResponseHeader) *exchange.Failure {
	for range interimMax + 1 {
		if f := a.readOneHead(h); f != nil {
			a.drop()
			return f
		}
		switch code := h.StatusCode(); {
		case code >= 200 && code <= 599:
			return nil
		case code < 100 || code == 101 || code > 599:
			a.drop()
			return fail(exchange.FailInvalid, "the provider's answer has no usable status")
		}
	}
	a.drop()
	return fail(exchange.FailInvalid, "the provider sent interim answers without end")
}

func (a *attempt) readOneHead(h *fasthttp.ResponseHeader) *exchange.Failure {
	k := a.k
	k.readErr = nil
	err := h.Read(k.br)
	if err != nil && k.br.Buffered() == k.br.Size() && k.br.Size() < headBytesMax {
		k.widen() // the head did not fit
		err = h.Read(k.br)
	}
	switch {
	case err == nil:
		return nil
	case a.cancel.Cancelled():
		return failCancelled()
	case isTimeout(k.readErr):
		end, why := a.dl.next(a.dl.start)
		if time.Now().Before(end) { // the short wait after a broken write
			return fail(exchange.FailConnect, "the connection to the provider broke while the request was sent")
		}
		return a.dl.failure(why)
	case k.readErr != nil:
		return fail(exchange.FailConnect, "the provider closed the connection before its answer")
	}
	// The decoder's own error is left out: it quotes bytes of the answer.
	return fail(exchange.FailInvalid, "the provider's answer is not HTTP")
}

// body prepares reading the body that h announces.
func (a *attempt) body(h *fasthttp.ResponseHeader) *body {
	b := &body{
		c: a.c, o: a.target.origin, k: a.k, cancel: a.cancel,
		dl: a.dl, keep: !h.ConnectionClose(), kind: h.ContentLength(),
	}
	if code := h.StatusCode(); code == 204 || code == 304 {
		b.kind = 0
	}
	b.left = int64(max(0, b.kind))
	a.b = b
	return b
}

// source puts the decoding of h's Content-Encoding over b.
func (a *attempt) source(h *fasthttp.ResponseHeader, b *body) (source, *exchange.Failure) {
	switch enc := strings.ToLower(strings.TrimSpace(string(h.ContentEncoding()))); enc {
	case "", "identity":
		return b, nil
	case "gzip", "x-gzip":
		return &inflater{b: b}, nil
	}
	b.abort()
	return nil, fail(exchange.FailInvalid, "the provider's answer has a content encoding nobody asked for")
}

// drop ends the attempt's connection.
func (a *attempt) drop() {
	a.cancel.attach(nil, nil)
	a.k.abort()
}

// readAll reads a body of at most limit bytes. Above that it fails, or, when cut is set, stops. On a failure it
// returns what has arrived.
func readAll(src source, b *body, limit int, cut bool) ([]byte, *exchange.Failure) {
	var all []byte
	if b.kind > 0 {
		all = make([]byte, 0, min(b.kind, limit, keptBufferBytes)) // a length is a claim, not a fact
	}
	for {
		p, err := src.next(true)
		if err == io.EOF { //nolint:errorlint // for each chunk, and a source returns its sentinels bare
			return all, nil
		}
		if err != nil {
			return all, asFailure(err)
		}
		if len(all)+len(p) > limit {
			b.abort()
			if cut {
				return append(all, p[:limit-len(all)]...), nil
			}
			return nil, fail(exchange.FailInvalid, "the provider's answer is larger than "+strconv.Itoa(limit)+" bytes")
		}
		all = append(all, p...)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
