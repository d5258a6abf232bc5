package route

import (
	"time"

	"github.com/sluice-gateway/sluice/sidecar/breaker"
)

const (
	restLeast = 5 * time.Second // of a deployment whose rate limit is used up, when it names no time
	restMax   = 5 * time.Minute // whatever it names
)

// fare is how a deployment fares.
type fare struct {
	breaker.Breaker
	restUntil time.Time // it asked to be left alone; independent of the breaker
	fault     string    // why an operator has to mend it, until it answers; independent too
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
