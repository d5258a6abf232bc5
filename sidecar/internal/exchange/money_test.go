package exchange

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestCost(t *testing.T) {
	price := Price{Input: 3_000_000_000, CacheRead: 300_000_000, CacheWrite5m: 3_750_000_000, Output: 15_000_000_000}
	for name, c := range map[string]struct {
		price Price
		use   Tokens
		want  NanoUSD
	}{
		"cache kinds apart":       {price, Tokens{Input: 11, CacheWrite5m: 2000, CacheRead: 500, Output: 40}, 8_283_000},
		"reasoning is in output":  {price, Tokens{Output: 10, Reasoning: 10}, 150_000},
		"half rounds up":          {Price{Input: 500_000}, Tokens{Input: 1}, 1},
		"below half rounds down":  {Price{Input: 499_999}, Tokens{Input: 1}, 0},
		"rounded once, not twice": {Price{Input: 500_000, Output: 500_000}, Tokens{Input: 1, Output: 1}, 1},
		"nothing":                 {price, Tokens{}, 0},
		"negative is no credit":   {price, Tokens{Input: -5, Output: 1}, 15_000},
		"too much saturates":      {Price{Input: math.MaxInt64}, Tokens{Input: math.MaxInt64}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.price.Cost(c.use); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(0, 1<<40)
		u := Tokens{
			Input: amount.Draw(t, "input"), CacheRead: amount.Draw(t, "read"), CacheWrite5m: amount.Draw(t, "w5"),
			CacheWrite1h: amount.Draw(t, "w1"), Output: amount.Draw(t, "output"),
		}
		each := rapid.Int64Range(0, 1<<45)
		p := Price{
			Input: NanoUSD(each.Draw(t, "pi")), CacheRead: NanoUSD(each.Draw(t, "pr")), CacheWrite5m: NanoUSD(each.Draw(t, "p5")),
			CacheWrite1h: NanoUSD(each.Draw(t, "p1")), Output: NanoUSD(each.Draw(t, "po")),
		}
		sum := new(big.Int)
		for _, x := range [][2]int64{
			{u.Input, int64(p.Input)}, {u.CacheRead, int64(p.CacheRead)}, {u.CacheWrite5m, int64(p.CacheWrite5m)},
			{u.CacheWrite1h, int64(p.CacheWrite1h)}, {u.Output, int64(p.Output)},
		} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(x[0]), big.NewInt(x[1])))
		}
		want := sum.Add(sum, big.NewInt(500_000)).Quo(sum, big.NewInt(1_000_000))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if got := p.Cost(u); int64(got) != want.Int64() {
			t.Fatalf("got %d, want %s", got, want)
		}
	})
}
