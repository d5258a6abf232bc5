package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// class is a priority class of claimants. A class that is not known is served like the last.
type class int

const (
	interactive class = iota
	standard
	batch
	classes
)

var classNames = [classes]string{"interactive", "standard", "batch"}

// usualReserves are the thousandths of a pool that classes get when nothing else is said.
var usualReserves = [classes]int64{600, 250, 50}

func classOf(name string) (class, bool) {
	i := slices.Index(classNames[:], name)
	if i < 0 {
		return batch, false
	}
	return class(i), true
}

// fairness is Fairness in the form in which pools are divided.
type fairness struct {
	given    Fairness // sorted
	weights  map[string]int64
	reserves [classes]int64
}

// newFairness checks f. An error wraps ErrSpecs.
func newFairness(f Fairness) (fairness, error) {
	out := fairness{
		given:    Fairness{Weights: slices.Clone(f.Weights), Reserves: slices.Clone(f.Reserves)},
		weights:  make(map[string]int64, len(f.Weights)),
		reserves: usualReserves,
	}
	slices.SortFunc(out.given.Weights, func(a, b TeamWeight) int { return cmp.Compare(a.Team, b.Team) })
	slices.SortFunc(out.given.Reserves, func(a, b ClassReserve) int { return cmp.Compare(a.Class, b.Class) })
	if len(f.Weights) > teamsMax {
		return fairness{}, fmt.Errorf("%w: weights of %d teams, at most %d", ErrSpecs, len(f.Weights), teamsMax)
	}
	for _, w := range f.Weights {
		if _, double := out.weights[w.Team]; double || w.Weight < 1 || w.Weight > weightMax || len(w.Team) > nameMax {
			return fairness{}, fmt.Errorf("%w: team %q: weight %d is out of range or there twice", ErrSpecs, w.Team, w.Weight)
		}
		out.weights[w.Team] = w.Weight
	}
	var seen [classes]bool
	for _, r := range f.Reserves {
		c, known := classOf(r.Class)
		if !known || seen[c] || r.Permille < 0 || r.Permille > 1000 {
			return fairness{}, fmt.Errorf("%w: class %q: reserve %d is out of range, unknown or there twice", ErrSpecs, r.Class,
				r.Permille)
		}
		seen[c], out.reserves[c] = true, r.Permille
	}
	if sum := out.reserves[interactive] + out.reserves[standard] + out.reserves[batch]; sum > 1000 {
		return fairness{}, fmt.Errorf("%w: classes reserve %d thousandths of a pool", ErrSpecs, sum)
	}
	return out, nil
}

func (f *fairness) weight(team string) int64 { return max(1, f.weights[team]) }

// Fairness returns how pools are divided, as it was defined last, sorted.
func (l *Ledger) Fairness() Fairness {
	return Fairness{Weights: slices.Clone(l.fair.given.Weights), Reserves: slices.Clone(l.fair.given.Reserves)}
}
