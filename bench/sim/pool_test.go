package sim

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// TestPoolIsSharedByClass: three real machines, whose callers want three times what a pool has, in every class. Nearly all
// of it is used, and each class has its part: its reserve, and interactive and standard the rest of the refill by theirs.
func TestPoolIsSharedByClass(t *testing.T) {
	for _, tc := range []struct {
		name  string
		parts map[string][2]int64 // of a thousand, from and to
	}{
		{"all want", map[string][2]int64{ // 671, 279, 50
			"interactive/a": {600, 730}, "standard/b": {240, 330}, "batch/c": {35, 75},
		}},
		{"batch alone", map[string][2]int64{"batch/c": {1000, 1000}}},
		{"two teams", map[string][2]int64{"standard/a": {450, 550}, "standard/b": {450, 550}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newNamedWorld(t, 1)
			w.calm = true
			w.call = func(w *namedWorld, s *namedMachine) {
				for _, class := range slices.Sorted(maps.Keys(tc.parts)) {
					if w.rng.IntN(len(tc.parts)) == 0 {
						r := w.newRequest(time.Second)
						r.draw(w, poolTokens, class, 20, 20) // a tick's refill, of each of three
						w.admit(s, r)
					}
				}
			}
			const from, to = 20 * time.Second, 60 * time.Second
			for w.now < to {
				w.step()
			}
			used := func(key string) (sum int64) {
				for _, u := range w.uses[key] {
					if u.at > from {
						sum += u.amount
					}
				}
				return sum
			}
			w.checkWindows("pool", poolLimit, poolBurst)
			all := used("pool")
			if most := int64(poolLimit) * (to - from).Milliseconds() / 60_000; all < most*95/100 {
				t.Errorf("%d used of %d", all, most)
			}
			for class, part := range tc.parts {
				if p := used(class) * 1000 / all; p < part[0] || p > part[1] {
					t.Errorf("%s has %d of a thousand, want %d to %d", class, p, part[0], part[1])
				}
			}
		})
	}
}
