// Package gateway is the HTTP face of the sidecar. serve, below, is a request's whole way, in order; the rooms do the
// work.
package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/credential"
	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/internal/route"
	"github.com/sluice-gateway/sluice/sidecar/internal/usage"
	"github.com/sluice-gateway/sluice/sidecar/lease"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// Gateway serves the callers. Its fields are set once, before the first request.
type Gateway struct {
	Policy   *policy.Store
	Lease    *lease.Client
	Estimate *estimate.Estimator
	Route    *route.Router
	Adapters map[string]adapter.Adapter // by provider
	// Credentials authorizes calls of the providers whose adapters do not.
	Credentials credential.Authorizer
	Relay       *relay.Client
	Watch       *relay.Watcher
	Usage       *usage.Recorder
	Rollups     *usage.Querier
	Connected   func() bool // quotad can be asked
	Metrics     *Metrics
	Log         *zap.Logger

	// DefaultSecret is the key of a caller that sends none; empty for none.
	DefaultSecret string

	unpriced sync.Map // what was told of: the deployment, by its id

	draining atomic.Bool

	running running
	names   names
	earlier earlier
	faults  faults
}

// serve takes one request through the sidecar. A step that refuses ends the walk; whatever happened, finish settles
// the reservation once and records what was used. For a stream the last two steps run when the stream ends.
func (g *Gateway) serve(c *fasthttp.RequestCtx, op exchange.Operation) {
	f := g.begin(c, op)
	defer g.finish(f) // 7 settle, 8 usage event
	for _, step := range [...]func(*flow) *refusal{
		g.authenticate, // 1 key → principal: strangers learn nothing from what they send
		g.read,         // 2 bytes → the facts of the request
		g.permit,       // 3 policy and data class
		g.candidates,   // 4 route: who may serve it, which sets the price of
		g.admit,        // 5 admission: reserve in every scope, all or nothing
		g.attempt,      // 6 adapter and relay, with failover until the first real token
	} {
		if no := step(f); no != nil {
			g.refuse(f, no)
			return
		}
	}
}

// flow is one request on its way. It belongs to the goroutine of its handler.
type flow struct {
	c         *fasthttp.RequestCtx
	speaks    dialect
	req       exchange.Request
	began     time.Time
	rules     *policy.Rules
	who       *exchange.Principal
	alias     *exchange.Alias
	dataClass string
	priority  string // the key's class, or the lower one it asked for
	targets   []exchange.Target

	input     estimate.Input
	unseen    bool // earlier turns are in the prompt that nobody knows the length of
	user, run drawn
	reserved  reservation
	hold      lease.Hold
	rented    rented        // of the attempt that runs
	waited    time.Duration // for quotad

	cancel relay.Canceller
	cut    atomic.Bool // cancelled because the sidecar stops
	watch  relay.Token

	tried     []attempt
	target    *exchange.Deployment // of the attempt that answered or runs
	streaming bool                 // a stream has taken over: its end settles
	settled   bool

	wasted       exchange.Tokens // of failed attempts that the team pays for
	wastedCost   exchange.NanoUSD
	wastedEvents []*usagev1.Event // the same, not recorded yet
}

// attempt is one call to one deployment.
type attempt struct {
	Deployment string
	Kind       exchange.FailureKind
	Status     int
	Message    string
}

func (g *Gateway) begin(c *fasthttp.RequestCtx, op exchange.Operation) *flow {
	f := &flow{c: c, began: time.Now(), speaks: dialectOf(&c.Request.Header)}
	f.req.Operation = op
	if string(pathOf(c.Request.Header.RequestURI())) == pathResponses {
		f.req.Dialect = exchange.ResponsesDialect
	}
	f.req.CreatedUnix = f.began.Unix()
	f.req.ID = requestID(c)
	f.rules = g.Policy.Rules()
	f.watch = g.Watch.Arm(c.Conn(), f.cancel.Cancel)
	g.running.add(f)
	return f
}

// finish runs on every exit of serve, a panic included. A stream that has taken over finishes itself.
func (g *Gateway) finish(f *flow) {
	p := recover()
	if p != nil {
		g.Log.Error("panic while serving", zap.Any("panic", p), zap.String("request_id", f.req.ID), zap.Stack("stack"))
		g.Metrics.Panics.Inc()
		f.c.Response.Reset()
		g.refuse(f, internalFault())
	}
	if f.streaming && p == nil {
		return
	}
	g.release(f)
	g.over(f)
}

// over is the last of a request.
func (g *Gateway) over(f *flow) {
	g.Watch.Disarm(f.watch)
	g.running.remove(f)
	g.access(f)
}
