package ledger

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestCapInIsExact: a limit is converted in whole numbers, rounded down, at the rate of the month or the newest before
// it; before the first rate, at that.
func TestCapInIsExact(t *testing.T) {
	rates := []Rate{{Period: 202609, PerUSDNano: 80e9}, {Period: 202611, PerUSDNano: 88e9}}
	for _, tc := range []struct {
		name   string
		limit  int64
		rates  []Rate
		period uint32
		want   int64
	}{
		{"its own month", 440_000e9, rates, 202611, 5_000e9},
		{"a month without a rate", 440_000e9, rates, 202610, 5_500e9},
		{"a later month", 440_000e9, rates, 202702, 5_000e9},
		{"before the first rate", 440_000e9, rates, 202512, 5_500e9},
		{"rounded down", 100e9, rates, 202611, 1_136_363_636},
		{"dearer than a dollar", 3e9, []Rate{{Period: 202601, PerUSDNano: 307_000_000}}, 202601, 9_771_986_970},
		{"next to nothing", 1, []Rate{{Period: 202601, PerUSDNano: 1e15}}, 202601, 0},
		{"beyond what is counted", totalMax, []Rate{{Period: 202601, PerUSDNano: 1}}, 202601, totalMax},
	} {
		s := Spec{Kind: Money, Limit: tc.limit, Currency: "INR", Rates: tc.rates}
		if got := s.CapIn(tc.period); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
	if s := (Spec{Kind: Money, Limit: 7}); s.CapIn(202611) != 7 {
		t.Errorf("dollars: %d", s.CapIn(202611))
	}
	rapid.Check(t, func(t *rapid.T) {
		limit, rate := rapid.Int64Range(0, totalMax).Draw(t, "limit"), rapid.Int64Range(1, 1e15).Draw(t, "rate")
		want := new(big.Int).Mul(big.NewInt(limit), big.NewInt(1e9))
		if want.Div(want, big.NewInt(rate)).Cmp(big.NewInt(totalMax)) > 0 {
			want.SetInt64(totalMax)
		}
		s := Spec{Kind: Money, Limit: limit, Currency: "INR", Rates: []Rate{{Period: 202601, PerUSDNano: rate}}}
		if got := s.CapIn(202601); got != want.Int64() {
			t.Fatalf("%d at %d: got %d, want %s", limit, rate, got, want)
		}
	})
}
