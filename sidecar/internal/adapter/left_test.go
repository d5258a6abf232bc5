package adapter

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestLefts: every provider's names and forms; what is no number is counted and says nothing.
func TestLefts(t *testing.T) {
	const date = "Sun, 29 Nov 2026 10:00:00 GMT"
	for name, c := range map[string]struct {
		head      string // name=value, separated by |
		want      []Left
		malformed int
	}{
		"nothing": {"content-type=text/html", nil, 0},
		"openai": {
			"x-ratelimit-limit-requests=500|x-ratelimit-remaining-requests=499|x-ratelimit-reset-requests=120ms|" +
				"x-ratelimit-limit-tokens=30000|x-ratelimit-remaining-tokens=29000|x-ratelimit-reset-tokens=6m0s",
			[]Left{{exchange.Requests, 499, 500, 120 * time.Millisecond}, {exchange.TotalTokens, 29_000, 30_000, 6 * time.Minute}}, 0,
		},
		"azure": {
			"x-ratelimit-remaining-requests=9|x-ratelimit-remaining-tokens=90|x-ratelimit-reset-requests=10",
			[]Left{{exchange.Requests, 9, 0, 10 * time.Second}, {exchange.TotalTokens, 90, 0, 0}}, 0,
		},
		"mistral": {
			"x-ratelimit-remaining-tokens-minute=7|x-ratelimit-limit-tokens-minute=70|x-ratelimit-remaining-req-minute=1",
			[]Left{{exchange.Requests, 1, 0, 0}, {exchange.TotalTokens, 7, 70, 0}}, 0,
		},
		"an epoch": {
			"date=" + date + "|x-ratelimit-remaining-requests=0|x-ratelimit-reset-requests=1795946405",
			[]Left{{exchange.Requests, 0, 0, 5 * time.Second}}, 0,
		},
		"anthropic": {
			"date=" + date + "|anthropic-ratelimit-requests-limit=50|anthropic-ratelimit-requests-remaining=49|" +
				"anthropic-ratelimit-requests-reset=2026-11-29T10:00:02Z|anthropic-ratelimit-input-tokens-remaining=800|" +
				"anthropic-ratelimit-output-tokens-remaining=0|anthropic-ratelimit-output-tokens-limit=100|" +
				"anthropic-ratelimit-output-tokens-reset=2026-11-29T10:01:00Z|anthropic-ratelimit-tokens-remaining=1000",
			[]Left{
				{exchange.Requests, 49, 50, 2 * time.Second}, {exchange.TotalTokens, 1000, 0, 0},
				{exchange.InputTokens, 800, 0, 0}, {exchange.OutputTokens, 0, 100, time.Minute},
			}, 0,
		},
		"a reset that is over": {
			"date=" + date + "|anthropic-ratelimit-requests-remaining=1|anthropic-ratelimit-requests-reset=2026-11-29T09:00:00Z",
			[]Left{{exchange.Requests, 1, 0, 0}}, 0,
		},
		"no numbers": {
			"x-ratelimit-remaining-requests=many|x-ratelimit-remaining-tokens=-1|x-ratelimit-limit-tokens=5|" +
				"anthropic-ratelimit-requests-remaining=4.5|anthropic-ratelimit-tokens-remaining=99999999999999999999",
			nil, 4,
		},
		"a limit and a reset that are none": {
			"x-ratelimit-remaining-requests=3|x-ratelimit-limit-requests=lots|x-ratelimit-reset-requests=soon",
			[]Left{{exchange.Requests, 3, 0, 0}}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			head := map[string]string{}
			for field := range strings.SplitSeq(c.head, "|") {
				k, v, _ := strings.Cut(field, "=")
				head[k] = v
			}
			got, malformed := Lefts(func(name string) string { return head[name] })
			if !slices.Equal(got, c.want) || malformed != c.malformed {
				t.Errorf("got %v, %d malformed; want %v, %d", got, malformed, c.want, c.malformed)
			}
		})
	}
}

// TestLeftRefills: a head that is old by the time it arrives says too little.
func TestLeftRefills(t *testing.T) {
	l := Left{Units: 40, Limit: 100, FullIn: 36 * time.Second}
	for age, want := range map[time.Duration]int64{-1: 40, 0: 40, 6 * time.Second: 50, 36 * time.Second: 100, time.Hour: 100} {
		if got := l.After(age); got != want {
			t.Errorf("after %s: %d, want %d", age, got, want)
		}
	}
	for _, l := range []Left{{Units: 40}, {Units: 40, Limit: 100}, {Units: 40, FullIn: time.Second}, {Units: 40, Limit: 30, FullIn: 1}} {
		if got := l.After(time.Minute); got != 40 {
			t.Errorf("%+v: %d; what is not said must not be made up", l, got)
		}
	}
	if got := (Left{Limit: leftMax, FullIn: WaitMax}).After(WaitMax - 1); got < leftMax/100*99 || got > leftMax {
		t.Errorf("the largest overflows: %d", got)
	}
}
