package gateway

import (
	"cmp"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/lease"
	"go.uber.org/zap"
)

// reservation is what a request was admitted with.
type reservation struct {
	input, output int64 // tokens
	cost          exchange.NanoUSD
}

// exposureShare: a request may be admitted below its output cap only while what could come on top is at most this
// part of what is free in every hard budget it draws on. So many requests would have to overrun together, within one
// renew, before a hard budget could be passed.
const exposureShare = 400

// admit is step 5.
func (g *Gateway) admit(f *flow) *refusal {
	if no := g.priced(f); no != nil {
		return no
	}
	g.named(f)
	f.reserved = g.size(f)
	if limit := f.who.RequestCap; limit > 0 && f.reserved.cost > limit {
		return requestCap(f.who.Team, f.reserved.cost, limit)
	}
	var buf [lease.MaxNeeds]lease.Need
	needs := f.appendNeeds(buf[:0], f.reserved.input, f.reserved.output, f.reserved.cost)
	if no := g.neverFits(f, needs); no != nil {
		return no
	}
	hold, v := g.acquire(f, lease.Outage(f.who.Outage), needs, f.note())
	if !v.OK {
		switch v.Reason {
		case lease.CallerGone:
			return f.cancelled()
		case lease.Leaving:
			return stopping()
		}
		res := f.rules.Resource(v.Resource)
		no := f.shortOf(v, res)
		if v.Reason == lease.Exhausted && res != nil && res.Each == exchange.Whole {
			if _, _, resetIn, ok := g.Lease.Remaining(v.Resource); ok {
				no.resetsAt = time.Now().Add(resetIn).Round(time.Second) // fresher than the snapshot
			}
		}
		return no
	}
	f.hold = hold
	return nil
}

// acquire reserves for a request, which waits for quotad only so long however often it asks.
func (g *Gateway) acquire(f *flow, outage lease.Outage, needs []lease.Need, note []byte) (lease.Hold, lease.Verdict) {
	hold, v := g.Lease.Acquire(f.cancel.Done(), f.waited, outage, needs, note)
	f.waited += v.Waited
	return hold, v
}

// neverFits refuses what is larger than a whole limit. It must not count as demand: quotad would lease the whole limit
// for it, away from others.
func (g *Gateway) neverFits(f *flow, needs []lease.Need) *refusal {
	for _, d := range f.who.Draws {
		name, draws := f.which(d)
		if !draws {
			continue
		}
		need := needs[0] // they are in the order of the draws
		needs = needs[1:]
		if need.Amount <= d.Most() {
			continue
		}
		left, _, _, known := g.Lease.RemainingOf(d.ID, name)
		if !known {
			left = d.Most() // nobody has drawn on it yet
		}
		return f.shortOf(lease.Verdict{
			Reason: lease.TooLarge, Resource: d.ID, Left: left, Needed: need.Amount, Limit: d.Most(),
		}, d)
	}
	return nil
}

// priced leaves the candidates that have a price, or are configured to be served without. A speed or a geography that a
// price does not list may cost many times as much, and cannot be had for it. A tier can: see docs/prices.md.
func (g *Gateway) priced(f *flow) *refusal {
	kept, dear := f.targets[:0:0], ""
	for _, t := range f.targets {
		p, _, ok := f.rules.Price(f.began, t.Deployment)
		if !ok && !t.Deployment.Unpriced {
			g.Metrics.Unpriced.Inc()
			g.Log.Error("deployment without a price is not used", zap.String("deployment", t.Deployment.ID))
			continue
		}
		if member, _ := p.Unknown(exchange.Terms{Speed: f.req.Speed, Geo: f.req.Geo}); ok && member != "" {
			dear = member
			continue
		}
		kept = append(kept, t)
	}
	switch {
	case len(kept) > 0:
	case dear != "":
		return notSold(f.alias.Name, dear)
	default:
		return noCandidate(f.alias.Name, "none of its deployments has a price in force")
	}
	f.targets = kept
	return nil
}

// size estimates what to reserve: what the dearest of the candidates may cost.
func (g *Gateway) size(f *flow) reservation {
	r := reservation{}
	if f.req.Operation == exchange.CountTokens {
		r.cost = 1 // it costs nothing, but who has nothing left gets nothing
		return r
	}
	for _, t := range f.targets {
		r.input = max(r.input, g.Estimate.InputTokens(t.Deployment.ID, f.input))
	}
	cost := func(output int64) (most exchange.NanoUSD) {
		ask := exchange.Ask{
			Prompt: r.input, Output: output, WebSearches: f.req.WebSearches, Terms: f.asked(),
			InputAudio: f.req.Audio, InputImage: f.req.Vision, OutputAudio: f.req.AudioAnswer, OutputImage: !f.req.NoImages,
		}
		for _, t := range f.targets {
			p, _, _ := f.rules.Price(f.began, t.Deployment)
			most = max(most, p.Most(ask))
		}
		return most
	}
	if f.req.Operation == exchange.Embeddings {
		r.cost = cost(0)
		return r
	}
	most := f.outputCap() * f.req.Choices
	r.output, r.cost = most, cost(most)
	if f.alias.ReserveCap {
		return r
	}
	likely := g.Estimate.OutputTokens(f.series(), most)
	likelyCost := cost(likely)
	if g.exposed(f, r.cost-likelyCost) {
		return r
	}
	r.output, r.cost = likely, likelyCost
	return r
}

// exposed reports whether an overrun of this size would weigh in a hard budget.
func (g *Gateway) exposed(f *flow, overrun exchange.NanoUSD) bool {
	for _, d := range f.who.Draws {
		name, draws := f.which(d)
		if !draws || d.Kind != exchange.Money || !d.Hard {
			continue
		}
		left, _, _, ok := g.Lease.RemainingOf(d.ID, name)
		if !ok || int64(overrun) > left/exposureShare {
			return true
		}
	}
	return false
}

// outputCap is the most output tokens of one choice: the caller's cap, which is raised for some models that think, or
// the alias's default, which the provider is then told.
func (f *flow) outputCap() int64 {
	switch {
	case f.req.Operation != exchange.Chat:
		return 0
	case f.req.MaxOutput == 0:
		return f.req.DefaultOutput
	case f.req.Thinking > 0:
		return max(f.req.MaxOutput, adapter.ThinkingRoom)
	}
	return f.req.MaxOutput
}

func (f *flow) series() string { return f.who.Key + "\x00" + f.alias.Name }

// appendNeeds turns amounts into what each resource that the request draws on gives for them. A request is a call of
// its run when it settles as a request: when it was answered, or when its team pays for it all the same.
func (f *flow) appendNeeds(dst []lease.Need, input, output int64, cost exchange.NanoUSD) []lease.Need {
	for _, d := range f.who.Draws {
		name, draws := f.which(d)
		if !draws {
			continue
		}
		n := lease.Need{Resource: d.ID, Name: name}
		switch d.Kind {
		case exchange.Requests, exchange.Calls:
			n.Amount = 1
		case exchange.InputTokens:
			n.Amount = input
		case exchange.OutputTokens:
			n.Amount = output
		case exchange.TotalTokens:
			n.Amount = input + output
		case exchange.Money:
			n.Amount = int64(cost)
		}
		dst = append(dst, n)
	}
	return dst
}

// release gives an open reservation back: whole, unless the team pays for what failed attempts used.
func (g *Gateway) release(f *flow) {
	g.recordWasted(f)
	g.returnRented(f)
	switch {
	case !f.hold.Valid() || f.settled:
	case f.wasted != exchange.Tokens{}:
		g.settle(f, exchange.Usage{Source: exchange.FromEstimate}, 0)
	default:
		f.settled = true
		g.Lease.Settle(f.hold, nil)
	}
}

// settle replaces the reservation by what was used.
func (g *Gateway) settle(f *flow, u exchange.Usage, cost exchange.NanoUSD) {
	if !f.hold.Valid() || f.settled {
		return
	}
	f.settled = true
	var buf [lease.MaxNeeds]lease.Need
	all := u.Tokens.Add(f.wasted)
	g.Lease.Settle(f.hold, f.appendNeeds(buf[:0], all.Prompt(), all.Completion(), cost+f.wastedCost))
	if u.Source != exchange.FromProvider || f.req.Operation == exchange.CountTokens {
		return
	}
	g.earlier.learn(u.Answer, u.Total())
	g.earlier.learn(f.req.Conversation, u.Total())
	if !f.unseen {
		g.Estimate.LearnInput(f.target.ID, f.input, u.Prompt())
	}
	if f.req.Operation == exchange.Chat {
		g.Estimate.LearnOutput(f.series(), u.Completion())
	}
}

// price of what an attempt used, at a time and under the terms that the provider says it served it on.
func (f *flow) price(at time.Time, d *exchange.Deployment, u exchange.Usage) (exchange.NanoUSD, string) {
	p, version, _ := f.rules.Price(at, d)
	return p.Cost(u.Tokens, f.terms(u)), version
}

// asked are the terms that the request asks for.
func (f *flow) asked() exchange.Terms {
	return exchange.Terms{Tier: f.req.ServiceTier, Speed: f.req.Speed, Geo: f.req.Geo}
}

// terms are those that the provider says it served under. Of speed and geography the request's own hold where it says
// nothing, as it does of what it did not come to: nobody is served otherwise than was asked in silence.
func (f *flow) terms(u exchange.Usage) exchange.Terms {
	at := u.Terms()
	at.Speed, at.Geo = cmp.Or(at.Speed, f.req.Speed), cmp.Or(at.Geo, f.req.Geo)
	return at
}
