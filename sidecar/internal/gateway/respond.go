package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

const (
	requestIDMax = 128
	labelMax     = 64 // of a feature name
	// statusGone is what the access line says of a caller that left; nobody reads the response.
	statusGone = 499
)

// requestID is the caller's x-request-id when it is harmless, or a new one.
func requestID(c *fasthttp.RequestCtx) string {
	if id := c.Request.Header.Peek("x-request-id"); len(id) > 0 && len(id) <= requestIDMax && harmless(id) {
		return string(id)
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return "req_" + hex.EncodeToString(b[:])
}

func harmless(id []byte) bool {
	for _, c := range id {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}

func hashUser(user string) string {
	if user == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:])
}

func clip(s string) string { return clipTo(s, labelMax) }

func clipTo(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

// cancelled is the answer to a request that was cancelled: its caller has left, or the sidecar stops.
func (f *flow) cancelled() *refusal {
	if f.cut.Load() {
		return stopping()
	}
	return &refusal{status: statusGone}
}

// refuse writes a refusal in the OpenAI dialect, into a response nothing was written to. Every error object has all
// four of OpenAI's members; ours come after.
func (g *Gateway) refuse(f *flow, r *refusal) {
	g.commonHeaders(f)
	if f.who != nil {
		g.limitHeaders(f)
	}
	writeRefusal(&f.c.Response, r)
	g.Metrics.Refusals.WithLabelValues(r.code).Inc()
}

func writeRefusal(resp *fasthttp.Response, r *refusal) {
	resp.SetStatusCode(r.status)
	resp.Header.SetContentType("application/json")
	h := &resp.Header
	h.Set("x-should-retry", strconv.FormatBool(r.retry))
	if r.retry && r.after > 0 {
		after := min(r.after, retryMax)
		h.Set("retry-after", strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10))
		h.Set("retry-after-ms", strconv.FormatInt(int64((after+time.Millisecond-1)/time.Millisecond), 10))
	}
	b := append([]byte(nil), `{"error":{"message":`...)
	b = appendString(b, r.message)
	b = append(b, `,"type":`...)
	b = appendString(b, r.kind)
	b = append(b, `,"param":`...)
	if r.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, r.param)
	}
	b = append(b, `,"code":`...)
	b = appendString(b, r.code)
	if r.scope != "" {
		b = append(b, `,"scope":`...)
		b = appendString(b, r.scope)
	}
	if r.numbers {
		b = r.appendAmount(append(b, `,"left":`...), r.left)
		b = r.appendAmount(append(b, `,"needed":`...), r.needed)
		b = r.appendAmount(append(b, `,"limit":`...), r.limit)
		b = append(b, `,"unit":`...)
		b = appendString(b, r.unit)
	}
	if !r.resetsAt.IsZero() {
		b = append(b, `,"resets_at":`...)
		b = appendString(b, r.resetsAt.UTC().Format(time.RFC3339))
	}
	if len(r.attempts) > 0 {
		b = append(b, `,"attempts":[`...)
		for i, a := range r.attempts {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"deployment":`...)
			b = appendString(b, a.Deployment)
			b = append(b, `,"failure":`...)
			b = appendString(b, kindName(a.Kind))
			b = append(b, `,"status":`...)
			b = strconv.AppendInt(b, int64(a.Status), 10)
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	resp.SetBodyRaw(append(b, "}}"...))
}

// appendAmount writes money as an exact decimal number of dollars, other amounts as whole numbers.
func (r *refusal) appendAmount(b []byte, n int64) []byte {
	if r.unit == "usd" {
		return appendUSD(b, exchange.NanoUSD(n))
	}
	return strconv.AppendInt(b, n, 10)
}

func kindName(k exchange.FailureKind) string {
	switch k {
	case exchange.FailNone:
		return "none"
	case exchange.FailConnect:
		return "connect"
	case exchange.FailTimeout:
		return "timeout"
	case exchange.FailRateLimited:
		return "rate_limited"
	case exchange.FailOverloaded:
		return "overloaded"
	case exchange.FailInvalid:
		return "invalid_response"
	case exchange.FailCut:
		return "cut"
	case exchange.FailRequest:
		return "request"
	case exchange.FailContext:
		return "context_length"
	case exchange.FailPolicy:
		return "content_policy"
	case exchange.FailCredential, exchange.FailNotFound:
		return "misconfigured"
	case exchange.FailUnsupported:
		return "unsupported"
	case exchange.FailCancelled:
		return "cancelled"
	}
	return "unknown"
}

func (g *Gateway) commonHeaders(f *flow) {
	h := &f.c.Response.Header
	h.Set("x-request-id", f.req.ID)
	if f.rules != nil {
		h.Set("x-gw-config-version", strconv.FormatUint(f.rules.Version, 10))
	}
}

func (g *Gateway) answerHeaders(f *flow, attempts int) {
	g.commonHeaders(f)
	h := &f.c.Response.Header
	h.Set("x-gw-deployment", f.target.ID)
	h.Set("x-gw-attempts", strconv.Itoa(attempts))
	g.limitHeaders(f)
}

// limitHeaders says what is left, of the tightest resource of each kind: OpenAI's names for requests and tokens, ours
// for money.
func (g *Gateway) limitHeaders(f *flow) {
	h := &f.c.Response.Header
	var told [3]struct {
		set         bool
		left, limit int64
		reset       time.Duration
	}
	for _, d := range f.who.Draws {
		slot := 1
		switch d.Kind {
		case exchange.Requests:
			slot = 0
		case exchange.Money:
			slot = 2
		}
		left, limit, reset, ok := g.Lease.Remaining(d.ID)
		if t := &told[slot]; ok && (!t.set || left < t.left) {
			t.set, t.left, t.limit, t.reset = true, left, limit, reset
		}
	}
	for i, unit := range [...]string{"requests", "tokens"} {
		if t := told[i]; t.set {
			h.Set("x-ratelimit-limit-"+unit, strconv.FormatInt(t.limit, 10))
			h.Set("x-ratelimit-remaining-"+unit, strconv.FormatInt(min(max(t.left, 0), t.limit), 10))
			h.Set("x-ratelimit-reset-"+unit, t.reset.Round(time.Millisecond).String())
		}
	}
	if t := told[2]; t.set {
		h.Set("x-gw-budget-remaining", usd(exchange.NanoUSD(t.left)))
	}
}

// annotate appends the x_gateway object. The cost is a JSON number with every digit of the nano-dollars.
func (g *Gateway) annotate(b []byte, f *flow, d *exchange.Deployment, attempts int, u exchange.Usage) []byte {
	cost, version := f.price(time.Now(), d, u.Tokens)
	b = append(b, `{"deployment":`...)
	b = appendString(b, d.ID)
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(attempts), 10)
	b = append(b, `,"cost":`...)
	b = appendUSD(b, cost)
	b = append(b, `,"currency":"USD","price_version":`...)
	b = appendString(b, version)
	b = append(b, `,"estimated":`...)
	b = strconv.AppendBool(b, u.Source != exchange.FromProvider)
	return append(b, '}')
}

// access writes the one log line of a request: never its content, never a key.
func (g *Gateway) access(f *flow) {
	code := f.c.Response.StatusCode()
	took := time.Since(f.began)
	g.Metrics.Requests.WithLabelValues(strconv.Itoa(code)).Inc()
	if ce := g.Log.Check(zap.InfoLevel, "request"); ce != nil {
		fields := []zap.Field{
			zap.String("request_id", f.req.ID), zap.Int("status", code), zap.Duration("took", took),
			zap.Bool("stream", f.streaming), zap.Int("attempts", len(f.tried)),
		}
		if f.who != nil {
			fields = append(fields, zap.String("key", f.who.Key))
		}
		if f.alias != nil {
			fields = append(fields, zap.String("alias", f.alias.Name))
		}
		if f.target != nil {
			fields = append(fields, zap.String("deployment", f.target.ID))
		}
		ce.Write(fields...)
	}
}
