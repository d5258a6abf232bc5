// Package load sends OpenAI-dialect chat requests at a rate or with a number of workers, and measures what comes back.
//
// The open loop (Rate) starts requests by the clock, however slow the answers are, so a slow server cannot hide by
// slowing the generator down. The closed loop (Concurrency) keeps a number of requests in flight. Both end by a count
// or by time.
package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Bounds and defaults.
const (
	requestsMax       = 5_000_000 // records are kept in memory
	requestsDefault   = 1000
	durationMax       = 24 * time.Hour
	durationDefault   = 10 * time.Minute
	concurrencyMax    = 50_000
	timeoutDefault    = time.Minute
	inFlightDefault   = 10_000 // open loop: arrivals above it are dropped and counted as such
	promptDefault     = 32
	promptTokensMax   = 1 << 20
	maxTokensDefault  = 64
	attemptsDefault   = 3
	attemptsMax       = 10
	retryDelayDefault = 500 * time.Millisecond // when an answer says nothing
	retryDelayMax     = time.Minute            // a longer hint ends the request instead
	lineBytesMax      = 1 << 20                // of one SSE line; a longer one is malformed
	errorBodyMax      = 64 << 10               // of an error body that is looked at
	answerBytesMax    = 64 << 20               // of a JSON answer; the rest is not read
	afterDoneMax      = 4 << 10                // bytes read behind [DONE]; with more, the connection is not used again
	bytesPerToken     = 4                      // the fake provider's token rule
	messageTokens     = 3
)

// Config is one run. URL and one of Rate and Concurrency are required.
type Config struct {
	URL  string // up to and with /v1; "/chat/completions" is added
	Keys []string
	// Keys are used in turn; none sends no Authorization.

	Rate        float64 // arrivals per second, evenly spaced (open loop)
	Concurrency int     // workers (closed loop)
	InFlightMax int     // open loop only: requests in flight at most; default 10,000

	Requests int           // arrivals in all; default 1,000
	Duration time.Duration // no arrivals after this; default 10 min
	Timeout  time.Duration // for one request with its retries; default 1 min

	Model        string
	Stream       bool
	PromptTokens int    // of the one user message, by the fake provider's token rule; default 32
	Directive    string // for the fake provider, without brackets; part of the prompt
	MaxTokens    int    // max_tokens; default 64, negative sends none
	Header       http.Header

	Retry    bool // repeat 408, 409, 429, 5xx and failed connections as SDKs do, honouring retry-after and x-should-retry
	Attempts int  // with Retry: attempts at most, the first included; default 3

	Transport http.RoundTripper // default: one http.Transport with room for every connection
	Observe   func(Record)      // if set, called for every finished request, from its goroutine
}

// WithDefaults fills the empty fields.
func (c Config) WithDefaults() Config {
	set := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	set(&c.InFlightMax, inFlightDefault)
	set(&c.Requests, requestsDefault)
	set(&c.PromptTokens, promptDefault)
	set(&c.MaxTokens, maxTokensDefault)
	set(&c.Attempts, attemptsDefault)
	if c.Duration == 0 {
		c.Duration = durationDefault
	}
	if c.Timeout == 0 {
		c.Timeout = timeoutDefault
	}
	if c.Model == "" {
		c.Model = "fake-large"
	}
	return c
}

// Validate reports every fault of the config together.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	parsed, err := url.Parse(c.URL)
	check(err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Host != "",
		"url %q: want http://host/v1", c.URL)
	check((c.Rate > 0) != (c.Concurrency > 0), "want either a rate or a concurrency above 0")
	check(c.Rate >= 0 && c.Rate <= 1e6, "rate %g: want 0..1,000,000 per second", c.Rate)
	check(c.Concurrency >= 0 && c.Concurrency <= concurrencyMax, "concurrency %d: want 0..%d", c.Concurrency, concurrencyMax)
	check(c.InFlightMax >= 1 && c.InFlightMax <= concurrencyMax, "in flight %d: want 1..%d", c.InFlightMax, concurrencyMax)
	check(c.Requests >= 1 && c.Requests <= requestsMax, "requests %d: want 1..%d", c.Requests, requestsMax)
	check(c.Duration > 0 && c.Duration <= durationMax, "duration %s: want up to %s", c.Duration, durationMax)
	check(c.Timeout > 0 && c.Timeout <= durationMax, "timeout %s: want up to %s", c.Timeout, durationMax)
	check(c.PromptTokens >= 1 && c.PromptTokens <= promptTokensMax, "prompt tokens %d: want 1..%d", c.PromptTokens, promptTokensMax)
	check(c.Attempts >= 1 && c.Attempts <= attemptsMax, "attempts %d: want 1..%d", c.Attempts, attemptsMax)
	check(!strings.ContainsAny(c.Directive, "[]"), "directive %q: leave the brackets out", c.Directive)
	return errors.Join(faults...)
}

// Run sends the requests and blocks until all have ended. When ctx ends, no more are started, those in flight are cut
// off (class "cancelled"), and the report covers what there was; that is not an error. An error means an invalid
// config: what the server does wrong stands in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, fmt.Errorf("load config: %w", err)
	}
	transport := cfg.Transport
	if transport == nil {
		own := newTransport(max(cfg.Concurrency, cfg.InFlightMax))
		defer own.CloseIdleConnections()
		transport = own
	}
	r := &run{cfg: cfg, client: &http.Client{Transport: transport}, body: requestBody(cfg),
		url: strings.TrimRight(cfg.URL, "/") + "/chat/completions", started: time.Now()}
	if cfg.Rate > 0 {
		r.openLoop(ctx)
	} else {
		r.closedLoop(ctx)
	}
	return summarize(cfg, r.records, time.Since(r.started)), nil
}

// newTransport keeps as many idle connections as there can be requests: the default of two per host would make a new
// connection for nearly every request and measure that.
func newTransport(connections int) *http.Transport {
	return &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, DisableCompression: true,
		IdleConnTimeout: time.Minute}
}

type run struct {
	cfg     Config
	client  *http.Client
	body    string
	url     string
	started time.Time

	mu      sync.Mutex // guards records
	records []Record
}

func (r *run) keep(record Record) {
	r.mu.Lock()
	r.records = append(r.records, record)
	r.mu.Unlock()
	if r.cfg.Observe != nil {
		r.cfg.Observe(record)
	}
}

// openLoop starts request i at start + i/rate.
func (r *run) openLoop(ctx context.Context) {
	var flying sync.WaitGroup
	defer flying.Wait()
	slots := make(chan struct{}, r.cfg.InFlightMax)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range r.cfg.Requests {
		offset := time.Duration(float64(i) / r.cfg.Rate * float64(time.Second))
		if offset > r.cfg.Duration {
			return
		}
		timer.Reset(time.Until(r.started.Add(offset)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			r.keep(Record{Index: i, Offset: offset, Class: ClassDropped})
			continue
		}
		flying.Go(func() {
			defer func() { <-slots }()
			r.keep(r.send(ctx, i, offset))
		})
	}
}

// closedLoop runs the workers; request numbers are handed out in order.
func (r *run) closedLoop(ctx context.Context) {
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		next    int
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == r.cfg.Requests || ctx.Err() != nil || time.Since(r.started) > r.cfg.Duration {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(r.cfg.Concurrency, r.cfg.Requests) {
		workers.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				r.keep(r.send(ctx, i, time.Since(r.started)))
			}
		})
	}
	workers.Wait()
}
