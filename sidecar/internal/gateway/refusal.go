package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/auth"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/lease"
	"github.com/tidwall/gjson"
	"github.com/valyala/fasthttp"
)

// retryMax bounds the wait a caller is told: longer ones are ignored or given up on by SDKs.
const retryMax = 60 * time.Second

// refusal is an answer that is not the model's. It is the one place where a reason becomes HTTP.
type refusal struct {
	status  int
	kind    string // error.type, OpenAI's words
	code    string
	param   string
	message string
	retry   bool          // x-should-retry
	after   time.Duration // retry-after; 0 sends none

	ranOut   uint64 // the resource, 0 for none
	scope    string // its name
	left     int64
	needed   int64
	limit    int64
	unit     string // requests, tokens, calls or usd
	resetsAt time.Time
	attempts []attempt
	numbers  bool
	inner    string // the provider's innererror, a JSON object; "" for none
}

const (
	typeInvalid = "invalid_request_error"
	typeAuth    = "authentication_error"
	typeDenied  = "permission_error"
	typeLimit   = "rate_limit_error"
	typeQuota   = "insufficient_quota"
	typeServer  = "server_error"
)

func badRequest(param, message string) *refusal {
	return &refusal{status: 400, kind: typeInvalid, code: "invalid_value", param: param, message: message}
}

func badJSON(message string) *refusal {
	return &refusal{status: 400, kind: typeInvalid, code: "invalid_json", message: message}
}

func tooLarge(limit int) *refusal {
	return &refusal{
		status: 413, kind: typeInvalid, code: "request_too_large",
		message: fmt.Sprintf("the body is larger than %d bytes", limit),
	}
}

func notServed(method, path string) *refusal {
	hint := ""
	if rest, twice := strings.CutPrefix(path, "/v1/v1/"); twice && serves("/v1/"+rest) {
		hint = ": the base URL of Anthropic's SDKs has no /v1, which they add themselves"
	} else if serves("/v1" + path) {
		hint = ": the base URL ends in /v1"
	}
	return &refusal{
		status: 404, kind: typeInvalid, code: "unknown_route",
		message: fmt.Sprintf("%s %s is not served by this gateway%s", visible(method), visible(path), hint),
	}
}

func methodNotAllowed(method, path string) *refusal {
	return &refusal{
		status: 405, kind: typeInvalid, code: "method_not_allowed",
		message: fmt.Sprintf("%s is not served with method %s", visible(path), visible(method)),
	}
}

// visible keeps a caller's text short and on one line.
func visible(s string) string {
	const most = 200
	q := strconv.Quote(clipTo(s, most))
	return q[1 : len(q)-1]
}

func unknownAlias(name string) *refusal {
	return &refusal{
		status: 404, kind: typeInvalid, code: "model_not_found", param: "model",
		message: fmt.Sprintf("no model %q: GET /v1/models lists the ones this key may use", name),
	}
}

func aliasDenied(name, key string) *refusal {
	return &refusal{
		status: 403, kind: typeDenied, code: "alias_not_allowed", param: "model",
		message: fmt.Sprintf("key %q may not use model %q", key, name),
	}
}

func dataClassDenied(class, ceiling string) *refusal {
	return &refusal{
		status: 403, kind: typeDenied, code: "data_class_not_allowed",
		message: fmt.Sprintf("data class %q is above the key's ceiling %q", class, ceiling),
	}
}

// unauthorized refuses a key. While quotad is away an unknown key may be a new one: that is 503, never 401.
func unauthorized(r auth.Result, connected bool) *refusal {
	if r == auth.Unknown && !connected {
		return unavailable("the key is not known here, and quotad cannot be asked")
	}
	message := map[auth.Result]string{
		auth.Missing: "no API key: send Authorization: Bearer KEY or x-api-key: KEY",
		auth.Unknown: "the API key is not known",
		auth.Expired: "the API key has expired",
		auth.Revoked: "the API key has been revoked",
	}[r]
	return &refusal{status: 401, kind: typeAuth, code: "invalid_api_key", message: message}
}

func unavailable(message string) *refusal {
	return &refusal{
		status: 503, kind: typeServer, code: "quota_unavailable", message: message, retry: true, after: time.Second,
	}
}

func stopping() *refusal {
	return &refusal{
		status: 503, kind: typeServer, code: "shutting_down", message: "the gateway is stopping", retry: true,
		after: time.Second,
	}
}

func internalFault() *refusal {
	return &refusal{status: 500, kind: typeServer, code: "internal_error", message: "internal error"}
}

func requestCap(team string, needed, limit exchange.NanoUSD) *refusal {
	return &refusal{
		status: 400, kind: typeInvalid, code: "request_exceeds_limit", scope: "request_cap",
		message: fmt.Sprintf("the request may cost %s USD; team %q has a request_cap of %s USD for a single one: lower max_tokens",
			usd(needed), team, usd(limit)),
		needed: int64(needed), limit: int64(limit), unit: "usd", numbers: true,
	}
}

// shortOf turns the lease machine's verdict into the answer of dataplane's contract.
func (f *flow) shortOf(v lease.Verdict, res *exchange.Resource) *refusal {
	if res == nil {
		res = &exchange.Resource{Scope: "limit"}
	}
	what := res.Name() + " of " + f.whose(res)
	r := &refusal{
		status: 429, kind: typeLimit, ranOut: res.ID, scope: res.Name(), left: v.Left, needed: v.Needed, limit: res.Limit,
		unit: unitOf(res.Kind), numbers: true, retry: true, after: max(v.RetryAfter, time.Millisecond),
	}
	numbers := fmt.Sprintf("%s left, %s needed, limit %s", r.number(r.left), r.number(r.needed), r.number(r.limit))
	switch v.Reason {
	case lease.Throttled:
		r.code = res.Name()
		r.message = fmt.Sprintf("%s is used up: %s", what, numbers)
	case lease.Reserved:
		r.code = "budget_reserved"
		r.message = fmt.Sprintf("the rest of %s is reserved by running requests: %s", what, numbers)
	case lease.Exhausted:
		r.kind, r.code, r.retry, r.after = typeQuota, "budget_exhausted", false, 0
		r.resetsAt = res.PeriodEndsAt
		r.message = fmt.Sprintf("%s is spent: %s", what, numbers)
		if res.Scope == exchange.ScopeRun {
			r.code = "run_budget_exhausted"
			r.message += fmt.Sprintf("; the run is resumable: it goes on when team %q is given a larger run budget", res.Owner)
		}
	case lease.TooLarge:
		r.status, r.kind, r.code, r.retry, r.after = 400, typeInvalid, "request_exceeds_limit", false, 0
		r.message = fmt.Sprintf("the request needs more than all of %s: %s", what, numbers)
	default:
		used := "the key's standing share is used up"
		if res.Kind == exchange.Money {
			used = fmt.Sprintf("what is on lease here of %s is spent", what)
		}
		u := unavailable("quotad is away and " + used)
		u.after = max(v.RetryAfter, time.Millisecond) // a share says to the millisecond when it has the next request
		return u
	}
	return r
}

// whose names who a resource is limited for, in words the caller knows. A user's hash says nothing to it.
func (f *flow) whose(res *exchange.Resource) string {
	name, _ := f.which(res)
	switch {
	case res.Each == exchange.Whole:
		return strconv.Quote(res.Owner)
	case name == "":
		return fmt.Sprintf("all that are beyond the first %d of key %q", namesMax, f.who.Key)
	case res.Scope == exchange.ScopeRun:
		return strconv.Quote(name)
	}
	return fmt.Sprintf("this user of team %q", res.Owner)
}

func unitOf(k exchange.Kind) string {
	switch k {
	case exchange.Requests:
		return "requests"
	case exchange.Calls:
		return "calls"
	case exchange.Money:
		return "usd"
	}
	return "tokens"
}

// upstreamFailed turns the last failure of a request's attempts into the caller's answer. The provider's own limits
// are named as theirs, and faults of our credentials are not shown. Where the gateway has tried more than once already
// and nobody knows when to come back, a client should not multiply the calls.
func upstreamFailed(fl *flow, f *exchange.Failure) *refusal {
	r := &refusal{
		status: 502, kind: typeServer, code: "upstream_error", message: f.Message, attempts: fl.tried,
		after: min(f.RetryAfter, retryMax), retry: !f.Final && (len(fl.tried) <= 1 || f.RetryAfter > 0),
	}
	switch f.Kind {
	case exchange.FailRequest, exchange.FailContext, exchange.FailPolicy, exchange.FailUnsupported:
		if f.Status == fasthttp.StatusNotImplemented { // its server is not made for it: the request may be as it should
			r.retry = false
			break
		}
		r.status, r.kind, r.code, r.param, r.retry = 400, typeInvalid, f.Code, asSent(&fl.req, f.Param), false
		r.inner = f.Inner
		if f.Status == fasthttp.StatusRequestEntityTooLarge {
			r.status = f.Status
		}
		if r.code == "" && r.status == fasthttp.StatusRequestEntityTooLarge {
			r.code = "request_too_large"
		}
		if r.code == "" {
			r.code = map[exchange.FailureKind]string{
				exchange.FailRequest: "invalid_value", exchange.FailContext: "context_length_exceeded",
				exchange.FailPolicy: "content_policy_violation", exchange.FailUnsupported: "unsupported_parameter",
			}[f.Kind]
		}
	case exchange.FailRateLimited:
		r.status, r.kind, r.code = 429, typeLimit, "upstream_rate_limited"
		r.message = "the provider's own rate limit is used up"
		r.after, r.retry = max(r.after, time.Second), !f.Final
	case exchange.FailOverloaded:
		r.status, r.code = 503, "upstream_overloaded"
		if f.Status == fasthttp.StatusGatewayTimeout { // it gave up waiting itself
			r.status, r.code = 504, "upstream_timeout"
		}
		r.after = max(r.after, time.Second)
	case exchange.FailTimeout:
		r.status, r.code = 504, "upstream_timeout"
	case exchange.FailConnect:
		r.code = "upstream_unreachable"
		r.message = "the provider cannot be reached"
	case exchange.FailInvalid:
		r.code = "upstream_invalid_response"
	case exchange.FailCut:
		r.code = "upstream_cut"
	case exchange.FailCredential, exchange.FailNotFound:
		r.code = "upstream_misconfigured"
		r.message = "the provider refused the gateway's credential or configuration; its operators see why in /status"
		if len(fl.tried) == 0 {
			r.message = "the gateway's configuration of the provider is at fault, which was not asked; its operators see why in /status"
		}
		r.retry = false
	}
	return r
}

// asSent is a member's name as the caller wrote it: some have two names, and providers know one.
func asSent(r *exchange.Request, param string) string {
	switch r.Dialect {
	case exchange.MessagesDialect:
		return messages.Param(param)
	case exchange.ResponsesDialect:
		return responses.Param(param)
	}
	other := namesakes[param]
	if other == "" || gjson.GetBytes(r.Body, param).Exists() || !gjson.GetBytes(r.Body, other).Exists() {
		return param
	}
	return other
}

// namesakes are members that say the same.
var namesakes = map[string]string{
	"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens", "user": "safety_identifier", "safety_identifier": "user",
}

func breakersOpen(wait time.Duration) *refusal {
	return &refusal{
		status: 503, kind: typeServer, code: "upstream_unavailable", retry: true, after: min(wait, retryMax),
		message: "every deployment of this model is failing; none is tried until it has had time to recover",
	}
}

// notSold: what it would cost is not stated, so that nobody may have it.
func notSold(alias, param string) *refusal {
	return &refusal{
		status: 400, kind: typeInvalid, code: "unsupported_parameter", param: param,
		message: fmt.Sprintf("no deployment of %q has a price for this %s", alias, param),
	}
}

func noCandidate(alias string, reasons string) *refusal {
	return &refusal{
		status: 400, kind: typeInvalid, code: "no_deployment", param: "model",
		message: fmt.Sprintf("no deployment of %q can serve this request: %s", alias, reasons),
	}
}

// number writes an amount in the unit of the resource: dollars for money.
func (r *refusal) number(n int64) string {
	if r.unit == "usd" {
		return usd(exchange.NanoUSD(n)) + " USD"
	}
	return strconv.FormatInt(n, 10)
}

// usd writes nano-dollars as an exact decimal, without trailing zeros.
func usd(n exchange.NanoUSD) string { return string(appendUSD(nil, n)) }

func appendUSD(b []byte, n exchange.NanoUSD) []byte {
	u := uint64(n)
	if n < 0 {
		b, u = append(b, '-'), -u
	}
	b = strconv.AppendUint(b, u/1e9, 10)
	frac := u % 1e9
	if frac == 0 {
		return b
	}
	b = append(b, '.')
	for d := uint64(1e8); frac > 0; d /= 10 {
		b = append(b, byte('0'+frac/d))
		frac %= d
	}
	return b
}
