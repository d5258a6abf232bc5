package openai

import (
	"strconv"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// retryAfter reads retry-after-ms, then retry-after.
func retryAfter(h adapter.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h("retry-after-ms"), 64); err == nil && ms > 0 {
		return min(time.Duration(min(ms, 1e9))*time.Millisecond, adapter.WaitMax)
	}
	return adapter.Until(h("retry-after"), adapter.Date(h))
}

// untilReset reads when a limit that is used up is open again. kind is the limit's name, if the error states it.
func untilReset(h adapter.Header, kind string) time.Duration {
	now := adapter.Date(h)
	var wait time.Duration
	for _, unit := range [...]string{"requests", "tokens"} {
		if unit == kind || h("x-ratelimit-remaining-"+unit) == "0" {
			wait = max(wait, adapter.Until(h("x-ratelimit-reset-"+unit), now))
		}
	}
	if wait == 0 {
		wait = adapter.Until(h("x-ratelimit-reset"), now)
	}
	return wait
}
