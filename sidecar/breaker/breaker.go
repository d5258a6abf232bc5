// Package breaker leaves a deployment alone that fails. It is a package of its own so that the simulator can drive it
// without the sidecar.
package breaker

import "time"

const (
	// Window is the time in which attempts count.
	Window = 20 * time.Second
	// Min is how many attempts there must be in it before the breaker may open.
	Min = 10
	// OpenFor is how long it then stays open.
	OpenFor = 30 * time.Second

	slotLength = 2 * time.Second
	slots      = int(Window / slotLength)
)

// Breaker opens when more than half of at least Min attempts within Window failed. After OpenFor it lets one probe through;
// the probe's end closes it or opens it again.
type Breaker struct {
	slots     [slots]slot
	openUntil time.Time // zero: closed
	probing   bool
	probeEnds time.Time // a probe that is never reported must not block for ever

	failed, of int // while it is open: attempts of the window that opened it, and since
}

type slot struct {
	at      int64 // slot number since the epoch
	ok, bad int
}

func slotOf(now time.Time) int64 { return now.UnixNano() / int64(slotLength) }

// Wait is 0 when an attempt may be made, else the time until one may. Asking while a probe is due takes the probe.
func (b *Breaker) Wait(now time.Time) time.Duration {
	if b.openUntil.IsZero() {
		return 0
	}
	if d := b.openUntil.Sub(now); d > 0 {
		return d
	}
	if b.probing && now.Before(b.probeEnds) {
		return b.probeEnds.Sub(now)
	}
	b.probing, b.probeEnds = true, now.Add(slotLength)
	return 0
}

// Report takes the end of an attempt.
func (b *Breaker) Report(now time.Time, ok bool) {
	s := &b.slots[slotOf(now)%int64(slots)]
	if at := slotOf(now); s.at != at {
		*s = slot{at: at}
	}
	if ok {
		s.ok++
	} else {
		s.bad++
	}
	if !b.openUntil.IsZero() {
		b.of++
		if !ok {
			b.failed++
		}
	}
	if b.probing {
		b.probing = false
		if ok {
			*b = Breaker{}
		} else {
			b.openUntil = now.Add(OpenFor)
		}
		return
	}
	if good, bad := b.Counts(now); !ok && b.openUntil.IsZero() && good+bad >= Min && bad > good {
		b.openUntil = now.Add(OpenFor)
		b.failed, b.of = bad, good+bad
	}
}

// Why is how many of the last attempts failed, and of how many, when that opened it; 0 of 0 while it is closed.
func (b *Breaker) Why() (failed, of int) { return b.failed, b.of }

// Rest is how long it stays open; 0 when it is closed or a probe is due.
func (b *Breaker) Rest(now time.Time) time.Duration { return max(0, b.openUntil.Sub(now)) }

// Unmoved takes the end of an attempt that says nothing about the deployment's health. The next one is the probe.
func (b *Breaker) Unmoved() { b.probing = false }

// Counts are the attempts of the window that went well and that failed.
func (b *Breaker) Counts(now time.Time) (ok, bad int) {
	oldest := slotOf(now) - int64(slots) + 1
	for _, s := range b.slots {
		if s.at >= oldest {
			ok, bad = ok+s.ok, bad+s.bad
		}
	}
	return ok, bad
}

// State is closed, open or half_open.
func (b *Breaker) State(now time.Time) string {
	switch {
	case b.openUntil.IsZero():
		return "closed"
	case now.Before(b.openUntil):
		return "open"
	}
	return "half_open"
}
