package lease

import (
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// bed is one machine and one fake ledger with a clock that the test moves.
type bed struct {
	t   *testing.T
	m   *Machine
	l   *fakeLedger
	now int64
}

const (
	tokensID = 2
	moneyID  = 3
	softID   = 4
	jan      = uint32(202601)
)

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, l: newFakeLedger(), now: int64(100 * time.Second)}
	b.m = NewMachine(Config{}, 7, b.now)
	b.m.Configure(b.now, []*quotav1.Resource{
		bucketOf(1, 600, 60), bucketOf(tokensID, 60_000, 10_000),
		budgetOf(moneyID, 1_000_000, jan, true), budgetOf(softID, 1_000, jan, false),
	})
	b.l.fund(1, 0, 60)
	b.l.fund(tokensID, 0, 10_000)
	b.l.fund(moneyID, jan, 1_000_000)
	b.l.fund(softID, jan, 1_000)
	b.l.soft[counterKey{softID, jan}] = true
	return b
}

// need is a need of a resource that is whole.
func need(resource uint64, amount int64) Need { return Need{Resource: resource, Amount: amount} }

func (b *bed) after(d time.Duration) { b.now += int64(d) }

// exchange sends what is due and applies the answer.
func (b *bed) exchange() *quotav1.Renew {
	b.t.Helper()
	r := b.m.Poll(b.now)
	if r == nil {
		b.t.Fatal("no renew is due")
	}
	rep, err := b.l.renew(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.m.Apply(b.now, rep, 8)
	return r
}

// renew waits for the next regular renew.
func (b *bed) renew() *quotav1.Renew {
	b.t.Helper()
	b.now = max(b.now, b.m.NextPoll())
	return b.exchange()
}

// ask reserves by way of quotad.
func (b *bed) ask(needs ...Need) *Waiting {
	b.t.Helper()
	_, v, ask := b.m.Reserve(b.now, Share, needs, nil)
	if !ask {
		b.t.Fatalf("decided without quotad: %+v", v)
	}
	w, v := b.m.Ask(b.now, Share, needs, nil)
	if w == nil {
		b.t.Fatalf("not queued: %+v", v)
	}
	return w
}

func (b *bed) must(needs ...Need) Hold {
	b.t.Helper()
	h, v, ask := b.m.Reserve(b.now, Share, needs, nil)
	if ask || !v.OK {
		b.t.Fatalf("got %+v, ask %v, want a grant", v, ask)
	}
	return h
}

func (b *bed) refused(outage Outage, want Reason, needs ...Need) Verdict {
	b.t.Helper()
	_, v, ask := b.m.Reserve(b.now, outage, needs, nil)
	if ask || v.OK || v.Reason != want {
		b.t.Fatalf("got %+v, ask %v, want %v", v, ask, want)
	}
	return v
}

func (b *bed) counter(id uint64, period uint32) *counter {
	b.t.Helper()
	c := b.m.byKey[counterKey{id, period}]
	if c == nil {
		b.t.Fatalf("no counter of %d", id)
	}
	return c
}

const (
	userID  = 5
	runID   = 6
	poolID  = 7
	callsID = 8
)

// newNamedBed is newBed with users, runs and a pool.
func newNamedBed(t *testing.T) *bed {
	b := newBed(t)
	calls := runOf(callsID, 3)
	calls.Kind = quotav1.Kind_KIND_CALLS
	b.m.Configure(b.now, []*quotav1.Resource{
		bucketOf(1, 600, 60), budgetOf(moneyID, 1_000_000, jan, true),
		usersOf(userID, 120, 10), runOf(runID, 100_000), poolOf(poolID, 6000, 600), calls,
	})
	b.l.templates = map[uint64]int64{userID: 10, runID: 100_000, poolID: 600, callsID: 3}
	b.l.capped[runID], b.l.capped[callsID] = true, true
	b.m.Connected(b.now)
	return b
}

// of is the counter of a name; nil when there is none.
func (b *bed) of(template uint64, name string) *counter {
	if r := b.m.lookup(template, name); r != nil {
		return r.current
	}
	return nil
}

// granted has needs granted by way of quotad.
func (b *bed) granted(needs ...Need) Hold {
	b.t.Helper()
	w := b.ask(needs...)
	b.after(75 * time.Millisecond)
	b.exchange()
	if !w.Done() || !w.Verdict.OK {
		b.t.Fatalf("got %+v, want a grant", w.Verdict)
	}
	return w.Hold
}

// closing lets the counter of a name be quiet until the renew that closes it, which is not answered.
func (b *bed) closing(template uint64, name string) *quotav1.Renew {
	b.t.Helper()
	for range 3 * quietWindows {
		b.now = max(b.now, b.m.NextPoll())
		r := b.m.Poll(b.now)
		if b.of(template, name) == nil {
			return r
		}
		b.answer(r)
	}
	b.t.Fatal("never closed")
	return nil
}

func (b *bed) answer(r *quotav1.Renew) {
	b.t.Helper()
	rep, err := b.l.renew(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.m.Apply(b.now, rep, 8)
}
