package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// counting is how a provider counts an attempt against the limits that are rented from it.
type counting struct {
	// byCap: output counts by its cap when the request comes, whatever is written, and tokens in all are the larger of
	// that and the prompt. Else output counts as it is written.
	byCap bool
	// cacheReads are the models, by how their names begin, whose reads from the prompt cache count as input.
	cacheReads []string
}

// countings are the providers' rules, by provider.
var countings = map[string]counting{
	"openai":     {byCap: true, cacheReads: []string{""}},
	"compatible": {byCap: true, cacheReads: []string{""}}, // most copy OpenAI's
	"anthropic":  {cacheReads: []string{"claude-3-opus", "claude-3-haiku", "claude-3-5-haiku"}},
}

// amount is what tokens take from a limit of this kind; most is the cap on output, 0 for none.
func (c counting) amount(kind exchange.Kind, model string, t exchange.Tokens, most int64) int64 {
	input, output := t.Prompt(), t.Completion()
	if !slices.ContainsFunc(c.cacheReads, func(begin string) bool { return strings.HasPrefix(model, begin) }) {
		input -= t.CacheRead
	}
	if c.byCap && most > 0 {
		output = most
	}
	switch kind {
	case exchange.Requests:
		return 1
	case exchange.InputTokens:
		return input
	case exchange.OutputTokens:
		return output
	case exchange.TotalTokens:
		if c.byCap {
			return max(input, output)
		}
		return input + output
	}
	return 0
}

// rented is what an attempt has taken from the limits rented from its provider. The zero value holds nothing.
type rented struct {
	hold   lease.Hold
	from   *exchange.Deployment
	amount exchange.Tokens // as reserved
}

func (f *flow) appendRented(dst []lease.Need, d *exchange.Deployment, t exchange.Tokens) []lease.Need {
	c, claimant := countings[d.Provider], f.claimant()
	for _, p := range d.Pools {
		dst = append(dst, lease.Need{
			Resource: p.ID, Name: claimant, Amount: c.amount(p.Kind, d.Base(), t, f.outputCap()*f.req.Choices),
		})
	}
	return dst
}

// claimant is who the request is to a pool.
func (f *flow) claimant() string { return f.priority + "/" + f.who.Team }

// rentedNote is the note of a reservation that has no usage row of its own: its request has one.
var rentedNote = []byte{0}

// rent takes what an attempt will count for from the limits rented from the provider. When they are short the
// deployment steps aside: that is no attempt, and says nothing about its health.
func (g *Gateway) rent(f *flow, d *exchange.Deployment) *refusal {
	if len(d.Pools) == 0 || f.req.Operation == exchange.CountTokens { // which has a limit of its own
		return nil
	}
	t := exchange.Tokens{Input: g.Estimate.InputTokens(d.ID, f.input), Output: f.reserved.output}
	var buf [lease.MaxNeeds]lease.Need
	needs := f.appendRented(buf[:0], d, t)
	for i, p := range d.Pools {
		if needs[i].Amount > p.Most() { // as for the caller's limits, it must not count as demand
			g.Metrics.PoolShort.WithLabelValues(d.ID).Inc()
			return rentedTooSmall(d, p, needs[i].Amount)
		}
	}
	hold, v := g.acquire(f, lease.Share, needs, rentedNote)
	if v.OK {
		f.rented = rented{hold, d, t}
		return nil
	}
	g.Metrics.PoolShort.WithLabelValues(d.ID).Inc()
	return rentedOut(d, f.rules.Resource(v.Resource), v)
}

// roomFor says whether what is left to rent of a deployment, as far as is known, has room for the request.
func (g *Gateway) roomFor(f *flow) func(*exchange.Deployment) bool {
	return func(d *exchange.Deployment) bool {
		if len(d.Pools) == 0 || f.req.Operation == exchange.CountTokens {
			return true
		}
		var buf [lease.MaxNeeds]lease.Need
		t := exchange.Tokens{Input: g.Estimate.InputTokens(d.ID, f.input), Output: f.reserved.output}
		for _, n := range f.appendRented(buf[:0], d, t) {
			if left, _, _, known := g.Lease.RemainingOf(n.Resource, n.Name); known && left < n.Amount {
				return false
			}
		}
		return true
	}
}

// settleRented settles what was rented with what the provider counts for the tokens.
func (g *Gateway) settleRented(f *flow, t exchange.Tokens) {
	if f.rented.hold.Valid() {
		var buf [lease.MaxNeeds]lease.Need
		g.Lease.Settle(f.rented.hold, f.appendRented(buf[:0], f.rented.from, t))
		f.rented = rented{}
	}
}

// failRented settles what was rented for an attempt that failed.
func (g *Gateway) failRented(f *flow, ans *relay.Answer, failure *exchange.Failure) {
	switch {
	case !f.rented.hold.Valid():
	case !ans.Sent, failure.Kind == exchange.FailRateLimited:
		g.returnRented(f)
	case ans.Status >= 400 && ans.Status < 500: // refused as it came: a request, and no tokens
		var needs []lease.Need
		for _, p := range f.rented.from.Pools {
			if p.Kind == exchange.Requests {
				needs = append(needs, lease.Need{Resource: p.ID, Name: f.claimant(), Amount: 1})
			}
		}
		g.Lease.Settle(f.rented.hold, needs)
		f.rented = rented{}
	default: // nobody knows better than the reservation
		g.settleRented(f, f.rented.amount)
	}
}

// returnRented gives it all back: the provider has counted nothing.
func (g *Gateway) returnRented(f *flow) {
	if f.rented.hold.Valid() {
		g.Lease.Settle(f.rented.hold, nil)
		f.rented = rented{}
	}
}

// hear passes on what the provider says is left of its limits. It said so when it took the request. One that refuses for
// its limits, and does not say which, has nothing left.
func (g *Gateway) hear(d *exchange.Deployment, ans *relay.Answer, failure *exchange.Failure, sent time.Time) {
	if ans.Malformed > 0 {
		g.Metrics.MalformedLefts.WithLabelValues(d.ID).Add(float64(ans.Malformed))
	}
	for _, l := range ans.Lefts {
		for _, p := range d.Pools {
			if p.Kind == l.Kind {
				g.Lease.ProviderLeft(p.ID, l.After(time.Since(sent)))
			}
		}
	}
	if len(ans.Lefts) == 0 && failure != nil && failure.Kind == exchange.FailRateLimited && !failure.Final {
		for _, p := range d.Pools {
			g.Lease.ProviderLeft(p.ID, 0)
		}
	}
}

// rentedOut is the refusal when a rented limit is short. It is never named as a limit of the caller's.
func rentedOut(d *exchange.Deployment, pool *exchange.Resource, v lease.Verdict) *refusal {
	switch {
	case v.Reason == lease.Leaving:
		return stopping()
	case pool != nil && v.Reason == lease.TooLarge:
		return rentedTooSmall(d, pool, v.Needed)
	case pool == nil || v.Reason != lease.Throttled:
		no := unavailable(fmt.Sprintf("quotad is away and the share of the limit rented for deployment %q is used up", d.ID))
		no.after = max(v.RetryAfter, time.Millisecond) // as the share trickles
		return no
	}
	return &refusal{
		status: 429, kind: typeLimit, code: "upstream_rate_limited", retry: true, after: max(v.RetryAfter, time.Millisecond),
		message: fmt.Sprintf("the %s rented from the provider for deployment %q are used up: %d left, %d needed, %d may be used",
			rentedUnits(pool), d.ID, v.Left, v.Needed, pool.Limit),
	}
}

func rentedTooSmall(d *exchange.Deployment, pool *exchange.Resource, needed int64) *refusal {
	return &refusal{
		status: 400, kind: typeInvalid, code: "request_exceeds_limit",
		message: fmt.Sprintf("the request needs %d of the %s rented from the provider for deployment %q; %d may be used in all",
			needed, rentedUnits(pool), d.ID, pool.Most()),
	}
}

func rentedUnits(pool *exchange.Resource) string {
	return strings.ReplaceAll(pool.Kind.String(), "_", " ")
}

// sooner is the refusal that gives more hope.
func sooner(a, b *refusal) *refusal {
	if a == nil || b.retry && (!a.retry || b.after < a.after) {
		return b
	}
	return a
}
