package gateway

import (
	"math/rand/v2"
	"time"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"go.uber.org/zap"
)

const (
	backoffBase = 100 * time.Millisecond
	backoffMax  = time.Second
	// backoffSteps bounds the doubling, which is past backoffMax by then.
	backoffSteps = 4
	// startWithin: attempts may begin until this many first-token deadlines after the request, so that a deployment
	// that used up its own leaves one for the next.
	startWithin = 2
)

// candidate is a deployment that may be tried.
type candidate struct {
	exchange.Target
	failed *exchange.Failure // how it failed before, nil when it has not been tried
	at     time.Time         // when it did
}

// attempt is step 6: one deployment after the other, until one answers or nothing is left to try. Nothing has reached
// the caller while it loops. A deployment that cannot honour the request, or whose rented limit is short, is passed over,
// which is no attempt; one that failed in a way that may be over soon goes to the end of the queue.
func (g *Gateway) attempt(f *flow) *refusal {
	no, exhausted := g.tryAll(f)
	if exhausted && f.req.Operation == exchange.CountTokens {
		g.guessTokens(f)
		return nil
	}
	return no
}

// tryAll tries one deployment after the other. exhausted: none is left, and the fault was not the request's.
func (g *Gateway) tryAll(f *flow) (no *refusal, exhausted bool) {
	g.Route.Request(f.began)
	order, wait := g.Route.Order(time.Now(), f.targets, g.roomFor(f))
	switch {
	case len(order) > 0:
	case wait > 0:
		return breakersOpen(wait), true
	default:
		return upstreamFailed(f, &exchange.Failure{Kind: exchange.FailCredential}), true
	}
	queue := make([]candidate, len(order), len(order)+f.alias.MaxAttempts)
	for i, t := range order {
		queue[i].Target = t
	}
	var last, unfit *exchange.Failure
	var short *refusal    // of the rented limit that has room again the soonest
	tooSmall := int64(-1) // the widest window that was too small
	for len(queue) > 0 && len(f.tried) < f.alias.MaxAttempts {
		c := queue[0]
		queue = queue[1:]
		if c.Deployment.ContextTokens <= tooSmall {
			continue
		}
		call, no := g.prepare(f, c.Deployment)
		switch {
		case no == nil:
		case no.Kind == exchange.FailCancelled:
			return f.cancelled(), false
		case no.Kind.Failover():
			if unfit == nil || unfit.Kind == exchange.FailUnsupported { // our own faults come before the caller's
				unfit = no
			}
			continue
		default:
			return upstreamFailed(f, no), false
		}
		if last != nil && !g.mayRetry(f, c) {
			if f.cancel.Cancelled() {
				return f.cancelled(), false
			}
			break
		}
		if no := g.rent(f, c.Deployment); no != nil {
			if f.cancel.Cancelled() {
				return f.cancelled(), false
			}
			short = sooner(short, no)
			continue
		}
		failure := g.try(f, c.Deployment, call)
		switch {
		case failure == nil:
			return nil, false
		case failure.Kind == exchange.FailCancelled, f.cancel.Cancelled():
			return f.cancelled(), false
		case !failure.Kind.Failover():
			return upstreamFailed(f, failure), false
		case failure.Kind == exchange.FailContext:
			tooSmall = max(tooSmall, c.Deployment.ContextTokens)
		case worthRepeating(failure):
			queue = append(queue, candidate{c.Target, failure, time.Now()})
		}
		last = failure
	}
	switch {
	case last != nil:
		return upstreamFailed(f, last), true
	case short != nil:
		return short, true
	}
	return upstreamFailed(f, unfit), true
}

// mayRetry decides on one more attempt, and waits until it may begin when it goes back to a deployment that has
// already failed.
func (g *Gateway) mayRetry(f *flow, c candidate) bool {
	if time.Since(f.began) > startWithin*f.alias.Timeouts.FirstToken {
		return false
	}
	if !g.Route.Retry(time.Now()) {
		g.Metrics.RetryBudget.Inc()
		return false
	}
	if c.failed == nil {
		return true
	}
	spread := min(backoffBase<<min(len(f.tried), backoffSteps), backoffMax)
	select {
	case <-f.cancel.Done():
		return false
	case <-time.After(max(time.Until(c.at.Add(c.failed.RetryAfter)), rand.N(spread))):
		return true
	}
}

// worthRepeating says which failures of a deployment may be gone a moment later. For a longer wait the caller's own
// retry is the better place.
func worthRepeating(f *exchange.Failure) bool {
	switch f.Kind {
	case exchange.FailConnect, exchange.FailOverloaded, exchange.FailInvalid, exchange.FailCut:
		return !f.Final && f.RetryAfter <= backoffMax
	}
	return false
}

// try is one attempt at one deployment. It returns nil once the answer is on its way to the caller.
func (g *Gateway) try(f *flow, d *exchange.Deployment, call adapter.Call) *exchange.Failure {
	start, number := time.Now(), len(f.tried)+1
	f.target = d
	f.req.InputEstimate = g.inputOf(f)
	up := relay.Upstream{BaseURL: d.BaseURL, Timeouts: f.alias.Timeouts, Lefts: len(d.Pools) > 0, Waiting: f.began}
	ad, _ := g.adapterFor(f, d)
	open := func() (*relay.Answer, *exchange.Failure) {
		return g.Relay.Open(&f.cancel, up, call, f.req.Stream, ad, &f.req,
			func(dst []byte, u exchange.Usage, delivered adapter.Delivered) ([]byte, exchange.Usage) {
				u = g.known(f, u, delivered)
				return g.annotate(dst, f, d, number, u), u
			})
	}
	ans, failure := open()
	if failure != nil && ans.Status == 401 && g.reauthorize(f, d, &call) {
		ans, failure = open()
	}
	g.hear(d, ans, failure, start)
	if failure != nil {
		failure.Param = g.inChat(f, d, failure.Param)
		g.failRented(f, ans, failure)
		g.Route.Report(time.Now(), d.ID, failure)
		f.tried = append(f.tried, attempt{d.ID, failure.Kind, failure.Status, failure.Message})
		g.failed(f, d, number, start, ans, failure)
		return failure
	}
	f.tried = append(f.tried, attempt{Deployment: d.ID, Status: ans.Status})
	g.answerHeaders(f)
	if ans.Stream != nil {
		g.stream(f, ans, number, start)
		return nil
	}
	g.Route.Report(time.Now(), d.ID, nil)
	g.healed(d)
	g.done(f, ended{
		d: d, number: number, start: start, ans: ans, usage: ans.Usage,
		status: usagev1.Status_STATUS_OK, billed: true,
	})
	f.c.SetStatusCode(200)
	f.c.SetContentType("application/json")
	f.c.Response.SetBodyRaw(ans.Body)
	return nil
}

// stream hands the answer to fasthttp, which pulls it through WriteTo after the handler has returned.
func (g *Gateway) stream(f *flow, ans *relay.Answer, number int, start time.Time) {
	f.streaming = true
	d := f.target
	s := ans.Stream
	s.Caller = f.c
	g.Metrics.OpenStreams.Inc()
	s.OnEnd = func(o relay.Outcome) {
		g.Metrics.OpenStreams.Dec()
		g.Route.Report(time.Now(), d.ID, o.Failure)
		if o.Failure == nil {
			g.healed(d)
		}
		if o.Failure != nil && o.Early { // a failed attempt, of which the caller has a beginning
			ans.Usage = o.Usage
			g.failRented(f, ans, o.Failure)
			g.failed(f, d, number, start, ans, o.Failure)
			g.release(f)
			g.over(f)
			return
		}
		u := g.known(f, o.Usage, o.Delivered)
		e := ended{
			d: d, number: number, start: start, ans: ans, usage: u, billed: true,
			firstToken: o.FirstToken, status: usagev1.Status_STATUS_OK,
		}
		switch o.Status {
		case relay.StatusPartial, relay.StatusFailed:
			e.status = usagev1.Status_STATUS_PARTIAL
		case relay.StatusCancelled:
			e.status = usagev1.Status_STATUS_CANCELLED
		}
		if o.Status != relay.StatusOK {
			e.usage = g.partial(f, o)
		}
		g.done(f, e)
		g.over(f)
	}
	f.c.SetStatusCode(200)
	f.c.SetContentType("text/event-stream; charset=utf-8")
	f.c.Response.Header.Set("Cache-Control", "no-cache")
	f.c.Response.Header.Set("X-Accel-Buffering", "no")
	f.c.Response.ImmediateHeaderFlush = true
	f.c.SetBodyStream(s, -1)
}

// known fills in what the provider did not state, from what was relayed. An explicit zero is a zero, and an estimate
// that the caller was told stands, whatever has been learned since.
func (g *Gateway) known(f *flow, u exchange.Usage, delivered adapter.Delivered) exchange.Usage {
	if u.Source == exchange.FromProvider || u.Total() > 0 {
		return u
	}
	u.Source = exchange.FromEstimate
	u.Tokens = exchange.Tokens{Input: g.inputOf(f), WebSearches: u.WebSearches}
	if f.req.Operation == exchange.Chat {
		u.Output = g.Estimate.PieceTokens(f.target.ID, delivered.Bytes, delivered.Pieces)
	}
	return u
}

// partial is the usage of a stream that did not come to its end: what the provider had stated so far or what was
// delivered, whichever is more.
func (g *Gateway) partial(f *flow, o relay.Outcome) exchange.Usage {
	u := o.Usage
	if u.Source != exchange.FromProvider || u.Prompt() == 0 {
		u.Tokens = exchange.Tokens{Input: g.inputOf(f), Output: u.Output, OutputAudio: u.OutputAudio, WebSearches: u.WebSearches}
	}
	u.Output = max(u.Output, g.Estimate.PieceTokens(f.target.ID, o.Delivered.Bytes, o.Delivered.Pieces))
	u.Source = exchange.FromPartial
	return u
}

func (g *Gateway) inputOf(f *flow) int64 {
	return g.Estimate.TextTokens(f.target.ID, f.input.Bytes) + f.input.Extra
}

// failed records an attempt that brought nothing. What the provider may invoice for it is the platform's, or the
// team's when its policy says so or its caller has left.
func (g *Gateway) failed(f *flow, d *exchange.Deployment, number int, start time.Time, ans *relay.Answer, failure *exchange.Failure) {
	if failure.Kind.Misconfigured() {
		secret, _ := g.Policy.Secret(d.Credential)
		g.misconfigured(d, secret, refusedBy(failure), zap.String("request_id", f.req.ID))
	} else {
		g.Metrics.UpstreamFailures.WithLabelValues(d.ID, kindName(failure.Kind)).Inc()
	}
	e := ended{d: d, number: number, start: start, ans: ans, usage: ans.Usage, status: usagev1.Status_STATUS_FAILED}
	e.platform = !f.who.PaysFailed
	if failure.Kind == exchange.FailCancelled {
		e.status = usagev1.Status_STATUS_CANCELLED
		// Who asks and leaves pays for what was asked, or a budget would not bind those who hang up in time. That the
		// sidecar stops is not the caller's doing.
		e.platform = e.platform && f.cut.Load()
	}
	if ans.Sent && ans.Usage.Source != exchange.FromProvider && f.req.Operation != exchange.CountTokens && mayBeInvoiced(failure.Kind) {
		e.usage = exchange.Usage{Tokens: exchange.Tokens{Input: g.inputOf(f)}, Source: exchange.FromEstimate}
	}
	cost := g.event(f, e)
	if e.platform {
		g.Metrics.PlatformCost.Add(float64(cost))
		return
	}
	f.wasted = f.wasted.Add(e.usage.Tokens)
	f.wastedCost += cost
}

// mayBeInvoiced says after which failures of a request that had been sent the provider may charge for the prompt: it
// took the request and no more is known. One that answered with an error does not.
func mayBeInvoiced(k exchange.FailureKind) bool {
	switch k {
	case exchange.FailTimeout, exchange.FailCut, exchange.FailConnect, exchange.FailCancelled:
		return true
	}
	return false
}

// ended is how an attempt went.
type ended struct {
	d          *exchange.Deployment
	number     int
	start      time.Time
	firstToken time.Duration
	ans        *relay.Answer
	usage      exchange.Usage
	status     usagev1.Status
	billed     bool
	platform   bool // the platform pays, not the team
}

// done is steps 7 and 8 of an answered request: settle, then the usage event. For a stream both happen before its
// last bytes go out, because clients hang up on [DONE].
func (g *Gateway) done(f *flow, e ended) {
	g.recordWasted(f)
	cost := g.event(f, e)
	g.settleRented(f, e.usage.Tokens)
	g.settle(f, e.usage, cost)
}

// event records an attempt and returns its cost.
func (g *Gateway) event(f *flow, e ended) exchange.NanoUSD {
	end := time.Now()
	cost, version := f.price(end, e.d, e.usage)
	g.knowPrice(f, end, e)
	if e.firstToken == 0 {
		e.firstToken = e.ans.FirstToken
	}
	ev := &usagev1.Event{
		RequestId: f.req.ID, Attempt: int32(e.number), AtMs: end.UnixMilli(),
		Team: f.who.Team, Key: f.who.Key, App: f.who.App, Feature: f.req.Feature, UserSha256: f.req.UserSHA256,
		Alias: f.alias.Name, Deployment: e.d.ID, Billed: e.billed, Status: e.status,
		PlatformPays: e.platform,
		Source:       usagev1.Source(e.usage.Source), Tokens: protoTokens(e.usage.Tokens),
		ServiceTier: clip(e.usage.ServiceTier), RawUsage: rawUsage(e.usage.Raw),
		CostNano: int64(cost), PriceVersion: version,
		UpstreamStatus: int32(e.ans.Status), UpstreamRequestId: e.ans.UpstreamRequestID,
		FirstTokenMs: e.firstToken.Milliseconds(), DurationMs: end.Sub(e.start).Milliseconds(),
	}
	if !e.billed && !e.platform && cost > 0 {
		f.wastedEvents = append(f.wastedEvents, ev)
	} else {
		g.Usage.Record(ev)
	}
	return cost
}

// recordWasted records the failed attempts that the team pays for. It comes with the settle that pays for them: if the
// process is killed before, the reservation counts as spent whole, and they are part of it.
func (g *Gateway) recordWasted(f *flow) {
	for _, ev := range f.wastedEvents {
		g.Usage.Record(ev)
	}
	f.wastedEvents = nil
}
