package adaptertest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/readertest"
)

// Cut plays an answer in pieces: whole, byte by byte, and at random. How it is cut must not matter.
func Cut(t *testing.T, raw []byte, play func(t *testing.T, pieces ...[]byte)) {
	t.Helper()
	t.Run("whole", func(t *testing.T) { try(t, play, raw) })
	t.Run("bytes", func(t *testing.T) { try(t, play, slices.Collect(slices.Chunk(raw, 1))...) })
	for seed := range uint64(4) {
		t.Run("random "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 0))
			for range 13 {
				try(t, play, readertest.Split(dice, raw)...)
			}
		})
	}
}

// CutAnywhere is Cut, and in two at every place: there are as many as there are bytes, so a short run takes some of them.
func CutAnywhere(t *testing.T, raw []byte, play func(t *testing.T, pieces ...[]byte)) {
	t.Helper()
	Cut(t, raw, play)
	t.Run("in two", func(t *testing.T) {
		step := 1
		if testing.Short() {
			step = 7
		}
		for at := 1; at < len(raw); at += step {
			try(t, play, raw[:at], raw[at:])
		}
	})
}

// try says of which pieces it was that play failed, and ends there.
func try(t *testing.T, play func(t *testing.T, pieces ...[]byte), pieces ...[]byte) {
	t.Helper()
	defer func() {
		if t.Failed() {
			var sizes []int
			for _, p := range pieces[:min(len(pieces), 10)] {
				sizes = append(sizes, len(p))
			}
			t.Logf("in %d pieces, the first of %v bytes", len(pieces), sizes)
		}
	}()
	if play(t, pieces...); t.Failed() {
		t.FailNow()
	}
}
