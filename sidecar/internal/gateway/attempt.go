package gateway

import (
	"fmt"
	"math/rand/v2"
	"time"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"go.uber.org/zap"
)

const (
	backoffBase = 100 * time.Millisecond
	backoffMax  = time.Second
	// startWithin: attempts may begin until this many first-token deadlines after the request, so that a deployment
	// that used up its own leaves one for the next.
	startWithin = 2
)

// attempt is steps 7 and 8: one deployment after the other, until one answers or nothing is left to try. Nothing has
// reached the caller while it loops.
func (g *Gateway) attempt(f *flow) *refusal {
	g.Route.Request(f.began)
	order, wait := g.Route.Order(time.Now(), f.targets)
	if len(order) == 0 {
		return breakersOpen(wait)
	}
	var last *exchange.Failure
	for n := 0; n < f.alias.MaxAttempts; n++ {
		t := order[n%len(order)]
		if n > 0 {
			if !g.mayRetry(f, n, len(order), t, last) {
				break
			}
		}
		failure := g.try(f, t.Deployment, n+1)
		if failure == nil {
			return nil
		}
		if failure.Kind == exchange.FailCancelled {
			return f.cancelled()
		}
		last = failure
		if !failure.Kind.Failover() {
			break
		}
	}
	return upstreamFailed(last, f.tried)
}

// mayRetry decides on attempt n (from 0) and waits out the backoff when it would go back to a deployment that has
// already failed.
func (g *Gateway) mayRetry(f *flow, n, deployments int, t exchange.Target, last *exchange.Failure) bool {
	if time.Since(f.began) > startWithin*f.alias.Timeouts.FirstToken {
		return false
	}
	again := n >= deployments
	if again && (last.Final || !worthRepeating(last.Kind)) {
		return false
	}
	if last.Kind == exchange.FailContext && !g.wider(f, t) {
		return false
	}
	if !g.Route.Retry(time.Now()) {
		g.Metrics.RetryBudget.Inc()
		return false
	}
	if !again {
		return true
	}
	pause := max(last.RetryAfter, rand.N(min(backoffBase<<(n-deployments), backoffMax)))
	if pause > backoffMax {
		return false // the caller's own retry is the better place to wait
	}
	select {
	case <-f.cancel.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// worthRepeating says which failures of a deployment may be gone a moment later.
func worthRepeating(k exchange.FailureKind) bool {
	switch k {
	case exchange.FailConnect, exchange.FailOverloaded, exchange.FailInvalid, exchange.FailCut:
		return true
	}
	return false
}

// wider reports whether a deployment's window is larger than the one that was too small.
func (g *Gateway) wider(f *flow, t exchange.Target) bool {
	return t.Deployment.ContextTokens > f.target.ContextTokens
}

// try is one attempt at one deployment. It returns nil once the answer is on its way to the caller.
func (g *Gateway) try(f *flow, d *exchange.Deployment, number int) *exchange.Failure {
	start := time.Now()
	f.target = d
	ans, failure := g.call(f, d, number)
	if failure != nil {
		g.Route.Report(time.Now(), d.ID, failure.Kind)
		f.tried = append(f.tried, attempt{d.ID, failure.Kind, failure.Status, failure.Message})
		g.failed(f, d, number, start, ans, failure)
		return failure
	}
	f.tried = append(f.tried, attempt{Deployment: d.ID, Status: ans.Status})
	g.answerHeaders(f, number)
	if ans.Stream != nil {
		g.stream(f, ans, number, start)
		return nil
	}
	g.Route.Report(time.Now(), d.ID, exchange.FailNone)
	u := g.known(f, ans.Usage, int64(len(ans.Body)))
	g.done(f, ended{
		d: d, number: number, start: start, ans: ans, usage: u,
		status: usagev1.Status_STATUS_OK, billed: true,
	})
	f.c.SetStatusCode(200)
	f.c.SetContentType("application/json")
	f.c.Response.SetBodyRaw(ans.Body)
	return nil
}

func (g *Gateway) call(f *flow, d *exchange.Deployment, number int) (*relay.Answer, *exchange.Failure) {
	ad := g.Adapters[d.Provider]
	if ad == nil {
		return nil, &exchange.Failure{
			Kind: exchange.FailNotFound, Message: fmt.Sprintf("provider %q is not known to this version", d.Provider),
		}
	}
	var secret []byte
	if d.Credential != "" {
		var ok bool
		if secret, ok = g.Policy.Secret(d.Credential); !ok {
			return nil, &exchange.Failure{
				Kind: exchange.FailCredential, Message: fmt.Sprintf("credential %q has not been received", d.Credential),
			}
		}
	}
	call, failure := ad.Request(&f.req, d, secret)
	if failure != nil {
		return nil, failure
	}
	up := relay.Upstream{BaseURL: d.BaseURL, Timeouts: f.alias.Timeouts}
	return g.Relay.Open(&f.cancel, up, call, f.req.Stream, ad, &f.req, func(dst []byte, u exchange.Usage) []byte {
		return g.annotate(dst, f, d, number, u)
	})
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
		kind := exchange.FailNone
		if o.Failure != nil {
			kind = o.Failure.Kind
		}
		g.Route.Report(time.Now(), d.ID, kind)
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

// known fills in what the provider did not state, from what was relayed. An explicit zero is a zero.
func (g *Gateway) known(f *flow, u exchange.Usage, delivered int64) exchange.Usage {
	if u.Source == exchange.FromProvider {
		return u
	}
	u.Source = exchange.FromEstimate
	u.Tokens = exchange.Tokens{Input: g.inputOf(f)}
	if f.req.Operation == exchange.Chat {
		u.Output = g.Estimate.TextTokens(f.target.ID, delivered)
	}
	return u
}

// partial is the usage of a stream that did not come to its end: what the provider had stated so far or what was
// delivered, whichever is more.
func (g *Gateway) partial(f *flow, o relay.Outcome) exchange.Usage {
	u := o.Usage
	if u.Source != exchange.FromProvider || u.Prompt() == 0 {
		u.Tokens = exchange.Tokens{Input: g.inputOf(f), Output: u.Output}
	}
	u.Output = max(u.Output, g.Estimate.TextTokens(f.target.ID, o.Delivered))
	u.Source = exchange.FromPartial
	return u
}

func (g *Gateway) inputOf(f *flow) int64 {
	return g.Estimate.TextTokens(f.target.ID, f.input.Bytes) + f.input.Extra
}

// failed records an attempt that brought nothing. Its tokens, if the provider stated any, are on the platform.
func (g *Gateway) failed(f *flow, d *exchange.Deployment, number int, start time.Time, ans *relay.Answer, failure *exchange.Failure) {
	g.Metrics.UpstreamFailures.WithLabelValues(d.ID, kindName(failure.Kind)).Inc()
	switch failure.Kind {
	case exchange.FailCredential, exchange.FailNotFound:
		// The provider's text about a key may quote it: it is not logged.
		g.Log.Error("deployment is misconfigured", zap.String("deployment", d.ID), zap.Int("status", failure.Status),
			zap.String("code", failure.Code), zap.String("request_id", f.req.ID))
	}
	if ans == nil {
		ans = &relay.Answer{}
	}
	e := ended{d: d, number: number, start: start, ans: ans, usage: ans.Usage, status: usagev1.Status_STATUS_FAILED}
	if failure.Kind == exchange.FailCancelled {
		e.status = usagev1.Status_STATUS_CANCELLED
	}
	g.event(f, e)
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
}

// done is steps 9 and 10 of an answered request: settle, then the usage event. For a stream both happen before its
// last bytes go out, because clients hang up on [DONE].
func (g *Gateway) done(f *flow, e ended) {
	cost := g.event(f, e)
	g.settle(f, e.usage, cost)
}

// event records an attempt and returns its cost.
func (g *Gateway) event(f *flow, e ended) exchange.NanoUSD {
	end := time.Now()
	cost, version := f.price(end, e.d, e.usage.Tokens)
	if e.firstToken == 0 {
		e.firstToken = e.ans.FirstToken
	}
	g.Usage.Record(&usagev1.Event{
		RequestId: f.req.ID, Attempt: int32(e.number), AtMs: end.UnixMilli(),
		Team: f.who.Team, Key: f.who.Key, App: f.who.App, Feature: f.req.Feature, UserSha256: f.req.UserSHA256,
		Alias: f.alias.Name, Deployment: e.d.ID, Billed: e.billed, Status: e.status,
		Source: usagev1.Source(e.usage.Source), Tokens: protoTokens(e.usage.Tokens),
		CostNano: int64(cost), PriceVersion: version,
		UpstreamStatus: int32(e.ans.Status), UpstreamRequestId: e.ans.UpstreamRequestID,
		FirstTokenMs: e.firstToken.Milliseconds(), DurationMs: end.Sub(e.start).Milliseconds(),
	})
	return cost
}
