package adapter

import (
	"strconv"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Left is what a provider says is left of one of its limits, to all who use the account.
type Left struct {
	Kind   exchange.Kind
	Units  int64
	Limit  int64         // of the provider's own window; 0 when not said
	FullIn time.Duration // until nothing of it is taken any more; 0 when not said
}

// After is what is left of it once it has refilled for so long. A provider counts when it takes a request, and the head
// that tells may come much later.
func (l Left) After(age time.Duration) int64 {
	missing := l.Limit - l.Units
	switch {
	case missing <= 0 || l.FullIn <= 0 || age <= 0:
		return l.Units
	case age >= l.FullIn:
		return l.Limit
	}
	return l.Units + missing*age.Milliseconds()/max(1, l.FullIn.Milliseconds())
}

// leftMax bounds what is believed, so that the products of After stay inside int64: a wait is at most an hour.
const leftMax = int64(1) << 40

// leftFields are the names that providers have for what is left.
var leftFields = [...]struct {
	kind              exchange.Kind
	left, limit, full string
}{
	{exchange.Requests, "x-ratelimit-remaining-requests", "x-ratelimit-limit-requests", "x-ratelimit-reset-requests"},
	{exchange.TotalTokens, "x-ratelimit-remaining-tokens", "x-ratelimit-limit-tokens", "x-ratelimit-reset-tokens"},
	{exchange.Requests, "x-ratelimit-remaining-req-minute", "x-ratelimit-limit-req-minute", ""},
	{exchange.TotalTokens, "x-ratelimit-remaining-tokens-minute", "x-ratelimit-limit-tokens-minute", ""},
	{exchange.Requests, "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-reset"},
	{exchange.TotalTokens, "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-reset"},
	{exchange.InputTokens, "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-reset"},
	{exchange.OutputTokens, "anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-reset"},
}

// Lefts reads what the head of an answer, a refusal too, says of the provider's limits. A value that is no number counts
// in malformed and is as good as absent.
func Lefts(h Header) (out []Left, malformed int) {
	number := func(name string) (n int64, ok bool) {
		v := h(name)
		if v == "" {
			return 0, false
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			malformed++
			return 0, false
		}
		return min(n, leftMax), true
	}
	for _, f := range leftFields {
		units, ok := number(f.left)
		if !ok {
			continue
		}
		l := Left{Kind: f.kind, Units: units}
		l.Limit, _ = number(f.limit)
		if v := h(f.full); f.full != "" && v != "" {
			if l.FullIn = Until(v, Date(h)); l.FullIn == 0 && !elapsed(v) {
				malformed++
			}
		}
		out = append(out, l)
	}
	return out, malformed
}

// elapsed reports whether v is a wait that is over or an instant, as far as one can tell without the time.
func elapsed(v string) bool {
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		return true
	}
	if _, err := time.ParseDuration(v); err == nil {
		return true
	}
	_, err := time.Parse(time.RFC3339, v)
	return err == nil
}
