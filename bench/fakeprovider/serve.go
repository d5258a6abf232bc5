package fakeprovider

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is how a request ended.
type result struct {
	outcome   Outcome
	served    Usage
	closeSeen time.Time // for OutcomeCancelled
	hangup    hangup
}

// hangup is what happens to the connection after the request is accounted for.
type hangup int

const (
	hangupNone  hangup = iota
	hangupClose        // FIN
	hangupReset        // RST
)

// call is one API request being answered. One goroutine owns it.
type call struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // of the request: ends when the client closes
	control  *http.ResponseController
	e        *entry
	endpoint Endpoint
	dialect  dialect
	started  time.Time
	req      request
	b        Behavior
	prompt   Usage // the prompt's part of the usage
	rates    rateState
	names    answerNames
	zip      *gzip.Writer // for FaultGzip
}

// serveAPI takes one API request from arrival to the last byte; every way out is accounted exactly once, in finish.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, endpoint Endpoint, d dialect) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		http.Error(w, "closing", http.StatusServiceUnavailable)
		return
	}
	s.busy.Add(1)
	s.mu.Unlock()
	defer s.busy.Done()

	started := time.Now()
	number := strconv.FormatUint(s.ids.Add(1), 16)
	id := s.idPrefix + strings.Repeat("0", max(0, 12-len(number))) + number
	c := &call{s: s, w: w, r: r, ctx: r.Context(), control: http.NewResponseController(w),
		endpoint: endpoint, dialect: d, started: started, b: NewBehavior(),
		names: answerNames{id: id, created: started.Unix()}}
	c.e = s.witness.begin(c.firstRecord(), started)

	var price *Price
	res := c.answer(&price)
	s.witness.finish(c.e, res, price, time.Now())
	c.hangUp(res.hangup)
}

func (c *call) firstRecord() Record {
	h := c.r.Header
	record := Record{ID: "req_" + c.names.id, Endpoint: c.endpoint, Dialect: c.dialect.String(),
		IdempotencyKey: clip(h.Get("Idempotency-Key")), ClientRequestID: clip(h.Get("X-Client-Request-Id"))}
	if record.ClientRequestID == "" {
		record.ClientRequestID = clip(h.Get("X-Request-Id"))
	}
	if c.s.detail {
		for name := range h {
			record.HeaderNames = append(record.HeaderNames, strings.ToLower(name))
		}
		slices.Sort(record.HeaderNames)
	}
	return record
}

// answer does the request's steps in order. It sets price as soon as the model is known.
func (c *call) answer(price **Price) result {
	c.s.mu.Lock()
	key, known := c.s.rules.keys[presentedKey(c.r.Header)]
	c.s.mu.Unlock()
	if !known {
		return c.refuse(OutcomeUnauthorized, refusal{status: 401, message: "Incorrect API key provided."})
	}
	c.s.witness.identify(c.e, key)
	if c.endpoint == EndpointModels {
		return c.models()
	}

	body, res, ok := c.readBody()
	if !ok {
		return res
	}
	if c.dialect == anthropic && c.r.Header.Get("Anthropic-Version") == "" {
		return c.refuse(OutcomeInvalid, *invalid("", "anthropic-version: header is required"))
	}
	req, bad := parseRequest(c.endpoint, body)
	if bad != nil {
		return c.refuse(OutcomeInvalid, *bad)
	}
	c.req, c.names.model = req, req.model
	c.s.witness.describe(c.e, &req)
	bad, *price = c.decide(key)
	if bad != nil {
		return c.refuse(OutcomeInvalid, *bad)
	}
	c.prompt = promptUsage(req.promptTokens(), &c.b)
	if wait, ok := c.withinLimits(); !ok {
		return c.limited(wait)
	}
	fault := string(c.b.Fault)
	if c.b.Fault == FaultStatus {
		fault = strconv.Itoa(c.b.Status)
	}
	c.s.witness.admit(c.e, &c.req, fault, c.b.Fault == FaultStatus, time.Now())
	return c.act()
}

// readBody reads the whole body. Only after that does net/http watch the connection for the client's close.
func (c *call) readBody() ([]byte, result, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, bodyBytesMax))
	if err != nil {
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			return nil, c.refuse(OutcomeInvalid, refusal{status: 413, message: "The request is too large."}), false
		}
		return nil, c.cancelled(Usage{}), false
	}
	if c.s.detail {
		c.s.witness.mu.Lock()
		c.e.record.Body = string(body[:min(len(body), detailBytesMax)])
		c.s.witness.mu.Unlock()
	}
	return body, result{}, true
}

// decide layers the settings: defaults, model, rule, directive.
func (c *call) decide(key string) (*refusal, *Price) {
	directive, err := ParseDirectives(c.req.control)
	if err != nil {
		return &refusal{status: 400, code: "bad_directive", message: err.Error()}, nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	rs := c.s.rules
	if rs.strict && !slices.Contains(rs.models, c.req.model) {
		return &refusal{status: 404, param: "model", message: "The model does not exist."}, nil
	}
	c.b = rs.base
	layers := [...][]Setting{rs.perModel[c.req.model].list(), nil, directive}
	// The directive is checked before a rule counts this request: a refused request uses up no rule.
	probe := rs.base
	if err := probe.Apply(directive); err != nil {
		return &refusal{status: 400, code: "bad_directive", message: err.Error()}, nil
	}
	layers[1] = rs.fire(c.endpoint, c.req.model, key, c.started).list()
	for _, layer := range layers {
		if err := c.b.Apply(layer); err != nil {
			panic("BUG: validated settings do not apply: " + err.Error())
		}
	}
	return nil, rs.price(c.req.model)
}

// withinLimits takes the request from the model's limits, if it has any, or says how long it has to wait.
func (c *call) withinLimits() (wait time.Duration, ok bool) {
	if c.endpoint == EndpointCountTokens {
		return 0, true
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	l := c.s.rules.limiters[c.req.model]
	if l == nil {
		return 0, true
	}
	wait, ok = l.take(time.Now(), c.dialect, &c.req, c.prompt)
	c.rates = l.state()
	return wait, ok
}

// limited answers a request that is beyond the model's limits.
func (c *call) limited(wait time.Duration) result {
	h := c.w.Header()
	c.setIDs(h)
	h.Set("Retry-After", decimal(int64(math.Ceil(wait.Seconds()))))
	h.Set("Retry-After-Ms", decimal(wait.Milliseconds()))
	c.rates.set(c.dialect, h, time.Now())
	c.s.witness.headed(c.e, http.StatusTooManyRequests)
	writeJSON(c.w, http.StatusTooManyRequests, c.dialect.errorBody("req_"+c.names.id,
		refusal{status: http.StatusTooManyRequests, message: "Rate limit reached."}))
	return result{outcome: OutcomeRateLimited}
}

// produced notes output that was written.
func (c *call) produced(tokens int64) {
	c.s.witness.progress(c.e, tokens)
	if c.dialect != anthropic {
		return // it was counted when the request came
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if l := c.s.rules.limiters[c.req.model]; l != nil {
		l.produced(time.Now(), tokens)
	}
}

// act answers an admitted request.
func (c *call) act() result {
	switch c.b.Fault {
	case FaultStatus:
		if !c.waitUntil(c.started.Add(c.b.First)) {
			return c.cancelled(Usage{})
		}
		return c.refuse(OutcomeFailed, refusal{status: c.b.Status, code: c.b.Code, message: "Injected fault."})
	case FaultHTML:
		return c.body(bodyPlan{contentType: "text/html; charset=utf-8", data: []byte(htmlPage), spoiled: true})
	}
	switch c.endpoint {
	case EndpointEmbeddings:
		return c.body(bodyPlan{data: openAIEmbeddings(c.names, &c.req, c.prompt, c.b.Fault != FaultNoUsage), served: c.prompt})
	case EndpointCountTokens:
		return c.body(bodyPlan{data: []byte(`{"input_tokens":` + strconv.FormatInt(c.prompt.Prompt(), 10) + `}`)})
	}
	a := compose(&c.req, &c.b)
	if c.req.stream && c.b.Fault != FaultJSON {
		return c.stream(&a)
	}
	served := c.usage(a.total(), &a)
	withUsage := c.b.Fault != FaultNoUsage
	data := openAIChat(c.names, &a, served, withUsage)
	switch {
	case c.dialect == anthropic:
		data = anthropicMessage(c.names, &a, served, withUsage)
	case c.endpoint == EndpointResponses:
		data = responsesAnswer(c.names, &a, served, withUsage)
	}
	// The steps of a JSON answer pass silently, and the tokens of all choices with them.
	delay := c.b.First + times(c.b.Gap, max(0, a.perChoice()-1)/c.b.Burst)
	return c.body(bodyPlan{data: data, served: served, delay: delay})
}

const htmlPage = "<!DOCTYPE html>\n<html><head><title>Please wait</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"

// times is n gaps, at most a year.
func times(gap time.Duration, n int64) time.Duration {
	const longest = 365 * 24 * time.Hour
	if gap > 0 && n > int64(longest/gap) {
		return longest
	}
	return gap * time.Duration(n)
}

// usage is the prompt and sent output tokens; the first reasoning tokens of every choice count as reasoning.
func (c *call) usage(sent int64, a *answer) Usage {
	u := c.prompt
	u.Output, u.Reasoning = sent, min(sent, a.choices*a.reasoning)
	return u
}

// waitUntil blocks until the moment, or says false when the client or the server goes first.
func (c *call) waitUntil(moment time.Time) bool {
	wait := time.Until(moment)
	if wait <= 0 {
		return c.ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	case <-c.s.stop:
		return false
	}
}

// cancelled ends the request because the client went away, or as a cut when it was the server that did.
func (c *call) cancelled(served Usage) result {
	res := result{outcome: OutcomeCancelled, served: served, closeSeen: time.Now(), hangup: hangupClose}
	select {
	case <-c.s.stop:
		res.outcome = OutcomeFailed
	default:
	}
	return res
}

// hang stays silent until the client leaves.
func (c *call) hang(served Usage) result {
	if !c.waitUntil(time.Now().Add(hangMax)) {
		return c.cancelled(served)
	}
	return result{outcome: OutcomeFailed, served: served, hangup: hangupClose}
}

// head writes the response head.
func (c *call) head(status int, contentType string) {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	c.setIDs(h)
	c.rates.set(c.dialect, h, time.Now())
	c.dialect.setRateHeaders(h, c.b.Rate, time.Now())
	if c.zip != nil {
		h.Set("Content-Encoding", "gzip")
	}
	c.s.witness.headed(c.e, status)
	c.w.WriteHeader(status)
}

func (c *call) setIDs(h http.Header) {
	h.Set("X-Request-Id", "req_"+c.names.id)
	if c.dialect == anthropic {
		h.Set("Request-Id", "req_"+c.names.id)
		return
	}
	h.Set("Openai-Version", "2020-10-01")
	h.Set("Openai-Processing-Ms", strconv.FormatInt(time.Since(c.started).Milliseconds(), 10))
}

// refuse answers with an error status in the dialect. The retry headers are a fault's only: what the provider refuses
// of its own accord does not get better by waiting.
func (c *call) refuse(outcome Outcome, e refusal) result {
	h := c.w.Header()
	c.setIDs(h)
	if outcome == OutcomeFailed {
		retry := c.b.RetryAfter
		if retry == retryDefault && e.status == http.StatusTooManyRequests {
			retry = time.Second
		}
		if retry >= 0 {
			h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(retry.Seconds())), 10))
			h.Set("Retry-After-Ms", strconv.FormatInt(retry.Milliseconds(), 10))
		}
		if c.b.ShouldRetry != "" {
			h.Set("X-Should-Retry", c.b.ShouldRetry)
		}
		rate := c.b.Rate
		if e.status == http.StatusTooManyRequests {
			rate = rate.emptyBucket(retry)
		}
		c.dialect.setRateHeaders(h, rate, time.Now())
	}
	c.s.witness.headed(c.e, e.status)
	writeJSON(c.w, e.status, c.dialect.errorBody("req_"+c.names.id, e))
	return result{outcome: outcome}
}

// models answers GET /v1/models and /v1/models/{id}.
func (c *call) models() result {
	c.s.mu.Lock()
	models := c.s.rules.models
	c.s.mu.Unlock()
	one := func(id string) string {
		if c.dialect == anthropic {
			return `{"type":"model","id":` + quote(id) + `,"display_name":` + quote(id) + `,"created_at":"2026-01-01T00:00:00Z"}`
		}
		return `{"id":` + quote(id) + `,"object":"model","created":1767225600,"owned_by":"fake"}`
	}
	if id := strings.TrimPrefix(c.r.URL.Path, "/v1/models/"); id != c.r.URL.Path {
		if !slices.Contains(models, id) {
			return c.refuse(OutcomeInvalid, refusal{status: 404, param: "model", message: "The model does not exist."})
		}
		return c.body(bodyPlan{data: []byte(one(id))})
	}
	items := make([]string, 0, len(models))
	for _, id := range models {
		items = append(items, one(id))
	}
	list := `{"object":"list","data":[` + strings.Join(items, ",") + `]}`
	if c.dialect == anthropic {
		first, last := "null", "null"
		if len(models) > 0 {
			first, last = quote(models[0]), quote(models[len(models)-1])
		}
		list = `{"data":[` + strings.Join(items, ",") + `],"has_more":false,"first_id":` + first + `,"last_id":` + last + `}`
	}
	return c.body(bodyPlan{data: []byte(list)})
}

// hangUp ends the connection. It runs after the books are closed because over HTTP/2 the only way out is a panic that
// net/http knows.
func (c *call) hangUp(how hangup) {
	if how == hangupNone {
		return
	}
	conn, _, err := c.control.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if how == hangupReset {
		raw := conn
		if wrapped, ok := raw.(interface{ NetConn() net.Conn }); ok {
			raw = wrapped.NetConn()
		}
		// With no linger time the kernel sends RST. In-memory connections have no such thing and just close.
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			conn = raw
		}
	}
	_ = conn.Close() // nobody is left to tell
}

// zipped compresses a whole body.
func zipped(data []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	// Writes to a bytes.Buffer do not fail.
	_, _ = z.Write(data)
	_ = z.Close()
	return out.Bytes()
}
