package route

import "time"

const (
	breakerWindow  = 20 * time.Second
	breakerSlot    = 2 * time.Second
	breakerSlots   = int(breakerWindow / breakerSlot)
	breakerMin     = 10 // attempts in the window before it may open
	breakerOpenFor = 30 * time.Second

	restLeast = 5 * time.Second // of a deployment whose rate limit is used up, when it names no time
	restMax   = 5 * time.Minute // whatever it names
)

// breaker opens when more than half of at least breakerMin attempts within breakerWindow failed. After
// breakerOpenFor it lets one probe through; the probe's end closes it or opens it again.
type breaker struct {
	slots     [breakerSlots]slot
	openUntil time.Time // zero: closed
	probing   bool
	probeEnds time.Time // a probe that is never reported must not block for ever
	restUntil time.Time // it asked to be left alone; independent of the breaker
}

type slot struct {
	at      int64 // slot number since the epoch
	ok, bad int
}

func slotOf(now time.Time) int64 { return now.UnixNano() / int64(breakerSlot) }

// wait is 0 when an attempt may be made, else the time until one may. Asking while a probe is due takes the probe.
func (b *breaker) wait(now time.Time) time.Duration {
	if b.openUntil.IsZero() {
		return 0
	}
	if d := b.openUntil.Sub(now); d > 0 {
		return d
	}
	if b.probing && now.Before(b.probeEnds) {
		return b.probeEnds.Sub(now)
	}
	b.probing, b.probeEnds = true, now.Add(breakerSlot)
	return 0
}

func (b *breaker) report(now time.Time, ok bool) {
	s := &b.slots[slotOf(now)%int64(breakerSlots)]
	if at := slotOf(now); s.at != at {
		*s = slot{at: at}
	}
	if ok {
		s.ok++
	} else {
		s.bad++
	}
	if b.probing {
		b.probing = false
		if ok {
			*b = breaker{restUntil: b.restUntil}
		} else {
			b.openUntil = now.Add(breakerOpenFor)
		}
		return
	}
	if good, bad := b.counts(now); !ok && b.openUntil.IsZero() && good+bad >= breakerMin && bad > good {
		b.openUntil = now.Add(breakerOpenFor)
	}
}

// unmoved takes the end of an attempt that says nothing about the deployment's health. The next one is the probe.
func (b *breaker) unmoved() { b.probing = false }

func (b *breaker) counts(now time.Time) (ok, bad int) {
	oldest := slotOf(now) - int64(breakerSlots) + 1
	for _, s := range b.slots {
		if s.at >= oldest {
			ok, bad = ok+s.ok, bad+s.bad
		}
	}
	return ok, bad
}

func (b *breaker) state(now time.Time) string {
	switch {
	case b.openUntil.IsZero():
		return "closed"
	case now.Before(b.openUntil):
		return "open"
	}
	return "half_open"
}

const (
	retryFloor    = 10.0 // retries that are always there, so that quiet callers get failover too
	retryPerReq   = 0.1
	retryCap      = 100.0
	retryRefillPS = 1.0 // a second
)

// retryBudget keeps retries at a tenth of the requests, with a small floor.
type retryBudget struct {
	tokens float64
	at     time.Time
}

func (b *retryBudget) refill(now time.Time) {
	if b.at.IsZero() {
		b.tokens = retryFloor
	} else if d := now.Sub(b.at).Seconds(); d > 0 && b.tokens < retryFloor {
		b.tokens = min(retryFloor, b.tokens+d*retryRefillPS)
	}
	b.at = now
}

func (b *retryBudget) request(now time.Time) {
	b.refill(now)
	b.tokens = min(retryCap, b.tokens+retryPerReq)
}

func (b *retryBudget) take(now time.Time) bool {
	b.refill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
