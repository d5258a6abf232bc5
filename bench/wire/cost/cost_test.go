package cost

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFixtures: of every raw answer that states its usage, the table reads what a caller must be told.
func TestFixtures(t *testing.T) {
	b, err := os.ReadFile("../testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		File, API string
		Want      struct {
			Status int
			Usage  *struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Cached     int64 `json:"cached_tokens"`
				Write      int64 `json:"cache_write_tokens"`
				Write5m    int64 `json:"cache_write_5m"`
				Write1h    int64 `json:"cache_write_1h"`
				Reasoning  int64 `json:"reasoning_tokens"`
			}
			Source string `json:"usage_source"`
		}
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, f := range all {
		if f.Want.Usage == nil {
			continue
		}
		t.Run(f.File, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("..", "testdata", filepath.FromSlash(f.File)))
			if err != nil {
				t.Fatal(err)
			}
			provider, _, _ := strings.Cut(f.File, "/")
			dialect := Dialect(provider, f.API)
			used[dialect] = true
			u, ok, err := Read(dialect, raw)
			if err != nil || !ok {
				t.Fatalf("%v %v", ok, err)
			}
			w := f.Want.Usage
			if w.Write1h == 0 && w.Write5m == 0 {
				w.Write5m = w.Write
			}
			if u.Prompt() != w.Prompt || u.Completion() != w.Completion || u.CacheRead != w.Cached || u.CacheWrite5m != w.Write5m ||
				u.CacheWrite1h != w.Write1h || u.Reasoning != w.Reasoning {
				t.Errorf("by %s\n got %+v\nwant %+v", dialect, u, *w)
			}
		})
	}
	for name := range Table {
		if !used[name] {
			t.Errorf("no fixture of %s", name)
		}
	}
}

// TestWhoIncludesWhat holds each row of the table against a usage object in which everything is there, and different.
func TestWhoIncludesWhat(t *testing.T) {
	for dialect, c := range map[string]struct {
		usage string
		want  Usage
	}{
		"chat": {`{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,
			"prompt_tokens_details":{"cached_tokens":30,"cache_write_tokens":20,"audio_tokens":10},
			"completion_tokens_details":{"reasoning_tokens":7,"audio_tokens":5,"image_tokens":2,"rejected_prediction_tokens":3}}`,
			Usage{Input: 40, CacheRead: 30, CacheWrite5m: 20, AudioInput: 10, Output: 43, ImageOutput: 2, Reasoning: 7, AudioOutput: 5}},
		"xai": {`{"prompt_tokens":100,"completion_tokens":50,"total_tokens":157,
			"prompt_tokens_details":{"cached_tokens":30},"completion_tokens_details":{"reasoning_tokens":7}}`,
			Usage{Input: 70, CacheRead: 30, Output: 57, Reasoning: 7}},
		"gemini-openai": {`{"prompt_tokens":100,"completion_tokens":50,"total_tokens":190}`, Usage{Input: 100, Output: 90}},
		"responses": {`{"input_tokens":100,"input_tokens_details":{"cached_tokens":30,"cache_write_tokens":20},"output_tokens":50,
			"output_tokens_details":{"reasoning_tokens":7},"total_tokens":150}`,
			Usage{Input: 50, CacheRead: 30, CacheWrite5m: 20, Output: 50, Reasoning: 7}},
		"messages": {`{"input_tokens":100,"cache_read_input_tokens":30,"cache_creation_input_tokens":20,
			"cache_creation":{"ephemeral_5m_input_tokens":15,"ephemeral_1h_input_tokens":5},"output_tokens":50,
			"output_tokens_details":{"thinking_tokens":7},"server_tool_use":{"web_search_requests":2}}`,
			Usage{Input: 100, CacheRead: 30, CacheWrite5m: 15, CacheWrite1h: 5, Output: 50, Reasoning: 7, WebSearches: 2}},
		"converse": {`{"inputTokens":100,"cacheReadInputTokens":30,"cacheWriteInputTokens":20,"outputTokens":50,"totalTokens":200,
			"cacheDetails":[{"inputTokens":15,"ttl":"5m"},{"inputTokens":5,"ttl":"1h"}]}`,
			Usage{Input: 100, CacheRead: 30, CacheWrite5m: 15, CacheWrite1h: 5, Output: 50}},
		"gemini": {`{"promptTokenCount":100,"cachedContentTokenCount":30,"toolUsePromptTokenCount":4,"candidatesTokenCount":50,
			"thoughtsTokenCount":7,"totalTokenCount":161,"promptTokensDetails":[{"modality":"TEXT","tokenCount":80},
			{"modality":"AUDIO","tokenCount":12},{"modality":"IMAGE","tokenCount":8}],
			"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":5},{"modality":"IMAGE","tokenCount":9}]}`,
			Usage{Input: 54, CacheRead: 30, AudioInput: 12, ImageInput: 8, Output: 43, Reasoning: 7, AudioOutput: 5, ImageOutput: 9}},
		"ollama": {`{"prompt_eval_count":100,"eval_count":50}`, Usage{Input: 100, Output: 50}},
	} {
		if got := Table[dialect].Of(objects([]byte(c.usage))[0]); got != c.want {
			t.Errorf("%s\n got %+v\nwant %+v", dialect, got, c.want)
		}
	}
	if len(Table) != 8 {
		t.Errorf("%d rows: one is not held against anything", len(Table))
	}
}

const org = `prices:
  - id: v
    per_million_usd:
      field: { input: 3, cache_write_5m: 3.75, cache_read: 0.30, output: 15 }
      whole:
        input: 1
        output: 10
        audio_input: 40
        per_call_usd: { web_search: 0.01 }
        above: [{ tokens: 100, input: 2, output: 15, audio_input: 80 }]
        service_tiers: { flex: 0.5, priority: 2.25 }
`

// TestNano holds the computation against sums done by hand.
func TestNano(t *testing.T) {
	prices, err := Prices([]byte(org))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		price string
		use   Usage
		want  string
	}{
		// 11 × 3 + 2000 × 3.75 + 500 × 0.30 + 40 × 15 = 33 + 7500 + 150 + 600 millionths of a dollar.
		"the cache kinds":    {"field", Usage{Input: 11, CacheWrite5m: 2000, CacheRead: 500, Output: 40}, "8283000"},
		"1h as 5m":           {"field", Usage{CacheWrite1h: 1}, "3750"},
		"audio":              {"whole", Usage{Input: 1, AudioInput: 1}, "41000"},
		"spoken as written":  {"whole", Usage{AudioOutput: 1}, "10000"},
		"at the step":        {"whole", Usage{Input: 100}, "100000"},
		"above it":           {"whole", Usage{Input: 101, Output: 1}, "217000"},
		"priority, a search": {"whole", Usage{Input: 1, WebSearches: 2, Tier: "Priority"}, "20002250"},
		"unknown tier":       {"whole", Usage{Input: 1, Tier: "turbo"}, "1000"},
	} {
		if got, err := prices["v"][c.price].Nano(c.use); err != nil || got.String() != c.want {
			t.Errorf("%s: %s %v, want %s", name, got, err, c.want)
		}
	}
	half := Price{Rates: Rates{Input: "0.0005"}}
	if got, _ := half.Nano(Usage{Input: 1}); got.String() != "1" {
		t.Errorf("half of a nano-dollar: %s", got)
	}
	if _, err := (Price{Rates: Rates{Input: "much"}}).Nano(Usage{Input: 1}); err == nil {
		t.Error("a price in words was taken")
	}
}

var update = flag.Bool("update", false, "rewrite the table in docs/prices.md")

// TestTableIsDocumented: docs/prices.md has the table as it is.
func TestTableIsDocumented(t *testing.T) {
	const file, begin, end = "../../../docs/prices.md", "cost -update -->\n", "<!-- end -->"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("docs/prices.md has no place for the table")
	}
	want := before + begin + markdown() + end + after
	switch {
	case want == string(b):
	case !*update:
		t.Error("docs/prices.md is not what the table says: run go test ./bench/wire/cost -update")
	default:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// markdown is the table for people.
func markdown() string {
	var out strings.Builder
	out.WriteString("| usage of | prompt | cached, in the prompt? | output | reasoning, in the output? |\n|---|---|---|---|---|\n")
	in := func(names []string, is bool) string {
		switch {
		case len(names) == 0:
			return "not told"
		case is:
			return "yes: `" + names[0] + "`"
		}
		return "no, added: `" + names[0] + "`"
	}
	for _, name := range slices.Sorted(maps.Keys(Table)) {
		row := Table[name]
		prompt := "`" + strings.Join(append(slices.Clone(row.Prompt), row.PromptToo...), "` + `") + "`"
		output := "`" + row.Completion[0] + "`"
		if row.TotalTells {
			output = "`" + row.Total[0] + "` less the prompt"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", row.Who, prompt, in(row.Read, row.CacheIn), output, in(row.Reasoning, row.ReasoningIn))
	}
	return out.String()
}
