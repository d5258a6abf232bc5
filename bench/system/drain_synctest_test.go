package system

import (
	"strings"
	"testing"
	"time"
)

// TestDrain: a sidecar that is asked to stop gives its leases back, lets its streams end, cuts at the drain timeout
// what still runs, and files what all of it used.
func TestDrain(t *testing.T) {
	org := org(provider, "{ monthly: 100 }", "{ rpm: 6000 }")
	inWorld(t, 1, 2, org, func(t *testing.T, w *world) {
		car := w.cars[0]
		stream := func(directive string) <-chan answer {
			c := make(chan answer, 1)
			go func() { c <- w.chat(car, say(directive, `,"stream":true,"max_tokens":1000`)) }()
			return c
		}
		short, long := stream("tokens=30 gap=1s"), stream("tokens=600 gap=1s")
		whole := make(chan answer, 1)
		go func() { whole <- w.chat(car, say("tokens=3 first=5m", "")) }()
		w.pass(10 * time.Second)
		began := time.Now()
		stopped := make(chan time.Duration, 1)
		go func() { car.stop(); stopped <- time.Since(began) }()
		w.pass(time.Second)
		if a := w.chat(car, say("tokens=1", "")); a.err == nil {
			t.Errorf("a request while draining: %d %s", a.status, a.body)
		}
		if a := w.chat(w.cars[1], say("tokens=1", "")); a.status != 200 {
			t.Errorf("the other sidecar: %d %s", a.status, a.body)
		}
		a := <-short
		if took := time.Since(began); a.status != 200 || !strings.Contains(a.body, "[DONE]") || took > 21*time.Second {
			t.Errorf("the short stream after %v: %d %s %v", took, a.status, a.body, a.err)
		}
		a = <-long
		if took := time.Since(began); a.status != 200 || strings.Contains(a.body, "[DONE]") || took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the long stream after %v: %d ...%s %v", took, a.status, a.body[max(0, len(a.body)-300):], a.err)
		}
		if a := <-whole; a.status != 503 || a.code() != "shutting_down" || a.header.Get("x-should-retry") != "true" {
			t.Errorf("the answer that did not come: %d %s %v", a.status, a.body, a.err)
		}
		if took := <-stopped; took < time.Minute || took > 70*time.Second {
			t.Errorf("stopped after %v", took)
		}
		w.eventually("the provider is left", func() bool { return w.fake.Witness(0).Open == 0 })
		b, used, saw := w.budgets()[0], w.usage(), w.witnessed()
		if b.HeldNano != 0 || b.SuspenseNano != 0 || b.OutstandingNano > b.CapNano/100 {
			t.Errorf("left behind: %v", b)
		}
		// The cut stream counts for an estimate of what was delivered.
		if b.SettledNano != used.cost || used.requests != 3 || b.SettledNano < saw.cost || b.SettledNano > 2*saw.cost {
			t.Errorf("settled %d, usage %+v, the witness saw %+v", b.SettledNano, used, saw)
		}
		w.startCar(car)
		w.connected(car)
		if a := w.chat(car, say("tokens=1", "")); a.status != 200 {
			t.Errorf("started again: %d %s", a.status, a.body)
		}
	})
}

// TestDrainRefusesAtOnce: from the moment of the drain a request is told that the sidecar stops, although quotad is away
// and the leases are not back yet; so is one that waits for quotad. What runs goes on.
func TestDrainRefusesAtOnce(t *testing.T) {
	org := org(provider, "{ monthly: 1000 }", "{ rpm: 6000 }")
	inWorld(t, 1, 1, org, func(t *testing.T, w *world) {
		car := w.cars[0]
		stopping := func(what string, a answer) {
			t.Helper()
			if a.status != 503 || a.code() != "shutting_down" || a.header.Get("x-should-retry") != "true" || a.header.Get("retry-after") != "1" {
				t.Errorf("%s: %d %s %v %v", what, a.status, a.body, a.header, a.err)
			}
		}
		later := func(body string) <-chan answer {
			c := make(chan answer, 1)
			go func() { c <- w.chat(car, body) }()
			return c
		}
		if a := w.chat(car, say("tokens=1", "")); a.status != 200 { // its connection is kept
			t.Fatalf("%d %s %v", a.status, a.body, a.err)
		}
		stream := later(say("tokens=20 gap=1s", `,"stream":true,"max_tokens":100`))
		w.pass(time.Second)
		w.cutOff(car)
		waits := later(say("tokens=1", `,"max_tokens":1000000`)) // which is more than lies on lease
		w.pass(time.Second)
		if n := w.status(car).Lease.Waiting; n != 1 {
			t.Fatalf("%d requests wait for quotad", n)
		}
		drained := send(t.Context(), w.http, "http://"+car.ip+":4001/drain", "", "")
		if got := w.get("http://" + car.ip + ":4001/readyz"); drained.status != 202 || got != "draining\n" {
			t.Errorf("%d, ready: %s", drained.status, got)
		}
		for range 3 {
			stopping("a new request", w.chat(car, say("tokens=1", "")))
		}
		stopping("a request that waited", <-waits)
		if a := <-stream; a.status != 200 || !strings.Contains(a.body, "[DONE]") {
			t.Errorf("the stream: %d %s %v", a.status, a.body, a.err)
		}
		<-car.end
	})
}
