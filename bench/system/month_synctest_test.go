package system

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// In the Azores the year 2000 begins an hour after the bubble.
var turn = time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)

func azores() string {
	return strings.Replace(org(provider, "{ monthly: 0.02 }", "{ rpm: 6000 }"), "  t: {", "  t: { timezone: Atlantic/Azores,", 1)
}

// A request of spendBody costs spendCost.
const spendCost = 8*2_000 + 20*10_000

var spendBody = say("tokens=20", `,"max_tokens":40`)

// spend spends the budget until it is refused with a code.
func (w *world) spend(code string) (last answer) {
	w.t.Helper()
	for i := 0; last.code() != code; i++ {
		last = w.chat(w.cars[i%len(w.cars)], spendBody)
		if last.status != 200 && last.code() != "budget_exhausted" && last.code() != "budget_reserved" ||
			time.Now().After(turn.Add(-time.Second)) {
			w.t.Fatalf("at %v: %d %s %v", time.Now(), last.status, last.body, last.err)
		}
		w.pass(100 * time.Millisecond)
	}
	return last
}

// servedAfterTurn waits for the turn and until every sidecar serves again.
func (w *world) servedAfterTurn() {
	w.t.Helper()
	w.passUntil(turn)
	for _, m := range w.cars {
		w.eventually(m.name+" serves", func() bool { return w.chat(m, spendBody).status == 200 })
	}
	if took := time.Since(turn); took > 2*time.Second {
		w.t.Errorf("served %v after the turn", took)
	}
}

// months returns what was settled in the old month and in the new one.
func (w *world) months() (old, fresh int64) {
	w.t.Helper()
	bs := w.budgets()
	if len(bs) != 2 || bs[0].Period != 200001 || bs[1].Period != 199912 {
		w.t.Fatalf("budgets: %v", bs)
	}
	for _, b := range bs {
		if b.SettledNano > b.CapNano {
			w.t.Errorf("%d: settled %d of %d", b.Period, b.SettledNano, b.CapNano)
		}
	}
	return bs[1].SettledNano, bs[0].SettledNano
}

// TestMonthTurns: a hard budget that is spent says when it resets, in the team's time zone, and does so then.
func TestMonthTurns(t *testing.T) {
	inWorldAt(t, turn.Add(-5*time.Minute), 1, 2, azores(), func(t *testing.T, w *world) {
		w.passUntil(turn.Add(-time.Minute))
		a := w.spend("budget_exhausted")
		if want := fmt.Sprintf(`"resets_at":"%s"`, turn.Format(time.RFC3339)); !strings.Contains(a.body, want) {
			t.Errorf("want %s in %s", want, a.body)
		}
		w.passUntil(turn.Add(-time.Second))
		if a = w.chat(w.cars[0], spendBody); a.code() != "budget_exhausted" {
			t.Errorf("a second before the turn: %d %s", a.status, a.body)
		}
		w.servedAfterTurn()
		w.agree()
		if old, fresh := w.months(); old+spendCost <= 20_000_000*99/100 || old%spendCost != 0 || fresh != 2*spendCost {
			t.Errorf("settled %d in the old month and %d in the new one; a request costs %d", old, fresh, spendCost)
		}
	})
}

// TestStreamAcrossTheTurn: what runs across the turn is booked in the month in which it was reserved.
func TestStreamAcrossTheTurn(t *testing.T) {
	inWorldAt(t, turn.Add(-5*time.Minute), 1, 2, azores(), func(t *testing.T, w *world) {
		w.passUntil(turn.Add(-time.Minute))
		across := make(chan answer, 1)
		go func() {
			across <- w.chat(w.cars[0], say("tokens=100 gap=1s", `,"stream":true,"max_tokens":100`))
		}()
		w.pass(time.Second)
		w.spend("budget_reserved")
		w.servedAfterTurn()
		if a := <-across; a.status != 200 || !strings.Contains(a.body, "[DONE]") || time.Since(turn) < 30*time.Second {
			t.Errorf("the stream: %d %s %v, at %v", a.status, a.body, a.err, time.Now())
		}
		w.agree()
		const stream = 100*10_000 + 10*2_000
		// For a moment after the turn a sidecar may still spend what it has on lease of the old month.
		if old, fresh := w.months(); old < stream || (old-stream)%spendCost != 0 || fresh%spendCost != 0 || fresh == 0 {
			t.Errorf("settled %d in the old month and %d in the new one; a request costs %d, the stream %d", old, fresh, spendCost, stream)
		}
	})
}

// TestCutOffAcrossTheTurn: a sidecar that is cut off while the month turns books in the one it knows, and nothing is
// lost.
func TestCutOffAcrossTheTurn(t *testing.T) {
	org := strings.Replace(outageOrg(60), "  t: {", "  t: { timezone: Atlantic/Azores,", 1)
	inWorldAt(t, turn.Add(-5*time.Minute), 1, 2, org, func(t *testing.T, w *world) {
		w.passUntil(turn.Add(-3 * time.Minute))
		for time.Now().Before(turn.Add(3 * time.Minute)) {
			for i, m := range w.cars {
				if a := w.chat(m, spendBody); a.status != 200 && (i == 1 || a.code() != "quota_unavailable") {
					t.Fatalf("%s at %v: %d %s", m.name, time.Now(), a.status, a.body)
				}
			}
			w.pass(5 * time.Second)
			if until := time.Until(turn); until < 2*time.Minute && until > 2*time.Minute-6*time.Second {
				w.cutOff(w.cars[0])
			}
		}
		before := w.witnessed()
		w.net.Heal()
		w.connected(w.cars[0])
		w.agree()
		old, fresh := w.months()
		if old+fresh != before.cost || old == 0 || fresh == 0 {
			t.Errorf("settled %d in the old month and %d in the new one, the provider had %d", old, fresh, before.cost)
		}
		if a := w.chat(w.cars[0], spendBody); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		w.agree()
		if was, now := w.months(); was != old || now != fresh+spendCost {
			t.Errorf("healed, it books %d in the old month and %d in the new one", was-old, now-fresh)
		}
	})
}
