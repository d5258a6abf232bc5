package wire

import (
	"math/big"
	"strings"
	"testing"
)

// price is a figure of prices, in dollars a token.
func price(t *testing.T, name string) *big.Rat {
	t.Helper()
	for _, p := range strings.Split(prices, ", ") {
		if k, v, _ := strings.Cut(p, ": "); k == name {
			r, ok := new(big.Rat).SetString(v)
			if !ok {
				t.Fatalf("price %q", p)
			}
			return r.Quo(r, big.NewRat(1_000_000, 1))
		}
	}
	t.Fatalf("no price %q", name)
	return nil
}

// nano is what usage costs in nano-dollars, rounded half up once.
func nano(t *testing.T, u *wantUsage) int64 {
	t.Helper()
	w5m, w1h := u.Write5m, u.Write1h
	if w5m == 0 && w1h == 0 {
		w5m = u.Write // where the provider does not tell, it was the shorter
	}
	total := new(big.Rat)
	for name, n := range map[string]int64{
		"input": u.Prompt - u.Cached - u.Write, "cache_read": u.Cached, "cache_write_5m": w5m, "cache_write_1h": w1h,
		"output": u.Completion - u.ImageOut, "image_output": u.ImageOut,
	} {
		total.Add(total, new(big.Rat).Mul(price(t, name), big.NewRat(n, 1)))
	}
	if u.Times != "" {
		times, ok := new(big.Rat).SetString(u.Times)
		if !ok {
			t.Fatalf("times %q", u.Times)
		}
		total.Mul(total, times)
	}
	total.Mul(total, big.NewRat(1_000_000_000, 1)).Add(total, big.NewRat(1, 2))
	return new(big.Int).Div(total.Num(), total.Denom()).Int64()
}

// TestCostOfTheWitness holds the computation against one done by hand: 11 × 3 + 2000 × 3.75 + 500 × 0.30 + 40 × 15 per
// million.
func TestCostOfTheWitness(t *testing.T) {
	if got := nano(t, &wantUsage{Prompt: 2511, Cached: 500, Write: 2000, Completion: 40}); got != 8_283_000 {
		t.Fatalf("%d", got)
	}
}
