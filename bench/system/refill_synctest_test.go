package system

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// admissions counts what was admitted, by time.
type admissions struct {
	mu    sync.Mutex
	at    []time.Time
	twice int // refusals of callers that came when they were told
}

func (a *admissions) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
}

// worst is the most admissions in any window of a length.
func (a *admissions) worst(window time.Duration) int {
	slices.SortFunc(a.at, time.Time.Compare)
	most, first := 0, 0
	for i, at := range a.at {
		for at.Sub(a.at[first]) > window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// retryAfter is the wait a refused caller is told.
func retryAfter(a answer) time.Duration {
	var ms int64
	_, _ = fmt.Sscan(a.header.Get("retry-after-ms"), &ms)
	return time.Duration(ms) * time.Millisecond
}

// TestBucketRefills: one caller that always waits as it is told gets exactly the bucket and its refill, and is never
// refused twice for the same request.
func TestBucketRefills(t *testing.T) {
	const limit, minutes = 30, 5
	org := org(provider, "{ monthly: 100 }", fmt.Sprintf("{ rpm: %d }", limit))
	inWorld(t, 1, 1, org, func(t *testing.T, w *world) {
		began := time.Now()
		var got admissions
		told := false
		for time.Since(began) < minutes*time.Minute {
			switch a := w.chat(w.cars[0], say("tokens=1", "")); {
			case a.status == 200:
				got.add()
				told = false
			case a.status != 429 || a.code() != "key_requests_per_minute":
				t.Fatalf("%d %s %v", a.status, a.body, a.err)
			case told:
				t.Fatalf("at %v: refused again at the time it was told: %s %v", time.Since(began), a.body, a.header)
			default:
				wait := retryAfter(a)
				if wait <= 0 || wait > 2*time.Second+5*time.Millisecond {
					t.Fatalf("at %v: told to wait %v; a request refills in 2 s", time.Since(began), wait)
				}
				told = true
				w.pass(wait)
			}
		}
		for minute := range minutes {
			want := limit
			if minute == 0 {
				want = 2 * limit
			}
			from := began.Add(time.Duration(minute) * time.Minute)
			in := 0
			for _, at := range got.at {
				if !at.Before(from) && at.Before(from.Add(time.Minute)) {
					in++
				}
			}
			if in < want-1 || in > want {
				t.Errorf("minute %d: %d admitted, want %d", minute, in, want)
			}
		}
		if worst := got.worst(time.Minute); worst > 2*limit {
			t.Errorf("%d admitted within a minute", worst)
		}
		w.agree()
	})
}

// TestTokensRefill: the same for tokens, of which a request reserves more than it uses.
func TestTokensRefill(t *testing.T) {
	const limit, minutes = 6000, 5
	for name, reserve := range map[string]string{"whole cap reserved": "reserve: cap, ", "likely use reserved": ""} {
		t.Run(name, func(t *testing.T) {
			org := strings.Replace(org(provider, "{ monthly: 100 }", fmt.Sprintf("{ tpm: %d }", limit)), "  chat: {", "  chat: { "+reserve, 1)
			inWorld(t, 1, 1, org, func(t *testing.T, w *world) {
				began := time.Now()
				told := false
				for time.Since(began) < minutes*time.Minute {
					switch a := w.chat(w.cars[0], say("tokens=200 first=1s", `,"max_tokens":900`)); {
					case a.status == 200:
						told = false
					case a.status != 429 || a.code() != "key_tokens_per_minute":
						t.Fatalf("%d %s %v", a.status, a.body, a.err)
					case told:
						t.Fatalf("at %v: refused again at the time it was told: %s %v", time.Since(began), a.body, a.header)
					default:
						told = true
						w.pass(retryAfter(a))
					}
				}
				used := w.witnessed()
				if n, most := used.input+used.output, int64(limit*(minutes+1)); n > most || n < most*95/100 {
					t.Errorf("%d tokens used in %d minutes, want %d", n, minutes, most)
				}
				w.agree()
			})
		})
	}
}

// TestBucketOverTwoSidecars: callers that want more than there is get the bucket and its refill in all, wherever they
// call.
func TestBucketOverTwoSidecars(t *testing.T) {
	const limit, minutes = 60, 5
	org := org(provider, "{ monthly: 100 }", fmt.Sprintf("{ rpm: %d }", limit))
	inWorld(t, 1, 2, org, func(t *testing.T, w *world) {
		end := time.Now().Add(minutes * time.Minute)
		var got admissions
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				w.greedy(w.cars[i%2], end, &got, func(a answer) bool { return a.code() == "key_requests_per_minute" })
			})
		}
		callers.Wait()
		if n, most := len(got.at), limit*(minutes+1); n > most || n < most*95/100 {
			t.Errorf("%d admitted in %d minutes, want %d", n, minutes, most)
		}
		for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 3 * time.Minute} {
			if n, most := got.worst(window), int(limit+limit*window.Minutes())*105/100; n > most {
				t.Errorf("%d admitted within %v, want %d at most", n, window, most)
			}
		}
		w.agree()
	})
}

// greedy calls until a moment, and after a refusal waits as it is told. No refusal is expected but what may be.
func (w *world) greedy(m *member, until time.Time, got *admissions, maybe func(answer) bool) {
	told := false
	for time.Now().Before(until) {
		a := w.chat(m, say("tokens=1", ""))
		switch {
		case a.status == 200:
			got.add()
			told = false
			continue
		case !maybe(a) || retryAfter(a) <= 0:
			w.t.Errorf("%s at %v: %d %s %v", m.name, time.Now(), a.status, a.body, a.err)
			return
		}
		if told {
			got.mu.Lock()
			got.twice++
			got.mu.Unlock()
		}
		told = true
		w.pass(min(retryAfter(a), time.Until(until)))
	}
}
