package ledger

import (
	"math/bits"
	"slices"
)

// claim is one party to a division.
type claim struct {
	id     uint64 // breaks ties; unique
	want   int64  // at least 0
	weight int64  // at least 1
}

// divide shares free among claims by weighted max-min and returns the part of the one whose id is me. It uses claims
// as its scratch space.
//
// Nobody gets more than it wants; what one does not want goes to the others by weight. Parts are whole units: what
// rounding leaves over goes to the largest remainders, ties to the smaller id. All parts sum to min(free, Σ want).
// The order of claims does not matter. The sum of weights must fit an int64.
func divide(free int64, claims []claim, me uint64) int64 {
	mine := int64(-1)
	left, weight, rest := fit(free, claims, func(c claim) (enough bool) {
		if c.id == me {
			mine = c.want
		}
		return c.id == me
	})
	if mine >= 0 {
		return mine
	}
	return divideRest(left, weight, rest, me)
}

// fit satisfies whoever wants no more than its part, and tells met of each until that has heard enough. It returns what is
// left for the rest, who want more, and their weight.
//
// Each pass satisfies some. That raises the part of the others, so the passes end where no one more fits, whatever the
// order. Few passes are usual; the rare staircase of wishes is sorted, so that it does not take as many passes as it has
// steps.
func fit(free int64, claims []claim, met func(c claim) (enough bool)) (left, weight int64, rest []claim) {
	left = max(free, 0)
	for i := range claims {
		weight += claims[i].weight
	}
	for pass := 1; ; pass++ {
		if pass == dividePasses {
			slices.SortFunc(claims, compareWish)
		}
		open := 0
		for _, c := range claims {
			if mulLess(left, c.weight, c.want, weight) {
				claims[open] = c
				open++
				continue
			}
			if met(c) {
				return left, weight, nil
			}
			left, weight = left-c.want, weight-c.weight
		}
		if open == len(claims) {
			return left, weight, claims
		}
		claims = claims[:open]
	}
}

// dividePasses is how many passes fit makes before it sorts. The pass after that is the last that finds anything.
const dividePasses = 6

// compareWish orders claims by want / weight.
func compareWish(a, b claim) int {
	switch {
	case mulLess(a.want, b.weight, b.want, a.weight):
		return -1
	case mulLess(b.want, a.weight, a.want, b.weight):
		return 1
	}
	return compareKey(a.id, 0, b.id, 0)
}

// divideRest is divide for claims that all want more than their part of what is left.
func divideRest(left, weight int64, claims []claim, me uint64) int64 {
	part, rest := int64(0), uint64(0)
	for _, c := range claims {
		if c.id == me {
			part, rest = share(left, c.weight, weight)
		}
	}
	// The odd units go to the largest remainders; before counts those that come before mine.
	odd, before := left, int64(0)
	for _, c := range claims {
		p, r := share(left, c.weight, weight)
		odd -= p
		if r > rest || r == rest && c.id < me {
			before++
		}
	}
	if before < odd {
		part++
	}
	return part
}

// share returns left × weight / all and the remainder, for weight ≤ all.
func share(left, weight, all int64) (int64, uint64) {
	hi, lo := bits.Mul64(uint64(left), uint64(weight))
	q, r := bits.Div64(hi, lo, uint64(all)) // q ≤ left
	return int64(q), r
}

// spread shares free among claims by weighted max-min, as divide does, and gives each its part. It uses claims as its
// scratch space. Parts are rounded down: what is left over stays where it is.
func spread(free int64, claims []claim, give func(id uint64, part int64)) {
	left, weight, rest := fit(free, claims, func(c claim) (enough bool) {
		give(c.id, c.want)
		return false
	})
	for _, c := range rest {
		part, _ := share(left, c.weight, weight)
		give(c.id, part)
	}
}
