package ledger

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// newRapidWorld draws a world's numbers from a seed. A failure shrinks to its first step, and the fuzzer finds small
// inputs; drawing each number from rapid would take most of the time.
func newRapidWorld(rt *rapid.T, wild bool) (w *world, steps int) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
	w = newWorld(Config{}, func(most int64) int64 { return rng.Int64N(max(most, 0) + 1) })
	w.wild = wild
	return w, rapid.IntRange(1, 400).Draw(rt, "steps")
}

// TestInvariants plays random operations, with and without liars, and checks conservation, the sums, the standing
// shares, and that records followed through Touched are the state.
func TestInvariants(t *testing.T) {
	for name, wild := range map[string]bool{"honest": false, "wild": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w, steps := newRapidWorld(rt, wild)
				m := newMirror()
				for range steps {
					w.step()
					if err := w.check(); err != nil {
						rt.Fatal(err)
					}
					m.follow(w.l)
				}
				if got, want := recordsOf(m.ledger(t, w.l.cfg)), recordsOf(w.l); !got.equal(want) {
					rt.Fatalf("records followed are\n%+v, the state is\n%+v", got, want)
				}
			})
		})
	}
}

// TestReplicas feeds two ledgers the same operations. One of them is read all the time, and is written to records and
// loaded again now and then; they must answer alike and stay equal.
func TestReplicas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, steps := newRapidWorld(rt, true)
		w.twin = reload(rt, w.l)
		for range steps {
			w.step()
			if w.fault != nil {
				rt.Fatal(w.fault)
			}
			w.twin.Resources()
			w.twin.NextDue()
			if err := w.twin.Check(); err != nil {
				rt.Fatal(err)
			}
			if got, want := recordsOf(w.twin), recordsOf(w.l); !got.equal(want) {
				rt.Fatalf("the twin is\n%+v, want\n%+v", got, want)
			}
			if w.draw(9) == 0 {
				w.twin = reload(rt, w.twin)
			}
		}
	})
}

// TestTouchedShares: a share that changes on a counter its renew does not list is on record too.
func TestTouchedShares(t *testing.T) {
	l, bucket, _ := small(t)
	listed := []Counter{{Resource: bucket}}
	l.Renew(Renew{Incarnation: 1, Seq: 1, Counters: listed})
	l.Renew(Renew{Incarnation: 2, Seq: 1, Counters: listed})
	m := newMirror()
	m.follow(l)
	for seq := uint64(2); seq <= 3; seq++ { // it shrinks, and then is acknowledged
		l.Renew(Renew{Incarnation: 1, Seq: seq, ShareVersion: seq - 1})
		m.follow(l)
		key := CounterKey{Incarnation: 1, Resource: bucket}
		if got, want := m.counters[key].Shares, l.Counters(1)[0].Shares; !slices.Equal(got, want) {
			t.Errorf("seq %d: got shares %v on record, want %v", seq, got, want)
		}
	}
}

// FuzzOps plays operations drawn from arbitrary bytes.
func FuzzOps(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x1e\x63\x00\x01\x02\x03\x05\x08\x0d\x15\x22\x37\x59\x90\xe9"))
	f.Add([]byte("liars, twins and late letters: a ledger takes them all in its stride, or else it is not one at all"))
	all := make([]byte, 4096)
	for i := range all {
		all[i] = byte(i * i >> 3)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(Config{}, func(most int64) int64 {
			if most <= 0 || len(data) == 0 {
				return 0
			}
			n := 1
			if most > math.MaxUint8 {
				n = min(8, len(data))
			}
			var word [8]byte
			copy(word[:], data[:n])
			data = data[n:]
			x := binary.LittleEndian.Uint64(word[:])
			return int64(x % (uint64(most) + 1))
		})
		w.wild = true
		for steps := 0; len(data) > 0 && steps < 2000; steps++ {
			w.step()
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
		}
		reload(t, w.l)
	})
}
