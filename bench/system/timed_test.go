package system

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// What stands here is measured, with thresholds of the design. So it is part of the long suite alone.

const (
	cancels       = 240 // of each kind
	cancelWorkers = 4
	cancelWithin  = 50 * time.Millisecond
	liveWithin    = 2 * time.Second
	liveRounds    = 5
	pollEvery     = 5 * time.Millisecond
)

// spread is a distribution in words.
func spread(d []time.Duration) string {
	d = slices.Sorted(slices.Values(d))
	at := func(permille int) time.Duration { return d[(len(d)-1)*permille/1000].Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d measured: min %v, p50 %v, p90 %v, p99 %v, max %v", len(d), at(0), at(500), at(900), at(990), at(1000))
}

// TestCancelReachesProvider measures how long a caller's leaving takes to be seen by the provider. Both ends are stamped
// by the same clock: the caller before it closes, the provider when it notices.
func TestCancelReachesProvider(t *testing.T) {
	long(t)
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 1000 }", "{ rpm: 600000, tpm: 500000000 }") })
	for _, kind := range []struct {
		name, directive, more string
		tokens                int64 // written before it leaves
	}{
		{"before the first token", "first=1h", `,"stream":true`, 0},
		{"in mid-stream", "tokens=2000 gap=5ms", `,"stream":true`, 3},
		{"before a whole answer", "first=1h", ``, 0},
	} {
		t.Run(kind.name, func(t *testing.T) {
			direct, took := cancelled(t, s, func(most int64) string {
				return say(kind.directive, fmt.Sprintf(`%s,"max_tokens":%d`, kind.more, most))
			}, kind.tokens)
			t.Logf("without a sidecar: %s", spread(direct))
			t.Logf("with a sidecar:    %s", spread(took))
			late := 0
			for _, d := range took {
				if d > cancelWithin {
					late++
				}
			}
			// A busy machine may hold a process back for longer than that, with and without a sidecar.
			if worst := slices.Max(took); late > cancels/100 || worst > slices.Max(direct)+10*cancelWithin {
				t.Errorf("%d of %d closes were seen after %v, the last after %v", late, cancels, cancelWithin, worst)
			}
		})
	}
	s.eventually("nothing is held", func() bool { return s.budget("t").Held == 0 })
}

// cancelled sends requests to the provider and to the sidecar in turn, and leaves each at a random moment of its wait.
// Each has a cap of its own, by which the provider's record is found.
func cancelled(t *testing.T, s *stack, body func(most int64) string, tokens int64) (direct, took []time.Duration) {
	s.fake.Reset()
	direct, took = make([]time.Duration, cancels), make([]time.Duration, cancels)
	var workers sync.WaitGroup
	for w := range cancelWorkers {
		workers.Go(func() {
			for i := w; i < cancels; i += cancelWorkers {
				most := 1000 + 2*int64(i)
				direct[i] = cancelOnce(t, s, s.fakeURL, providerKey, body(most), most, tokens)
				most++
				took[i] = cancelOnce(t, s, s.sidecars[0].url+"/v1", appKey, body(most), most, tokens)
				if direct[i] < 0 || took[i] < 0 {
					return
				}
			}
		})
	}
	workers.Wait()
	return direct, took
}

// cancelOnce returns how long one leaving took to be seen; below 0, it was not.
func cancelOnce(t *testing.T, s *stack, base, key, body string, most, tokens int64) time.Duration {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return -1
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		resp, err := client.Do(req)
		if err != nil {
			return // it left before the head
		}
		defer func() { _ = resp.Body.Close() }()
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
		}
	}()
	mine := func(w fakeprovider.Snapshot) *fakeprovider.Record {
		for i := range w.Records {
			if w.Records[i].MaxTokens == most {
				return &w.Records[i]
			}
		}
		return nil
	}
	waiting, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if _, err := s.fake.Wait(waiting, 50, func(w fakeprovider.Snapshot) bool {
		r := mine(w)
		return r != nil && r.TokensSent >= tokens
	}); err != nil {
		t.Errorf("a request never reached the provider: %v", err)
		return -1
	}
	<-time.After(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
	left := time.Now()
	leave()
	w, err := s.fake.Wait(waiting, 50, func(w fakeprovider.Snapshot) bool {
		r := mine(w)
		return r != nil && r.Outcome == fakeprovider.OutcomeCancelled
	})
	if err != nil {
		t.Errorf("the provider never saw a close: %v", err)
		return -1
	}
	<-gone
	return time.Unix(0, mine(w).CloseSeenNS).Sub(left)
}

// TestChangesAreLive measures how long a change takes from the operator's call to its effect on every sidecar, seen by
// requests.
func TestChangesAreLive(t *testing.T) {
	long(t)
	const limits = "{ rpm: 600000, tpm: 500000000 }"
	s := start(t, 3, 3, func(base string) string { return org(base, "{ monthly: 1000 }", limits) })
	whole := func(old, new string) string {
		return strings.Replace(org(s.fakeURL, "{ monthly: 1000 }", limits), old, new, 1)
	}
	measured := map[string][]time.Duration{}
	// change measures until every sidecar shows it: from the call, which ends when quotad has committed.
	change := func(name string, do func(), seen func(sc *sidecar) bool) {
		t.Helper()
		began := time.Now()
		do()
		for _, sc := range s.sidecars {
			for !seen(sc) {
				if time.Since(began) > wait {
					t.Fatalf("%s: never seen at %s", name, sc.name)
				}
				<-time.After(pollEvery)
			}
		}
		measured[name] = append(measured[name], time.Since(began))
	}
	try := func(sc *sidecar, key string) answer {
		return s.call(t.Context(), sc, "/v1/chat/completions", key, say("tokens=1", `,"max_tokens":1`))
	}
	for round := range liveRounds {
		id := fmt.Sprintf("key-%d", round)
		var secret string
		change("new key", func() { secret = strings.TrimSpace(s.quotad("key", "create", id, "--team", "t", "-q")) },
			func(sc *sidecar) bool { return try(sc, secret).status == 200 })
		change("revoked key", func() { s.quotad("key", "revoke", id) },
			func(sc *sidecar) bool { return try(sc, secret).status == 401 })
		model := fmt.Sprintf("live-%d", round)
		change("new alias", func() {
			s.apply(whole("aliases:\n", "aliases:\n  "+model+": { targets: [ { deployment: main } ] }\n"))
		}, func(sc *sidecar) bool {
			return s.chat(sc, strings.Replace(say("tokens=1", ""), `"chat"`, `"`+model+`"`, 1)).status == 200
		})
		change("alias edit", func() {
			s.apply(whole("aliases:\n  chat: { targets: [ { deployment: main } ] }\n", fmt.Sprintf(`  - { id: other-%d, provider: openai, base_url: "%s", model: m1, credential: main, price: chat }
aliases:
  chat: { targets: [ { deployment: other-%d } ] }
`, round, s.fakeURL, round)))
		}, func(sc *sidecar) bool {
			return try(sc, appKey).header.Get("x-gw-deployment") == fmt.Sprintf("other-%d", round)
		})
		version := fmt.Sprintf("live-%d", round)
		change("new price", func() {
			s.apply(whole("prices:\n", fmt.Sprintf(`prices:
  - id: %s
    valid_from: 2026-02-0%dT00:00:00Z
    per_million_usd: { chat: { input: 1.00, output: 1.00 } }
`, version, round+1)))
		}, func(sc *sidecar) bool {
			return strings.Contains(try(sc, appKey).body, `"price_version":"`+version+`"`)
		})
		limit := fmt.Sprint(1000 + round)
		change("changed limit", func() { s.apply(whole("rpm: 600000", "rpm: "+limit)) },
			func(sc *sidecar) bool { return try(sc, appKey).header.Get("x-ratelimit-limit-requests") == limit })
		change("limit that refuses", func() { s.apply(whole("tpm: 500000000", "tpm: 2")) },
			func(sc *sidecar) bool { return try(sc, appKey).code() == "request_exceeds_limit" })
		change("limit that allows again", func() { s.apply(whole("", "")) },
			func(sc *sidecar) bool { return try(sc, appKey).status == 200 })
	}
	for name, took := range measured {
		t.Logf("%-24s %s", name, spread(took))
		if worst := slices.Max(took); worst > liveWithin {
			t.Errorf("%s: live on every sidecar after %v, want within %v", name, worst, liveWithin)
		}
	}
}
