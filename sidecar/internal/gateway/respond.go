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
	return &refusal{status: statusGone, kind: typeInvalid, code: "caller_gone", message: "the caller has left"}
}

// refuse answers with a refusal, in the caller's dialect, into a response nothing was written to.
func (g *Gateway) refuse(f *flow, r *refusal) {
	g.commonHeaders(f)
	if len(f.tried) > 0 {
		g.attemptHeaders(f)
	}
	if f.who != nil {
		g.limitHeaders(f, r)
	}
	resp := &f.c.Response
	resp.SetStatusCode(r.status)
	resp.Header.SetContentType("application/json")
	resp.Header.Set("x-should-retry", strconv.FormatBool(r.retry))
	if r.retry && r.after > 0 {
		after := min(r.after, retryMax)
		resp.Header.Set("retry-after", strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10))
		resp.Header.Set("retry-after-ms", strconv.FormatInt(int64((after+time.Millisecond-1)/time.Millisecond), 10))
	}
	if f.speaks == anthropicDialect {
		resp.SetBodyRaw(r.appendAnthropic(nil, f.req.ID))
	} else {
		resp.SetBodyRaw(r.appendOpenAI(nil))
	}
	g.Metrics.Refusals.WithLabelValues(r.code).Inc()
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
	if f.speaks == anthropicDialect {
		h.Set("request-id", f.req.ID) // where its SDKs look
	}
	if f.rules != nil {
		h.Set("x-gw-config-version", strconv.FormatUint(f.rules.Version, 10))
	}
}

func (g *Gateway) answerHeaders(f *flow) {
	g.commonHeaders(f)
	g.attemptHeaders(f)
	g.limitHeaders(f, nil)
}

// attemptHeaders says which deployment answered, or failed last, and how many attempts there were.
func (g *Gateway) attemptHeaders(f *flow) {
	h := &f.c.Response.Header
	h.Set("x-gw-deployment", f.target.ID)
	h.Set("x-gw-attempts", strconv.Itoa(len(f.tried)))
}

// limitHeaders says what is left, of the tightest resource of each kind: OpenAI's names for requests and tokens, ours
// for money. Of its kind, the resource that made the refusal is the one that is told; r is nil for an answer.
func (g *Gateway) limitHeaders(f *flow, r *refusal) {
	var told [3]struct {
		set, final  bool
		left, limit int64
		reset       time.Duration
	}
	for _, d := range f.who.Draws {
		name, draws := f.which(d)
		if !draws || d.Kind == exchange.Calls {
			continue
		}
		slot := 1
		switch d.Kind {
		case exchange.Requests:
			slot = 0
		case exchange.Money:
			slot = 2
		}
		left, limit, reset, ok := g.Lease.RemainingOf(d.ID, name)
		final := r != nil && r.ranOut == d.ID
		switch {
		case final:
			left, limit, ok = r.left, d.Limit, true // as the error says
		case !ok && d.Kind != exchange.Money:
			left, limit, ok = d.Burst, d.Limit, true // nobody here has drawn on it yet
		}
		if t := &told[slot]; ok && !t.final && (final || !t.set || left < t.left) {
			t.set, t.final, t.left, t.limit, t.reset = true, final, left, limit, reset
		}
	}
	h := &f.c.Response.Header
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
	cost, version := f.price(time.Now(), d, u)
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
