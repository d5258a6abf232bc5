package gateway

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// The pools of deployment i are ids from firstPool + 10 x i, by kind.
const firstPool = 500

func poolOf(deployment int, kind exchange.Kind) uint64 {
	return uint64(firstPool + 10*deployment + int(kind))
}

// pooled gives deployment i limits of these kinds.
func pooled(i int, limits map[exchange.Kind]int64) func(*quotav1.Snapshot) {
	return func(s *quotav1.Snapshot) {
		d := s.Deployments[i]
		for kind := exchange.Requests; kind <= exchange.TotalTokens; kind++ {
			n, ok := limits[kind]
			if !ok {
				continue
			}
			id := poolOf(i, kind)
			s.Resources = append(s.Resources, &quotav1.Resource{
				Id: id, Scope: "deployment", Owner: d.GetId(), Kind: quotav1.Kind(kind), Limit: n, Burst: n,
				Each: quotav1.Each_EACH_CLAIMANT,
			})
			d.Pools = append(d.GetPools(), id)
		}
	}
}

// plenty is more than a test uses, of everything.
var plenty = map[exchange.Kind]int64{
	exchange.Requests: 1_000_000, exchange.InputTokens: 1_000_000, exchange.OutputTokens: 1_000_000, exchange.TotalTokens: 1_000_000,
}

// used is what the claimant has used up of a deployment's limits, by kind.
func (r *rig) used(i int, claimant string) (out [4]int64) {
	for k := range out {
		kind := exchange.Requests + exchange.Kind(k)
		if left, limit, _, ok := r.g.Lease.RemainingOf(poolOf(i, kind), claimant); ok {
			out[k] = limit - left
		}
	}
	return out
}

// settled fails unless every reservation has been settled, once.
func (r *rig) settled() {
	r.t.Helper()
	if s := r.g.Lease.Stats(); s.OpenHolds != 0 || s.DoubleSettles != 0 || s.StraySettles != 0 {
		r.t.Errorf("%d reservations are open, %d settled twice, %d astray", s.OpenHolds, s.DoubleSettles, s.StraySettles)
	}
}

// claude answers in Anthropic's dialect: 10 tokens in, 90 more read from the cache, 5 out.
func claude(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_read_input_tokens":90,"output_tokens":5}}`)
}

// TestWhatProvidersCount: each provider counts by its own rule, and so does the pool; who failed to be asked, or was
// told to come later, has used nothing.
func TestWhatProvidersCount(t *testing.T) {
	long := strings.Replace(output(200), `"hi"`, `"`+strings.Repeat("word ", 200)+`"`, 1)
	for name, c := range map[string]struct {
		dialect, model string
		answer         http.HandlerFunc
		body           string
		want           [4]int64 // requests, input, output, all
	}{
		"openai counts the cap":            {"openai", "gpt", fine, output(200), [4]int64{1, 10, 200, 200}},
		"of every choice":                  {"openai", "gpt", fine, with(`"max_tokens":30,"n":3`), [4]int64{1, 10, 90, 90}},
		"or the prompt if that is more":    {"openai", "gpt", fine, output(3), [4]int64{1, 10, 3, 10}},
		"of a stream too":                  {"openai", "gpt", streaming, with(`"stream":true,"max_tokens":200`), [4]int64{1, 10, 200, 200}},
		"anthropic counts what is written": {"anthropic", "claude-fx-5", claude, long, [4]int64{1, 10, 5, 15}},
		"and of few models cache reads":    {"anthropic", "claude-3-haiku-20240307", claude, long, [4]int64{1, 100, 5, 105}},
		"a refusal is a request":           {"openai", "gpt", failing(400), output(200), [4]int64{1, 0, 0, 0}},
		"a rate limit is nothing":          {"openai", "gpt", failing(429), output(200), [4]int64{}},
		"no answer is what was reserved":   {"anthropic", "claude-fx-5", hangUp, output(200), [4]int64{1, -1, 200, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{id: "a", dialect: c.dialect, model: c.model, answer: c.answer}
			r := newRig(t, []*provider{p}, all(pooled(0, plenty), func(s *quotav1.Snapshot) { s.Aliases[0].MaxAttempts = 1 }))
			r.chat(c.body)
			got := r.used(0, "standard/red")
			for i, want := range c.want {
				if want == -1 && got[i] > 0 { // an estimate
					continue
				}
				if got[i] != want {
					t.Errorf("counted %v, want %v", got, c.want)
					break
				}
			}
			if strings.HasPrefix(name, "a rate") {
				if a := r.chat(hello); a.get("error.code").Str != "upstream_rate_limited" {
					t.Errorf("%s", a.body)
				}
			}
			r.settled()
		})
	}
	t.Run("embeddings have no output", func(t *testing.T) {
		p := &provider{id: "a", answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":2,"total_tokens":2}}`)
		}}
		r := newRig(t, []*provider{p}, pooled(0, plenty))
		if a := r.send("POST", "/v1/embeddings", `{"model":"chat","input":"hi"}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if got := r.used(0, "standard/red"); got != ([4]int64{1, 2, 0, 2}) {
			t.Errorf("counted %v", got)
		}
		r.settled()
	})
	t.Run("nobody there is nothing", func(t *testing.T) {
		p := &provider{id: "a", answer: fine, change: func(d *quotav1.Deployment) { d.BaseUrl = "http://127.0.0.1:1/v1" }}
		r := newRig(t, []*provider{p}, pooled(0, plenty))
		if a := r.chat(hello); a.get("error.code").Str != "upstream_unreachable" {
			t.Fatalf("%s", a.body)
		}
		if got := r.used(0, "standard/red"); got != ([4]int64{}) {
			t.Errorf("counted %v", got)
		}
		r.settled()
	})
}

// streaming answers as fine does, with events.
func streaming(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, data := range []string{
		`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"}}]}`,
		`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`,
		`[DONE]`,
	} {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

// TestPoolIsShort: a deployment whose rented limit is short steps aside. That is no attempt and moves no breaker; when
// nobody is left the provider's limit is named, never one of the caller's.
func TestPoolIsShort(t *testing.T) {
	a, b := &provider{id: "a", answer: fine}, &provider{id: "b", answer: fine}
	r := newRig(t, []*provider{a, b}, all(
		limited(100, 100_000, 50_000, allMoney),
		pooled(0, map[exchange.Kind]int64{exchange.Requests: 1}), pooled(1, map[exchange.Kind]int64{exchange.TotalTokens: 300})))
	for i, want := range []string{"a", "b"} {
		got := r.chat(output(200))
		if got.status != 200 || got.header.Get("x-gw-deployment") != want || got.header.Get("x-gw-attempts") != "1" {
			t.Fatalf("request %d: %d %v %s", i, got.status, got.header, got.body)
		}
	}
	no := r.chat(output(200))
	if no.status != 429 || no.get("error.code").Str != "upstream_rate_limited" || no.number("retry-after-ms") <= 0 ||
		no.number("retry-after-ms") > 1_500 || no.header.Get("x-should-retry") != "true" ||
		!strings.Contains(no.get("error.message").Str, `rented from the provider for deployment "`) || no.get("error.scope").Exists() ||
		no.get("error.attempts").Exists() {
		t.Errorf("%d %v %s", no.status, no.header, no.body)
	}
	if a.calls.Load() != 1 || b.calls.Load() != 1 || len(r.attempts()) != 2 {
		t.Errorf("%d and %d calls, %d events", a.calls.Load(), b.calls.Load(), len(r.attempts()))
	}
	if left, _, _, _ := r.g.Lease.Remaining(keyRequests); left != 98 {
		t.Errorf("%d of the key's requests are left: who was not served has used none", left)
	}
	if got := r.chat(output(100)); got.status != 200 || got.header.Get("x-gw-deployment") != "b" {
		t.Errorf("what fits is served: %d %s", got.status, got.body)
	}
	for _, h := range r.g.Route.Health(r.began) {
		if h.State != "closed" || h.Failures != 0 {
			t.Errorf("%+v", h)
		}
	}
	r.settled()
}

// TestPoolIsTooSmall: what a rented limit can never hold goes elsewhere, or nowhere; quotad never hears of it.
func TestPoolIsTooSmall(t *testing.T) {
	small, large := pooled(0, map[exchange.Kind]int64{exchange.TotalTokens: 100}), pooled(1, map[exchange.Kind]int64{exchange.TotalTokens: 1_000})
	r := newRig(t, []*provider{{id: "a", answer: fine}, {id: "b", answer: fine}}, all(small, large))
	if a := r.chat(output(101)); a.status != 200 || a.header.Get("x-gw-deployment") != "b" {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := r.chat(output(1_001))
	if a.status != 400 || a.get("error.code").Str != "request_exceeds_limit" || a.header.Get("x-should-retry") != "false" ||
		!strings.Contains(a.get("error.message").Str, "deployment") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := r.ledger.names(poolOf(0, exchange.TotalTokens)); len(got) != 0 {
		t.Errorf("asked for %v", got)
	}
	r.settled()
}

// TestRoomComesFirst: of two deployments of one priority the one with room is tried first, whatever the weights; of two
// priorities the first is asked first.
func TestRoomComesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		priority int32
		passed   float64 // times a was passed over
	}{"one priority": {0, 0}, "two": {1, 6}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []*provider{{id: "a", answer: fine}, {id: "b", answer: fine}}, all(
				pooled(0, map[exchange.Kind]int64{exchange.Requests: 1}), pooled(1, plenty), func(s *quotav1.Snapshot) {
					s.Aliases[0].Targets[0].Weight, s.Aliases[0].Targets[1].Weight = 1_000_000_000, 1
					s.Aliases[0].Targets[1].Priority = c.priority
				}))
			for i := range 7 {
				want := "b"
				if i == 0 {
					want = "a"
				}
				if a := r.chat(hello); a.status != 200 || a.header.Get("x-gw-deployment") != want {
					t.Fatalf("request %d: %d %v", i, a.status, a.header)
				}
			}
			r.g.Metrics.PoolShort.WithLabelValues("a") // there, if only as 0
			if got := r.metric("sluice_pool_short_total"); got != c.passed {
				t.Errorf("a was passed over %v times, want %v", got, c.passed)
			}
		})
	}
}

// TestClaimants: a pool is claimed by class and team; a request may lower its class and never raise it.
func TestClaimants(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, pooled(0, plenty))
	for asked, status := range map[string]int{"": 200, "standard": 200, "BATCH": 200, "interactive": 400, "urgent": 400} {
		var header []string
		if asked != "" {
			header = []string{"x-gw-priority", asked}
		}
		a := r.chat(hello, header...)
		if a.status != status || status == 400 && a.get("error.param").Str != "x-gw-priority" {
			t.Errorf("%q: %d %s", asked, a.status, a.body)
		}
	}
	if got := r.ledger.names(poolOf(0, exchange.Requests)); !slices.Equal(got, []string{"batch/red", "standard/red"}) {
		t.Errorf("claimants %v", got)
	}
}

// TestProviderSaysWhatIsLeft: it is passed on from every answer, also from a refusal and from a stream; what cannot be
// read is counted and changes nothing.
func TestProviderSaysWhatIsLeft(t *testing.T) {
	telling := func(then http.HandlerFunc, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			then(w, r)
		}
	}
	openAI := []string{"x-ratelimit-remaining-requests", "41", "x-ratelimit-remaining-tokens", "4100"}
	for name, c := range map[string]struct {
		dialect string
		answer  http.HandlerFunc
		body    string
		want    map[exchange.Kind]int64
		bad     float64
	}{
		"an answer":      {"openai", telling(fine, openAI...), hello, map[exchange.Kind]int64{exchange.Requests: 41, exchange.TotalTokens: 4_100}, 0},
		"a stream":       {"openai", telling(streaming, openAI...), with(`"stream":true`), map[exchange.Kind]int64{exchange.Requests: 41, exchange.TotalTokens: 4_100}, 0},
		"a refusal":      {"openai", telling(failing(429), "x-ratelimit-remaining-requests", "0"), hello, map[exchange.Kind]int64{exchange.Requests: 0}, 0},
		"a bare refusal": {"openai", failing(429), hello, map[exchange.Kind]int64{exchange.Requests: 0, exchange.TotalTokens: 0}, 0},
		"anthropic": {"anthropic", telling(claude, "anthropic-ratelimit-input-tokens-remaining", "900", "anthropic-ratelimit-output-tokens-remaining", "90"), hello,
			map[exchange.Kind]int64{exchange.InputTokens: 900, exchange.OutputTokens: 90}, 0},
		"nonsense": {"openai", telling(fine, "x-ratelimit-remaining-requests", "-3", "x-ratelimit-remaining-tokens", "few"), hello, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []*provider{{id: "a", dialect: c.dialect, model: "claude-fx-5", answer: c.answer}}, all(
				pooled(0, plenty), func(s *quotav1.Snapshot) {
					for _, pool := range s.GetResources() {
						pool.Limit = 1 // so that nothing comes back while the test runs
					}
				}))
			r.chat(c.body)
			for kind, want := range c.want {
				// The next renew tells; it comes at once when asked to.
				r.eventually(fmt.Sprintf("%d of kind %d", want, kind), func() bool {
					r.g.Lease.Wake()
					got, said := r.ledger.word(poolOf(0, kind))
					return said && got == want
				})
			}
			if c.bad > 0 {
				if got := r.metric("sluice_provider_limits_malformed_total"); got != c.bad {
					t.Errorf("%v were malformed, want %v", got, c.bad)
				}
				if _, said := r.ledger.word(poolOf(0, exchange.Requests)); said {
					t.Error("nonsense was passed on")
				}
			}
		})
	}
}

// TestCallerLeavesWhileItsPoolIsAsked: what was reserved is given back, and what quotad still grants too.
func TestCallerLeavesWhileItsPoolIsAsked(t *testing.T) {
	p := &provider{id: "a", answer: fine}
	r := newRig(t, []*provider{p}, all(limited(100, 100_000, 50_000, allMoney), pooled(0, plenty)))
	asked, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.ledger.mu.Lock()
	r.ledger.before = func(renew *quotav1.Renew) {
		for _, ask := range renew.GetAsks() {
			if ask.GetNeeds()[0].GetResource() == poolOf(0, exchange.Requests) {
				once.Do(func() { close(asked) })
				<-goOn
			}
		}
	}
	r.ledger.mu.Unlock()
	r.leaves(asked)
	r.eventually("it gives back what it holds", func() bool { return r.g.Lease.Stats().OpenHolds == 0 })
	close(goOn)
	r.eventually("quotad's grant goes back", func() bool {
		r.g.Lease.Wake()
		return r.ledger.left(poolOf(0, exchange.Requests), "standard/red") == plenty[exchange.Requests]
	})
	if p.calls.Load() != 0 || len(r.attempts()) != 0 {
		t.Errorf("%d calls, %d events", p.calls.Load(), len(r.attempts()))
	}
	r.settled()
}

// TestEveryExitSettlesBoth: whatever becomes of a request, its reservation and that of its attempt are settled, once.
func TestEveryExitSettlesBoth(t *testing.T) {
	broken := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hel"}}]}`+"\n\n")
		w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
		hangUp(w, nil)
	}
	answers := map[string]http.HandlerFunc{
		"fine": fine, "stream": streaming, "broken": broken, "silent": hangUp, "page": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>")
		},
	}
	for _, status := range []int{400, 401, 404, 413, 429, 500, 503, 529} {
		answers[fmt.Sprint(status)] = failing(status)
	}
	for first, one := range answers {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []*provider{{id: "a", answer: one}, {id: "b", answer: fine}}, all(
				limited(1_000, 100_000, 50_000, allMoney), each(runMoney, "run", quotav1.Kind_KIND_MONEY, 100_000_000),
				each(runCalls, "run", quotav1.Kind_KIND_CALLS, 1_000), each(userTokens, "end_user", quotav1.Kind_KIND_TOTAL_TOKENS, 10_000),
				pooled(0, plenty), pooled(1, map[exchange.Kind]int64{exchange.Requests: 5, exchange.TotalTokens: 100_000}),
				func(s *quotav1.Snapshot) { s.Keys[0].PaysFailedAttempts = first == "silent" }))
			var together sync.WaitGroup
			for i := range 24 {
				body := output(50)
				if i%2 == 0 {
					body = with(`"stream":true,"max_tokens":50`)
				}
				together.Go(func() { r.chat(body, "x-gw-run-id", fmt.Sprint(i%3), "x-gw-user", fmt.Sprint(i%4)) })
			}
			together.Wait()
			r.eventually("all is settled", func() bool { return r.g.Lease.Stats().OpenHolds == 0 })
			r.settled()
		})
	}
}
