package exchange

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCost(t *testing.T) {
	usual := Rates{Input: 3_000_000_000, CacheRead: 300_000_000, CacheWrite5m: 3_750_000_000, Output: 15_000_000_000}
	price := Price{Rates: usual}
	long := Price{Rates: Rates{Input: 1_000_000}, Above: []Step{
		{100, Rates{Input: 2_000_000, CacheRead: 1_000_000, Output: 10_000_000}}, {200, Rates{Input: 3_000_000}},
	}}
	tiers := Price{Rates: usual, WebSearch: 10_000_000, Tiers: []Times{
		{"flex", 500_000_000}, {"priority", 2_250_000_000}, {"provisioned", 0},
	}}
	kinds := Price{Rates: Rates{Input: 1_000_000, InputAudio: 40_000_000, OutputAudio: 80_000_000, InputImage: 5_000_000}}
	each := func(r Rates) Price { return Price{Rates: r} }
	for name, c := range map[string]struct {
		price Price
		use   Tokens
		tier  string
		want  NanoUSD
	}{
		"cache kinds apart":          {price, Tokens{Input: 11, CacheWrite5m: 2000, CacheRead: 500, Output: 40}, "", 8_283_000},
		"reasoning is in output":     {price, Tokens{Output: 10, Reasoning: 10}, "", 150_000},
		"half rounds up":             {each(Rates{Input: 500_000}), Tokens{Input: 1}, "", 1},
		"below half rounds down":     {each(Rates{Input: 499_999}), Tokens{Input: 1}, "", 0},
		"rounded once, not twice":    {each(Rates{Input: 500_000, Output: 500_000}), Tokens{Input: 1, Output: 1}, "", 1},
		"nothing":                    {price, Tokens{}, "", 0},
		"negative is no credit":      {price, Tokens{Input: -5, Output: 1}, "", 15_000},
		"too much saturates":         {each(Rates{Input: math.MaxInt64}), Tokens{Input: math.MaxInt64}, "", math.MaxInt64},
		"audio and images apart":     {kinds, Tokens{Input: 1, InputAudio: 2, OutputAudio: 3, InputImage: 4}, "", 1 + 80 + 240 + 20},
		"at the step":                {long, Tokens{Input: 100}, "", 100},
		"above it all is dearer":     {long, Tokens{Input: 1, CacheRead: 100, Output: 1}, "", 2 + 100 + 10},
		"above the next":             {long, Tokens{Input: 201}, "", 603},
		"output is no prompt":        {long, Tokens{Input: 1, Output: 1000}, "", 1},
		"flex":                       {tiers, Tokens{Input: 1}, "flex", 1_500},
		"as the provider spells it":  {tiers, Tokens{Input: 1}, "PRIORITY", 6_750},
		"paid for already":           {tiers, Tokens{Input: 1}, "provisioned", 0},
		"a tier without a price":     {tiers, Tokens{Input: 1}, "turbo", 3_000},
		"a search costs what it did": {tiers, Tokens{Input: 1, WebSearches: 2}, "flex", 1_500 + 20_000_000},
		"half of a nano-dollar":      {Price{Rates: Rates{Input: 1_000_000}, Tiers: tiers.Tiers}, Tokens{Input: 1}, "flex", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.price.Cost(c.use, Terms{Tier: c.tier}); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestCostOfTerms(t *testing.T) {
	p := Price{
		Rates: Rates{Input: 5_000_000_000, Output: 25_000_000_000}, WebSearch: 10_000_000,
		Tiers:  []Times{{"batch", 500_000_000}},
		Speeds: []Times{{"fast", 6_000_000_000}}, Geos: []Times{{"us", 1_100_000_000}},
	}
	for name, c := range map[string]struct {
		at   Terms
		want NanoUSD
	}{
		"as listed":         {Terms{}, 5_000},
		"in their words":    {Terms{"standard", "standard", "global"}, 5_000},
		"not to be had":     {Terms{Geo: "not_available"}, 5_000},
		"fast":              {Terms{Speed: "fast"}, 30_000},
		"at home":           {Terms{Geo: "us"}, 5_500},
		"fast, at home":     {Terms{Speed: "fast", Geo: "US"}, 33_000},
		"all at once":       {Terms{"batch", "fast", "us"}, 16_500},
		"without its price": {Terms{Speed: "warp", Geo: "moon"}, 5_000},
	} {
		if got := p.Cost(Tokens{Input: 1, WebSearches: 2}, c.at); got != c.want+20_000_000 {
			t.Errorf("%s: got %d, want %d", name, got-20_000_000, c.want)
		}
	}
}

func TestUnknownTerms(t *testing.T) {
	p := Price{Tiers: []Times{{"flex", 1}}, Speeds: []Times{{"fast", 1}}}
	for at, want := range map[Terms]string{
		{}: "", {Tier: "default"}: "", {Tier: "standard"}: "", {Tier: "ON_DEMAND"}: "", {Tier: "flex"}: "", {Tier: "Flex"}: "",
		{Tier: "priority"}: "service_tier", {Tier: "auto"}: "service_tier", {Speed: "fast", Geo: "global"}: "",
		{Speed: "slow"}: "speed", {Geo: "us"}: "inference_geo", {Geo: "not_available"}: "",
	} {
		if member, _ := p.Unknown(at); member != want {
			t.Errorf("%+v: got %q, want %q", at, member, want)
		}
	}
}

// amounts are mostly small, and sometimes as large as they can be.
var amounts = rapid.OneOf(rapid.Int64Range(0, 5_000), rapid.Int64Range(0, 1<<40), rapid.Int64())

func drawRates(t *rapid.T, name string) Rates {
	each := func(kind string) NanoUSD { return NanoUSD(amounts.Draw(t, name+" "+kind)) }
	return Rates{
		Input: each("input"), CacheRead: each("read"), CacheWrite5m: each("5m"), CacheWrite1h: each("1h"), Output: each("output"),
		InputAudio: each("audio"), OutputAudio: each("spoken"), InputImage: each("image"), OutputImage: each("drawn"),
	}
}

func drawPrice(t *rapid.T) Price {
	p := Price{Rates: drawRates(t, "rates"), WebSearch: NanoUSD(amounts.Draw(t, "search"))}
	above := int64(0)
	for range rapid.IntRange(0, 3).Draw(t, "steps") {
		above += rapid.Int64Range(1, 5_000).Draw(t, "above")
		p.Above = append(p.Above, Step{above, drawRates(t, "step")})
	}
	for _, x := range []struct {
		name string
		list *[]Times
	}{{"flex", &p.Tiers}, {"priority", &p.Tiers}, {"fast", &p.Speeds}, {"us", &p.Geos}} {
		if rapid.Bool().Draw(t, x.name) {
			*x.list = append(*x.list, Times{x.name, rapid.Int64Range(0, 1_000*timesOne).Draw(t, x.name+" times")})
		}
	}
	return p
}

var tierNames = rapid.SampledFrom([]string{"", "default", "flex", "priority", "auto"})

var (
	speeds = rapid.SampledFrom([]string{"", "standard", "fast"})
	geos   = rapid.SampledFrom([]string{"", "global", "us"})
)

// exactly is the cost by fractions of any size.
func exactly(p Price, u Tokens, at Terms) NanoUSD {
	r, times := p.Rates, big.NewRat(1, 1)
	for _, s := range p.Above {
		if u.Prompt() > s.Tokens {
			r = s.Rates
		}
	}
	for name, list := range map[string][]Times{at.Tier: p.Tiers, at.Speed + " ": p.Speeds, at.Geo + "  ": p.Geos} {
		for _, x := range list {
			if x.Name == strings.TrimRight(name, " ") {
				times.Mul(times, big.NewRat(x.Times, 1_000_000_000))
			}
		}
	}
	product := func(n int64, each NanoUSD) *big.Rat {
		x := new(big.Rat).SetInt64(max(n, 0))
		return x.Mul(x, new(big.Rat).SetInt64(max(int64(each), 0)))
	}
	total := new(big.Rat)
	for _, part := range []*big.Rat{
		product(u.Input, r.Input), product(u.CacheRead, r.CacheRead), product(u.CacheWrite5m, r.CacheWrite5m),
		product(u.CacheWrite1h, r.CacheWrite1h), product(u.Output, r.Output), product(u.InputAudio, r.InputAudio),
		product(u.OutputAudio, r.OutputAudio), product(u.InputImage, r.InputImage),
		product(u.OutputImage, r.OutputImage),
	} {
		total.Add(total, part)
	}
	total.Mul(total, times)
	total.Quo(total, big.NewRat(1_000_000, 1))
	total.Add(total, product(u.WebSearches, p.WebSearch))
	total.Add(total, big.NewRat(1, 2))
	whole := new(big.Int).Quo(total.Num(), total.Denom())
	if !whole.IsInt64() {
		return math.MaxInt64
	}
	return NanoUSD(whole.Int64())
}

func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, at := drawPrice(t), Terms{tierNames.Draw(t, "tier"), speeds.Draw(t, "speed"), geos.Draw(t, "geo")}
		each := func(kind string) int64 { return amounts.Draw(t, kind) }
		u := Tokens{
			Input: each("input"), CacheRead: each("read"), CacheWrite5m: each("5m"), CacheWrite1h: each("1h"),
			Output: each("output"), InputAudio: each("audio"), OutputAudio: each("spoken"), InputImage: each("image"), OutputImage: each("drawn"),
			WebSearches: each("searches"),
		}
		if got, want := p.Cost(u, at), exactly(p, u, at); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
}

// TestMostIsNeverPassed: whatever a request within its ask turns out to be, at whatever tier the provider may answer with
// to what was asked for, it costs no more than was said.
func TestMostIsNeverPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPrice(t)
		upTo := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
		ask := Ask{
			Prompt: upTo("prompt", 20_000), Output: upTo("output", 20_000), WebSearches: upTo("searches", 5),
			InputAudio: rapid.Bool().Draw(t, "hears"), InputImage: rapid.Bool().Draw(t, "sees"),
			OutputAudio: rapid.Bool().Draw(t, "speaks"), OutputImage: rapid.Bool().Draw(t, "draws"),
			Terms: Terms{tierNames.Draw(t, "asked"), speeds.Draw(t, "speed"), geos.Draw(t, "geo")},
		}
		var u Tokens
		left := ask.Prompt
		take := func(name string, may bool) int64 {
			if !may {
				return 0
			}
			n := upTo(name, left)
			left -= n
			return n
		}
		u.CacheRead, u.CacheWrite5m, u.CacheWrite1h = take("read", true), take("5m", true), take("1h", true)
		u.InputAudio, u.InputImage, u.Input = take("audio", ask.InputAudio), take("image", ask.InputImage), take("input", true)
		left = ask.Output
		u.OutputImage = take("drawn", ask.OutputImage)
		u.OutputAudio, u.Output = take("spoken", ask.OutputAudio), take("text", true)
		u.WebSearches = upTo("searched", ask.WebSearches)

		answered := rapid.SampledFrom([]string{"", "default", ask.Tier}).Draw(t, "answered")
		if ask.Tier == "" || ask.Tier == "auto" {
			answered = tierNames.Draw(t, "answered")
		}
		at := Terms{answered, ask.Speed, ask.Geo}
		if ask.Geo == "" {
			at.Geo = geos.Draw(t, "where")
		}
		if rapid.Bool().Draw(t, "no faster") {
			at.Speed = "standard"
		}
		if cost, most := p.Cost(u, at), p.Most(ask); cost > most {
			t.Fatalf("%+v at %+v costs %d, more than %d", u, at, cost, most)
		}
	})
}

func TestMostAsksForNoMoreThanItMust(t *testing.T) {
	p := Price{
		Rates: Rates{Input: 1_000_000, Output: 2_000_000, InputAudio: 50_000_000, OutputAudio: 60_000_000, InputImage: 3_000_000},
		Above: []Step{{1000, Rates{Input: 2_000_000, Output: 4_000_000}}},
		Tiers: []Times{{"flex", 500_000_000}, {"priority", 2_000_000_000}},
	}
	for name, c := range map[string]struct {
		ask  Ask
		want NanoUSD
	}{
		"text":                       {Ask{Prompt: 1000, Output: 10, Terms: Terms{Tier: "default"}}, 1020},
		"long":                       {Ask{Prompt: 1001, Output: 10, Terms: Terms{Tier: "default"}}, 2042},
		"images":                     {Ask{Prompt: 10, InputImage: true, Terms: Terms{Tier: "default"}}, 30},
		"flex may be out of room":    {Ask{Prompt: 10, Terms: Terms{Tier: "flex"}}, 10},
		"priority":                   {Ask{Prompt: 10, Terms: Terms{Tier: "priority"}}, 20},
		"the provider may choose":    {Ask{Prompt: 10, Terms: Terms{Tier: "auto"}}, 20},
		"nothing was said":           {Ask{Prompt: 10}, 20},
		"a tier that has no price":   {Ask{Prompt: 10, Terms: Terms{Tier: "turbo"}}, 20},
		"spoken, and answered aloud": {Ask{Prompt: 10, Output: 10, InputAudio: true, OutputAudio: true, Terms: Terms{Tier: "default"}}, 1100},
	} {
		if got := p.Most(c.ask); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
