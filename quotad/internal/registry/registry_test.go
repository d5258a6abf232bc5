package registry

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// applied is a registry that holds text, at version 1.
func applied(t testing.TB, text string) *Registry {
	t.Helper()
	r := New()
	apply(t, r, 1, text, true)
	return r
}

// apply brings r to text and shows the differences.
func apply(t testing.TB, r *Registry, index uint64, text string, prune bool) []Difference {
	t.Helper()
	c, differences, err := r.Diff(mustParse(t, text), prune, 0)
	if err != nil {
		t.Fatalf("diff: %v", err)
	}
	mustApply(t, r, index, c)
	return differences
}

func mustApply(t testing.TB, r *Registry, index uint64, c Change) {
	t.Helper()
	if res := r.Apply(index, c); res.Refusal != nil {
		t.Fatalf("refused: %s", res.Refusal)
	}
}

func obj(t testing.TB, kind, id, spec string) Object {
	t.Helper()
	o, err := ParseObject(kind, id, []byte(spec))
	if err != nil {
		t.Fatalf("%s %s: %v", kind, id, err)
	}
	return o
}

const small = `version: 1
prices:
  - { id: p1, valid_from: 2026-01-01, per_million_usd: { m: { input: 1, output: 2 } } }
credentials: { c: { provider: openai } }
deployments:
  - { id: d, provider: openai, base_url: "https://h/v1", model: m, credential: c, price: m, capabilities: [tools] }
aliases:
  a: { targets: [{ deployment: d }] }
business_units: { b: {} }
teams:
  t: { budget: { monthly: 10 }, business_unit: b }
keys:
  - { id: k, team: t, aliases: [a] }
sidecars:
  - { identity: s, teams: [t] }
`

func TestApplyRefusesWithoutATrace(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change Change
		reason Reason
		want   string
	}{
		{"stale base", Change{BaseVersion: 7, Objects: []Object{{Kind: KindKey, ID: "k"}}}, ReasonConflict,
			"the configuration is at version 1, no longer at 7"},
		{"unknown kind", Change{Objects: []Object{{Kind: "tenant", ID: "x"}}}, ReasonMalformed, `unknown kind "tenant"`},
		{"bad id", Change{Objects: []Object{{Kind: KindTeam, ID: "a b"}}}, ReasonMalformed, `"a b" is not an id of a team`},
		{"second org", Change{Objects: []Object{{Kind: KindOrg, ID: "other"}}}, ReasonMalformed, `"other" is not an id of a org`},
		{"twice", Change{Objects: []Object{{Kind: KindKey, ID: "k"}, {Kind: KindKey, ID: "k"}}}, ReasonMalformed,
			"key k: stands in the change twice"},
		{"no JSON", Change{Objects: []Object{{Kind: KindTeam, ID: "t", Spec: []byte("{")}}}, ReasonMalformed, "team t: the spec is not JSON"},
		{"no object", Change{Objects: []Object{{Kind: KindFX, ID: "2026-11", Spec: []byte("null")}}}, ReasonMalformed,
			"fx 2026-11: the spec is not a JSON object"},
		{"wrong shape", Change{Objects: []Object{{Kind: KindTeam, ID: "t", Spec: []byte(`{"weight":"x"}`)}}}, ReasonMalformed,
			"team t: decode the spec"},
		{"inexact money", Change{Objects: []Object{{Kind: KindTeam, ID: "t", Spec: []byte(`{"request_cap":0.00000000012}`)}}},
			ReasonMalformed, "team t: decode the spec"},
		{"delete a team with keys", Change{Objects: []Object{{Kind: KindTeam, ID: "t"}}}, ReasonBroken,
			"key k: team: no team \"t\": there is none\nsidecar s: teams[0]: no team \"t\": there is none"},
		{"delete an alias in use", Change{Objects: []Object{{Kind: KindAlias, ID: "a"}}}, ReasonBroken, `key k: aliases[0]: no alias "a"`},
		{"delete a deployment in use", Change{Objects: []Object{{Kind: KindDeployment, ID: "d"}}}, ReasonBroken,
			`alias a: targets[0].deployment: no deployment "d"`},
		{"delete a credential in use", Change{Objects: []Object{{Kind: KindCredential, ID: "c"}}}, ReasonBroken,
			`deployment d: credential: no credential "c"`},
		{"delete a unit in use", Change{Objects: []Object{{Kind: KindBusinessUnit, ID: "b"}}}, ReasonBroken,
			`team t: business_unit: no business_unit "b"`},
		{"delete the only price", Change{Objects: []Object{{Kind: KindPrice, ID: "p1"}}}, ReasonBroken,
			`deployment d: price: "m": there is no price version`},
		{"newer price without the model", Change{Objects: []Object{
			obj(t, KindPrice, "p2", `{"valid_from":"2026-02-01","per_million_usd":{"x":{"input":1}}}`)}}, ReasonBroken,
			`deployment d: price: the newest price version, "p2", has no price "m"`},
		{"edited price", Change{Objects: []Object{
			obj(t, KindPrice, "p1", `{"valid_from":"2026-01-01","per_million_usd":{"m":{"input":2,"output":2}}}`)}}, ReasonImmutable,
			"price p1: differs from the stored one: price versions are never edited"},
		{"provider of a credential in use", Change{Objects: []Object{obj(t, KindCredential, "c", `{"provider":"anthropic"}`)}},
			ReasonBroken, `deployment d: credential: "c" is for provider anthropic, not openai`},
		{"needs more than a target has", Change{Objects: []Object{
			obj(t, KindAlias, "a", `{"needs":["vision"],"targets":[{"deployment":"d"}]}`)}}, ReasonBroken,
			`alias a: targets[0].deployment: "d" lacks "vision"`},
		{"key of no team", Change{Objects: []Object{{Kind: KindKey, ID: "n", Spec: []byte(`{}`)}}}, ReasonBroken, "key n: team: is missing"},
		{"good and bad", Change{Objects: []Object{
			obj(t, KindTeam, "new", `{}`), obj(t, KindKey, "n", `{"team":"nobody"}`)}}, ReasonBroken, `key n: team: no team "nobody"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := applied(t, small)
			r.Touched(math.MaxInt)
			before := r.YAML()
			res := r.Apply(9, tc.change)
			if res.Refusal == nil {
				t.Fatal("applied")
			}
			if res.Refusal.Reason != tc.reason || !strings.HasPrefix(res.Refusal.String(), tc.want) {
				t.Errorf("got %d %s\nwant %d %s", res.Refusal.Reason, res.Refusal, tc.reason, tc.want)
			}
			objects, versions := r.Touched(math.MaxInt)
			if r.YAML() != before || res.Version != 1 || r.Version() != 1 || len(objects)+len(versions) > 0 ||
				len(r.History(10)) != 1 {
				t.Errorf("something changed: %d, %v, %v\n%s", r.Version(), objects, versions, r.YAML())
			}
			if _, refusal := r.Preview(tc.change); refusal == nil || refusal.Reason != tc.reason {
				t.Errorf("preview: %v", refusal)
			}
		})
	}
}

func TestApplySameSecretRefused(t *testing.T) {
	r := applied(t, small)
	k, _ := r.Key("k")
	k.SecretSHA256 = hash(1)
	mustApply(t, r, 2, Change{Objects: []Object{k.Object()}})
	k.ID = "other"
	res := r.Apply(3, Change{Objects: []Object{k.Object()}})
	if res.Refusal == nil || !strings.Contains(res.Refusal.String(), `key other: secret_sha256: is the secret of key "k" too`) {
		t.Errorf("got %v", res.Refusal)
	}
}

func TestApplyVersions(t *testing.T) {
	r := applied(t, small)
	team := func(w int) Object { return obj(t, KindTeam, "n", fmt.Sprintf(`{"weight":%d}`, w)) }
	steps := []struct {
		name   string
		index  uint64
		change Change
		want   uint64
	}{
		{"index", 40, Change{BaseVersion: 1, Objects: []Object{team(1)}}, 40},
		{"nothing changes", 41, Change{BaseVersion: 40, Objects: []Object{team(1), {Kind: KindTeam, ID: "never"}}}, 40},
		{"second change of an entry", 40, Change{Objects: []Object{team(2)}}, 41},
		{"restored cluster", 3, Change{BaseVersion: 41, Objects: []Object{team(3)}}, 42},
	}
	for _, s := range steps {
		res := r.Apply(s.index, s.change)
		if res.Refusal != nil || res.Version != s.want || r.Version() != s.want {
			t.Errorf("%s: got %d, %v, want %d", s.name, res.Version, res.Refusal, s.want)
		}
	}
	if o, _ := r.Object(KindTeam, "n"); o.Version != 42 {
		t.Errorf("object at version %d, want 42", o.Version)
	}
	if res := r.Apply(50, Change{BaseVersion: 41, Objects: []Object{team(4)}}); res.Refusal == nil {
		t.Error("a change against an old version was applied")
	}
}

func TestApplyDoesNotKeepTheCallersBytes(t *testing.T) {
	r := New()
	spec := []byte(`{"weight":1,"priority":"batch","failed_attempts":"team"}`)
	mustApply(t, r, 1, Change{Objects: []Object{{Kind: KindTeam, ID: "t", Spec: spec}}})
	copy(spec, `XXXXXXXXX`)
	if o, _ := r.Object(KindTeam, "t"); !strings.HasPrefix(string(o.Spec), `{"weight":1`) {
		t.Errorf("got %s", o.Spec)
	}
}

func TestPreviewLeavesTheRegistryAlone(t *testing.T) {
	r := applied(t, small)
	before := r.YAML()
	next, refusal := r.Preview(Change{BaseVersion: 1, Objects: []Object{
		obj(t, KindTeam, "n", `{"budget":{"monthly":1},"timezone":"Asia/Tokyo"}`)}})
	if refusal != nil {
		t.Fatal(refusal)
	}
	if got := next.Timezones(); !slices.Equal(got, []string{"", "Asia/Tokyo"}) {
		t.Errorf("zones %q", got)
	}
	if r.YAML() != before || r.Version() != 1 || !slices.Equal(r.Timezones(), []string{""}) {
		t.Error("the registry changed")
	}
}

func TestDiffShowsFields(t *testing.T) {
	r := applied(t, small)
	changed := strings.NewReplacer(
		"monthly: 10 }, business_unit: b", "monthly: 12.5, hard: false }",
		"aliases: [a]", "aliases: [a], limits: { rpm: 5 }",
		"[{ deployment: d }]", "[{ deployment: d, weight: 3 }]",
		"business_units: { b: {} }\n", "",
		"sidecars:", "  - { id: k2, team: t, secret_sha256: "+hash(3)+" }\nsidecars:",
	).Replace(small)
	got := apply(t, r, 2, changed, true)
	want := []Difference{
		{ActionUpdate, KindAlias, "a", []string{"- targets[0].weight: 1", "+ targets[0].weight: 3"}},
		{ActionDelete, KindBusinessUnit, "b", nil},
		{ActionUpdate, KindTeam, "t", []string{"- budget.monthly: 10", "+ budget.monthly: 12.5",
			"- budget.hard: true", "+ budget.hard: false", "- business_unit: b"}},
		{ActionUpdate, KindKey, "k", []string{"+ limits.rpm: 5"}},
		{ActionCreate, KindKey, "k2", []string{"+ team: t", "+ secret_sha256: 00000000…", "+ outage: share"}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if h := r.History(1)[0].Differences(); fmt.Sprint(h) != fmt.Sprint(want) {
		t.Errorf("history %v\nwant    %v", h, want)
	}
	if again := apply(t, r, 3, changed, true); len(again) != 0 || r.Version() != 2 {
		t.Errorf("applied again: %v, version %d", again, r.Version())
	}
}

func TestDiffWithoutPruneKeepsTheRest(t *testing.T) {
	r := applied(t, small)
	got := apply(t, r, 2, "version: 1\nteams: { u: {} }\n", false)
	if len(got) != 1 || got[0].Action != ActionCreate || got[0].ID != "u" {
		t.Errorf("got %v", got)
	}
	if _, ok := r.Key("k"); !ok || len(r.Teams()) != 2 {
		t.Error("something was deleted")
	}
}

func TestDiffRefusesEditedPrices(t *testing.T) {
	r := applied(t, small)
	_, _, err := r.Diff(mustParse(t, strings.Replace(small, "input: 1", "input: 1.5", 1)), false, 0)
	want := "price p1: differs from the stored one: price versions are never edited, add a new one\n" +
		"  - per_million_usd.m.input: 1\n  + per_million_usd.m.input: 1.5"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// A file says nothing about the secret of a key that `key create` made, nor about its revocation: neither may be
// lost when the file is applied again.
func TestSecretsOutliveTheFile(t *testing.T) {
	r := applied(t, small)
	k, _ := r.Key("k")
	if k.State(0) != KeyWithoutSecret {
		t.Errorf("state %s", k.State(0))
	}
	k.SecretSHA256 = hash(1)
	mustApply(t, r, 2, Change{Objects: []Object{k.Object()}})
	if got := apply(t, r, 3, small, true); len(got) != 0 {
		t.Errorf("same file: %v", got)
	}
	got := apply(t, r, 4, strings.Replace(small, "aliases: [a] }", "aliases: [a], app: x }", 1), true)
	if len(got) != 1 || fmt.Sprint(got[0].Lines) != "[+ app: x]" {
		t.Errorf("differences %v", got)
	}
	if k, _ = r.Key("k"); k.SecretSHA256 != hash(1) || k.App != "x" || k.State(0) != KeyActive {
		t.Errorf("got %+v", k)
	}
	k.Revoked = true
	mustApply(t, r, 5, Change{Objects: []Object{k.Object()}})
	apply(t, r, 6, small, true)
	apply(t, r, 7, strings.Replace(small, "aliases: [a] }", "secret_sha256: "+hash(2)+" }", 1), true)
	if k, _ = r.Key("k"); !k.Revoked || k.SecretSHA256 != hash(2) || k.State(0) != KeyRevoked {
		t.Errorf("after a new secret in the file: %+v", k)
	}
}

func TestKeyState(t *testing.T) {
	for _, tc := range []struct {
		name string
		key  Key
		want string
	}{
		{"active", Key{SecretSHA256: hash(1)}, KeyActive},
		{"before its end", Key{SecretSHA256: hash(1), Expires: 1001}, KeyActive},
		{"at its end", Key{SecretSHA256: hash(1), Expires: 1000}, KeyExpired},
		{"no secret", Key{Expires: 1}, KeyWithoutSecret},
		{"revoked", Key{Revoked: true, SecretSHA256: hash(1), Expires: 1}, KeyRevoked},
	} {
		if got := tc.key.State(1000); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestWithBudget(t *testing.T) {
	r := applied(t, small)
	o, err := r.WithBudget("t", []byte(`{"monthly":7.5,"hard":false,"alert_at":[0.9]}`))
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, r, 2, Change{Objects: []Object{o}})
	team, _ := r.Team("t")
	if b := team.Budget; b.Monthly != 7_500_000_000 || b.Hard || !slices.Equal(b.AlertAt, []Permille{900}) ||
		team.BusinessUnit != "b" {
		t.Errorf("got %+v %+v", team, b)
	}
	for spec, want := range map[string]string{
		`{"monthly":-1,"x":1}`: "monthly: \"-1\" must not be negative\nx: unknown key (allowed: monthly, currency, hard, alert_at)",
		`[]`:                   "must be a mapping",
		`{`:                    "is not JSON",
	} {
		if _, err := r.WithBudget("t", []byte(spec)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", spec, err, want)
		}
	}
	if _, err := r.WithBudget("nobody", []byte(`{"monthly":1}`)); err == nil || err.Error() != `team: no team "nobody"` {
		t.Errorf("got %v", err)
	}
}

func TestTeamsOf(t *testing.T) {
	r := applied(t, string(example(t)))
	for _, tc := range []struct {
		name, identity string
		teams          []string
		all            bool
	}{
		{"some teams", "spiffe://example.org/ns/prod/sa/support", []string{"support-bot", "batch"}, false},
		{"all teams", "gateway", nil, true},
		{"unknown", "stranger", nil, false},
	} {
		if teams, all := r.TeamsOf(tc.identity); !slices.Equal(teams, tc.teams) || all != tc.all {
			t.Errorf("%s: got %v %v", tc.name, teams, all)
		}
	}
	if teams, all := New().TeamsOf("anyone"); teams != nil || !all {
		t.Errorf("no section: got %v %v", teams, all)
	}
}

func TestUnpriced(t *testing.T) {
	r := applied(t, small)
	start := int64(r.Prices()[0].ValidFrom)
	if got := r.Unpriced(start - 1); !slices.Equal(got, []string{"d"}) {
		t.Errorf("before the first version: %v", got)
	}
	if got := r.Unpriced(start); len(got) != 0 {
		t.Errorf("in force: %v", got)
	}
}

func TestSpecsAndDraws(t *testing.T) {
	r := applied(t, string(example(t)))
	var got []string
	for _, s := range r.Specs() {
		got = append(got, fmt.Sprintf("%s/%s/%d limit=%d burst=%d hard=%v zone=%s alerts=%v weight=%d",
			s.Scope, s.Owner, s.Kind, s.Limit, s.Burst, s.Hard, s.Timezone, s.AlertPermille, s.Weight))
	}
	want := []string{
		"key/support-api/1 limit=600 burst=600 hard=false zone= alerts=[] weight=2",
		"key/support-api/2 limit=150000 burst=150000 hard=false zone= alerts=[] weight=2",
		"key/support-api/3 limit=50000 burst=50000 hard=false zone= alerts=[] weight=2",
		"key/support-api/4 limit=200000 burst=200000 hard=false zone= alerts=[] weight=2",
		"key/support-api/5 limit=10500000000 burst=0 hard=false zone=Asia/Kolkata alerts=[500 800 1000] weight=2",
		"run/batch/6 limit=1000 burst=0 hard=true zone= alerts=[] weight=1",
		"team/batch/5 limit=880000000000000 burst=0 hard=true zone= alerts=[500 800 1000] weight=1",
		"run/support-bot/5 limit=2000000000 burst=0 hard=true zone=Asia/Kolkata alerts=[] weight=2",
		"run/support-bot/6 limit=50 burst=0 hard=true zone= alerts=[] weight=2",
		"end_user/support-bot/1 limit=20 burst=20 hard=false zone= alerts=[] weight=2",
		"end_user/support-bot/4 limit=20000 burst=20000 hard=false zone= alerts=[] weight=2",
		"team/support-bot/1 limit=6000 burst=6000 hard=false zone= alerts=[] weight=2",
		"team/support-bot/4 limit=2000000 burst=2000000 hard=false zone= alerts=[] weight=2",
		"team/support-bot/5 limit=5000000000000 burst=0 hard=true zone=Asia/Kolkata alerts=[500 800 1000] weight=2",
		"business_unit/retail/4 limit=9000000 burst=9000000 hard=false zone= alerts=[] weight=1",
		"business_unit/retail/5 limit=40000000000000 burst=0 hard=false zone=Europe/Berlin alerts=[] weight=1",
		"org/org/1 limit=1000000 burst=1000000 hard=false zone= alerts=[] weight=1",
		"org/org/5 limit=100000000000000 burst=0 hard=true zone= alerts=[500 800 1000] weight=1",
		"deployment/openai-mid/1 limit=9000 burst=9000 hard=false zone= alerts=[] weight=1",
		"deployment/openai-mid/2 limit=9000000 burst=9000000 hard=false zone= alerts=[] weight=1",
		"deployment/openai-mid/3 limit=1800000 burst=1800000 hard=false zone= alerts=[] weight=1",
		"deployment/openai-mid/4 limit=9900000 burst=9900000 hard=false zone= alerts=[] weight=1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := fmt.Sprint(r.DrawsOf("batch-night")); got != "[{run batch 6} {team batch 5} {org org 1} {org org 5}]" {
		t.Errorf("draws of batch-night: %s", got)
	}
	if got := fmt.Sprint(r.DrawsOf("support-old")); got != "[{run support-bot 5} {run support-bot 6} "+
		"{end_user support-bot 1} {end_user support-bot 4} {team support-bot 1} {team support-bot 4} "+
		"{team support-bot 5} {business_unit retail 4} {business_unit retail 5} {org org 1} {org org 5}]" {
		t.Errorf("draws of support-old: %s", got)
	}
	if got := r.DrawsOf("nobody"); got != nil {
		t.Errorf("draws of nobody: %v", got)
	}
	if got := r.Timezones(); !slices.Equal(got, []string{"", "Asia/Kolkata", "Europe/Berlin"}) {
		t.Errorf("zones %q", got)
	}
}

// TestIsObject: what is taken for an object without a look at its tree is one that the tree's decoder takes.
func TestIsObject(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`:                       true,
		`{"a":"}]{[\"\\","b":[1]}`: true,
		`{"\\":{"a":[]}}`:          true,
		`[]`:                       false,
		` {}`:                      false,
		`{"a":1}}`:                 false,
		`{"a"}`:                    false,
		``:                         false,
		strings.Repeat(`{"a":`, depthMax) + "1" + strings.Repeat("}", depthMax):     true,
		strings.Repeat(`{"a":`, depthMax+1) + "1" + strings.Repeat("}", depthMax+1): false,
	} {
		if got := isObject([]byte(text)); got != want {
			t.Errorf("isObject(%s) = %v", text, got)
		}
		if _, err := decodeJSON([]byte(text)); want && err != nil {
			t.Errorf("%s is an object, and decodeJSON says %v", text, err)
		}
	}
}
