package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pricesYAML = `version: 1
currency: EUR
fx: { "2026-11": { EUR: 0.9 } }
prices:
  - { id: p1, valid_from: 2026-01-01, per_million_usd: { mid: { input: 2, output: 10 }, other: { input: 7, output: 8 }, own: { input: 1 } } }
credentials:
  main: { provider: openai }
deployments:
  - { id: d, provider: openai, base_url: "https://h/v1", model: m-2026, credential: main, price: mid }
  - { id: e, provider: openai, base_url: "https://h/v1", model: nobody-knows, credential: main, price: own }
  - { id: f, provider: openai, base_url: "https://h/v1", model: z, credential: main, unpriced: allow }
aliases:
  chat: { targets: [{ deployment: d }, { deployment: e }, { deployment: f }] }
`

const liteLLMTable = `{
  "sample_spec": {"input_cost_per_token": "in dollars"},
  "m-2026": {"input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 2.5e-07,
    "input_cost_per_second": 0.1, "litellm_provider": "openai", "mode": "chat"},
  "azure/m-2026": {"input_cost_per_token": 9e-06, "litellm_provider": "azure", "mode": "chat"},
  "n-2026": {"input_cost_per_token": 4e-06, "output_cost_per_token": 1.5e-05, "litellm_provider": "x", "mode": "chat"},
  "inexact": {"input_cost_per_token": 0.30000000000000004e-06, "litellm_provider": "x", "mode": "chat"}
}`

// split is like try with what went to standard error apart.
func (o *operator) split(args ...string) (out, said string, err error) {
	cmd := command()
	var stdout, stderr strings.Builder
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append(args, "--addr", o.addr))
	err = cmd.ExecuteContext(o.t.Context())
	return stdout.String(), stderr.String(), err
}

func TestPricesImport(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(pricesYAML))
	table := filepath.Join(o.dir, "table.json")
	must(t, os.WriteFile(table, []byte(liteLLMTable), 0o600))

	// Without --apply nothing changes, and what is printed is what stands in an org.yaml, with the difference beside it.
	before := o.run("get")
	args := []string{"prices", "import", table, "--id", "p2", "--valid-from", "2026-12-01"}
	out, said, err := o.split(args...)
	must(t, err)
	const want = `# - valid_from: 2026-01-01T00:00:00Z
# + valid_from: 2026-12-01T00:00:00Z
# - per_million_usd.mid.input: 2
# + per_million_usd.mid.input: 2.5
# - per_million_usd.mid.cache_read: 2
# + per_million_usd.mid.cache_read: 0.25
# - per_million_usd.mid.cache_write_5m: 2
# + per_million_usd.mid.cache_write_5m: 2.5
# - per_million_usd.mid.cache_write_1h: 2
# + per_million_usd.mid.cache_write_1h: 2.5
prices:
  - id: p2
    valid_from: "2026-12-01T00:00:00Z"
    per_million_usd:
      mid: {input: 2.5, cache_read: 0.25, cache_write_5m: 2.5, cache_write_1h: 2.5, output: 10}
      other: {input: 7, cache_read: 7, cache_write_5m: 7, cache_write_1h: 7, output: 8}
      own: {input: 1, cache_read: 1, cache_write_5m: 1, cache_write_1h: 1, output: 0}
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	const notes = "note: deployment e: the table has no price of model nobody-knows: price own stays as it is\n" +
		"note: m-2026: input_cost_per_second is not understood, and not taken over\n"
	if said != notes {
		t.Errorf("said\n%s\nwant\n%s", said, notes)
	}
	if o.run("get") != before {
		t.Error("it changed the configuration")
	}

	// With it the version is there, and nothing else has changed; the entry that was printed is the same version.
	out, said, err = o.split(append(args, "--apply", "--map", "mid=m-2026", "--map", "new=n-2026")...)
	must(t, err)
	if !strings.Contains(out, "+ price p2\n") || !strings.Contains(out, "+ per_million_usd.new.input: 4\n") ||
		!strings.Contains(out, "price version p2 applied") || strings.Contains(said, "nobody-knows") ||
		!strings.Contains(said, "note: price new is new: no price version has it, and no deployment uses it yet\n") || strings.Contains(said, "price mid is new") {
		t.Errorf("%s%s", out, said)
	}
	yaml := o.run("get")
	for _, line := range []string{
		"currency: EUR", "new: {input: 4, cache_read: 4, cache_write_5m: 4, cache_write_1h: 4, output: 15}",
		"other: {input: 7,", "mid: {input: 2, cache_read: 2,", "mid: {input: 2.5, cache_read: 0.25,",
	} {
		if !strings.Contains(yaml, line) {
			t.Errorf("missing %q in\n%s", line, yaml)
		}
	}
	entry := want[strings.Index(want, "  - id: p2"):]
	again := strings.Replace(pricesYAML, "credentials:", strings.Replace(entry, "p2", "p3", 1)+"credentials:", 1)
	if _, err := o.try("", "apply", "-f", o.file(again), "--dry-run"); err == nil || !strings.Contains(err.Error(), `is the start of price version "p2" too`) {
		t.Errorf("the entry is not taken where it belongs: %v", err)
	}

	for _, c := range []struct {
		want string
		args []string
	}{
		{`--id: there is a price version "p1"`, []string{table, "--id", "p1"}},
		{"--valid-from: 2026-02-01T00:00:00Z is not after the newest price version, p2", []string{table, "--valid-from", "2026-02-01"}},
		{`--valid-from: "soon" is neither`, []string{table, "--valid-from", "soon"}},
		{`--map: "mid" is not PRICE=MODEL`, []string{table, "--map", "mid"}},
		{"--map: mid is there twice", []string{table, "--map", "mid=a", "--map", "mid=b"}},
		{"gone: is not in the table", []string{table, "--map", "mid=gone"}},
		{"inexact: input_cost_per_token: 0.30000000000000004e-06 has more than 15 decimals", []string{table, "--map", "mid=inexact"}},
		{`--format: "csv" is none of litellm, models.dev`, []string{table, "--format", "csv"}},
		{"holds no models in the format of models.dev", []string{table, "--format", "models.dev"}},
		{"no such file", []string{filepath.Join(o.dir, "nowhere.json")}},
		{"is not a name", []string{table, "--id", "a b"}},
	} {
		args := append([]string{"prices", "import"}, c.args...)
		if !strings.Contains(c.want, "valid-from") {
			args = append(args, "--valid-from", "2030-01-01")
		}
		o.refused(c.want, args...)
	}
	if out, err := o.try(liteLLMTable, "prices", "import", "-", "--valid-from", "2030-01-01", "--map", "mid=n-2026", "-o", "json"); err != nil ||
		!strings.Contains(out, `"+ per_million_usd.mid.input: 4"`) {
		t.Errorf("from standard input, as JSON: %s %v", out, err)
	}
}

// TestPricesImportTwins: two deployments that share a price but not what their models cost must be told apart.
func TestPricesImportTwins(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(strings.Replace(pricesYAML, "model: nobody-knows, credential: main, price: own", "model: n-2026, credential: main, price: mid", 1)))
	table := filepath.Join(o.dir, "table.json")
	must(t, os.WriteFile(table, []byte(liteLLMTable), 0o600))
	o.refused("price mid is that of m-2026 and of n-2026: say which by --map", "prices", "import", table)
}

// TestPricesImportKeeps: what the table does not say of a price stays, and a note tells so.
func TestPricesImportKeeps(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(strings.Replace(pricesYAML, "mid: { input: 2, output: 10 }",
		"mid: { input: 2, cache_write_5m: 3, output: 10, image_output: 30, speeds: { fast: 6 }, per_call_usd: { web_search: 0.01 } }", 1)))
	table := filepath.Join(o.dir, "table.json")
	must(t, os.WriteFile(table, []byte(liteLLMTable), 0o600))
	out, said, err := o.split("prices", "import", table, "--id", "p2", "--apply")
	must(t, err)
	for _, what := range []string{"cache_write_5m", "image_output", "speeds.fast", "per_call_usd.web_search"} {
		if note := "note: price mid: " + what + " is not in the table and stays as it was\n"; !strings.Contains(said, note) {
			t.Errorf("not told: %s\n%s", note, said)
		}
	}
	if strings.Contains(out, "speeds") || !strings.Contains(out, "+ per_million_usd.mid.input: 2.5\n") {
		t.Errorf("the difference is\n%s", out)
	}
	_, entry, _ := strings.Cut(o.run("get"), "- id: p2\n")
	for _, line := range []string{"cache_read: 0.25", "cache_write_5m: 3", "cache_write_1h: 3", "image_output: 30", "web_search: 0.01", "fast: 6"} {
		if !strings.Contains(entry, line) {
			t.Errorf("missing %s in\n%s", line, entry)
		}
	}
}

// TestPricesImportBaseModel: what a deployment calls its model may be the table's name of another one.
func TestPricesImportBaseModel(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(strings.Replace(pricesYAML, "model: m-2026,", "model: m-2026, base_model: n-2026,", 1)))
	table := filepath.Join(o.dir, "table.json")
	must(t, os.WriteFile(table, []byte(liteLLMTable), 0o600))
	if out, _, err := o.split("prices", "import", table); err != nil || !strings.Contains(out, "mid: {input: 4, ") {
		t.Errorf("%v\n%s", err, out)
	}
}
