package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// priced is an org.yaml with one price.
func priced(entry string) string {
	return "version: 1\nprices:\n  - id: p\n    valid_from: 2026-01-01\n    per_million_usd:\n      m: " + entry + "\n"
}

func TestEveryMistakeOfAPrice(t *testing.T) {
	const at = "org.yaml:6: prices[p].per_million_usd.m"
	for name, c := range map[string]struct {
		entry string
		want  []string
	}{
		"no input":       {`{ output: 1 }`, []string{at + ".input: is missing"}},
		"negative audio": {`{ input: 1, audio_input: -1 }`, []string{at + `.audio_input: "-1" must not be negative`}},
		"a fine image":   {`{ input: 1, image_input: 0.0000000001 }`, []string{at + `.image_input: "0.0000000001" has more than 9 decimals`}},
		"speech":         {`{ input: 1, audio_output: much }`, []string{at + `.audio_output: "much" is not a decimal number, like 2.50`}},
		"unknown call":   {`{ input: 1, per_call_usd: { file_search: 1 } }`, []string{at + ".per_call_usd.web_search: is missing", at + ".per_call_usd.file_search: unknown key (allowed: web_search)"}},
		"calls":          {`{ input: 1, per_call_usd: 1 }`, []string{at + ".per_call_usd: must be a mapping of keys to values"}},
		"no steps":       {`{ input: 1, above: [] }`, []string{at + ".above: is empty: leave it out, or state a step"}},
		"no list":        {`{ input: 1, above: { tokens: 1 } }`, []string{at + ".above: must be a list"}},
		"step without":   {`{ input: 1, above: [{ input: 2 }] }`, []string{at + ".above[0].tokens: is missing"}},
		"step at 0":      {`{ input: 1, above: [{ tokens: 0, input: 2 }] }`, []string{at + `.above[0].tokens: "0" is out of range (allowed: 1 to 100000000)`}},
		"step of less": {`{ input: 1, output: 3, cache_read: 1, above: [{ tokens: 5, input: 2 }] }`, []string{
			at + ".above[0].cache_read: is missing: the price itself states it, so that every step must",
			at + ".above[0].output: is missing: the price itself states it, so that every step must",
		}},
		"steps down": {`{ input: 1, above: [{ tokens: 5, input: 2 }, { tokens: 5, input: 3 }] }`, []string{
			at + ".above[1].tokens: 5 is not above the step before, 5",
		}},
		"step of tiers":  {`{ input: 1, above: [{ tokens: 5, input: 2, service_tiers: { flex: 1 } }] }`, []string{at + ".above[0].service_tiers: unknown key"}},
		"no tiers":       {`{ input: 1, service_tiers: {} }`, []string{at + ".service_tiers: is empty: leave it out, or name a tier"}},
		"loud tier":      {`{ input: 1, service_tiers: { FLEX: 1 } }`, []string{at + ".service_tiers.FLEX: is not the name of a tier"}},
		"dear tier":      {`{ input: 1, service_tiers: { flex: 1001 } }`, []string{at + `.service_tiers.flex: "1001" is out of range (allowed: 0 to 1000)`}},
		"free of charge": {`{ input: 1, service_tiers: { flex: free } }`, []string{at + `.service_tiers.flex: "free" is not a decimal number`}},
		"tier twice":     {`{ input: 1, service_tiers: { flex: 1, flex: 2 } }`, []string{at + ".service_tiers.flex: stands here a second time"}},
		"no speeds":      {`{ input: 1, speeds: {} }`, []string{at + ".speeds: is empty: leave it out, or name a speed"}},
		"loud geography": {`{ input: 1, inference_geo: { US: 1.1 } }`, []string{at + ".inference_geo.US: is not the name of a geography"}},
		"dear speed":     {`{ input: 1, speeds: { fast: 1001 } }`, []string{at + `.speeds.fast: "1001" is out of range (allowed: 0 to 1000)`}},
		"a drawing":      {`{ input: 1, image_output: -1 }`, []string{at + `.image_output: "-1" must not be negative`}},
		"misspelt":       {`{ input: 1, audio: 2 }`, []string{at + ".audio: unknown key (allowed: input, cache_read, cache_write_5m, cache_write_1h, output, audio_input, audio_output, image_input, image_output, per_call_usd, above, service_tiers, speeds, inference_geo)"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseOrg("org.yaml", []byte(priced(c.entry)))
			var faults *Faults
			if !errors.As(err, &faults) {
				t.Fatalf("got %v, want Faults", err)
			}
			var got []string
			for _, f := range faults.List {
				got = append(got, f.Error())
			}
			if len(got) != len(c.want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) }) {
					t.Errorf("missing %s in\n%s", w, strings.Join(got, "\n"))
				}
			}
		})
	}
	var many []string
	for i := range timesMax + 1 {
		many = append(many, fmt.Sprintf("t%d: 1", i))
	}
	if _, _, err := ParseOrg("org.yaml", []byte(priced("{ input: 1, service_tiers: { "+strings.Join(many, ", ")+" } }"))); err == nil ||
		!strings.Contains(err.Error(), "has 17 names, more than 16") {
		t.Errorf("many tiers: %v", err)
	}
}

// TestPricesOfBeforeAreWhatTheyWere: a list that was stored by the version before is the same list, byte for byte, when its
// file is applied again, and prices all that it did as it did.
func TestPricesOfBeforeAreWhatTheyWere(t *testing.T) {
	const before = `{"valid_from":"2026-01-01T00:00:00Z","per_million_usd":{"m":{"input":1,"cache_read":1,"cache_write_5m":1,"cache_write_1h":1,"output":2}}}`
	text := priced("{ input: 1, output: 2 }")
	r := New()
	mustApply(t, r, 1, Change{Objects: []Object{{Kind: KindPrice, ID: "p", Spec: []byte(before)}}})
	if got := apply(t, r, 2, text, true); len(got) != 0 {
		t.Errorf("the file changes what it was: %v", got)
	}
	if o, _ := r.Object(KindPrice, "p"); string(o.Spec) != before {
		t.Errorf("got %s", o.Spec)
	}
	if p := r.Prices()[0].PerMillionUSD["m"]; p.AudioInput != nil || p.AudioOutput != nil || p.ImageInput != nil || p.PerCallUSD != nil {
		t.Errorf("states more than it did: %+v", p)
	}
}

// TestPriceIsShownWhole: what a version adds, how it differs, and what a rollback takes back, stand in the diffs; and the
// registry writes a file that says the same.
func TestPriceIsShownWhole(t *testing.T) {
	r := New()
	apply(t, r, 1, priced("{ input: 1, output: 2 }"), true)
	second := `
  - id: q
    valid_from: 2026-02-01
    per_million_usd:
      m: { input: 1, output: 2, per_call_usd: { web_search: 0.01 }, above: [{ tokens: 9, input: 2, output: 3 }], service_tiers: { flex: 0.5 } }
`
	got := apply(t, r, 2, priced("{ input: 1, output: 2 }")+strings.TrimPrefix(second, "\n"), true)
	want := []string{
		"+ per_million_usd.m.per_call_usd.web_search: 0.01", "+ per_million_usd.m.above[0].tokens: 9", "+ per_million_usd.m.above[0].input: 2",
		"+ per_million_usd.m.above[0].output: 3", "+ per_million_usd.m.service_tiers.flex: 0.5",
	}
	for _, w := range want {
		if len(got) != 1 || !slices.Contains(got[0].Lines, w) {
			t.Errorf("missing %s in %v", w, got)
		}
	}
	if h := r.History(1)[0].Differences(); fmt.Sprint(h) != fmt.Sprint(got) {
		t.Errorf("history %v", h)
	}
	old, _ := r.Object(KindPrice, "p")
	new, _ := r.Object(KindPrice, "q")
	if d := Compare(old, new); len(d.Lines) != 2+8 || !slices.Contains(d.Lines, "- valid_from: 2026-01-01T00:00:00Z") {
		t.Errorf("compared: %v", d.Lines)
	}
	again := mustParse(t, r.YAML())
	if c, ds, err := r.Diff(again, true, 0); err != nil || len(ds) != 0 {
		t.Errorf("its own file changes it: %v %v %v", c, ds, err)
	}
	alone := mustParse(t, "version: 1\n"+new.YAML())
	if len(alone) != 1 || string(alone[0].Spec) != string(new.Spec) {
		t.Errorf("written alone it is %s, not %s", alone[0].Spec, new.Spec)
	}
	undone := rollback(t, r, 3, 1)
	if len(undone) != 1 || undone[0].Action != ActionDelete || len(r.Prices()) != 1 {
		t.Errorf("rolled back: %v", undone)
	}
	var stored PriceVersion
	if err := json.Unmarshal(new.Spec, &stored); err != nil || stored.PerMillionUSD["m"].ServiceTiers["flex"] != 500_000_000 {
		t.Errorf("%+v %v", stored, err)
	}
}

// TestPricesInForceStay: neither a prune nor a rollback deletes a price version that has begun, and each tells so. One that
// is still to come goes.
func TestPricesInForceStay(t *testing.T) {
	const begun, later = `
  - { id: q, valid_from: 2026-02-01, per_million_usd: { m: { input: 2 } } }
`, `  - { id: s, valid_from: 2026-03-01, per_million_usd: { m: { input: 3 } } }
`
	first := Time(0)
	if err := parseMoment(&first)("2026-02-01"); err != nil {
		t.Fatal(err)
	}
	r := applied(t, priced("{ input: 1 }"))
	apply(t, r, 2, priced("{ input: 1 }")+strings.TrimPrefix(begun, "\n")+later, true)
	for what, change := range map[string]func(nowMS int64) (Change, []Difference, error){
		"prune": func(nowMS int64) (Change, []Difference, error) {
			return r.Diff(mustParse(t, priced("{ input: 1 }")), true, nowMS)
		},
		"rollback": func(nowMS int64) (Change, []Difference, error) { return r.Rollback(1, nowMS) },
	} {
		for at, want := range map[int64]string{int64(first) - 1: "delete q, delete s", int64(first): "keep q, delete s"} {
			c, ds, err := change(at)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range ds {
				got = append(got, d.Action+" "+d.ID)
				if d.Action == ActionKeep && !slices.Equal(d.Lines, []string{keptPrice}) {
					t.Errorf("%s: kept without a word: %v", what, d)
				}
			}
			if strings.Join(got, ", ") != want || len(c.Objects) != strings.Count(want, "delete") {
				t.Errorf("%s at %d: %v %v, want %s", what, at, got, c.Objects, want)
			}
			next, refusal := r.Preview(c)
			if refusal != nil {
				t.Fatalf("%s at %d: %v", what, at, refusal)
			}
			if n := 3 - len(c.Objects); len(next.Prices()) != n {
				t.Errorf("%s at %d: %d versions, want %d", what, at, len(next.Prices()), n)
			}
		}
	}
}

// TestAddedPricesTellWhatTheyBegin: a version that has begun when it is added is there for good, and may take the place of
// the one in force. The first of all, and one to come, are nothing to tell of.
func TestAddedPricesTellWhatTheyBegin(t *testing.T) {
	var now Time
	if err := parseMoment(&now)("2026-06-01"); err != nil {
		t.Fatal(err)
	}
	told := func(r *Registry, from string) string {
		t.Helper()
		text := priced("{ input: 1 }") + "  - { id: q, valid_from: " + from + ", per_million_usd: { m: { input: 2 } } }\n"
		_, ds, err := r.Diff(mustParse(t, text), false, int64(now))
		if err != nil {
			t.Fatal(err)
		}
		var notes []string
		for _, d := range ds {
			for _, l := range d.Lines {
				if strings.HasPrefix(l, "! ") {
					notes = append(notes, d.ID+l)
				}
			}
		}
		return strings.Join(notes, "; ")
	}
	stored := applied(t, priced("{ input: 1 }")) // p, of 2026-01-01
	for from, want := range map[string]string{
		"2026-02-01": "q! valid_from has passed: it takes the place of p at once, for good: " + keptPrice,
		"2025-02-01": "q! valid_from has passed, and p, which began later, stays in force: " + keptPrice,
		"2026-07-01": "",
	} {
		if got := told(stored, from); got != want {
			t.Errorf("from %s: got %q, want %q", from, got, want)
		}
		if got := told(New(), from); got != "" {
			t.Errorf("from %s, the first ones: %q", from, got)
		}
	}
}
