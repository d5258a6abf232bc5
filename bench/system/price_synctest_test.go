package system

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/wire/cost"
)

// tiered is an organisation whose prices differ by kind, length and service tier, at a provider that speaks a dialect.
func tiered(dialect string) string {
	yaml := strings.Replace(org(provider, "{ monthly: 100000 }", "{}"), "per_million_usd: { chat: { input: 2.00, output: 10.00 } }", `per_million_usd:
      chat:
        input: 2.00
        cache_read: 0.20
        cache_write_5m: 2.5
        cache_write_1h: 4
        output: 10.00
        above: [{ tokens: 40, input: 4.00, cache_read: 0.4, cache_write_5m: 5, cache_write_1h: 8, output: 15.00 }]
        service_tiers: { flex: 0.5, priority: 2.123456789 }`, 1)
	return strings.ReplaceAll(yaml, "provider: openai", "provider: "+dialect)
}

// told is what an answer says of itself: its usage as OpenAI states it, and its cost.
type told struct {
	usage map[string]any
	cost  string
}

// tell reads it out of a JSON answer or a stream.
func tell(t *testing.T, a answer) (out told) {
	t.Helper()
	if a.status != 200 {
		t.Fatalf("%d %s %v", a.status, a.body, a.err)
	}
	lines := bufio.NewScanner(strings.NewReader(a.body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(lines.Text(), "data: ")))
		d.UseNumber()
		var chunk struct {
			Usage   map[string]any
			Gateway struct{ Cost json.Number } `json:"x_gateway"`
		}
		if d.Decode(&chunk) == nil && len(chunk.Usage) > 0 {
			out = told{chunk.Usage, chunk.Gateway.Cost.String()}
		}
	}
	if out.usage == nil {
		t.Fatalf("no usage: %s", a.body)
	}
	return out
}

// TestSettledAtTheTier: what a request costs is what its length and the tier that its provider answered with make of it,
// to the nano-dollar: for the caller, in the books and in what is kept of each request.
func TestSettledAtTheTier(t *testing.T) {
	for _, dialect := range []string{"openai", "anthropic"} {
		t.Run(dialect, func(t *testing.T) {
			yaml := tiered(dialect)
			versions, err := cost.Prices([]byte(yaml))
			if err != nil || versions["p1"]["chat"].Output != "10.00" {
				t.Fatalf("%v %v", versions, err)
			}
			price := versions["p1"]["chat"]
			inWorld(t, 1, 1, yaml, func(t *testing.T, w *world) {
				var total int64
				asked := map[string]int{}
				for _, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
					for _, c := range []struct{ directive, tier, text string }{
						{"tokens=7 cache-read=3", "", ""},
						{"tokens=7 tier=flex", "flex", ""},
						{"tokens=7 tier=priority reasoning=2", "priority", ""},
						{"tokens=7 tier=priority cache-read=11 cache-write=13", "priority", strings.Repeat(" a word", 60)},
						{"tokens=7 tier=turbo", "turbo", ""},
					} {
						a := w.chat(w.cars[0], strings.Replace(say(c.directive, `,"max_tokens":50`+stream), "hello", "hello"+c.text, 1))
						got := tell(t, a)
						used := cost.Table["chat"].Of(got.usage)
						if used.Output != 7 && used.Output != 9 || c.text != "" && used.Prompt() <= 40 {
							t.Fatalf("used %+v", used)
						}
						used.Tier = c.tier
						want, err := price.Nano(used)
						if err != nil {
							t.Fatal(err)
						}
						if nano := exactly(t, got.cost); nano.Cmp(want) != 0 {
							t.Errorf("%s: the caller was told %s, it is %s", c.directive, nano, want)
						}
						total += want.Int64()
						asked[c.tier]++
					}
				}
				w.eventually("the books agree", func() bool {
					var settled int64
					for _, b := range w.budgets() {
						settled += b.GetSettledNano()
					}
					return w.usage().cost == total && settled == total
				})
				kept := keptTiers(t, w.cars[0].dir)
				for tier, n := range asked {
					if tier == "" {
						tier = map[string]string{"openai": "default", "anthropic": "standard"}[dialect]
					}
					if kept[tier] != n {
						t.Errorf("tier %s: %d events, want %d of %v", tier, kept[tier], n, kept)
					}
				}
				if n := w.metric(w.cars[0], `sluice_unpriced_tiers_total{deployment="main"}`); n != 2 {
					t.Errorf("%v requests on a tier without a price were told of, want 2", n)
				}
			})
		})
	}
}

// exactly reads dollars as nano-dollars.
func exactly(t *testing.T, dollars string) *big.Int {
	t.Helper()
	nano, err := cost.Exact(dollars)
	if err != nil {
		t.Fatal(err)
	}
	return nano
}

// keptTiers counts the usage events in a sidecar's files by their tier. Each must hold the provider's usage as it stood.
func keptTiers(t *testing.T, dir string) map[string]int {
	t.Helper()
	out := map[string]int{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			var e struct {
				RequestID string `json:"request_id"`
				Tier      string `json:"service_tier"`
				Raw       []byte `json:"raw_usage"`
			}
			if json.Unmarshal([]byte(line), &e) != nil || e.RequestID == "" {
				continue
			}
			out[e.Tier]++
			if !json.Valid(e.Raw) || !strings.Contains(string(e.Raw), "_tokens") {
				t.Errorf("the provider's usage is kept as %q", e.Raw)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTierIsReservedFor: a request that may be served on a dear tier must fit the budget at that tier, and one that says it
// is not need not.
func TestTierIsReservedFor(t *testing.T) {
	// 100 tokens out at 10 dollars a million come to 0.001, and twice that at the dear tier.
	yaml := strings.Replace(tiered("openai"), "budget: { monthly: 100000 }", "budget: { monthly: 100000 }, request_cap: 0.0015", 1)
	inWorld(t, 1, 1, yaml, func(t *testing.T, w *world) {
		for more, want := range map[string]string{
			`,"service_tier":"default"`: "", `,"service_tier":"flex"`: "",
			`,"service_tier":"priority"`: "request_exceeds_limit", `,"service_tier":"auto"`: "request_exceeds_limit", "": "request_exceeds_limit",
		} {
			a := w.chat(w.cars[0], say("tokens=2", `,"max_tokens":100`+more))
			if want == "" && a.status != 200 || want != "" && (a.status == 200 || a.code() != want) {
				t.Errorf("%q: %d %s", more, a.status, a.body)
			}
		}
	})
}

// TestPriceTurns: a new price version prices what ends after it begins, and the one before what ended.
func TestPriceTurns(t *testing.T) {
	yaml := tiered("openai")
	next := fmt.Sprintf("  - id: p2\n    valid_from: %s\n    per_million_usd: { chat: { input: 1, output: 1, audio_input: 5 } }\ncredentials:",
		time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC).Format(time.RFC3339))
	yaml = strings.Replace(yaml, "credentials:", next, 1)
	versions, err := cost.Prices([]byte(yaml))
	if err != nil || len(versions) != 2 {
		t.Fatalf("%v %v", versions, err)
	}
	inWorld(t, 1, 1, yaml, func(t *testing.T, w *world) {
		for _, version := range []string{"p1", "p2"} {
			got := tell(t, w.chat(w.cars[0], say("tokens=7 tier=flex", "")))
			used := cost.Table["chat"].Of(got.usage)
			used.Tier = "flex"
			want, err := versions[version]["chat"].Nano(used)
			if nano := exactly(t, got.cost); err != nil || nano.Cmp(want) != 0 {
				t.Errorf("%s: %s, want %s %v", version, nano, want, err)
			}
			w.passUntil(time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC))
		}
	})
}

// TestUnpricedIsCounted: a deployment that may serve without a price costs nothing, and each use of it shows.
func TestUnpricedIsCounted(t *testing.T) {
	yaml := strings.Replace(tiered("openai"), ", price: chat", ", unpriced: allow", 1)
	if !strings.Contains(yaml, "unpriced: allow") {
		t.Fatal(yaml)
	}
	inWorld(t, 1, 1, yaml, func(t *testing.T, w *world) {
		for range 3 {
			if got := tell(t, w.chat(w.cars[0], say("tokens=7", ""))); exactly(t, got.cost).Sign() != 0 {
				t.Errorf("it costs %s", got.cost)
			}
		}
		if n := w.metric(w.cars[0], `sluice_unpriced_attempts_total{deployment="main"}`); n != 3 {
			t.Errorf("%v attempts without a price were counted, want 3", n)
		}
	})
}
