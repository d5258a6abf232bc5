package fakeprovider

import (
	"math"
	"math/bits"
)

// Usage is tokens by kind. The kinds do not overlap, except that Reasoning is part of Output.
type Usage struct {
	Input        int64 `json:"input"` // neither read from nor written to the cache
	CacheRead    int64 `json:"cache_read"`
	CacheWrite5m int64 `json:"cache_write_5m"`
	CacheWrite1h int64 `json:"cache_write_1h"`
	Output       int64 `json:"output"`
	Reasoning    int64 `json:"reasoning"`
}

// Prompt is every input token, cached or not.
func (u Usage) Prompt() int64 { return u.Input + u.CacheRead + u.CacheWrite5m + u.CacheWrite1h }

func (u Usage) plus(o Usage) Usage {
	return Usage{u.Input + o.Input, u.CacheRead + o.CacheRead, u.CacheWrite5m + o.CacheWrite5m,
		u.CacheWrite1h + o.CacheWrite1h, u.Output + o.Output, u.Reasoning + o.Reasoning}
}

// promptUsage splits a prompt into its cached and uncached parts. Each cached part is cut to what is left of the
// prompt: first the reads, then the five-minute writes, then the one-hour writes.
func promptUsage(prompt int64, b *Behavior) Usage {
	var u Usage
	u.Input = prompt
	for _, part := range []struct {
		want int64
		into *int64
	}{{b.CacheRead, &u.CacheRead}, {b.CacheWrite5m, &u.CacheWrite5m}, {b.CacheWrite1h, &u.CacheWrite1h}} {
		*part.into = min(part.want, u.Input)
		u.Input -= *part.into
	}
	return u
}

const tokensPerPrice = 1_000_000

// Cost is what u costs at p, in nano-dollars: the products are added up in 128 bits and rounded half up once. A cost
// beyond int64 is the largest int64.
func (p Price) Cost(u Usage) int64 {
	var hi, lo uint64
	for _, part := range [...][2]int64{{u.Input, p.Input}, {u.CacheRead, p.CacheRead}, {u.CacheWrite5m, p.CacheWrite5m},
		{u.CacheWrite1h, p.CacheWrite1h}, {u.Output, p.Output}} {
		if part[0] <= 0 || part[1] <= 0 {
			continue
		}
		h, l := bits.Mul64(uint64(part[0]), uint64(part[1]))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	lo, carry := bits.Add64(lo, tokensPerPrice/2, 0)
	hi += carry
	if hi >= tokensPerPrice {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, tokensPerPrice)
	return int64(min(quotient, math.MaxInt64))
}
