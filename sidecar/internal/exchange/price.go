package exchange

import (
	"cmp"
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
	OutputImage  NanoUSD
}

// Price is what a deployment costs. It is shared and never changed.
type Price struct {
	Rates
	WebSearch NanoUSD // a search; nothing below changes it
	Above     []Step  // by Tokens ascending
	// How many times the rates what was served costs, on top of each other: by the provider's service tier, by
	// Anthropic's speed, and by where it may only run. What is not among them costs the rates as they are.
	Tiers, Speeds, Geos []Times
}

// Step is the rates of a request whose whole prompt is longer than Tokens, of all its tokens.
type Step struct {
	Tokens int64
	Rates
}

// Times is something that costs so many times the rates.
type Times struct {
	Name  string // in lower case
	Times int64  // billionths
}

// Terms are what a provider serves under, each in its own word, "" where it says none.
type Terms struct{ Tier, Speed, Geo string }

const (
	tokensPerPrice = 1_000_000
	timesOne       = 1_000_000_000
)

// Cost prices what was used under the terms that the provider answered with. It is exact, and rounded half up once.
// Negative counts or prices count as 0, and a cost beyond int64 is the largest int64: both are faults upstream of here that
// must not turn into credit.
func (p Price) Cost(t Tokens, at Terms) NanoUSD {
	tier, _ := timesOf(p.Tiers, at.Tier, usualTiers)
	speed, _ := timesOf(p.Speeds, at.Speed, usualSpeeds)
	geo, _ := timesOf(p.Geos, at.Geo, usualGeos)
	return p.at(t.Prompt()).cost(t, p.WebSearch, tier, speed, geo)
}

// Unknown is the first of the terms that has no price, by its member's name and itself; empty when all have: each is
// stated, or a provider's word for the usual.
func (p Price) Unknown(at Terms) (member, word string) {
	if _, known := timesOf(p.Tiers, at.Tier, usualTiers); !known {
		return "service_tier", at.Tier
	}
	if _, known := timesOf(p.Speeds, at.Speed, usualSpeeds); !known {
		return "speed", at.Speed
	}
	if _, known := timesOf(p.Geos, at.Geo, usualGeos); !known {
		return "inference_geo", at.Geo
	}
	return "", ""
}

// The words that providers have for what their price lists are of.
var (
	usualTiers  = []string{"", "default", "standard", "standard_only", "on_demand"}
	usualSpeeds = []string{"", "standard"}
	usualGeos   = []string{"", "global", "not_available"}
)

func timesOf(list []Times, name string, usual []string) (times int64, known bool) {
	for i := range list {
		if strings.EqualFold(list[i].Name, name) {
			return list[i].Times, true
		}
	}
	for _, word := range usual {
		if strings.EqualFold(word, name) {
			return timesOne, true
		}
	}
	return timesOne, false
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

func (r Rates) cost(t Tokens, search NanoUSD, times ...int64) NanoUSD {
	var s sum
	s.add(t.Input, r.Input)
	s.add(t.CacheRead, r.CacheRead)
	s.add(t.CacheWrite5m, r.CacheWrite5m)
	s.add(t.CacheWrite1h, r.CacheWrite1h)
	s.add(t.Output, r.Output)
	s.add(t.InputAudio, r.InputAudio)
	s.add(t.OutputAudio, r.OutputAudio)
	s.add(t.InputImage, r.InputImage)
	s.add(t.OutputImage, r.OutputImage)
	var fees sum
	fees.add(t.WebSearches, search)
	fees.times(tokensPerPrice)
	half, billions := sum{w: [3]uint64{tokensPerPrice / 2}}, 0
	for _, n := range times {
		if n == timesOne {
			continue
		}
		s.times(uint64(max(n, 0)))
		fees.times(timesOne)
		half.times(timesOne)
		billions++
	}
	s.plus(fees)
	s.plus(half) // rounds half up
	s.divide(tokensPerPrice)
	for range billions {
		s.divide(timesOne)
	}
	if s.over || s.w[2] > 0 || s.w[1] > 0 {
		return math.MaxInt64
	}
	return NanoUSD(min(s.w[0], math.MaxInt64))
}

// Ask is what is known of a request before it is sent, as far as its price depends on it.
type Ask struct {
	Prompt      int64 // tokens
	Output      int64 // tokens
	WebSearches int64
	InputAudio  bool // the prompt may hold audio
	InputImage  bool
	OutputAudio bool
	OutputImage bool
	Terms       // asked for; "" leaves it to the provider, as does auto of a tier
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
		if a.OutputImage {
			output = max(output, r.OutputImage)
		}
	}
	reach(p.Rates)
	for _, s := range p.Above {
		if a.Prompt > s.Tokens {
			reach(s.Rates)
		}
	}
	used := Tokens{Input: a.Prompt, Output: a.Output, WebSearches: a.WebSearches}
	speed := most(p.Speeds, cmp.Or(a.Speed, "standard"), usualSpeeds) // nobody is served faster unasked
	return Rates{Input: input, Output: output}.cost(used, p.WebSearch,
		most(p.Tiers, a.Tier, usualTiers), speed, most(p.Geos, a.Geo, usualGeos))
}

// most is the dearest of what the provider may answer with. What was asked for may be out of room, and is then the usual;
// which it is that nobody asked for is a setting at the provider.
func most(list []Times, asked string, usual []string) int64 {
	times, _ := timesOf(list, "", usual)
	if named, known := timesOf(list, asked, usual); known && asked != "" {
		return max(times, named)
	}
	for i := range list {
		times = max(times, list[i].Times)
	}
	return times
}

// sum is a sum of products in 192 bits, the lowest first. What does not fit is over, and more than any cost, whatever it
// is divided by afterwards.
type sum struct {
	w    [3]uint64
	over bool
}

func (s *sum) add(n int64, each NanoUSD) {
	if n <= 0 || each <= 0 {
		return
	}
	h, l := bits.Mul64(uint64(n), uint64(each))
	s.plus(sum{w: [3]uint64{l, h}})
}

func (s *sum) plus(o sum) {
	var carry uint64
	for i := range s.w {
		s.w[i], carry = bits.Add64(s.w[i], o.w[i], carry)
	}
	s.over = s.over || o.over || carry > 0
}

func (s *sum) times(n uint64) {
	if n == 0 {
		*s = sum{}
		return
	}
	var carry uint64
	for i := range s.w {
		h, l := bits.Mul64(s.w[i], n)
		var c uint64
		s.w[i], c = bits.Add64(l, carry, 0)
		carry = h + c // a product of two leaves room for it
	}
	s.over = s.over || carry > 0
}

func (s *sum) divide(by uint64) {
	var rest uint64
	for i := len(s.w) - 1; i >= 0; i-- {
		s.w[i], rest = bits.Div64(rest, s.w[i], by)
	}
}
