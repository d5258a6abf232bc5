package adapter

import (
	"net/http"
	"strconv"
	"time"
)

// WaitMax bounds the wait a provider may ask for.
const WaitMax = time.Hour

// Date is the answer's own time: adapters have no clock, and the provider's may differ from ours. Zero for none.
func Date(h Header) time.Time {
	t, err := http.ParseTime(h("date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

const (
	epochSeconds = 1e9  // a number above is no wait but an instant, in seconds
	epochMillis  = 1e12 // or in milliseconds
	epochMax     = 1e14
)

// Until reads the forms in which providers state a wait: seconds, durations such as 2m59.56s, and instants as numbers
// of the epoch, as RFC 3339 or as HTTP dates. An instant means nothing without the answer's own time.
func Until(v string, now time.Time) time.Duration {
	instant := func(t time.Time) time.Duration {
		if now.IsZero() {
			return 0
		}
		return min(max(t.Sub(now), 0), WaitMax)
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		switch {
		case n > epochMillis && n < epochMax:
			return instant(time.UnixMilli(int64(n)))
		case n > epochSeconds && n < epochMillis:
			return instant(time.Unix(int64(n), 0))
		case n > 0:
			return min(time.Duration(min(n, 1e6)*float64(time.Second)), WaitMax)
		}
		return 0
	}
	if d, err := time.ParseDuration(v); err == nil {
		return min(max(d, 0), WaitMax)
	}
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return instant(t)
	}
	if t, err := http.ParseTime(v); err == nil {
		return instant(t)
	}
	return 0
}
