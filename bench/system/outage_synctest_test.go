package system

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// limited reports whether an answer says, in the words of either state, that the limit holds.
func limited(a answer) bool {
	return a.code() == "key_requests_per_minute" || a.code() == "quota_unavailable"
}

// outageOrg has a hard budget of which ten minutes fit on lease: the bucket alone limits.
func outageOrg(rpm int) string {
	return org(provider, "{ monthly: 100 }", fmt.Sprintf("{ rpm: %d }", rpm))
}

// TestCutOffSidecar: a sidecar that quotad cannot hear uses up its lease, then its standing share, for ten minutes. All
// the while both together stay within the limit, and afterwards nothing is missing.
func TestCutOffSidecar(t *testing.T) {
	const limit = 60
	org := outageOrg(limit)
	inWorld(t, 1, 2, org, func(t *testing.T, w *world) {
		var all admissions
		var each [2]admissions
		run := func(d time.Duration) {
			end := time.Now().Add(d)
			var callers sync.WaitGroup
			for i, m := range w.cars {
				callers.Go(func() {
					before := len(each[i].at)
					w.greedy(m, end, &each[i], limited)
					for _, at := range each[i].at[before:] {
						all.mu.Lock()
						all.at = append(all.at, at)
						all.mu.Unlock()
					}
				})
			}
			callers.Wait()
		}
		run(3 * time.Minute)
		w.cutOff(w.cars[0])
		cut := time.Now()
		run(time.Minute) // leases end, quotad notices
		alone, other, twice := len(each[0].at), len(each[1].at), each[0].twice
		run(9 * time.Minute)
		if n := each[0].twice - twice; n > 0 {
			t.Errorf("%d times the sidecar that is cut off refused at the time that it had told", n)
		}
		alone, other = len(each[0].at)-alone, len(each[1].at)-other
		t.Logf("in 9 minutes: %d alone on its share, %d with quotad", alone, other)
		if most := 9 * limit / 2; alone > most+1 || alone < most*95/100 {
			t.Errorf("the sidecar that is cut off admitted %d in nine minutes, its share is %d", alone, most)
		}
		if most := 9 * limit / 2; other > most*105/100 || other < most*95/100 {
			t.Errorf("the other one admitted %d in nine minutes, %d are left", other, most)
		}
		if got := w.metric(w.cars[0], "sluice_quotad_connected"); got != 0 || time.Since(cut) < 10*time.Minute {
			t.Errorf("connected %v after %v", got, time.Since(cut))
		}
		w.net.Heal()
		w.connected(w.cars[0])
		run(time.Minute)
		healed := len(all.at)
		run(5 * time.Minute)
		if n, most := len(all.at)-healed, 5*limit; n > most*105/100 || n < most*95/100 {
			t.Errorf("%d admitted in five minutes after it healed, want %d", n, most)
		}
		for _, window := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute} {
			if n, most := all.worst(window), int(limit+limit*window.Minutes())*105/100; n > most {
				t.Errorf("%d admitted within %v, want %d at most", n, window, most)
			}
		}
		w.agree()
	})
}

// TestQuotadGoneForAnHour: known keys go on within limit / N for the hour that a standing share lasts, unknown keys
// are not told that they are wrong, and what was used arrives when quotad is back.
func TestQuotadGoneForAnHour(t *testing.T) {
	const limit, cars = 12, 2
	// Money on lease is for ten minutes: this budget may be passed.
	org := org(provider, "{ monthly: 100, hard: false }", fmt.Sprintf("{ rpm: %d }, outage: open", limit))
	inWorld(t, 1, cars, org, func(t *testing.T, w *world) {
		var got [cars]admissions
		run := func(d time.Duration) {
			end := time.Now().Add(d)
			var callers sync.WaitGroup
			for i, m := range w.cars {
				callers.Go(func() { w.greedy(m, end, &got[i], limited) })
			}
			callers.Wait()
		}
		run(3 * time.Minute)
		w.nodes[0].stop()
		gone := time.Now()
		run(time.Minute)
		for _, m := range w.cars {
			if a := w.call(m, "sk-nobody", say("tokens=1", "")); a.status != 503 || a.header.Get("retry-after") == "" {
				t.Errorf("an unknown key: %d %s", a.status, a.body)
			}
		}
		w.cutOff(w.cars...) // first its process is gone, then its machine
		before := [cars]int{len(got[0].at), len(got[1].at)}
		run(54 * time.Minute)
		for i := range got {
			if n, most := len(got[i].at)-before[i], 54*limit/cars; n > most+1 || n < most*95/100 {
				t.Errorf("%s admitted %d in 54 minutes, its share is %d", w.cars[i].name, n, most)
			}
		}
		w.passUntil(gone.Add(61 * time.Minute))
		for _, m := range w.cars {
			if a := w.chat(m, say("tokens=1", "")); a.status != 503 || a.code() != "quota_unavailable" {
				t.Errorf("after standby: %d %s", a.status, a.body)
			}
		}
		w.net.Heal()
		w.startNode(w.nodes[0])
		for _, m := range w.cars {
			w.connected(m)
		}
		w.agree()
		for _, m := range w.cars {
			w.eventually("a request through "+m.name, func() bool { return w.chat(m, say("tokens=1", "")).status == 200 })
		}
		w.agree()
	})
}

// TestCutOffWithHardBudget: without quotad no more of a hard budget is spent than was on lease, and it is all accounted
// for afterwards.
func TestCutOffWithHardBudget(t *testing.T) {
	inWorld(t, 1, 2, org(provider, "{ monthly: 0.02 }", "{ rpm: 6000 }"), func(t *testing.T, w *world) {
		body := say("tokens=20", `,"max_tokens":40`)
		for range 10 {
			for _, m := range w.cars {
				if a := w.chat(m, body); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
		}
		across := make(chan answer, 1)
		go func() {
			across <- w.chat(w.cars[0], say("tokens=400 gap=1s", `,"stream":true,"max_tokens":400`))
		}()
		w.pass(time.Second)
		w.cutOff(w.cars[0])
		w.pass(time.Minute)
		exhausted := false
		for range 200 {
			for i, m := range w.cars {
				a := w.chat(m, body)
				exhausted = exhausted || a.code() == "budget_exhausted" || a.code() == "budget_reserved"
				if a.status != 200 && (i == 0) != (a.code() == "quota_unavailable") {
					t.Fatalf("%s: %d %s", m.name, a.status, a.body)
				}
			}
			w.pass(time.Second)
		}
		w.net.Heal()
		if a := <-across; a.status != 200 || !strings.Contains(a.body, "[DONE]") {
			t.Errorf("the stream across the cut: %d %s %v", a.status, a.body, a.err)
		}
		if spent := w.witnessed().cost; !exhausted || spent > 20_000_000 {
			t.Errorf("spent %d of 20,000,000 nano-dollars; the end was said: %v", spent, exhausted)
		}
		w.agree()
	})
}

// TestLatecomersFindMoney: a busy sidecar holds all the money that may lie idle on leases; those that become busy later
// get their part of it at its next renew, and live through an outage as long as it does.
func TestLatecomersFindMoney(t *testing.T) {
	inWorld(t, 1, 3, org(provider, "{ monthly: 100 }", "{}"), func(t *testing.T, w *world) {
		end := time.Now().Add(45 * time.Second)
		var load sync.WaitGroup
		for i, m := range w.cars {
			if i == 1 {
				w.pass(20 * time.Second)
			}
			load.Go(func() {
				for time.Now().Before(end) {
					if a := w.chat(m, say("tokens=20 first=20ms", `,"max_tokens":20`)); a.status != 200 {
						t.Errorf("sidecar %d at %v: %d %s", i, time.Now(), a.status, a.body)
						return
					}
				}
			})
		}
		w.pass(6 * time.Second)
		for _, m := range w.cars {
			w.net.Cut(w.nodes[0].ip, m.ip)
		}
		w.pass(10 * time.Second)
		w.net.Heal()
		load.Wait()
		w.agree()
	})
}
