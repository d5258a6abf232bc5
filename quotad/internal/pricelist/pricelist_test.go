package pricelist

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

func table(t *testing.T, file, format string) *Table {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read("", text)
	if err != nil || got.Format != format {
		t.Fatalf("%s: %v, %v", file, got, err)
	}
	return got
}

// stored is an entry as a price version of it would be stored.
func stored(t testing.TB, entry []byte) string {
	t.Helper()
	spec := `{"valid_from":"2026-12-01T00:00:00Z","per_million_usd":{"p":` + string(entry) + `}}`
	o, err := registry.ParseObject(registry.KindPrice, "v", []byte(spec))
	if err != nil {
		t.Fatalf("%s: %v", entry, err)
	}
	var v struct {
		PerMillionUSD map[string]json.RawMessage `json:"per_million_usd"`
	}
	if err := json.Unmarshal(o.Spec, &v); err != nil {
		t.Fatal(err)
	}
	return string(v.PerMillionUSD["p"])
}

type priced struct {
	model, entry string
	remarks      []string
}

func check(t *testing.T, tab *Table, rows []priced) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.model, func(t *testing.T) {
			for range 2 { // the table stays as it is
				entry, remarks, err := tab.Price(row.model)
				if err != nil {
					t.Fatal(err)
				}
				if got := stored(t, entry); got != row.entry {
					t.Errorf("got  %s\nwant %s", got, row.entry)
				}
				for i := range row.remarks {
					row.remarks[i] = row.model + ": " + strings.TrimPrefix(row.remarks[i], row.model+": ")
				}
				if !slices.Equal(remarks, row.remarks) {
					t.Errorf("remarks\n%s\nwant\n%s", strings.Join(remarks, "\n"), strings.Join(row.remarks, "\n"))
				}
			}
		})
	}
}

func TestLiteLLM(t *testing.T) {
	tab := table(t, "litellm.json", LiteLLM)
	if tab.Has("sample_spec") || len(tab.Models()) != 10 {
		t.Errorf("models %v", tab.Models())
	}
	check(t, tab, []priced{
		{"plain", `{"input":2.5,"cache_read":0.25,"cache_write_5m":2.5,"cache_write_1h":2.5,"output":10}`, nil},
		{"embedder", `{"input":0.02,"cache_read":0.02,"cache_write_5m":0.02,"cache_write_1h":0.02,"output":0}`, nil},
		{"everything", `{"input":1.25,"cache_read":0.125,"cache_write_5m":1.5625,"cache_write_1h":2.5,"output":10,` +
			`"audio_input":40,"audio_output":80,"image_input":5,"per_call_usd":{"web_search":0.01},` +
			`"above":[{"tokens":200000,"input":2.5,"cache_read":0.25,"cache_write_5m":3.125,"cache_write_1h":2.5,"output":15,` +
			`"audio_input":40,"audio_output":80,"image_input":5}]}`,
			[]string{
				"audio_input above 200000 tokens is not stated: $40.00 is taken",
				"audio_output above 200000 tokens is not stated: $80.00 is taken",
				"cache_write_1h above 200000 tokens is not stated: $2.50 is taken",
				"image_input above 200000 tokens is not stated: $5.00 is taken",
			}},
		{"fast", `{"input":5,"cache_read":5,"cache_write_5m":5,"cache_write_1h":5,"output":25,"image_output":30,` +
			`"speeds":{"fast":6},"inference_geo":{"us":1.1}}`,
			[]string{"provider_specific_entry.moon is not understood, and not taken over"}},
		{"tiered", `{"input":1.25,"cache_read":0.125,"cache_write_5m":1.25,"cache_write_1h":1.25,"output":10,` +
			`"above":[{"tokens":272000,"input":2.5,"cache_read":2.5,"cache_write_5m":2.5,"cache_write_1h":2.5,"output":15}],` +
			`"service_tiers":{"priority":2}}`,
			[]string{
				"cache_read above 272000 tokens is not stated: $2.50 is taken",
				"service tier batch is not taken over: it states no price of cache_read, input above 272000, output above 272000",
				"service tier flex is not taken over: it states no price of input above 272000, output above 272000",
				"service tier priority states no price of output above 272000: times 2.00 is taken there too",
			}},
		{"uneven", `{"input":3,"cache_read":3,"cache_write_5m":3,"cache_write_1h":3,"output":10}`, []string{
			"a_field_of_next_year is not understood, and not taken over",
			"input_cost_per_image is not understood, and not taken over",
			"input_cost_per_token_cache_hit is not understood, and not taken over",
			"output_cost_per_second is not understood, and not taken over",
			"provider_specific_entry is not understood, and not taken over",
			"reasoning costs $20.00, not what output does, $10.00: it is counted as output",
			"regional_processing_uplift_multiplier_eu is not understood, and not taken over",
			"search_context_cost_per_query differs by the size of the context, and is not taken over",
			"service tier priority is not taken over: its prices are not one multiple of the usual ones (output is $15.00, usually $10.00)",
			"tiered_pricing is not understood, and not taken over",
		}},
	})
	for model, want := range map[string]string{
		"inexact":  "inexact: input_cost_per_token: 2.9999999999999997e-06 has more than 15 decimals",
		"negative": "negative: input_cost_per_token: -1e-06 must not be negative",
		"words":    "words: input_cost_per_token: is not a number",
		"unpriced": "unpriced: has no price of input",
		"nowhere":  "nowhere: is not in the table",
	} {
		if _, _, err := tab.Price(model); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", model, err, want)
		}
	}
}

func TestModelsDev(t *testing.T) {
	tab := table(t, "modelsdev.json", ModelsDev)
	check(t, tab, []priced{
		{"acme/plain", `{"input":2.5,"cache_read":0.25,"cache_write_5m":2.5,"cache_write_1h":2.5,"output":10}`, nil},
		{"acme/everything", `{"input":1.25,"cache_read":0.125,"cache_write_5m":1.5625,"cache_write_1h":1.5625,"output":10,` +
			`"audio_input":40,"audio_output":80,` +
			`"above":[{"tokens":200000,"input":2.5,"cache_read":0.25,"cache_write_5m":2.5,"cache_write_1h":2.5,"output":15,` +
			`"audio_input":40,"audio_output":80},` +
			`{"tokens":1000000,"input":5,"cache_read":0.5,"cache_write_5m":6.25,"cache_write_1h":6.25,"output":30,` +
			`"audio_input":160,"audio_output":320}]}`,
			[]string{
				"audio_input above 200000 tokens is not stated: $40.00 is taken",
				"audio_output above 200000 tokens is not stated: $80.00 is taken",
				"cache_write_5m above 200000 tokens is not stated: $2.50 is taken",
			}},
		{"acme/long", `{"input":3,"cache_read":3,"cache_write_5m":3,"cache_write_1h":3,"output":15,` +
			`"above":[{"tokens":200000,"input":6,"cache_read":6,"cache_write_5m":6,"cache_write_1h":6,"output":22.5}]}`,
			[]string{"cost.context_over_200k.thoughts is not understood, and not taken over"}},
		{"acme/odd", `{"input":1,"cache_read":1,"cache_write_5m":1,"cache_write_1h":1,"output":2}`, []string{
			"cost.per_image is not understood, and not taken over",
			"cost.tiers[0] is not understood, and not taken over",
			"reasoning costs $3.00, not what output does, $2.00: it is counted as output",
		}},
	})
	for model, want := range map[string]string{
		"acme/free": "has no price of input",
		"acme/fine": "acme/fine: cost.input: 0.1234567891 has more than 9 decimals",
	} {
		if _, _, err := tab.Price(model); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", model, err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ format, text, want string }{
		"no JSON":       {"", `hello`, "is no JSON object"},
		"a list":        {"", `[]`, "is no JSON object"},
		"two":           {"", `{} {}`, "more follows"},
		"neither":       {"", `{"a":{"b":1}}`, "looks like none of litellm, models.dev"},
		"the other":     {ModelsDev, `{"m":{"input_cost_per_token":1}}`, "holds no models in the format of models.dev"},
		"a model twice": {LiteLLM, "{\"m\":{\"a\":[{\"b\":1},{\"b\":1}]},\n\"n\":{},\n\"m\":{}}", `has "m" twice, in lines 1 and 3`},
		"a field twice": {"", `{"m":{"input_cost_per_token":1,"output_cost_per_token":1,"input_cost_per_token":2}}`, `has "input_cost_per_token" twice, in lines 1 and 1`},
		"only samples":  {LiteLLM, `{"sample_spec":{}}`, "holds no models"},
	} {
		if _, err := Read(c.format, []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestByteOrderMark: a table may begin with one, as an org.yaml may.
func TestByteOrderMark(t *testing.T) {
	tab, err := Read("", []byte("\uFEFF"+`{"m":{"input_cost_per_token":1}}`))
	if err != nil || !tab.Has("m") {
		t.Errorf("%v %v", tab, err)
	}
}

// TestPricesAreExact: a price of so many nano-dollars a million tokens, written as a price of one token, comes back as it
// was.
func TestPricesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nano := rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "nano")
		digits := registry.Nano(nano).In("")
		tab, err := Read(LiteLLM, []byte(`{"m":{"input_cost_per_token":`+digits+`e-6,"litellm_provider":"x"}}`))
		if err != nil {
			t.Fatal(err)
		}
		entry, remarks, err := tab.Price("m")
		if err != nil || len(remarks) > 0 {
			t.Fatalf("%v %v", remarks, err)
		}
		var got struct{ Input registry.Nano }
		if err := json.Unmarshal(entry, &got); err != nil || int64(got.Input) != nano {
			t.Fatalf("%d became %d: %v", nano, got.Input, err)
		}
	})
}

func FuzzRead(f *testing.F) {
	for _, file := range []string{"litellm.json", "modelsdev.json"} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tab, err := Read("", text)
		if err != nil {
			return
		}
		for _, m := range tab.Models() {
			if entry, _, err := tab.Price(m); err == nil && !json.Valid(entry) {
				t.Fatalf("%s: %s", m, entry)
			}
		}
	})
}
