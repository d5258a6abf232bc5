package fire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// ErrFenced says that quotad applies nothing of this process any more.
var ErrFenced = errors.New("fenced")

// Account is an honest process that draws on one budget and records what it does. It is used by one goroutine.
type Account struct {
	Client   *Client
	History  *History
	Number   int // of the client in the history
	Resource uint64
	Period   uint32

	counter quotav1.Counter
	seq     uint64
	epoch   uint64
	holds   []int64
}

// Step does one thing at random: it asks for up to most, or settles a hold. An error means that ctx ended while its
// outcome was unknown, and that this process is of no use any more.
func (a *Account) Step(ctx context.Context, random *rand.Rand, most int64) error {
	if len(a.holds) > 0 && random.IntN(2) == 0 || len(a.holds) >= 3 {
		i := random.IntN(len(a.holds))
		return a.settle(ctx, i, random.Int64N(a.holds[i]+1))
	}
	return a.Ask(ctx, 1+random.Int64N(most))
}

// Finish settles every hold in full.
func (a *Account) Finish(ctx context.Context) error {
	for len(a.holds) > 0 {
		if err := a.settle(ctx, 0, a.holds[0]); err != nil {
			return err
		}
	}
	return nil
}

// Ask asks for an amount.
func (a *Account) Ask(ctx context.Context, amount int64) error {
	return a.History.Do(a.Number, Ask{amount}, func() (any, error) {
		a.seq++
		reply, err := a.renew(ctx, &quotav1.Ask{Id: a.seq, Needs: []*quotav1.Need{{
			Resource: a.Resource, Period: a.Period, Amount: amount,
		}}})
		if err != nil {
			return nil, err
		}
		if len(reply.GetAsks()) != 1 || reply.GetAsks()[0].GetId() != a.seq {
			return nil, fmt.Errorf("ask %d was answered by %v", a.seq, reply.GetAsks())
		}
		r := reply.GetAsks()[0]
		if r.GetGranted() {
			a.holds = append(a.holds, amount)
			a.counter.Held += amount
		}
		return Verdict{r.GetGranted(), r.GetShortage(), r.GetLeft()}, nil
	})
}

func (a *Account) settle(ctx context.Context, i int, spent int64) error {
	hold := a.holds[i]
	return a.History.Do(a.Number, Settle{spent, hold - spent}, func() (any, error) {
		a.seq++
		a.holds = append(a.holds[:i], a.holds[i+1:]...)
		a.counter.Spent += spent
		a.counter.Returned += hold - spent
		a.counter.Held -= hold
		_, err := a.renew(ctx)
		return nil, err
	})
}

func (a *Account) renew(ctx context.Context, asks ...*quotav1.Ask) (*quotav1.RenewReply, error) {
	counter := &quotav1.Counter{
		Resource: a.Resource, Period: a.Period, Spent: a.counter.Spent, Returned: a.counter.Returned,
		Held: a.counter.Held, Granted: a.counter.Granted,
	}
	reply, err := a.Client.Renew(ctx, &quotav1.Renew{
		Incarnation: a.Client.Incarnation, Seq: a.seq, Epoch: a.epoch, Asks: asks, Counters: []*quotav1.Counter{counter},
	})
	if err != nil {
		return nil, err
	}
	if reply.GetFenced() {
		return nil, ErrFenced
	}
	a.epoch = reply.GetEpoch()
	for _, g := range reply.GetGrants() {
		if g.GetResource() == a.Resource && g.GetPeriod() == a.Period {
			a.counter.Granted = g.GetGranted()
		}
	}
	return reply, nil
}
