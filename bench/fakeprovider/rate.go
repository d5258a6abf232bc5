package fakeprovider

import (
	"net/http"
	"strconv"
	"time"
)

// Limits are what a model's customers may use in a minute, all together; 0 is no limit. Each is a bucket that begins
// full and fills up within a minute. A request that does not fit is answered with 429, and takes nothing.
//
// What a request takes follows the provider's rule. OpenAI counts Tokens when a request arrives: the larger of its
// prompt and of the cap on its output. Anthropic counts the prompt when it arrives, without what it reads from its cache,
// and output as it is made, which may leave a debt; its Tokens are both.
type Limits struct {
	Requests     int64 `json:"requests,omitempty"`
	Tokens       int64 `json:"tokens,omitempty"`
	InputTokens  int64 `json:"input_tokens,omitempty"`  // Anthropic alone
	OutputTokens int64 `json:"output_tokens,omitempty"` // Anthropic alone
}

func (l Limits) valid() bool {
	return min(l.Requests, l.Tokens, l.InputTokens, l.OutputTokens) >= 0 &&
		max(l.Requests, l.Tokens, l.InputTokens, l.OutputTokens) <= limitMax
}

// bucket is one limit. Its level counts in units x 60,000, so that a millisecond refills whole parts.
type bucket struct {
	limit int64 // a minute; 0: none
	level int64
	at    time.Time
}

const partsPerUnit = 60_000

func newBucket(limit int64, now time.Time) bucket {
	return bucket{limit: limit, level: limit * partsPerUnit, at: now}
}

func (b *bucket) refill(now time.Time) {
	ms := now.Sub(b.at).Milliseconds()
	if ms <= 0 {
		return
	}
	b.at = b.at.Add(time.Duration(ms) * time.Millisecond)
	b.level = min(b.level+min(ms, partsPerUnit)*b.limit, b.limit*partsPerUnit)
}

// wait is how long until n fit, 0 when they do.
func (b *bucket) wait(n int64) time.Duration {
	return b.until(min(n, b.limit) * partsPerUnit)
}

func (b *bucket) until(level int64) time.Duration {
	if b.level >= level { // always without a limit
		return 0
	}
	return time.Duration(ceilDiv(level-b.level, b.limit)) * time.Millisecond
}

func (b *bucket) take(n int64) {
	if b.limit > 0 {
		b.level -= n * partsPerUnit
	}
}

// left is what a header says: whole units, and never below nothing.
func (b *bucket) left() int64 { return max(0, b.level) / partsPerUnit }

func (b *bucket) full() time.Duration { return b.until(b.limit * partsPerUnit) }

// limiter is the state of one model's limits. The server's mutex guards it.
type limiter struct{ requests, tokens, input, output bucket }

func newLimiter(l Limits, now time.Time) *limiter {
	return &limiter{
		newBucket(l.Requests, now), newBucket(l.Tokens, now), newBucket(l.InputTokens, now), newBucket(l.OutputTokens, now),
	}
}

// take takes what a request costs at its arrival, or says how long it has to wait. A request larger than a whole limit
// never fits.
func (l *limiter) take(now time.Time, d dialect, req *request, prompt Usage) (wait time.Duration, ok bool) {
	input := prompt.Prompt() - prompt.CacheRead
	tokens, output := input, int64(1) // output only has to be open
	if d == openAI {
		tokens, output = max(prompt.Prompt(), req.choices*min(req.maxTokens, limitMax)), 0
		input = 0
	}
	amounts := [...]struct {
		of *bucket
		n  int64
	}{{&l.requests, 1}, {&l.tokens, tokens}, {&l.input, input}, {&l.output, output}}
	ok = true
	for _, a := range amounts {
		a.of.refill(now)
		if w := a.of.wait(a.n); w > 0 || a.of.limit > 0 && a.n > a.of.limit {
			wait, ok = max(wait, w, time.Millisecond), false
		}
	}
	if !ok {
		return wait, false
	}
	for _, a := range amounts[:3] {
		a.of.take(a.n)
	}
	return 0, true
}

// produced takes output as it is made.
func (l *limiter) produced(now time.Time, n int64) {
	for _, b := range []*bucket{&l.tokens, &l.output} {
		b.refill(now)
		b.take(n)
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// rateState is what the head of an answer says of the limits.
type rateState [4]struct {
	set         bool
	limit, left int64
	full        time.Duration
}

func (l *limiter) state() (s rateState) {
	for i, b := range []*bucket{&l.requests, &l.tokens, &l.input, &l.output} {
		s[i].set, s[i].limit, s[i].left, s[i].full = b.limit > 0, b.limit, b.left(), b.full()
	}
	return s
}

// set writes the headers in the dialect. now is for Anthropic's reset, which is a point in time.
func (s rateState) set(d dialect, h http.Header, now time.Time) {
	for i, name := range [...]string{"requests", "tokens", "input-tokens", "output-tokens"} {
		one := s[i]
		switch {
		case !one.set:
		case d == anthropic:
			prefix := "anthropic-ratelimit-" + name + "-"
			h.Set(prefix+"limit", decimal(one.limit))
			h.Set(prefix+"remaining", decimal(one.left))
			h.Set(prefix+"reset", now.Add(one.full).UTC().Format(time.RFC3339))
		case i < 2:
			h.Set("x-ratelimit-limit-"+name, decimal(one.limit))
			h.Set("x-ratelimit-remaining-"+name, decimal(one.left))
			h.Set("x-ratelimit-reset-"+name, one.full.String())
		}
	}
}
