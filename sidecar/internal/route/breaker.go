package route

import (
	"fmt"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/breaker"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	restLeast = 5 * time.Second // of a deployment whose rate limit is used up, when it names no time
	restMax   = 5 * time.Minute // whatever it names
)

// fare is how a deployment fares.
type fare struct {
	breaker.Breaker
	last      *exchange.Failure // that moved the breaker; nil before the first
	restUntil time.Time         // it asked to be left alone; independent of the breaker
}

const shownMax = 200 // bytes of a provider's text

// problem says what is wrong while the breaker is open, after the deployment's name.
func (f *fare) problem(now time.Time) string {
	if f.State(now) == "closed" {
		return ""
	}
	what := "is tried again with the next request"
	if rest := f.Rest(now); rest > 0 {
		what = fmt.Sprintf("is left alone for %d s more", (rest+time.Second-1)/time.Second)
	}
	failed, of := f.Why()
	return fmt.Sprintf("%s: %d of its last %d requests failed, the last %s", what, failed, of, how(f.last))
}

// how an attempt failed. What the provider says to a wrong credential is not told: it may quote the key.
func how(f *exchange.Failure) string {
	var text string
	if f.Kind != exchange.FailCredential && f.Message != "" {
		text = fmt.Sprintf(" (%.*q)", shownMax, f.Message)
	}
	if f.Status == 0 {
		return "without an answer" + text
	}
	return fmt.Sprintf("with status %d%s", f.Status, text)
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
