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
	// and JSON (3.9), at CJK's (3.2). It is for reservations, which must rarely be too low.
	startMilli = 1000 * 10 / 32
	// textMicro is tokens per 1,000,000 bytes of what is charged, which must not be too high either: 4.2 bytes a
	// token, in the middle of English prose (4.7 to 5.0), German (4.2), code (3.6 to 4.3), dense Markdown (3.5 to 3.9)
	// and JSON (3.9).
	textMicro  = 1_000_000 * 10 / 42
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
	ratio  map[string]ratio // by deployment
	output map[string]*window
}

type ratio struct {
	high int64 // for reservations: tokens per 1,000 bytes, up at once, down slowly
	mean int64 // for charges: tokens per 1,000,000 bytes
}

type window struct {
	last [windowMax]int64
	n    int
}

// New makes an estimator that has learned nothing.
func New() *Estimator {
	return &Estimator{ratio: map[string]ratio{}, output: map[string]*window{}}
}

// InputTokens guesses the tokens of a prompt for a deployment, padded so that it is rarely too low.
func (e *Estimator) InputTokens(deployment string, in Input) int64 {
	n := (in.Bytes*e.ratioOf(deployment).high + 999) / 1000
	n += n * padPercent / 100
	return n + in.Extra + in.Messages*perMessage + perRequest
}

// TextTokens guesses the tokens of relayed text, without padding: it is charged when the provider stated nothing.
func (e *Estimator) TextTokens(deployment string, bytes int64) int64 {
	return (bytes*e.ratioOf(deployment).mean + 999_999) / 1_000_000
}

// PieceTokens is TextTokens for text that came in pieces. Servers that state no usage mostly send a token at a time, so
// there are at least as many tokens as pieces; but no text has more than one in 1.4 bytes.
func (e *Estimator) PieceTokens(deployment string, bytes, pieces int64) int64 {
	return max(e.TextTokens(deployment, bytes), min(pieces, (bytes*10+13)/14))
}

func (e *Estimator) ratioOf(deployment string) ratio {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r, ok := e.ratio[deployment]; ok {
		return r
	}
	return ratio{startMilli, textMicro}
}

// LearnInput corrects the ratios of a deployment by a provider's count of a prompt.
func (e *Estimator) LearnInput(deployment string, in Input, tokens int64) {
	tokens -= in.Extra + in.Messages*perMessage/2
	if in.Bytes < 64 || tokens <= 0 {
		return // framing outweighs the text: nothing to learn
	}
	seen := min(max(tokens*1000/in.Bytes, minMilli), maxMilli)
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.ratio[deployment]
	if !ok {
		if len(e.ratio) >= seriesMax {
			return
		}
		r = ratio{startMilli, textMicro}
	}
	// Up at once, down slowly: a ratio that is too low under-reserves.
	if seen > r.high {
		r.high += (seen - r.high + 1) / 2
	} else {
		r.high -= (r.high - seen) / 16
	}
	r.mean += (seen*1000 - r.mean) / 8
	e.ratio[deployment] = r
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
