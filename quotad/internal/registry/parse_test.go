package registry

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func example(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/org.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustParse(t testing.TB, text string) []Object {
	t.Helper()
	objects, _, err := ParseOrg("org.yaml", []byte(text))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, text)
	}
	return objects
}

// specs are the specs by kind/id, for short comparisons.
func specs(objects []Object) map[string]string {
	m := map[string]string{}
	for _, o := range objects {
		m[o.Kind+"/"+o.ID] = string(o.Spec)
	}
	return m
}

func TestParseOrgGivesCanonicalObjects(t *testing.T) {
	got := specs(mustParse(t, string(example(t))))
	want := map[string]string{
		"fx/2026-11": `{"EUR":0.915,"INR":88}`,
		"price/2026-10": `{"valid_from":"2026-10-01T00:00:00Z","per_million_usd":{"mid":{"input":3,"cache_read":3,` +
			`"cache_write_5m":3,"cache_write_1h":3,"output":12}}}`,
		"price/2026-11": `{"valid_from":"2026-11-01T00:00:00Z","per_million_usd":{` +
			`"claude":{"input":3,"cache_read":0.3,"cache_write_5m":3.75,"cache_write_1h":6,"output":15,` +
			`"image_output":30,"speeds":{"fast":6},"inference_geo":{"us":1.1}},` +
			`"embed":{"input":0.02,"cache_read":0.02,"cache_write_5m":0.02,"cache_write_1h":0.02,"output":0},` +
			`"long":{"input":1.25,"cache_read":0.125,"cache_write_5m":1.25,"cache_write_1h":1.25,"output":10,` +
			`"audio_input":40,"audio_output":80.5,"image_input":5,"per_call_usd":{"web_search":0.01},` +
			`"above":[{"tokens":200000,"input":2.5,"cache_read":0.25,"cache_write_5m":2.5,"cache_write_1h":2.5,"output":15,` +
			`"audio_input":80,"audio_output":161,"image_input":10}],` +
			`"service_tiers":{"batch":0.5,"flex":0.5,"priority":2.25}},` +
			`"mid":{"input":2,"cache_read":0.2,"cache_write_5m":2.5,"cache_write_1h":4,"output":10}}}`,
		"credential/openai-main": `{"provider":"openai"}`,
		"deployment/claude-mid": `{"provider":"anthropic","base_url":"https://api.anthropic.com/v1",` +
			`"model":"claude-mid-2026","base_model":"claude-sonnet-4-5","credential":"anthropic-main","price":"claude"}`,
		"alias/chat-small": `{"targets":[{"deployment":"local","priority":1,"weight":1}],` +
			`"timeouts":{"connect":"2s","first_token":"30s","idle":"30s","total":"10m"},` +
			`"max_attempts":3,"default_max_output":1024,"reserve":"p95"}`,
		"org/org": `{"budget":{"monthly":100000,"hard":true,"alert_at":[0.5,0.8,1]},"limits":{"rpm":1000000},` +
			`"classes":{"batch":0.05,"interactive":0.6,"standard":0.25}}`,
		"business_unit/retail": `{"budget":{"monthly":40000,"hard":false,"alert_at":[]},"limits":{"tpm":9000000},` +
			`"timezone":"Europe/Berlin"}`,
		"business_unit/payments": `{}`,
		"team/support-bot": `{"budget":{"monthly":5000,"hard":true,"alert_at":[0.5,0.8,1]},` +
			`"limits":{"rpm":6000,"tpm":2000000},"business_unit":"retail","timezone":"Asia/Kolkata",` +
			`"account":"bu-payments","weight":2,"priority":"interactive",` +
			`"run_budget":{"max":2,"max_calls":50,"lifetime":"48h"},"request_cap":1,` +
			`"end_user_limits":{"rpm":20,"tpm":20000},"failed_attempts":"team",` +
			`"alerts":{"webhook":"https://hooks.example/a?token=b&c=d"}}`,
		"team/batch": `{"budget":{"monthly":880000,"currency":"INR","hard":true,"alert_at":[0.5,0.8,1]},"weight":1,` +
			`"priority":"batch","run_budget":{"max_calls":1000,"lifetime":"24h"},"failed_attempts":"platform"}`,
		"team/plain":      `{"weight":1,"priority":"standard","failed_attempts":"platform"}`,
		"key/support-old": `{"team":"support-bot","revoked":true,"outage":"closed"}`,
		"sidecar/gateway": `{"teams":["*"]}`,
	}
	for name, spec := range want {
		if got[name] != spec {
			t.Errorf("%s:\n got %s\nwant %s", name, got[name], spec)
		}
	}
	if len(got) != 22 {
		t.Errorf("%d objects, want 22", len(got))
	}
}

// mistakenTail is the end of a file full of mistakes; alone it is short enough for the bound on faults.
const mistakenTail = `keys:
  - id: k
    team: tt
    aliases: []
    secret_sha256: my-plain-secret
    expires: 30/06/2027
    max_data_class: public
    default_data_class: internal
    outage: maybe
    secret: s3cret
  - id: l
    team: u
    aliases: [x, x, q]
org: { classes: { interactive: 0.9, batch: 0.2 } }
sidecars:
  - { identity: "a b", teams: [t] }
  - { identity: ok, teams: ["*", t, none] }
tenants: {}
`

func TestParseOrgReportsEveryMistakeAtItsLine(t *testing.T) {
	text := `version: 2
currency: EUR
fx: { "2026-13": { INR: 88 }, "2026-11": { inr: 1 } }
prices:
  - id: p1
    valid_from: yesterday
    per_million_usd:
      mid: { input: -2, outptu: 3 }
      fine: { input: 0.0000000001 }
  - id: p1
    valid_from: 2026-01-01
    per_million_usd: {}
credentials:
  main: { provider: openai, value: sk-very-secret }
  azure: { provider: asure }
  other: { provider: anthropic }
deployments:
  - id: a
    provider: openai
    base_url: https://user:hunter2@host/v1?x=1
    model: m
    credential: mian
    price: fine
    context_tokens: many
  - id: b
    provider: openia
    base_url: ftp://host
    model: ""
    price: nope
    unpriced: maybe
  - provider: openai
    base_url: https://h
    model: m
    unpriced: allow
  - id: "bad id"
    provider: compatible
    base_url: https://h#x
    model: m
    unpriced: allow
  - id: c
    provider: openai
    base_url: https://h
    model: m
    credential: other
    capabilities: [vision]
aliases:
  x:
    needs: [tools]
    targets:
      - { deployment: a }
      - { deployment: a }
      - { deployment: zzz }
      - { deployment: c }
    timeouts: { connect: 2, first_token: 20s, total: 10s }
    max_attempts: 0
    hedge_after: 1s
    fallback_alias: y
    canary: { deployment: a, steps: [1, 500] }
    split: { candidate: a, percent: 10, by: user }
    reserve: all
teams:
  t:
    budget: { monthly: 1e30, hrad: true, alert_at: [0.8, 0.5] }
    business_unit: nowhere
    timezone: Mars/Olympus
    run_budget: { max: 2.00, calls: 50 }
    end_user_limits: { rpm: 0 }
    weight: 1.5
    weight: 2
  u: [1]
` + mistakenTail
	_, _, err := ParseOrg("org.yaml", []byte(text))
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want Faults", err)
	}
	if len(faults.List) != faultsMax || faults.More == 0 {
		t.Errorf("%d faults and %d more: want %d and some", len(faults.List), faults.More, faultsMax)
	}
	want := []string{
		`org.yaml:1: version: "2" is not a known version of this file (allowed: 1)`,
		`org.yaml:2: currency: there is no rate of EUR: add one to fx, as in`,
		`org.yaml:3: fx.2026-13: "2026-13" is not a month, like 2026-11`,
		`org.yaml:3: fx.2026-11.inr: is not a currency code`,
		`org.yaml:6: prices[p1].valid_from: "yesterday" is not a date, like 2027-06-30`,
		`org.yaml:8: prices[p1].per_million_usd.mid.input: "-2" must not be negative`,
		`org.yaml:8: prices[p1].per_million_usd.mid.outptu: unknown key: did you mean output? (allowed: input, cache_read,`,
		`org.yaml:9: prices[p1].per_million_usd.fine.input: "0.0000000001" has more than 9 decimals`,
		`org.yaml:10: prices[p1]: price "p1" stands here a second time`,
		`org.yaml:12: prices[p1].per_million_usd: is empty`,
		`org.yaml:14: credentials.main.value: a secret never stands here`,
		`org.yaml:15: credentials.azure.provider: "asure" is not allowed: did you mean azure? (allowed: openai, anthropic, azure,`,
		`org.yaml:20: deployments[a].base_url: must not carry a user or password`,
		`org.yaml:22: deployments[a].credential: no credential "mian" in this file (known: azure, main, other)`,
		`org.yaml:24: deployments[a].context_tokens: "many" is not a whole number, like 128000 (allowed: 1 to`,
		`org.yaml:26: deployments[b].provider: "openia" is not allowed: did you mean openai? (allowed: openai, anthropic, azure, bedrock,`,
		`org.yaml:27: deployments[b].base_url: must begin with http:// or https://`,
		`org.yaml:28: deployments[b].model: must be 1 to 256 bytes of text`,
		`org.yaml:29: deployments[b].price: the newest price version, "p1", has no price "nope"`,
		`org.yaml:30: deployments[b].unpriced: "maybe" is not allowed (allowed: allow)`,
		`org.yaml:31: deployments[2].id: is missing`,
		`org.yaml:35: deployments[3].id: "bad id" is not a name`,
		`org.yaml:37: deployments[3].base_url: must not have a fragment (#)`,
		`org.yaml:40: deployments[c].price: is missing: name an entry of per_million_usd`,
		`org.yaml:44: deployments[c].credential: "other" is for provider anthropic, not openai`,
		`org.yaml:51: aliases.x.targets[1].deployment: "a" is a target twice`,
		`org.yaml:52: aliases.x.targets[2].deployment: no deployment "zzz" in this file (known: a, b, c)`,
		`org.yaml:53: aliases.x.targets[3].deployment: "c" lacks "tools", which the alias needs`,
		`org.yaml:54: aliases.x.timeouts.connect: "2" is not a duration, like 500ms, 2s or 10m`,
		`org.yaml:54: aliases.x.timeouts.first_token: is longer than total, 10s`,
		`org.yaml:55: aliases.x.max_attempts: "0" is out of range (allowed: 1 to 10)`,
		`org.yaml:56: aliases.x.hedge_after: not supported in this version: remove it`,
		`org.yaml:57: aliases.x.fallback_alias: not supported in this version: remove it`,
		`org.yaml:58: aliases.x.canary.steps[1]: "500" is out of range (allowed: 1 to 100)`,
		`org.yaml:59: aliases.x.split: not supported in this version: remove it`,
		`org.yaml:60: aliases.x.reserve: "all" is not allowed (allowed: p95, cap)`,
		`org.yaml:63: teams.t.budget.monthly: "1e30" is too large`,
		`org.yaml:63: teams.t.budget.hrad: unknown key: did you mean hard? (allowed: monthly, currency, hard, alert_at)`,
		`org.yaml:63: teams.t.budget.alert_at[1]: must be above the one before it`,
		`org.yaml:64: teams.t.business_unit: no business_unit "nowhere" in this file: there is none`,
		`org.yaml:65: teams.t.timezone: "Mars/Olympus" is not a known time zone`,
		`org.yaml:66: teams.t.run_budget.calls: unknown key (allowed: max, max_calls, lifetime)`,
		`org.yaml:67: teams.t.end_user_limits.rpm: "0" is out of range`,
		`org.yaml:68: teams.t.weight: "1.5" must be a whole number (allowed: 1 to 1000)`,
		`org.yaml:69: teams.t.weight: stands here a second time, first in line 68`,
		`org.yaml:70: teams.u: must be a mapping of keys to values`,
		`org.yaml:73: keys[k].team: no team "tt" in this file (known: t, u)`,
		`org.yaml:74: keys[k].aliases: is empty: leave it out for all aliases`,
		`org.yaml:75: keys[k].secret_sha256: must be the SHA-256 of the secret, 64 hex digits`,
		`org.yaml:76: keys[k].expires: "30/06/2027" is not a date`,
	}
	expectFaults(t, faults.List, want)
	last := 0
	for _, f := range faults.List {
		if f.Line < last {
			t.Errorf("line %d after line %d: not sorted", f.Line, last)
		}
		last = f.Line
	}
	for _, secret := range []string{"sk-very-secret", "hunter2", "my-plain-secret", "s3cret"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the faults repeat the secret %q", secret)
		}
	}
}

func TestParseOrgReportsTheRestOnceTheHeadIsRight(t *testing.T) {
	text := `version: 1
deployments: [{ id: a, provider: openai, base_url: "http://h", model: m, unpriced: allow }]
aliases: { x: { targets: [{ deployment: a }] } }
teams: { t: {}, u: {} }
` + mistakenTail
	_, _, err := ParseOrg("org.yaml", []byte(text))
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want Faults", err)
	}
	expectFaults(t, faults.List, []string{
		`org.yaml:7: keys[k].team: no team "tt" in this file (known: t, u)`,
		`org.yaml:8: keys[k].aliases: is empty: leave it out for all aliases`,
		`org.yaml:9: keys[k].secret_sha256: must be the SHA-256 of the secret, 64 hex digits`,
		`org.yaml:10: keys[k].expires: "30/06/2027" is not a date`,
		`org.yaml:12: keys[k].default_data_class: "internal" is above max_data_class "public"`,
		`org.yaml:13: keys[k].outage: "maybe" is not allowed (allowed: share, open, closed)`,
		`org.yaml:14: keys[k].secret: a secret never stands here`,
		`org.yaml:17: keys[l].aliases[1]: "x" stands in the list twice`,
		`org.yaml:17: keys[l].aliases[2]: no alias "q" in this file (known: x)`,
		`org.yaml:18: org.classes: the shares add up to 1.35, more than 1 (interactive: 0.6,`,
		`org.yaml:20: sidecars[0].identity: "a b" is not an identity`,
		`org.yaml:21: sidecars[ok].teams: "*" means all teams and must stand alone`,
		`org.yaml:21: sidecars[ok].teams[2]: no team "none" in this file (known: t, u)`,
		`org.yaml:22: tenants: unknown key (allowed: version, currency, fx, prices,`,
	})
}

// expectFaults wants exactly these faults, each beginning with the wanted text, in any order within a line.
func expectFaults(t *testing.T, faults []Fault, want []string) {
	t.Helper()
	left := make([]string, len(faults))
	for i, f := range faults {
		left[i] = f.Error()
	}
	for _, w := range want {
		found := false
		for i, got := range left {
			if strings.HasPrefix(got, w) {
				left = append(left[:i], left[i+1:]...)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("missing: %s", w)
		}
	}
	for _, got := range left {
		t.Errorf("not expected: %s", got)
	}
}

func TestParseOrgRefusesBrokenTexts(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "org.yaml:1: version: is missing"},
		{"no version", "teams: {}\n", "org.yaml:1: version: is missing"},
		{"list", "- a\n", "org.yaml:1: the file must be a mapping of sections"},
		{"syntax", "version: 1\nteams:\n\tx: {}\n", "org.yaml:3: found character that cannot start any token"},
		{"unclosed", "version: 1\nteams: { a: {}\n", "org.yaml:"},
		{"two documents", "version: 1\n---\nversion: 1\n", "org.yaml:2: a second YAML document"},
		{"alias", "version: 1\nteams:\n  a: &x { weight: 2 }\n  b: *x\n", "org.yaml:3: YAML anchors and aliases (&name and *name) are not read"},
		{"a port too large", "version: 1\ndeployments:\n- {id: a, provider: openai, base_url: 'http://h:65536/v1', model: m, unpriced: allow}\n",
			"org.yaml:3: deployments[a].base_url: has a port that is not 1 to 65535"},
		{"a port of a webhook", "version: 1\nteams:\n  a: { alerts: { webhook: 'http://h:0/x' } }\n",
			"org.yaml:3: teams.a.alerts.webhook: has a port that is not 1 to 65535"},
		{"anchor alone", "version: 1\nteams:\n  a: {}\n  b:\n    weight: &x 2\n", "org.yaml:5: YAML anchors and aliases (&name and *name) are not read"},
		{"alias of nothing", "version: 1\nteams:\n  a: *x\n  b: {}\n", "org.yaml:3: unknown anchor 'x' referenced"},
		{"merge", "version: 1\nteams:\n  a: &x { weight: 2 }\n  b: { <<: *x }\n", "org.yaml:3: YAML anchors and aliases"},
		{"tag", "version: 1\nteams:\n  a: { weight: !w 2 }\n", `org.yaml:3: teams.a.weight: YAML tags ("!w") are not read`},
		{"null value", "version: 1\nteams:\n  a: { weight: }\n", "org.yaml:3: teams.a.weight: has no value"},
		{"list for a value", "version: 1\nteams:\n  a: { weight: [1] }\n", "org.yaml:3: teams.a.weight: must be a single value"},
		{"value for a list", "version: 1\nkeys: 3\n", "org.yaml:2: keys: must be a list"},
		{"duplicate section", "version: 1\nteams: {}\nteams: {}\n", "org.yaml:3: teams: stands here a second time, first in line 2"},
		{"duplicate team", "version: 1\nteams:\n  a: {}\n  a: {}\n", "org.yaml:4: teams.a: stands here a second time, first in line 3"},
		{"team name", "version: 1\nteams:\n  a b: {}\n", `org.yaml:3: teams."a b": "a b" is not a name`},
		{"long name", "version: 1\nteams:\n  " + strings.Repeat("a", 65) + ": {}\n", "org.yaml:3: teams."},
		{"same start", "version: 1\nprices:\n- {id: a, valid_from: 2026-01-01, per_million_usd: {m: {input: 1}}}\n" +
			"- {id: b, valid_from: 2026-01-01, per_million_usd: {m: {input: 1}}}\n",
			`org.yaml:4: prices[b].valid_from: is the start of price version "a" too`},
		{"same secret", "version: 1\nteams: {t: {}}\nkeys:\n- {id: a, team: t, secret_sha256: " + hash(1) + "}\n" +
			"- {id: b, team: t, secret_sha256: " + strings.ToUpper(hash(1)) + "}\n",
			`org.yaml:5: keys[b].secret_sha256: is the secret of key "a" too`},
		{"no price at all", "version: 1\ndeployments:\n- {id: a, provider: openai, base_url: 'http://h', model: m, price: p}\n",
			`org.yaml:3: deployments[a].price: "p": there is no price version`},
		{"price without input", "version: 1\nprices:\n- id: a\n  valid_from: 2026-01-01\n  per_million_usd:\n    m: {}\n",
			"org.yaml:6: prices[a].per_million_usd.m.input: is missing"},
		{"alert without webhook", "version: 1\nteams:\n  a: { alerts: {} }\n", "org.yaml:3: teams.a.alerts.webhook: is missing"},
		{"zone of the machine", "version: 1\nteams:\n  a: { timezone: Local }\n", `org.yaml:3: teams.a.timezone: "Local" is not`},
		{"all weights 0", "version: 1\ndeployments: [{id: d, provider: openai, base_url: 'http://h', model: m, unpriced: allow}]\n" +
			"aliases:\n  a:\n    targets:\n    - {deployment: d, weight: 0}\n",
			"org.yaml:6: aliases.a.targets[0].weight: all targets of priority 1 have weight 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, _, err := ParseOrg("org.yaml", []byte(tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
			if strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("more than one fault: %v", err)
			}
			if objects != nil {
				t.Errorf("objects in spite of a fault")
			}
		})
	}
}

func hash(n int) string { return fmt.Sprintf("%063xa", n) }

func TestParseObject(t *testing.T) {
	for _, tc := range []struct{ name, kind, id, spec, want, fault string }{
		{"alias", KindAlias, "a", `{"targets":[{"deployment":"d","weight":1e1}],"max_attempts":2.0}`,
			`{"targets":[{"deployment":"d","priority":1,"weight":10}],"timeouts":{"connect":"2s","first_token":"30s",` +
				`"idle":"30s","total":"10m"},"max_attempts":2,"default_max_output":1024,"reserve":"p95"}`, ""},
		{"price", KindPrice, "p", `{"valid_from":"2026-11-01","per_million_usd":{"m":{"input":1.23456789e+2}}}`,
			`{"valid_from":"2026-11-01T00:00:00Z","per_million_usd":{"m":{"input":123.456789,"cache_read":123.456789,` +
				`"cache_write_5m":123.456789,"cache_write_1h":123.456789,"output":0}}}`, ""},
		{"own id", KindKey, "k", `{"id":"k","team":"t"}`, `{"team":"t","outage":"share"}`, ""},
		{"other id", KindKey, "k", `{"id":"j","team":"t"}`, "", `id: "j" is not "k"`},
		{"several faults", KindAlias, "a", `{"targets":[{"deployment":7,"wieght":1}],"guard":{}}`, "",
			"targets[0].wieght: unknown key: did you mean weight? (allowed: deployment, priority, weight)\n" +
				"guard: not supported in this version: remove it"},
		{"key twice", KindTeam, "t", `{"weight":1,"weight":2}`, "", "weight: stands here a second time"},
		{"no object", KindTeam, "t", `[1]`, "", "must be a JSON object"},
		{"no JSON", KindTeam, "t", `{`, "", "is not JSON: unexpected EOF"},
		{"more", KindTeam, "t", `{} {}`, "", "is not JSON: more follows after its end"},
		{"deep", KindTeam, "t", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "", "is not JSON: nested deeper than 32"},
		{"unknown kind", "tenant", "t", `{}`, "", `unknown kind "tenant"`},
		{"bad id", KindTeam, "a/b", `{}`, "", `id: "a/b" is not a name`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := ParseObject(tc.kind, tc.id, []byte(tc.spec))
			if tc.fault != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.fault) {
					t.Errorf("got %v, want %s", err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(o.Spec) != tc.want || o.Kind != tc.kind || o.ID != tc.id {
				t.Errorf("got %s %s %s\nwant %s", o.Kind, o.ID, o.Spec, tc.want)
			}
		})
	}
}

func FuzzParseOrg(f *testing.F) {
	f.Add(example(f))
	f.Add([]byte("version: 1\nteams: {a: {budget: {monthly: 1e3}}}\n"))
	f.Add([]byte("version: 1\nkeys: [{id: k, team: *a}]\n"))
	f.Add([]byte("? [a, b]\n: - 1\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("version: 1\nteams: {? {a: b} : c}\n"))
	f.Add([]byte("version: 1\naliases: {a: {targets: [{deployment: d, weight: 0}], timeouts: {total: 1ms}}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, _, err := ParseOrg("org.yaml", text)
		if err != nil {
			var faults *Faults
			if !errors.As(err, &faults) || len(faults.List) == 0 || len(faults.List) > faultsMax {
				t.Fatalf("error that is no list of faults: %v", err)
			}
			for _, x := range faults.List {
				if x.Line < 1 || x.What == "" {
					t.Fatalf("fault without a place or a reason: %#v", x)
				}
			}
			return
		}
		r := New()
		c, _, err := r.Diff(objects, true, 0)
		if err != nil {
			t.Fatal(err)
		}
		if res := r.Apply(1, c); res.Refusal != nil {
			t.Fatalf("parsed, yet refused: %s", res.Refusal)
		}
		back, _, err := ParseOrg("back.yaml", []byte(r.YAML()))
		if err != nil {
			t.Fatalf("own YAML does not parse: %v\n%s", err, r.YAML())
		}
		sameObjects(t, back, objects)
	})
}

func FuzzParseObject(f *testing.F) {
	for _, o := range mustParse(f, string(example(f))) {
		f.Add(o.Kind, o.ID, o.Spec)
	}
	f.Fuzz(func(t *testing.T, kind, id string, spec []byte) {
		o, err := ParseObject(kind, id, spec)
		if err != nil {
			return
		}
		again, err := ParseObject(kind, id, o.Spec)
		if err != nil {
			t.Fatalf("canonical form does not parse: %v\n%s", err, o.Spec)
		}
		sameObjects(t, []Object{again}, []Object{o})
	})
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func sameObjects(t fataler, got, want []Object) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d objects, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Kind != want[i].Kind || got[i].ID != want[i].ID || string(got[i].Spec) != string(want[i].Spec) {
			t.Fatalf("got %s %s %s\nwant %s %s %s", got[i].Kind, got[i].ID, got[i].Spec,
				want[i].Kind, want[i].ID, want[i].Spec)
		}
	}
}
