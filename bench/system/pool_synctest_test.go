package system

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// batchKey is the key of another team, whose class is batch.
const batchKey = "sk-sluice-test-batch"

// sharing is an organisation of two teams, interactive and batch, at a deployment with these limits.
func sharing(base, limits string) string {
	yaml := strings.Replace(org(base, "{ monthly: 100000 }", "{}"), "price: chat }", "price: chat, limits: "+limits+" }", 1)
	yaml = strings.Replace(yaml, "t: { budget: { monthly: 100000 } }", "t: { budget: { monthly: 100000 }, priority: interactive }\n  b: { priority: batch }", 1)
	return yaml + fmt.Sprintf("  - { id: night, team: b, secret_sha256: %s }\n", sum(batchKey))
}

// tenant is a team's caller, and what it got.
type tenant struct {
	key, body string
	mu        sync.Mutex
	served    int
}

func (a *tenant) got() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.served
}

// load has callers call until a moment; after a refusal they wait as they are told. No refusal is expected but for want of
// what is rented.
func (w *world) load(group *sync.WaitGroup, end time.Time, callers int, m *member, who *tenant) {
	for range callers {
		group.Go(func() {
			for time.Now().Before(end) {
				a := w.call(m, who.key, who.body)
				switch {
				case a.status == 200:
					who.mu.Lock()
					who.served++
					who.mu.Unlock()
				case a.code() != "upstream_rate_limited" && a.code() != "quota_unavailable" || retryAfter(a) <= 0:
					w.t.Errorf("%d %s %v", a.status, a.body, a.err)
					return
				default:
					w.pass(min(retryAfter(a), time.Until(end)))
				}
			}
		})
	}
}

// limit gives the provider's model its true limits.
func (w *world) limit(l fakeprovider.Limits) {
	w.t.Helper()
	if err := w.fake.Apply(fakeprovider.Control{Limits: &map[string]fakeprovider.Limits{"m1": l}}); err != nil {
		w.t.Fatal(err)
	}
}

// TestPoolOverTwoSidecars: two teams that want more than a provider rents out get nearly all of it, over two sidecars,
// and the provider never has to say no. Batch keeps its floor, and no more than what the others leave.
func TestPoolOverTwoSidecars(t *testing.T) {
	const minutes = 1
	for name, c := range map[string]struct {
		dialect, org string

		limits fakeprovider.Limits
		body   string
		units  int // of the limit that a request takes
		most   int // a minute: 90 percent of the limit
	}{
		"requests": {"openai", "{ rpm: 600 }", fakeprovider.Limits{Requests: 600}, say("tokens=2", ""), 1, 540},
		"tokens":   {"openai", "{ tpm: 60000 }", fakeprovider.Limits{Tokens: 60_000}, say("tokens=2 first=500ms", `,"max_tokens":100`), 100, 54_000},
		// What is written counts, not the cap.
		"output": {"anthropic", "{ output_tpm: 20000, input_tpm: 1000000 }", fakeprovider.Limits{OutputTokens: 20_000, InputTokens: 1_000_000},
			say("tokens=20 first=500ms", `,"max_tokens":100`), 20, 18_000},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, strings.ReplaceAll(sharing(provider, c.org), "provider: openai", "provider: "+c.dialect), func(t *testing.T, w *world) {
				w.limit(c.limits)
				interactive, batch := &tenant{key: appKey, body: c.body}, &tenant{key: batchKey, body: c.body}
				var load sync.WaitGroup
				// The bucket that has filled up meanwhile is not what is measured.
				end := time.Now().Add((minutes + 1) * time.Minute)
				for _, m := range w.cars {
					w.load(&load, end, 4, m, interactive)
					w.load(&load, end, 4, m, batch)
				}
				w.pass(time.Minute)
				before, beforeBatch := interactive.got()+batch.got(), batch.got()
				load.Wait()
				got, gotBatch := (interactive.got()+batch.got()-before)*c.units, (batch.got()-beforeBatch)*c.units
				refused := w.fake.Witness(0).Totals.RateLimited
				t.Logf("in %d minute(s) %d of %d, batch %d; the provider refused %d", minutes, got, minutes*c.most, gotBatch, refused)
				if refused != 0 {
					t.Errorf("the provider refused %d", refused)
				}
				if got < minutes*c.most*95/100 || got > minutes*c.most*105/100 {
					t.Errorf("used %d of %d", got, minutes*c.most)
				}
				// Of what comes back 50 permille are reserved for batch, and the others leave nothing.
				if floor := minutes * c.most * 5 / 100; gotBatch < floor*9/10 || gotBatch > floor*3/2 {
					t.Errorf("batch had %d, its floor is %d", gotBatch, floor)
				}
			})
		})
	}
}

// TestPoolWithoutQuotad: sidecars that are cut off go on with their shares of what is rented, and the provider never has
// to say no. Back with quotad all of it is used again.
func TestPoolWithoutQuotad(t *testing.T) {
	const limit, minutes = 600, 2
	inWorld(t, 1, 2, sharing(provider, fmt.Sprintf("{ rpm: %d }", limit)), func(t *testing.T, w *world) {
		w.limit(fakeprovider.Limits{Requests: limit})
		team := &tenant{key: appKey, body: say("tokens=2", "")}
		phase := func(length time.Duration) int {
			var load sync.WaitGroup
			end, before := time.Now().Add(length), team.got()
			for _, m := range w.cars {
				w.load(&load, end, 5, m, team)
			}
			load.Wait()
			return team.got() - before
		}
		phase(time.Minute)
		w.cutOff(w.cars...)
		away := phase(minutes * time.Minute)
		w.net.Heal()
		for _, m := range w.cars {
			w.connected(m)
		}
		phase(time.Minute)
		back := phase(minutes * time.Minute)
		t.Logf("%d served without quotad, %d with it, of %d", away, back, minutes*limit*9/10)
		// Cut off, each has half; while its leases end and its share begins to flow a little is lost.
		if most := minutes * limit * 9 / 10; away < most*85/100 || away > most || back < most*95/100 {
			t.Error("too little, or more than is rented")
		}
		if n := w.fake.Witness(0).Totals.RateLimited; n != 0 {
			t.Errorf("the provider refused %d", n)
		}
	})
}

// TestOthersAtTheProvider: somebody else uses half of a provider's limit. Its headers say so, and few requests run into
// it; when they have gone, all of the limit is used again.
func TestOthersAtTheProvider(t *testing.T) {
	const limit = 1_200 // a minute
	for name, c := range map[string]struct {
		body    string
		callers int
	}{"at once": {say("tokens=2", ""), 4}, "after 3 s": {say("tokens=2 first=3s", ""), 35}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, sharing(provider, fmt.Sprintf("{ rpm: %d }", limit)), func(t *testing.T, w *world) {
				w.limit(fakeprovider.Limits{Requests: limit})
				ours := &tenant{key: appKey, body: c.body}
				var load, others sync.WaitGroup
				start := time.Now()
				for _, m := range w.cars {
					w.load(&load, start.Add(4*time.Minute+5*time.Second), c.callers, m, ours)
				}
				theirs := strings.Replace(say("tokens=1", ""), `"chat"`, `"m1"`, 1)
				others.Go(func() {
					for n := 0; time.Since(start) < 2*time.Minute; n++ {
						send(w.t.Context(), w.http, provider+"/chat/completions", providerKey, theirs)
						if n > limit*3/4 { // the bucket was full: they begin with that
							w.pass(time.Minute / (limit / 2))
						}
					}
				})
				refused := func() int { return int(w.fake.Witness(0).Totals.RateLimited) }
				w.pass(time.Minute)
				refusedBefore, before := refused(), ours.got()
				others.Wait()
				no, yes := refused()-refusedBefore, ours.got()-before
				w.pass(time.Minute)
				before = ours.got()
				w.pass(time.Minute)
				alone := ours.got() - before
				load.Wait()
				t.Logf("a minute beside others: %d served, %d refused by the provider; one alone: %d", yes, no, alone)
				if no > yes/100 || yes < limit/2*90/100 {
					t.Errorf("beside others %d were served and %d refused; half of the limit is %d", yes, no, limit/2)
				}
				if most := limit * 9 / 10; alone < most*95/100 || alone > most*105/100 {
					t.Errorf("alone %d were served, of %d", alone, most)
				}
			})
		})
	}
}
