// Package route chooses where a request goes: which deployments may serve it, in which order they are tried, and
// which are left alone for now.
package route

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Query is what a request demands of a deployment.
type Query struct {
	Alias     *exchange.Alias
	Account   string // the caller's provider account
	DataClass string
	Needs     []string // capabilities beyond the alias's own
}

// Exclusion says why a target of the alias may not serve a request.
type Exclusion struct {
	Deployment string
	Reason     string // account, data_class, or the missing capability
}

// Candidates lists the targets that may serve the request, and why the others may not.
func Candidates(q Query) (ok []exchange.Target, out []Exclusion) {
	for _, t := range q.Alias.Targets {
		if reason := excluded(q, t.Deployment); reason != "" {
			out = append(out, Exclusion{t.Deployment.ID, reason})
			continue
		}
		ok = append(ok, t)
	}
	return ok, out
}

func excluded(q Query, d *exchange.Deployment) string {
	if d.Account != "" && d.Account != q.Account {
		return "account"
	}
	if len(d.DataClasses) > 0 && q.DataClass != "" && !slices.Contains(d.DataClasses, q.DataClass) {
		return "data_class"
	}
	// A deployment that lists no capabilities is taken to have them all: the list is opt-in.
	if len(d.Capabilities) == 0 {
		return ""
	}
	for _, n := range q.Alias.Needs {
		if !slices.Contains(d.Capabilities, n) {
			return n
		}
	}
	for _, n := range q.Needs {
		if !slices.Contains(d.Capabilities, n) {
			return n
		}
	}
	return ""
}

// Router remembers how deployments fare. It is safe for concurrent use.
type Router struct {
	mu       sync.Mutex
	breakers map[string]*fare
	retries  retryBudget
}

// New makes a router that trusts every deployment.
func New() *Router { return &Router{breakers: map[string]*fare{}} }

// Order puts candidates in the order they are to be tried at now: by priority, within a priority drawn by weight,
// those with an open breaker left out. Those that asked for a rest come after all others, again by priority: they may
// still have room for a small request. A weight of 0 comes last within its priority; behind it come only those
// without room. When every breaker is open the result is empty and wait is the time until the first one allows a probe
// that may go well; 0 when none may, since what is configured of each is at fault.
func (r *Router) Order(now time.Time, c []exchange.Target, room func(*exchange.Deployment) bool) (order []exchange.Target, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	order = make([]exchange.Target, 0, len(c))
	var resting []exchange.Target
	for _, t := range c {
		b := r.breaker(t.Deployment.ID)
		open := b.Wait(now)
		switch {
		case open > 0 && b.last.Kind.Misconfigured():
		case open > 0 && (wait == 0 || open < wait):
			wait = open
		case open > 0:
		case now.Before(b.restUntil):
			resting = append(resting, t)
		default:
			order = append(order, t)
		}
	}
	drawByPriority(order, room)
	drawByPriority(resting, room)
	if order = append(order, resting...); len(order) > 0 {
		wait = 0
	}
	return order, wait
}

// drawByPriority draws the order within each priority, and puts those without room at its end.
func drawByPriority(t []exchange.Target, room func(*exchange.Deployment) bool) {
	for i := 0; i < len(t); {
		j := i + 1
		for j < len(t) && t[j].Priority == t[i].Priority {
			j++
		}
		shuffle(t[i:j])
		if j-i > 1 {
			slices.SortStableFunc(t[i:j], func(x, y exchange.Target) int {
				return full(room, x) - full(room, y)
			})
		}
		i = j
	}
}

func full(room func(*exchange.Deployment) bool, t exchange.Target) int {
	if room(t.Deployment) {
		return 0
	}
	return 1
}

// shuffle draws an order without replacement, each next one by weight.
func shuffle(t []exchange.Target) {
	total := 0
	for _, x := range t {
		total += x.Weight
	}
	for i := range t {
		if total <= 0 {
			return
		}
		n := rand.IntN(total)
		for j := i; j < len(t); j++ {
			if n -= t[j].Weight; n < 0 {
				total -= t[j].Weight
				t[i], t[j] = t[j], t[i]
				break
			}
		}
	}
}

// Report tells how an attempt ended, f being nil when it went well. Only faults of the deployment move its breaker: the
// caller's own mistakes, cancellations and the provider's rate limits do not. A rate limit, or a wish to be left alone
// for a while, has the deployment rest; of two rests the later end counts.
func (r *Router) Report(now time.Time, deployment string, f *exchange.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.breaker(deployment)
	if f == nil {
		b.Report(now, true)
		return
	}
	rest := f.RetryAfter
	switch f.Kind {
	case exchange.FailConnect, exchange.FailTimeout, exchange.FailOverloaded, exchange.FailInvalid, exchange.FailCut,
		exchange.FailCredential, exchange.FailNotFound:
		b.Report(now, false)
		b.last = f
	case exchange.FailRateLimited:
		rest = max(rest, restLeast)
		b.Unmoved()
	default:
		b.Unmoved()
	}
	if until := now.Add(min(rest, restMax)); rest > 0 && until.After(b.restUntil) {
		b.restUntil = until
	}
}

// Forget trusts the deployments again that are others now, or have another credential: how the old ones fared says
// nothing about them.
func (r *Router) Forget(changed func(deployment string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.breakers, func(id string, _ *fare) bool { return changed(id) })
}

// Request counts a request towards the retry budget.
func (r *Router) Request(now time.Time) {
	r.mu.Lock()
	r.retries.request(now)
	r.mu.Unlock()
}

// Retry reports whether one more attempt may be made, and takes it from the budget.
func (r *Router) Retry(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retries.take(now)
}

// Health is how one deployment fares, for /status.
type Health struct {
	Deployment string `json:"deployment"`
	State      string `json:"state"` // closed, open, half_open
	Successes  int    `json:"successes_20s"`
	Failures   int    `json:"failures_20s"`
	Problem    string `json:"problem,omitempty"` // unless it is closed: what, until when, and why
}

// Health lists the deployments that have been used, by id.
func (r *Router) Health(now time.Time) []Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Health, 0, len(r.breakers))
	for id, b := range r.breakers {
		ok, bad := b.Counts(now)
		out = append(out, Health{id, b.State(now), ok, bad, b.problem(now)})
	}
	slices.SortFunc(out, func(a, b Health) int {
		if a.Deployment < b.Deployment {
			return -1
		}
		return 1
	})
	return out
}

func (r *Router) breaker(id string) *fare {
	b := r.breakers[id]
	if b == nil {
		b = &fare{}
		r.breakers[id] = b
	}
	return b
}
