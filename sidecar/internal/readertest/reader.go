// Package readertest is what the tests of framings share: a stream, played to a reader as the relay does. Only tests
// import it.
package readertest

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Reader takes a stream apart into events.
type Reader[E any] interface {
	Feed(p []byte)
	Next() (E, bool, error)
	End()
}

// Play feeds the chunks one after another, each in its own array that is wiped afterwards, so that a borrowed slice which
// outlives its chunk shows. keep makes a copy of an event.
func Play[E, T any](r Reader[E], keep func(E) T, chunks ...[]byte) (out []T, err error) {
	drain := func() error {
		for {
			ev, ok, err := r.Next()
			if err != nil || !ok {
				return err
			}
			out = append(out, keep(ev))
		}
	}
	for _, c := range chunks {
		own := bytes.Clone(c)
		r.Feed(own)
		if err := drain(); err != nil {
			return out, err
		}
		for i := range own {
			own[i] = 'X'
		}
	}
	r.End()
	return out, drain()
}

// Drain reads what is there and counts it.
func Drain[E any](t testing.TB, r Reader[E]) (n int) {
	for {
		_, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return n
		}
		n++
	}
}

// Split cuts p at random.
func Split(dice *rand.Rand, p []byte) (pieces [][]byte) {
	for len(p) > 0 {
		n := 1 + dice.IntN(min(len(p), 1+dice.IntN(40)))
		pieces, p = append(pieces, p[:n]), p[n:]
	}
	return pieces
}
