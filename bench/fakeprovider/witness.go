package fakeprovider

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Outcome is how a request ended. Every received request has exactly one in the end.
type Outcome string

// The outcomes.
const (
	OutcomeOpen         Outcome = "open"         // not ended yet
	OutcomeCompleted    Outcome = "completed"    // the whole answer was written
	OutcomeFailed       Outcome = "failed"       // a fault took the answer, or a part of it, away
	OutcomeCancelled    Outcome = "cancelled"    // the client closed before the answer was complete
	OutcomeUnauthorized Outcome = "unauthorized" // 401: key unknown
	OutcomeInvalid      Outcome = "invalid"      // refused as malformed: 400, 404, 413
	OutcomeRateLimited  Outcome = "rate_limited" // 429: beyond Limits
)

// Record is what the witness knows of one request. Times are Unix nanoseconds, 0 when it did not happen.
type Record struct {
	ID              string   `json:"id"` // also in the x-request-id response header
	ClientRequestID string   `json:"client_request_id,omitempty"`
	IdempotencyKey  string   `json:"idempotency_key,omitempty"`
	Endpoint        Endpoint `json:"endpoint"`
	Dialect         string   `json:"dialect"`
	Model           string   `json:"model,omitempty"`
	Key             string   `json:"key,omitempty"` // the key's name
	Stream          bool     `json:"stream"`
	MaxTokens       int64    `json:"max_tokens"`    // the cap it asked for; -1: none
	PromptTokens    int64    `json:"prompt_tokens"` // by the token rule, served or not
	Outcome         Outcome  `json:"outcome"`
	Status          int      `json:"status,omitempty"` // 0: no response head was written
	Fault           string   `json:"fault,omitempty"`  // the fault that was put in; a status fault is its number
	TokensSent      int64    `json:"tokens_sent"`      // output tokens written so far
	Served          Usage    `json:"served"`           // what was truly served, and priced
	CostNano        int64    `json:"cost_nano"`
	StartedNS       int64    `json:"started_ns"`
	FirstTokenNS    int64    `json:"first_token_ns,omitempty"`
	EndedNS         int64    `json:"ended_ns,omitempty"`
	CloseSeenNS     int64    `json:"close_seen_ns,omitempty"` // when the client's close was noticed
	HeaderNames     []string `json:"header_names,omitempty"`  // with Config.Detail
	Body            string   `json:"body,omitempty"`          // with Config.Detail
}

// Counts are totals over requests. Received is the sum of the six outcomes and of the requests still open. Tokens and
// money are added when a request ends.
type Counts struct {
	Received     int64            `json:"received"`
	Completed    int64            `json:"completed"`
	Failed       int64            `json:"failed"`
	Cancelled    int64            `json:"cancelled"`
	Unauthorized int64            `json:"unauthorized"`
	Invalid      int64            `json:"invalid"`
	RateLimited  int64            `json:"rate_limited"`
	ByFault      map[string]int64 `json:"by_fault"` // ended requests that had a fault put in
	PromptTokens int64            `json:"prompt_tokens"`
	OutputTokens int64            `json:"output_tokens"`
	Served       Usage            `json:"served"`
	CostNano     int64            `json:"cost_nano"`
	Unpriced     int64            `json:"unpriced"` // requests that served tokens of a model without a price
}

// Second is one second of the timeline.
type Second struct {
	Unix           int64 `json:"unix"`
	Received       int64 `json:"received"`
	Admitted       int64 `json:"admitted"`        // authorised, well-formed, and not answered with an error status
	Refused        int64 `json:"refused"`         // answered with an error status by a fault
	PromptTokens   int64 `json:"prompt_tokens"`   // of the admitted
	ReservedTokens int64 `json:"reserved_tokens"` // of the admitted: prompt, and the cap of every choice if one was given
	Ended          int64 `json:"ended"`
	OutputTokens   int64 `json:"output_tokens"` // of the requests that ended in this second
}

// Snapshot is the witness at one moment.
type Snapshot struct {
	SinceNS     int64             `json:"since_ns"` // the start or the last reset
	NowNS       int64             `json:"now_ns"`
	Open        int64             `json:"open"`         // requests being answered
	OpenStreams int64             `json:"open_streams"` // of these, streams
	OpenPeak    int64             `json:"open_peak"`    // most requests open at once since the reset
	Totals      Counts            `json:"totals"`
	Models      map[string]Counts `json:"models"`
	Keys        map[string]Counts `json:"keys"` // by key name
	Timeline    []Second          `json:"timeline"`
	Records     []Record          `json:"records"` // newest first
}

// entry is a request on its way. The atomics may be used at any time; the rest is guarded by the witness.
type entry struct {
	record     Record
	generation int
	streaming  bool
	sent       atomic.Int64
	firstNS    atomic.Int64
	status     atomic.Int64 // of the head, once it is written
}

type witness struct {
	waiters atomic.Int64 // goroutines in wait; lets progress skip the lock when nobody listens

	mu          sync.Mutex // guards what follows
	changed     chan struct{}
	generation  int // counts resets
	since       time.Time
	open        int64
	openStreams int64
	openPeak    int64
	totals      Counts
	models      map[string]*Counts
	keys        map[string]*Counts
	timeline    []Second // ring by second
	ring        []*entry
	next        int
}

func newWitness(records int) *witness {
	w := &witness{changed: make(chan struct{}), ring: make([]*entry, records)}
	w.reset(time.Now())
	return w
}

// reset forgets everything but the requests that are open: they count as open until they end, and then for nothing.
func (w *witness) reset(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.generation++
	w.since, w.openPeak = now, w.open
	w.totals = Counts{ByFault: map[string]int64{}}
	w.models, w.keys = map[string]*Counts{}, map[string]*Counts{}
	w.timeline = make([]Second, timelineSeconds)
	clear(w.ring)
	w.next = 0
	w.broadcast()
}

func (w *witness) broadcast() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// second returns the bucket of now; the caller holds mu.
func (w *witness) second(now time.Time) *Second {
	unix := now.Unix()
	s := &w.timeline[unix%timelineSeconds]
	if s.Unix != unix {
		*s = Second{Unix: unix}
	}
	return s
}

// group returns the counts of a name; past the bound all names share "other". The caller holds mu.
func group(in map[string]*Counts, name string) *Counts {
	if c, ok := in[name]; ok {
		return c
	}
	if len(in) >= groupsMax {
		name = "other"
	}
	c, ok := in[name]
	if !ok {
		c = &Counts{ByFault: map[string]int64{}}
		in[name] = c
	}
	return c
}

func (w *witness) begin(record Record, now time.Time) *entry {
	record.Outcome, record.StartedNS, record.MaxTokens = OutcomeOpen, now.UnixNano(), -1
	e := &entry{record: record}
	w.mu.Lock()
	defer w.unlock()
	e.generation = w.generation
	w.totals.Received++
	w.second(now).Received++
	w.open++
	w.openPeak = max(w.openPeak, w.open)
	w.ring[w.next] = e
	w.next = (w.next + 1) % len(w.ring)
	return e
}

// unlock ends every change: waiters must learn of it whichever way the change returned.
func (w *witness) unlock() {
	if w.waiters.Load() > 0 {
		w.broadcast()
	}
	w.mu.Unlock()
}

// identify files e under a key's name.
func (w *witness) identify(e *entry, key string) {
	w.mu.Lock()
	defer w.unlock()
	e.record.Key = key
	if e.generation == w.generation {
		group(w.keys, key).Received++
	}
}

// describe files e under its model and keeps what it asked for.
func (w *witness) describe(e *entry, req *request) {
	w.mu.Lock()
	defer w.unlock()
	e.record.Model = clip(req.model)
	e.record.Stream, e.record.MaxTokens, e.record.PromptTokens = req.stream, req.maxTokens, req.promptTokens()
	if e.generation == w.generation {
		group(w.models, e.record.Model).Received++
	}
}

// admit counts the decision to serve e, or to refuse it with an error status.
func (w *witness) admit(e *entry, req *request, fault string, refused bool, now time.Time) {
	w.mu.Lock()
	defer w.unlock()
	e.record.Fault = fault
	if req.stream && !refused {
		e.streaming = true
		w.openStreams++
	}
	if e.generation != w.generation {
		return
	}
	s := w.second(now)
	if refused {
		s.Refused++
		return
	}
	s.Admitted++
	s.PromptTokens += e.record.PromptTokens
	s.ReservedTokens += e.record.PromptTokens
	if req.maxTokens > 0 {
		// A cap of more than any answer can have must not overflow the sum.
		s.ReservedTokens += req.choices * min(req.maxTokens, 1<<40)
	}
}

// progress notes tokens that were written.
func (w *witness) progress(e *entry, tokens int64) {
	if e.sent.Load() == 0 {
		e.firstNS.CompareAndSwap(0, time.Now().UnixNano())
	}
	e.sent.Add(tokens)
	w.wake()
}

// headed notes the response head.
func (w *witness) headed(e *entry, status int) {
	e.status.Store(int64(status))
	w.wake()
}

// wake tells the waiters of a change that needed no lock.
func (w *witness) wake() {
	if w.waiters.Load() > 0 {
		w.mu.Lock()
		w.broadcast()
		w.mu.Unlock()
	}
}

// finish ends e. price is nil for a model without a price.
func (w *witness) finish(e *entry, res result, price *Price, now time.Time) {
	w.mu.Lock()
	defer w.unlock()
	r := &e.record
	r.Outcome, r.Served, r.EndedNS = res.outcome, res.served, now.UnixNano()
	if res.outcome == OutcomeCancelled {
		r.CloseSeenNS = res.closeSeen.UnixNano()
	}
	if price != nil {
		r.CostNano = price.Cost(res.served)
	}
	w.open--
	if e.streaming {
		w.openStreams--
	}
	if e.generation == w.generation {
		s := w.second(now)
		s.Ended++
		s.OutputTokens += res.served.Output
		unpriced := price == nil && res.served != Usage{}
		w.totals.add(r, unpriced)
		if r.Key != "" {
			group(w.keys, r.Key).add(r, unpriced)
		}
		if r.Model != "" {
			group(w.models, r.Model).add(r, unpriced)
		}
	}
}

func (c *Counts) add(r *Record, unpriced bool) {
	switch r.Outcome {
	case OutcomeCompleted:
		c.Completed++
	case OutcomeFailed:
		c.Failed++
	case OutcomeCancelled:
		c.Cancelled++
	case OutcomeUnauthorized:
		c.Unauthorized++
	case OutcomeInvalid:
		c.Invalid++
	case OutcomeRateLimited:
		c.RateLimited++
	default:
		panic("BUG: a request ended with outcome " + string(r.Outcome))
	}
	if r.Fault != "" {
		c.ByFault[r.Fault]++
	}
	c.Served = c.Served.plus(r.Served)
	c.PromptTokens += r.Served.Prompt()
	c.OutputTokens += r.Served.Output
	c.CostNano += r.CostNano
	if unpriced {
		c.Unpriced++
	}
}

// snapshot copies the state with the newest records, at most records of them, and the channel that closes at the next
// change.
func (w *witness) snapshot(records int, now time.Time) (Snapshot, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Snapshot{
		SinceNS: w.since.UnixNano(), NowNS: now.UnixNano(),
		Open: w.open, OpenStreams: w.openStreams, OpenPeak: w.openPeak,
		Totals: w.totals.copied(), Models: map[string]Counts{}, Keys: map[string]Counts{},
		Timeline: []Second{}, Records: []Record{},
	}
	for name, c := range w.models {
		out.Models[name] = c.copied()
	}
	for name, c := range w.keys {
		out.Keys[name] = c.copied()
	}
	for _, s := range w.timeline {
		if s.Unix > now.Unix()-timelineSeconds {
			out.Timeline = append(out.Timeline, s)
		}
	}
	slices.SortFunc(out.Timeline, func(a, b Second) int { return int(a.Unix - b.Unix) })
	for i := range min(max(records, 0), len(w.ring)) {
		e := w.ring[(w.next-1-i+len(w.ring))%len(w.ring)]
		if e == nil {
			break
		}
		record := e.record
		record.TokensSent, record.FirstTokenNS = e.sent.Load(), e.firstNS.Load()
		record.Status = int(e.status.Load())
		out.Records = append(out.Records, record)
	}
	return out, w.changed
}

func (c *Counts) copied() Counts {
	out := *c
	out.ByFault = maps.Clone(c.ByFault)
	return out
}

// wait blocks until done says yes to a snapshot or ctx ends.
func (w *witness) wait(ctx context.Context, records int, done func(Snapshot) bool) (Snapshot, error) {
	w.waiters.Add(1)
	defer w.waiters.Add(-1)
	for {
		snapshot, changed := w.snapshot(records, time.Now())
		if done(snapshot) {
			return snapshot, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return snapshot, context.Cause(ctx)
		}
	}
}

func clip(text string) string { return text[:min(len(text), nameBytesMax)] }
