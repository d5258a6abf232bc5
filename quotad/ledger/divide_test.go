package ledger

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// divideAll returns the parts of all.
func divideAll(free int64, claims []claim) []int64 {
	parts := make([]int64, len(claims))
	for i, c := range claims {
		parts[i] = divide(free, slices.Clone(claims), c.id)
	}
	return parts
}

func TestDivide(t *testing.T) {
	tests := []struct {
		name   string
		free   int64
		claims []claim
		want   []int64
	}{
		{"nobody", 10, nil, []int64{}},
		{"nothing free", 0, []claim{{1, 5, 1}}, []int64{0}},
		{"owing", -7, []claim{{1, 5, 1}}, []int64{0}},
		{"all fits", 10, []claim{{1, 5, 1}, {2, 3, 1}}, []int64{5, 3}},
		{"small ones first", 10, []claim{{1, 2, 1}, {2, 100, 1}, {3, 100, 1}}, []int64{2, 4, 4}},
		{"odd unit to the smaller id", 11, []claim{{9, 100, 1}, {3, 100, 1}}, []int64{5, 6}},
		{"fewer units than claims", 2, []claim{{3, 9, 1}, {1, 9, 1}, {2, 9, 1}}, []int64{0, 1, 1}},
		{"by weight", 30, []claim{{1, 100, 1}, {2, 100, 2}}, []int64{10, 20}},
		{"weight beyond want", 30, []claim{{1, 100, 1}, {2, 5, 2}}, []int64{25, 5}},
		{"largest remainder", 10, []claim{{1, 100, 1}, {2, 100, 2}, {3, 100, 4}}, []int64{1, 3, 6}},
		{"huge numbers", math.MaxInt64, []claim{{1, math.MaxInt64, 1 << 20}, {2, math.MaxInt64, 1 << 20}},
			[]int64{math.MaxInt64/2 + 1, math.MaxInt64 / 2}},
		{"staircase", 1000, []claim{{1, 512, 1}, {2, 256, 1}, {3, 128, 1}, {4, 64, 1}, {5, 32, 1}, {6, 16, 1}, {7, 8, 1},
			{8, 4, 1}, {9, 2, 1}}, []int64{490, 256, 128, 64, 32, 16, 8, 4, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := divideAll(tt.free, tt.claims); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestDivideProperties checks what makes a division a weighted max-min one: all that can be given is given, nobody
// gets more than it wants, and nobody who lacks something has a unit less, by weight, than anyone else has.
func TestDivideProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.SampledFrom([]int64{3, 100, 1e6, 1 << 60}).Draw(rt, "most")
		n := rapid.IntRange(0, 40).Draw(rt, "n")
		claims, sum := make([]claim, n), int64(0)
		for i := range claims {
			claims[i] = claim{
				id:     uint64(i + 1),
				want:   rapid.Int64Range(0, most/int64(n)).Draw(rt, "want"),
				weight: rapid.Int64Range(1, 5).Draw(rt, "weight"),
			}
			sum += claims[i].want
		}
		free := rapid.Int64Range(-3, most).Draw(rt, "free")
		parts := divideAll(free, claims)

		given := int64(0)
		for i, c := range claims {
			given += parts[i]
			if parts[i] < 0 || parts[i] > c.want {
				rt.Fatalf("claim %+v got %d", c, parts[i])
			}
		}
		if want := min(max(free, 0), sum); given != want {
			rt.Fatalf("gave %d, want %d", given, want)
		}
		for i, poor := range claims {
			for j, rich := range claims {
				// parts[i] + 1 ≥ (parts[j] − 1) / weight[j] × weight[i]
				if parts[i] < poor.want && parts[j] > 0 && mulLess(parts[i]+1, rich.weight, parts[j]-1, poor.weight) {
					rt.Fatalf("%+v got %d while %+v got %d", poor, parts[i], rich, parts[j])
				}
			}
		}

		order := rapid.Permutation(claims).Draw(rt, "order")
		again := divideAll(free, order)
		for i, c := range order {
			if got, want := again[i], parts[c.id-1]; got != want {
				rt.Fatalf("in another order %+v got %d, want %d", c, got, want)
			}
		}
	})
}

// TestDivideStaircase has wishes that the passes alone would satisfy one step at a time.
func TestDivideStaircase(t *testing.T) {
	const n, free = 200, 1e9
	claims := make([]claim, n)
	left, want := int64(free), make([]int64, n)
	for i := n - 1; i > 0; i-- { // each wants a little less than its part once those after it have theirs
		claims[i] = claim{uint64(i), left/int64(i+1) - 1, 1}
		want[i] = claims[i].want
		left -= want[i]
	}
	claims[0], want[0] = claim{0, left + 1000, 1}, left
	if got := divideAll(free, claims); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumbers(t *testing.T) {
	const most = math.MaxInt64
	tests := []struct {
		name      string
		got, want int64
	}{
		{"mulDiv rounds down", mulDiv(7, 3, 2), 10},
		{"mulDiv through 128 bits", mulDiv(most, 1000, 2000), most / 2},
		{"mulDiv saturates", mulDiv(most, 3, 2), most},
		{"mulDiv saturates far out", mulDiv(most, most, 1), most},
		{"mulSat", mulSat(1<<31, 1<<31), 1 << 62},
		{"mulSat saturates", mulSat(1<<32, 1<<31), most},
		{"addSat", addSat(most-3, 3), most},
		{"addSat saturates", addSat(most-3, 4), most},
		{"floorDiv up", floorDiv(7, 2), 3},
		{"floorDiv down", floorDiv(-7, 2), -4},
		{"floorDiv even", floorDiv(-8, 2), -4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %d, want %d", tt.got, tt.want)
			}
		})
	}
}
