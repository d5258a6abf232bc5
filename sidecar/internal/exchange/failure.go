package exchange

import "time"

// FailureKind says what a failed attempt means for the request. The kinds are dataplane rules, not HTTP statuses:
// providers use the same status for different things.
type FailureKind uint8

// The kinds.
const (
	FailNone        FailureKind = iota
	FailConnect                 // no connection, or it broke before an answer
	FailTimeout                 // connect, first-token, idle or total deadline
	FailRateLimited             // the provider's 429: its limit, not ours
	FailOverloaded              // 5xx, 529, overloaded and server errors, in the head or as the first event
	FailInvalid                 // an answer that is no answer: HTML, empty, broken JSON or framing
	FailCut                     // the stream broke after it began
	FailRequest                 // the caller's request is at fault: 400, 413, 422
	FailContext                 // the prompt does not fit this deployment's window
	FailPolicy                  // the provider refused the content
	FailCredential              // 401, 402, 403, a wrong key, an exhausted provider account: ours to mend
	FailNotFound                // the deployment's model or path does not exist: ours to mend
	FailUnsupported             // this deployment cannot honour a field of the request
	FailCancelled               // the caller left
)

// Failover reports whether another deployment may be tried while nothing has reached the caller.
// FailContext may move only to a deployment with a larger window; the router sees to that.
func (k FailureKind) Failover() bool {
	switch k {
	case FailConnect, FailTimeout, FailRateLimited, FailOverloaded, FailInvalid, FailCut,
		FailContext, FailCredential, FailNotFound, FailUnsupported:
		return true
	}
	return false
}

// Misconfigured reports whether what the gateway is configured with is at fault: it does not pass by waiting.
func (k FailureKind) Misconfigured() bool { return k == FailCredential || k == FailNotFound }

// Failure is why an attempt did not succeed. Texts come from the provider, except for FailCredential, whose texts
// never leave the process.
type Failure struct {
	Kind       FailureKind
	Status     int    // the provider's HTTP status, 0 when there was none
	Type       string // the provider's error type
	Code       string // the provider's error code, as a string whatever it was
	Param      string // the field at fault
	Message    string
	Inner      string        // Azure's innererror, a JSON object: what its filter found; "" for none
	RetryAfter time.Duration // the provider's wish, 0 when none
	// Final is set when the provider said not to retry (x-should-retry: false, spend limits).
	Final bool
}

func (f *Failure) Error() string {
	if f.Message == "" {
		return "upstream failure"
	}
	return f.Message
}
