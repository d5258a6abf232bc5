package lease

import (
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

func TestFencedGoesOnAsANewProcess(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(moneyID, 1000))
	b.exchange()
	b.l.fenced[7] = true
	b.after(75 * time.Millisecond)
	waiting := b.ask(need(moneyID, 900_000))
	b.exchange()
	if b.m.Incarnation() != 8 || b.m.connected || len(b.m.counters) != 0 {
		t.Fatalf("incarnation %d connected %v counters %d", b.m.Incarnation(), b.m.connected, len(b.m.counters))
	}
	b.m.Settle(w.Hold, []Need{need(moneyID, 1000)})
	b.m.Connected(b.now)
	if r := b.exchange(); r.Seq != 1 || r.Incarnation != 8 || r.Counters[0].Spent != 0 {
		t.Fatalf("got %v, want a process that has spent nothing", r)
	}
	if !waiting.Verdict.OK {
		t.Fatalf("got %+v, want the waiting request to be granted", waiting.Verdict)
	}
}

func TestGoneResource(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	w := b.ask(need(1, 1))
	b.exchange()
	b.l.gone[counterKey{1, 0}] = true
	b.renew()
	b.refused(Share, Unavailable, need(1, 1))
	b.m.Settle(w.Hold, []Need{need(1, 1)}) // to nobody
	if c := b.counter(1, 0); c.spent != 0 || c.granted != 0 || b.m.stats.straySettles != 0 {
		t.Fatalf("counter %+v, stats %+v, want a counter that starts over", c, b.m.stats)
	}
}

func TestLeave(t *testing.T) {
	b := newBed(t)
	b.m.Connected(b.now)
	b.l.shares, b.l.version = []*quotav1.Share{{Resource: 1, PerMinute: 60}}, 1
	w := b.ask(need(1, 1), need(moneyID, 1000))
	b.exchange()
	b.m.Leave()
	b.refused(Share, Leaving, need(1, 1))
	b.after(75 * time.Millisecond)
	r := b.exchange()
	if !r.Leaving {
		t.Fatal("the renew does not say that it leaves")
	}
	for _, c := range b.m.counters {
		if c.balance() != 0 {
			t.Errorf("%v keeps %d", c.key, c.balance())
		}
	}
	if len(b.m.shares) != 0 || b.m.standbyUntil != 0 {
		t.Error("shares outlive leaving")
	}
	b.m.Settle(w.Hold, []Need{need(1, 1), need(moneyID, 300)})
	b.m.Leave()
	b.after(75 * time.Millisecond)
	if r = b.exchange(); r.Counters[1].Spent != 300 || r.Counters[1].Held != 0 || !r.Leaving {
		t.Fatalf("got %v, want the final totals", r)
	}
	if a := b.l.account(7, counterKey{moneyID, jan}); a.out() != 0 {
		t.Fatalf("%d still out after the last renew", a.out())
	}
}
