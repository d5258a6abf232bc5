package relay

import (
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Upstream is where an attempt goes and how long it may take.
type Upstream struct {
	BaseURL  string
	Timeouts exchange.Timeouts
	Lefts    bool // read what the head says of the provider's limits
	// Waiting is since when the caller has heard nothing; zero for the attempt's start.
	Waiting time.Time
}

// Answer is what an attempt brought.
type Answer struct {
	Status            int    // the provider's HTTP status, 0 when no head arrived
	UpstreamRequestID string // the provider's name for the request, "" when it gave none
	// Sent is set once a byte of the request has left: from there on the provider may charge for it.
	Sent bool
	// Lefts is what the head says of the provider's limits, if Upstream wanted it; Malformed counts values that are none.
	Lefts     []adapter.Left
	Malformed int
	// FirstToken is from the attempt's start to the first real token of a stream, or to the end of a complete answer.
	FirstToken time.Duration

	// Exactly one of these is set on success.
	Body   []byte // a complete answer, in the caller's dialect
	Stream *Stream

	// Usage belongs to Body; after a failure it is what the stream had stated before. A Stream reports its own.
	Usage exchange.Usage
}

// Open sends call and reads until it is known what the answer is: a failure, a complete body, or a stream whose first
// real token has arrived. It blocks up to the deadlines of up; cancel ends it at once. Nothing has reached the caller
// when it fails, so another attempt may follow. A stream that has begun without a token is returned early when the
// caller has heard nothing for Config.Patience: what stands between may cut a silent connection. It fails, if it does,
// as a stream.
//
// The Answer is never nil; with a failure it tells only Status, UpstreamRequestID, Sent, Lefts and Usage. call and r are not
// used any more after Open, except r by the adapter's stream. A Stream must be closed.
func (c *Client) Open(cancel *Canceller, up Upstream, call adapter.Call, stream bool, ad adapter.Adapter,
	r *exchange.Request, note adapter.Annotate,
) (*Answer, *exchange.Failure) {
	ans := &Answer{}
	if f := checkCall(&call); f != nil {
		return ans, f
	}
	t, err := c.target(up.BaseURL)
	if err != nil {
		return ans, fail(exchange.FailNotFound, err.Error())
	}
	a := &attempt{
		c: c, cancel: cancel, target: t, lefts: up.Lefts, ans: ans,
		dl: deadlines{t: timeoutsOf(up.Timeouts), start: time.Now(), token: stream},
	}
	a.patience = up.Waiting
	if a.patience.IsZero() {
		a.patience = a.dl.start
	}
	a.patience = a.patience.Add(c.cfg.Patience)
	if f := a.send(&call); f != nil {
		return ans, f
	}
	fine := false
	defer func() { // an adapter that panics must not leave a connection behind
		if !fine && a.b != nil {
			a.b.abort()
		}
	}()
	f := a.answer(ad, r, note)
	fine = true
	return ans, f
}

// answer reads the head and what belongs to it. When it returns, the connection is in good hands.
func (a *attempt) answer(ad adapter.Adapter, r *exchange.Request, note adapter.Annotate) *exchange.Failure {
	h := a.c.head()
	defer a.c.heads.Put(h)
	if f := a.readHead(h); f != nil {
		return f
	}
	a.ans.Status = h.StatusCode()
	a.ans.UpstreamRequestID = requestID(h)
	if a.lefts {
		a.ans.Lefts, a.ans.Malformed = adapter.Lefts(fields(h))
	}
	b := a.body(h)
	src, f := a.source(h, b)
	if f != nil {
		return f
	}
	streaming := a.dl.token
	if a.ans.Status >= 300 {
		b.dl.idle = true
		return refused(h, src, b, ad)
	}
	if isHTML(h) {
		b.abort()
		return failPage()
	}
	if streaming {
		return a.openStream(h, src, b, ad, r, note)
	}
	b.dl.idle = true
	body, f := a.complete(src, b)
	if f != nil {
		return f
	}
	a.ans.FirstToken = time.Since(a.dl.start)
	a.ans.Body, a.ans.Usage, f = ad.Response(r, body, note)
	if f != nil {
		a.ans.Body = nil
	}
	return f
}

// complete reads a whole answer.
func (a *attempt) complete(src source, b *body) ([]byte, *exchange.Failure) {
	body, f := readAll(src, b, a.c.cfg.BodyBytesMax, false)
	if f != nil {
		return nil, f
	}
	// Some providers send blank lines for minutes to show that they live.
	body = trimStart(body)
	if len(body) == 0 {
		return nil, fail(exchange.FailInvalid, "the provider's answer is empty")
	}
	if body[0] == '<' {
		return nil, failPage()
	}
	return body, nil
}

// refused classifies an answer that is none. Redirects come here too: they are not followed, since they would carry
// the key and the prompt elsewhere.
func refused(h *fasthttp.ResponseHeader, src source, b *body, ad adapter.Adapter) *exchange.Failure {
	body, f := readAll(src, b, errorBytesMax, true)
	if f != nil && f.Kind == exchange.FailCancelled {
		return f
	}
	// Any other fault while reading leaves the status, and that says enough.
	status := h.StatusCode()
	f = ad.Failure(status, fields(h), body)
	if f == nil {
		panic("BUG: relay: adapter took an error answer for none")
	}
	if f.Status == 0 {
		f.Status = status
	}
	return f
}

func fields(h *fasthttp.ResponseHeader) adapter.Header {
	return func(name string) string { return string(h.Peek(name)) }
}

// synthesise makes a stream out of a complete answer.
func (a *attempt) synthesise(s *Stream, body []byte, ad adapter.Adapter, r *exchange.Request,
	note adapter.Annotate,
) *exchange.Failure {
	face, foreign := ad.(adapter.Face)
	if foreign { // a replay is of a chat completion
		ad = face.Behind()
	}
	body, usage, f := ad.Response(r, body, note)
	if f != nil {
		return f
	}
	if own, ok := ad.(adapter.Replayer); ok {
		s.st = own.Replay(r, body, usage)
	} else {
		s.st = newReplay(body, usage, r.IncludeUsage)
	}
	if foreign {
		s.st = face.Translate(r, s.st)
	}
	s.replayed = true
	if f := s.hold(a.patience); f != nil {
		s.release()
		return f
	}
	a.ans.Stream = s
	return nil
}

// requestIDs are the names providers have for their name of a request, the likeliest first.
var requestIDs = [...]string{
	"X-Request-Id", "Request-Id", "Apim-Request-Id", "X-Amzn-Requestid", "X-Generation-Id", "X-Ms-Request-Id",
}

func requestID(h *fasthttp.ResponseHeader) string {
	for _, name := range requestIDs {
		if v := h.Peek(name); len(v) > 0 {
			return string(v)
		}
	}
	return ""
}

func isHTML(h *fasthttp.ResponseHeader) bool {
	ct := h.ContentType()
	return hasPrefixFold(ct, "text/html") || hasPrefixFold(ct, "application/xhtml")
}

func hasPrefixFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && strings.EqualFold(string(b[:len(prefix)]), prefix)
}
