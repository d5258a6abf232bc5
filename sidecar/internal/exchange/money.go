package exchange

import (
	"math"
	"math/bits"
)

// NanoUSD is money in nano-dollars: 1 USD is 1,000,000,000. Money is never a float.
type NanoUSD int64

// Tokens counts tokens, and searches, by the way they are priced. The kinds are disjoint, except that Reasoning is the
// part of Output that was reasoning.
type Tokens struct {
	Input        int64 // neither read from nor written to the provider's cache
	CacheRead    int64
	CacheWrite5m int64 // also for providers with a single, unnamed duration
	CacheWrite1h int64
	Output       int64 // reasoning included
	Reasoning    int64 // part of Output; shown, not priced again
	InputAudio   int64 // not part of Input
	OutputAudio  int64 // not part of Output
	InputImage   int64 // that the provider counts apart; not part of Input
	WebSearches  int64 // searches, not tokens
}

// Prompt is every input token, cached or not.
func (t Tokens) Prompt() int64 {
	return t.Input + t.CacheRead + t.CacheWrite5m + t.CacheWrite1h + t.InputAudio + t.InputImage
}

// Completion is every output token.
func (t Tokens) Completion() int64 { return t.Output + t.OutputAudio }

// Total is every token, each once.
func (t Tokens) Total() int64 { return t.Prompt() + t.Completion() }

// Add returns the sums.
func (t Tokens) Add(o Tokens) Tokens {
	return Tokens{
		Input:        t.Input + o.Input,
		CacheRead:    t.CacheRead + o.CacheRead,
		CacheWrite5m: t.CacheWrite5m + o.CacheWrite5m,
		CacheWrite1h: t.CacheWrite1h + o.CacheWrite1h,
		Output:       t.Output + o.Output,
		Reasoning:    t.Reasoning + o.Reasoning,
		InputAudio:   t.InputAudio + o.InputAudio,
		OutputAudio:  t.OutputAudio + o.OutputAudio,
		InputImage:   t.InputImage + o.InputImage,
		WebSearches:  t.WebSearches + o.WebSearches,
	}
}

// Price is nano-dollars per million tokens of each kind; 2.00 USD per million is 2,000,000,000.
type Price struct {
	Input        NanoUSD
	CacheRead    NanoUSD
	CacheWrite5m NanoUSD
	CacheWrite1h NanoUSD
	Output       NanoUSD
}

const tokensPerPrice = 1_000_000

// Cost prices t. The products are summed in 128 bits and rounded half up once. Negative counts or prices count as 0,
// and a cost beyond int64 is the largest int64: both are faults upstream of here that must not turn into credit.
func (p Price) Cost(t Tokens) NanoUSD {
	var hi, lo uint64
	add := func(n int64, each NanoUSD) {
		if n <= 0 || each <= 0 {
			return
		}
		h, l := bits.Mul64(uint64(n), uint64(each))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
	}
	add(t.Input, p.Input)
	add(t.CacheRead, p.CacheRead)
	add(t.CacheWrite5m, p.CacheWrite5m)
	add(t.CacheWrite1h, p.CacheWrite1h)
	add(t.Output, p.Output)

	var carry uint64
	lo, carry = bits.Add64(lo, tokensPerPrice/2, 0)
	hi += carry
	if hi >= tokensPerPrice {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, tokensPerPrice)
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return NanoUSD(q)
}

// Max returns the dearer of each kind: an upper bound for a request whose deployment is not chosen yet.
func (p Price) Max(o Price) Price {
	return Price{
		Input:        max(p.Input, o.Input),
		CacheRead:    max(p.CacheRead, o.CacheRead),
		CacheWrite5m: max(p.CacheWrite5m, o.CacheWrite5m),
		CacheWrite1h: max(p.CacheWrite1h, o.CacheWrite1h),
		Output:       max(p.Output, o.Output),
	}
}
