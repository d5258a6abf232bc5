package exchange

import (
	"math"
	"math/bits"
	"strings"
)

// Rates is nano-dollars per million tokens of each kind; 2.00 USD per million is 2,000,000,000.
type Rates struct {
	Input        NanoUSD
	CacheRead    NanoUSD
	CacheWrite5m NanoUSD
	CacheWrite1h NanoUSD
	Output       NanoUSD
	InputAudio   NanoUSD
	OutputAudio  NanoUSD
	InputImage   NanoUSD
}

// Price is what a deployment costs. It is shared and never changed.
type Price struct {
	Rates
	WebSearch NanoUSD       // a search; no service tier changes it
	Above     []Step        // by Tokens ascending
	Tiers     []ServiceTier // a tier that is not among them costs the rates as they are
}

// Step is the rates of a request whose whole prompt is longer than Tokens, of all its tokens.
type Step struct {
	Tokens int64
	Rates
}

// ServiceTier is a tier of the provider's that costs so many times the rates.
type ServiceTier struct {
	Name  string // in lower case
	Times int64  // billionths
}

const (
	tokensPerPrice = 1_000_000
	timesOne       = 1_000_000_000
)

// Cost prices what was used at the tier the provider answered with, "" for none. It is exact, and rounded half up once.
// Negative counts or prices count as 0, and a cost beyond int64 is the largest int64: both are faults upstream of here that
// must not turn into credit.
func (p Price) Cost(t Tokens, tier string) NanoUSD {
	times, _ := p.times(tier)
	return p.at(t.Prompt()).cost(t, times, p.WebSearch)
}

// Knows reports whether the price of a tier is known: it is one of Tiers, or a provider's word for the usual one.
func (p Price) Knows(tier string) bool {
	_, ok := p.times(tier)
	return ok
}

// usualTiers are what providers call the tier of their price lists.
var usualTiers = [...]string{"", "default", "standard", "standard_only", "on_demand"}

func usual(tier string) bool {
	for _, name := range usualTiers {
		if strings.EqualFold(name, tier) {
			return true
		}
	}
	return false
}

func (p Price) times(tier string) (times int64, known bool) {
	for _, t := range p.Tiers {
		if strings.EqualFold(t.Name, tier) {
			return t.Times, true
		}
	}
	return timesOne, usual(tier)
}

// at is the rates of a request with such a prompt.
func (p Price) at(prompt int64) Rates {
	r := p.Rates
	for _, s := range p.Above {
		if prompt <= s.Tokens {
			break
		}
		r = s.Rates
	}
	return r
}

func (r Rates) cost(t Tokens, times int64, search NanoUSD) NanoUSD {
	var s sum
	s.add(t.Input, r.Input)
	s.add(t.CacheRead, r.CacheRead)
	s.add(t.CacheWrite5m, r.CacheWrite5m)
	s.add(t.CacheWrite1h, r.CacheWrite1h)
	s.add(t.Output, r.Output)
	s.add(t.InputAudio, r.InputAudio)
	s.add(t.OutputAudio, r.OutputAudio)
	s.add(t.InputImage, r.InputImage)
	s.times(max(times, 0))
	var fees sum
	fees.add(t.WebSearches, search)
	fees.times(tokensPerPrice * timesOne)
	s.plus(fees)
	return s.rounded()
}

// Ask is what is known of a request before it is sent, as far as its price depends on it.
type Ask struct {
	Prompt      int64 // tokens
	Output      int64 // tokens
	WebSearches int64
	InputAudio  bool // the prompt may hold audio
	InputImage  bool
	OutputAudio bool
	Tier        string // asked for; "" or auto leaves it to the provider
}

// Most is the most that a request within a may cost: at the dearest kind that each of its tokens may be, at any length up
// to its own, at the dearest tier that the provider may answer with.
func (p Price) Most(a Ask) NanoUSD {
	var input, output NanoUSD
	reach := func(r Rates) {
		input = max(input, r.Input, r.CacheRead, r.CacheWrite5m, r.CacheWrite1h)
		output = max(output, r.Output)
		if a.InputAudio {
			input = max(input, r.InputAudio)
		}
		if a.InputImage {
			input = max(input, r.InputImage)
		}
		if a.OutputAudio {
			output = max(output, r.OutputAudio)
		}
	}
	reach(p.Rates)
	for _, s := range p.Above {
		if a.Prompt > s.Tokens {
			reach(s.Rates)
		}
	}
	used := Tokens{Input: a.Prompt, Output: a.Output, WebSearches: a.WebSearches}
	return Rates{Input: input, Output: output}.cost(used, p.mostTimes(a.Tier), p.WebSearch)
}

// mostTimes is the dearest of the tiers that the provider may answer with. One that was asked for may be out of room, and
// is then the usual one; which one it is that nobody asked for is a setting at the provider.
func (p Price) mostTimes(asked string) int64 {
	most, _ := p.times("")
	if named, known := p.times(asked); known && asked != "" {
		return max(most, named)
	}
	for _, t := range p.Tiers {
		most = max(most, t.Times)
	}
	return most
}

// sum is a sum of products in 128 bits. What does not fit is over, and more than any cost.
type sum struct {
	hi, lo uint64
	over   bool
}

func (s *sum) add(n int64, each NanoUSD) {
	if n <= 0 || each <= 0 {
		return
	}
	h, l := bits.Mul64(uint64(n), uint64(each))
	s.plus(sum{hi: h, lo: l})
}

func (s *sum) plus(o sum) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, o.lo, 0)
	s.hi, carry = bits.Add64(s.hi, o.hi, carry)
	s.over = s.over || o.over || carry > 0
}

// times multiplies by n, which is not negative.
func (s *sum) times(n int64) {
	if n == 0 {
		*s = sum{}
		return
	}
	over, hi := bits.Mul64(s.hi, uint64(n))
	carried, lo := bits.Mul64(s.lo, uint64(n))
	hi, carry := bits.Add64(hi, carried, 0)
	s.hi, s.lo, s.over = hi, lo, s.over || over > 0 || carry > 0
}

// rounded takes the units of Rates and ServiceTier out, and rounds half up.
func (s sum) rounded() NanoUSD {
	const unit = tokensPerPrice * timesOne
	s.plus(sum{lo: unit / 2})
	if s.over || s.hi >= unit {
		return math.MaxInt64
	}
	q, _ := bits.Div64(s.hi, s.lo, unit)
	return NanoUSD(min(q, math.MaxInt64))
}
