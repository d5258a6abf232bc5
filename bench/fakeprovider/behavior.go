package fakeprovider

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is what goes wrong with a request on purpose.
type Fault string

// The faults. "after" is the number of tokens written before the fault strikes; AfterHead means before the response
// head. JSON answers have no tokens on the way: there any "after" but AfterHead means half-way through the body.
const (
	FaultNone        Fault = ""
	FaultStatus      Fault = "status"       // an error answer with Behavior.Status, in the dialect
	FaultCut         Fault = "cut"          // the connection is closed (FIN); default half-way
	FaultReset       Fault = "reset"        // the connection is reset (RST); default half-way
	FaultHang        Fault = "hang"         // silence until the client leaves; default before the head
	FaultTruncate    Fault = "truncate"     // the body ends early but well-formed for HTTP; default half-way
	FaultErrorFirst  Fault = "error-first"  // 200, then an error as the first event or as the body
	FaultErrorMid    Fault = "error-mid"    // an error event among the tokens; default half-way
	FaultBrokenJSON  Fault = "broken-json"  // one event holds half a JSON object; JSON answers stop half-way
	FaultHTML        Fault = "html"         // 200 with a page
	FaultEmpty       Fault = "empty"        // 200 with the right content type and no body
	FaultContentType Fault = "content-type" // a good answer marked text/plain
	FaultJSON        Fault = "json"         // a JSON answer to a stream request
	FaultNoDone      Fault = "no-done"      // the last event ([DONE], message_stop) is missing
	FaultNoUsage     Fault = "no-usage"     // usage is missing
	FaultGzip        Fault = "gzip"         // a gzip body whatever the client accepts
)

func faults() []Fault {
	return []Fault{FaultCut, FaultReset, FaultHang, FaultTruncate, FaultErrorFirst, FaultErrorMid, FaultBrokenJSON,
		FaultHTML, FaultEmpty, FaultContentType, FaultJSON, FaultNoDone, FaultNoUsage, FaultGzip}
}

// Special values of Behavior.After.
const (
	AfterDefault int64 = -2 // the fault's own default
	AfterHead    int64 = -1 // before the response head
)

// Special values of Behavior.RetryAfter.
const (
	retryDefault time.Duration = -1 // 1 s for 429, none for the rest
	retryNone    time.Duration = -2
)

// Behavior is how one request is answered. Make one with NewBehavior; the zero value is not useful.
type Behavior struct {
	Tokens    int64         // text tokens of each choice; -1: 16, or none when tools are called
	Reasoning int64         // reasoning tokens before the text; part of the output and of the cap
	Head      time.Duration // from the request's arrival to the response head of a stream
	First     time.Duration // from the request's arrival to the first token
	Gap       time.Duration // between tokens
	Burst     int64         // tokens that are written together, 1 or more

	CacheRead    int64 // parts of the prompt that count as cached; cut to what the prompt has
	CacheWrite5m int64
	CacheWrite1h int64

	Tier string // the service tier the answer names; "" for the usual one

	Fault       Fault
	Status      int // for FaultStatus, 400..599
	After       int64
	Code        string        // overrides the error's code
	RetryAfter  time.Duration // for error answers
	ShouldRetry string        // x-should-retry of error answers: "", "true" or "false"

	Calls   []string // tools to call, if the request offers them
	Unicode bool     // the text is made of multi-byte words
	Style   Style
	Rate    RateHeaders
}

// Style is legal but unusual SSE framing.
type Style struct {
	CRLF    bool // lines end in CR LF
	NoSpace bool // no space after the colon
	Comment bool // a comment before every event
	Split   bool // every write goes out as two, cut in the middle
}

// RateHeaders are the x-ratelimit headers of an answer; a negative number or duration is not sent. Error answers with
// 429 fill those that are not set with values of an empty bucket.
type RateHeaders struct {
	LimitRequests, RemainingRequests int64
	LimitTokens, RemainingTokens     int64
	ResetRequests, ResetTokens       time.Duration
}

const defaultTokens = 16

// NewBehavior returns the built-in behaviour: 16 tokens at once, no fault.
func NewBehavior() Behavior {
	return Behavior{
		Tokens: -1, Burst: 1, After: AfterDefault, RetryAfter: retryDefault,
		Rate: RateHeaders{-1, -1, -1, -1, -1, -1},
	}
}

// Apply sets each setting in order; a later one wins. The first unknown key or unfit value stops it with an error and
// leaves the settings before it in force.
func (b *Behavior) Apply(settings []Setting) error {
	if len(settings) > settingsMax {
		return fmt.Errorf("more than %d settings", settingsMax)
	}
	for _, s := range settings {
		if err := b.set(s.Key, s.Value); err != nil {
			return fmt.Errorf("setting %s=%s: %w", s.Key, s.Value, err)
		}
	}
	return nil
}

func (b *Behavior) set(key, value string) (err error) {
	switch key {
	case "tokens":
		b.Tokens, err = parseCount(value)
	case "reasoning":
		b.Reasoning, err = parseCount(value)
	case "cache-read":
		b.CacheRead, err = parseCount(value)
	case "cache-write":
		b.CacheWrite5m, err = parseCount(value)
	case "cache-write-1h":
		b.CacheWrite1h, err = parseCount(value)
	case "tier":
		b.Tier = value
	case "head":
		b.Head, err = parseDelay(value)
	case "first":
		b.First, err = parseDelay(value)
	case "gap":
		b.Gap, err = parseDelay(value)
	case "burst":
		if b.Burst, err = parseCount(value); err == nil && b.Burst < 1 {
			b.Burst, err = 1, fmt.Errorf("want 1 or more")
		}
	case "fault":
		err = b.setFault(value)
	case "status":
		err = b.setStatus(value)
	case "after":
		if value == "head" {
			b.After = AfterHead
			return nil
		}
		b.After, err = parseCount(value)
	case "code":
		b.Code = value
	case "call":
		b.Calls = strings.Split(value, ",")
		if len(b.Calls) > callsMax {
			err = fmt.Errorf("more than %d calls", callsMax)
		}
	case "text":
		err = parseChoice(value, "plain", "unicode")
		b.Unicode = value == "unicode"
	case "sse":
		b.Style, err = parseStyle(value)
	case "retry-after":
		b.RetryAfter, err = parseRetryAfter(value)
	case "should-retry":
		err = parseChoice(value, "true", "false")
		b.ShouldRetry = value
	default:
		return b.Rate.set(key, value)
	}
	return err
}

func (r *RateHeaders) set(key, value string) (err error) {
	switch key {
	case "limit-requests":
		r.LimitRequests, err = parseNumber(value)
	case "remaining-requests":
		r.RemainingRequests, err = parseNumber(value)
	case "limit-tokens":
		r.LimitTokens, err = parseNumber(value)
	case "remaining-tokens":
		r.RemainingTokens, err = parseNumber(value)
	case "reset-requests":
		r.ResetRequests, err = parseDelay(value)
	case "reset-tokens":
		r.ResetTokens, err = parseDelay(value)
	default:
		return fmt.Errorf("unknown key")
	}
	return err
}

// setFault takes a fault's name, a status, or "none", which also takes back a status set before.
func (b *Behavior) setFault(value string) error {
	if value == "none" {
		b.Fault, b.Status = FaultNone, 0
		return nil
	}
	if slices.Contains(faults(), Fault(value)) {
		b.Fault, b.Status = Fault(value), 0
		return nil
	}
	if err := b.setStatus(value); err != nil {
		return fmt.Errorf("want a fault's name or a status of 400..599")
	}
	return nil
}

func (b *Behavior) setStatus(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 400 || n > 599 {
		return fmt.Errorf("want 400..599")
	}
	b.Fault, b.Status = FaultStatus, n
	return nil
}

func parseNumber(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("want a whole number")
	}
	return n, nil
}

func parseCount(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > outputTokensMax {
		return 0, fmt.Errorf("want 0..%d", outputTokensMax)
	}
	return n, nil
}

func parseDelay(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > durationMax {
		return 0, fmt.Errorf("want a duration of 0s..%s", durationMax)
	}
	return d, nil
}

// parseRetryAfter takes whole seconds ("2"), a duration ("1500ms") or "none".
func parseRetryAfter(value string) (time.Duration, error) {
	if value == "none" {
		return retryNone, nil
	}
	if n, err := parseNumber(value); err == nil && n <= int64(durationMax/time.Second) {
		return time.Duration(n) * time.Second, nil
	}
	return parseDelay(value)
}

func parseStyle(value string) (Style, error) {
	var s Style
	for name := range strings.SplitSeq(value, ",") {
		switch name {
		case "plain":
			s = Style{}
		case "crlf":
			s.CRLF = true
		case "nospace":
			s.NoSpace = true
		case "comment":
			s.Comment = true
		case "split":
			s.Split = true
		default:
			return Style{}, fmt.Errorf("unknown style %q", name)
		}
	}
	return s, nil
}

func parseChoice(value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("want one of %s", strings.Join(allowed, ", "))
	}
	return nil
}

// strikesAt returns after how many of total tokens the fault strikes; AfterHead means before the head, and -2 that no
// fault strikes on the way.
func (b *Behavior) strikesAt(total int64) int64 {
	switch b.Fault {
	case FaultCut, FaultReset, FaultTruncate, FaultErrorMid, FaultBrokenJSON:
		if b.After == AfterDefault {
			return total / 2
		}
	case FaultHang:
		if b.After == AfterDefault {
			return AfterHead
		}
	case FaultErrorFirst:
		return 0
	default:
		return -2
	}
	return min(b.After, total)
}
