package sim

import (
	"fmt"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// witness counts what truly happened. The ledger cannot check itself.
type witness struct {
	requests, tokens []flow
	spent            int64 // truly, at the provider
	overrun          int64 // of requests that the ledger has not booked yet
	overrunMost      int64
	admitted         int
	refused          [lease.NumReasons]int
	finalAt          int64 // true spend when the first was refused for good; -1 before
	trickled         uint64
}

// flow is use of a bucket: what is reserved at admission, less what is given back.
type flow struct{ at, amount int64 }

// checkCovered: whatever was spent in truth is not free.
func (w *world) checkCovered() {
	r, _ := w.l.Resource(w.ids.money)
	taken := int64(0)
	for _, p := range r.Periods {
		taken += p.Cap - p.Free
	}
	if w.w.spent > taken {
		w.try(fmt.Errorf("spent %d in truth, the ledger knows of %d", w.w.spent, taken))
	}
}

// checkShares: the shares that may be used anywhere add up to the limit at most.
func (w *world) checkShares() {
	sum := int64(0)
	for _, c := range w.cars {
		if !c.up {
			continue
		}
		shares, _ := c.m.Shares(c.clock())
		for _, s := range shares {
			if s.Resource == w.ids.requests {
				sum += s.PerMinute
			}
		}
	}
	if sum > requestLimit {
		w.try(fmt.Errorf("shares add up to %d of %d", sum, requestLimit))
	}
}

// checkLease: what was just admitted was not on a bucket lease that quotad has forfeited.
func (c *car) checkLease() {
	w := c.w
	trickled := c.trickled
	if c.m.Stats(c.clock()).TrickleAdmissions != trickled {
		c.trickled++
		return
	}
	if w.down {
		return // its time stands still
	}
	w.op(func() {})
	if m, ok := w.l.MemberState(c.m.Incarnation()); ok && m.Lapsed {
		w.try(fmt.Errorf("%s used a lease that has lapsed", c.name))
	}
}

// checkWindows: in every window of w seconds at most burst + limit x w / 60 is used, and a twentieth.
func checkWindows(name string, flows []flow, limit, burst int64) error {
	// excess(t) = used until t - what refills until t; the largest rise of it is the worst window.
	const perUnit = 60_000 * 20
	sum, least := int64(0), int64(0)
	for i, f := range flows {
		refilled := f.at * limit * 21
		if i == 0 || sum*perUnit-refilled < least {
			least = sum*perUnit - refilled
		}
		sum += f.amount
		if rise := sum*perUnit - refilled - least; rise > burst*21*60_000 {
			return fmt.Errorf("%s: a window that ends at %d ms is %d above its limit and the twentieth",
				name, f.at, (rise-burst*21*60_000)/perUnit)
		}
	}
	return nil
}

// finish judges a run.
func (w *world) finish() error {
	if w.fault != nil {
		return w.fault
	}
	if err := checkWindows("requests", w.w.requests, requestLimit, requestBurst); err != nil {
		return err
	}
	if err := checkWindows("tokens", w.w.tokens, tokenLimit, tokenBurst); err != nil {
		return err
	}
	budget := w.f.capNano
	if honest := w.f.killEveryMS == 0 && !w.f.turnMonth; honest && w.w.finalAt >= 0 {
		if least := budget/100*99 - 500_000; w.w.finalAt < least {
			return fmt.Errorf("first refused for good at %d, want at least %d", w.w.finalAt, least)
		}
	}
	if w.f.turnMonth {
		budget *= 2
	}
	if w.w.spent > budget+w.w.overrunMost {
		return fmt.Errorf("spent %d of %d, overruns in flight at most %d", w.w.spent, budget, w.w.overrunMost)
	}
	return nil
}

func toLedger(identity string, r *quotav1.Renew) ledger.Renew {
	out := ledger.Renew{
		Identity: identity, Incarnation: r.Incarnation, Seq: r.Seq, ShareVersion: r.ShareVersion, Leaving: r.Leaving,
	}
	for _, c := range r.Counters {
		out.Counters = append(out.Counters, ledger.Counter{
			Resource: c.Resource, Period: c.Period, Spent: c.Spent, Returned: c.Returned, Held: c.Held, Demand: c.Demand,
		})
	}
	for _, a := range r.Asks {
		ask := ledger.Ask{ID: a.Id}
		for _, n := range a.Needs {
			ask.Needs = append(ask.Needs, ledger.Need{Resource: n.Resource, Period: n.Period, Amount: n.Amount})
		}
		out.Asks = append(out.Asks, ask)
	}
	return out
}

func fromLedger(r ledger.RenewReply) *quotav1.RenewReply {
	out := &quotav1.RenewReply{
		Seq: r.Seq, UsableForMs: r.UsableForMS, ShareVersion: r.ShareVersion, StandbyForMs: r.StandbyForMS,
		Fenced: r.Fenced,
	}
	for _, g := range r.Grants {
		out.Grants = append(out.Grants, &quotav1.Grant{
			Resource: g.Resource, Period: g.Period, Granted: g.Granted, Forfeited: g.Forfeited, Gone: g.Gone,
			Free: g.Free, Shortage: quotav1.Shortage(g.Shortage), RetryAfterMs: g.RetryAfterMS,
			IdleMax: g.IdleMax,
		})
	}
	for _, a := range r.Asks {
		out.Asks = append(out.Asks, &quotav1.AskResult{
			Id: a.ID, Granted: a.Granted, Resource: a.Resource, Shortage: quotav1.Shortage(a.Shortage), Left: a.Left,
			RetryAfterMs: a.RetryAfterMS,
		})
	}
	for _, s := range r.Shares {
		out.Shares = append(out.Shares, &quotav1.Share{Resource: s.Resource, PerMinute: s.PerMinute})
	}
	return out
}
