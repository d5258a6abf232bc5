// Package estimate guesses, before a request runs, how many tokens it will use. It learns from what requests of the
// same kind really used. A guess decides only what is reserved; what is charged is the provider's count.
package estimate

import (
	"slices"
	"sync"
)

const (
	// seriesMax bounds the learned series; above it new ones are not learned and get the defaults.
	seriesMax = 10_000
	// windowMax is how many recent outputs a p95 looks at.
	windowMax = 64
	// learnAfter outputs are needed before the p95 is trusted.
	learnAfter = 16

	perMessage = 4 // tokens of chat framing a message, an upper bound
	perRequest = 8

	// startMilli is tokens per 1,000 bytes before anything is learned: 3.2 bytes a token, below English prose (4.7)
	// and JSON (3.9), at CJK's (3.2).
	startMilli = 1000 * 10 / 32
	minMilli   = 100 // 10 bytes a token
	maxMilli   = 1000
	padPercent = 12
)

// Input is what of a prompt is counted.
type Input struct {
	Bytes    int64 // text, tool schemas, arguments
	Messages int64
	Extra    int64 // tokens known otherwise: images, token ids
}

// Estimator learns. It is safe for concurrent use.
type Estimator struct {
	mu     sync.Mutex
	ratio  map[string]int64 // by deployment: tokens per 1,000 bytes
	output map[string]*window
}

type window struct {
	last [windowMax]int64
	n    int
}

// New makes an estimator that has learned nothing.
func New() *Estimator {
	return &Estimator{ratio: map[string]int64{}, output: map[string]*window{}}
}

// InputTokens guesses the tokens of a prompt for a deployment, padded so that it is rarely too low.
func (e *Estimator) InputTokens(deployment string, in Input) int64 {
	e.mu.Lock()
	milli, ok := e.ratio[deployment]
	e.mu.Unlock()
	if !ok {
		milli = startMilli
	}
	n := (in.Bytes*milli + 999) / 1000
	n += n * padPercent / 100
	return n + in.Extra + in.Messages*perMessage + perRequest
}

// TextTokens guesses the tokens of relayed text, without padding: it is charged when the provider stated nothing.
func (e *Estimator) TextTokens(deployment string, bytes int64) int64 {
	e.mu.Lock()
	milli, ok := e.ratio[deployment]
	e.mu.Unlock()
	if !ok {
		milli = startMilli
	}
	return (bytes*milli + 999) / 1000
}

// LearnInput corrects the ratio of a deployment by a provider's count of a prompt.
func (e *Estimator) LearnInput(deployment string, in Input, tokens int64) {
	tokens -= in.Extra + in.Messages*perMessage/2
	if in.Bytes < 64 || tokens <= 0 {
		return // framing outweighs the text: nothing to learn
	}
	seen := min(max(tokens*1000/in.Bytes, minMilli), maxMilli)
	e.mu.Lock()
	defer e.mu.Unlock()
	milli, ok := e.ratio[deployment]
	if !ok {
		if len(e.ratio) >= seriesMax {
			return
		}
		milli = startMilli
	}
	// Up at once, down slowly: a ratio that is too low under-reserves.
	if seen > milli {
		e.ratio[deployment] = milli + (seen-milli+1)/2
	} else {
		e.ratio[deployment] = milli - (milli-seen)/16
	}
}

// OutputTokens guesses the output of a request of a series (a key and an alias): the 95th percentile of recent ones,
// never above limit; limit itself while too little is known.
func (e *Estimator) OutputTokens(series string, limit int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.output[series]
	if w == nil || w.n < learnAfter {
		return limit
	}
	n := min(w.n, windowMax)
	var sorted [windowMax]int64
	copy(sorted[:], w.last[:n])
	slices.Sort(sorted[:n])
	return max(1, min(limit, sorted[(n*95+99)/100-1]))
}

// LearnOutput adds an output to a series.
func (e *Estimator) LearnOutput(series string, tokens int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.output[series]
	if w == nil {
		if len(e.output) >= seriesMax {
			return
		}
		w = &window{}
		e.output[series] = w
	}
	w.last[w.n%windowMax] = tokens
	w.n++
}
