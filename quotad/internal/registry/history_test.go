package registry

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func rollback(t testing.TB, r *Registry, index, version uint64) []Difference {
	t.Helper()
	c, differences, err := r.Rollback(version, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.BaseVersion != r.Version() {
		t.Fatalf("base %d, want %d", c.BaseVersion, r.Version())
	}
	mustApply(t, r, index, c)
	return differences
}

func TestRollbackUndoesEveryLaterChange(t *testing.T) {
	r := applied(t, small)
	first := r.YAML()
	apply(t, r, 2, strings.Replace(small, "monthly: 10", "monthly: 20", 1), true)
	apply(t, r, 3, "version: 1\nteams: { other: {} }\n", true)
	second := r.YAML()
	apply(t, r, 4, small, true)

	got := rollback(t, r, 5, 3)
	if r.YAML() != second || len(got) != 9 {
		t.Errorf("at 3: %d differences\n%s", len(got), r.YAML())
	}
	rollback(t, r, 6, 1)
	if r.YAML() != first {
		t.Errorf("at 1:\n%s\nwant\n%s", r.YAML(), first)
	}
	// Rolling back is a change like any other, and can be undone.
	rollback(t, r, 7, 5)
	if r.YAML() != second {
		t.Errorf("at 5:\n%s\nwant\n%s", r.YAML(), second)
	}
	if got := rollback(t, r, 8, 7); len(got) != 0 || r.Version() != 7 {
		t.Errorf("to where it is: %v", got)
	}
	if _, _, err := r.Rollback(99, 0); !errors.Is(err, ErrUnknownVersion) {
		t.Errorf("got %v, want ErrUnknownVersion", err)
	}
}

func TestRollbackRevivesNoSecret(t *testing.T) {
	type step struct {
		secret  int // 0: none
		revoked bool
		deleted bool
	}
	for _, tc := range []struct {
		name  string
		steps []step // from version 2 on
		want  string
	}{
		{"a secret made later", []step{{secret: 1}}, KeyActive + " 1"},
		{"revoked later", []step{{secret: 1}, {secret: 1, revoked: true}}, KeyRevoked + " 1"},
		{"replaced later", []step{{secret: 1}, {secret: 2}}, KeyActive + " 2"},
		{"revoked, then deleted", []step{{secret: 1}, {secret: 1, revoked: true}, {deleted: true}}, KeyRevoked + " 1"},
		{"revoked, then a new secret", []step{{secret: 1}, {secret: 1, revoked: true}, {secret: 2}}, KeyActive + " 2"},
		{"new secret, then deleted", []step{{secret: 1, revoked: true}, {secret: 2}, {deleted: true}}, KeyActive + " 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := applied(t, small)
			for i, s := range tc.steps {
				k := Key{ID: "k", Team: "t", Aliases: []string{"a"}, Outage: "share", App: "later", Revoked: s.revoked}
				if s.secret > 0 {
					k.SecretSHA256 = hash(s.secret)
				}
				o := k.Object()
				if s.deleted {
					o.Spec = nil
				}
				mustApply(t, r, uint64(i)+2, Change{Objects: []Object{o}})
			}
			rollback(t, r, 50, 1)
			k, ok := r.Key("k")
			got := k.State(0)
			for n := range 9 {
				if k.SecretSHA256 == hash(n) {
					got += fmt.Sprintf(" %d", n)
				}
			}
			if !ok || got != tc.want || k.App != "" {
				t.Errorf("got %s %+v, want %s", got, k, tc.want)
			}
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	r := New()
	for i := range uint64(historyMax + 5) {
		mustApply(t, r, i+1, Change{Objects: []Object{obj(t, KindTeam, "t", fmt.Sprintf(`{"weight":%d}`, i%2+1))},
			Actor: "a", AtMS: int64(i), Note: "n"})
	}
	all := r.History(1 << 30)
	if len(all) != historyMax || all[0].Version != historyMax+5 || all[historyMax-1].Version != 6 {
		t.Errorf("%d entries from %d to %d", len(all), all[0].Version, all[len(all)-1].Version)
	}
	if h := all[0]; h.Actor != "a" || h.Note != "n" || h.AtMS != historyMax+4 {
		t.Errorf("got %+v", h)
	}
	_, versions := r.Touched(math.MaxInt)
	gone := 0
	for _, v := range versions {
		if _, ok := r.HistoryAt(v); !ok {
			gone++
		}
	}
	if len(versions) != historyMax+5 || gone != 5 {
		t.Errorf("%d versions touched, %d of them gone", len(versions), gone)
	}
	if _, _, err := r.Rollback(5, 0); !errors.Is(err, ErrUnknownVersion) {
		t.Errorf("forgotten version: %v", err)
	}
}

func TestHistoryIsBoundedInBytes(t *testing.T) {
	r := New()
	note := strings.Repeat("x", historyBytesMax/4)
	for i := range uint64(6) {
		mustApply(t, r, i+1, Change{Objects: []Object{obj(t, KindTeam, "t", fmt.Sprintf(`{"weight":%d}`, i+1))}, Note: note})
	}
	if got := len(r.History(10)); got != 3 {
		t.Errorf("%d entries kept, want 3", got)
	}
}

// stored is what the state file would hold: it is written from Touched alone.
type stored struct {
	objects map[Ref]Object
	history map[uint64]HistoryEntry
}

func (s *stored) flush(r *Registry) {
	refs, versions := r.Touched(math.MaxInt)
	for _, ref := range refs {
		if o, ok := r.Object(ref.Kind, ref.ID); ok {
			s.objects[ref] = o
		} else {
			delete(s.objects, ref)
		}
	}
	for _, v := range versions {
		if h, ok := r.HistoryAt(v); ok {
			s.history[v] = h
		} else {
			delete(s.history, v)
		}
	}
}

func (s *stored) load(t fataler, version uint64) *Registry {
	r := New()
	var objects []Object
	for _, o := range s.objects {
		objects = append(objects, o)
	}
	var history []HistoryEntry
	for _, h := range s.history {
		history = append(history, h)
	}
	if err := r.Load(version, objects, history); err != nil {
		t.Fatalf("load: %v", err)
	}
	return r
}

func TestLoadRefusesDamage(t *testing.T) {
	good := obj(t, KindTeam, "t", `{}`)
	for _, tc := range []struct {
		name    string
		objects []Object
		history []HistoryEntry
		want    string
	}{
		{"spec", []Object{{Kind: KindTeam, ID: "t", Spec: []byte("{")}}, nil, "load team t: the spec is not JSON"},
		{"kind", []Object{{Kind: "x", ID: "t", Spec: []byte("{}")}}, nil, `load x t: unknown kind "x"`},
		{"id", []Object{{Kind: KindTeam, ID: "", Spec: []byte("{}")}}, nil, `load "team" "": bad id`},
		{"uneven history", nil, []HistoryEntry{{Version: 3, Before: []Object{good}}}, "load history 3: 1 objects before and 0 after"},
		{"other object in history", nil, []HistoryEntry{{Version: 3, Before: []Object{good}, After: []Object{{Kind: KindTeam, ID: "u"}}}},
			"load history 3: team t before and team u after"},
		{"spec in history", nil, []HistoryEntry{{Version: 3, Before: []Object{good}, After: []Object{{Kind: KindTeam, ID: "t", Spec: []byte("1")}}}},
			"load history 3: team t: the spec is not a JSON object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := applied(t, small)
			before := r.YAML()
			if err := r.Load(9, tc.objects, tc.history); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if r.YAML() != before || r.Version() != 1 {
				t.Error("a failed load changed something")
			}
		})
	}
}

// A newer version may have written fields this one does not know: they are kept.
func TestUnknownFieldsOfNewerVersionsAreKept(t *testing.T) {
	r := New()
	spec := `{"weight":1,"priority":"batch","failed_attempts":"team","later":{"a":[1]}}`
	mustApply(t, r, 1, Change{Objects: []Object{{Kind: KindTeam, ID: "t", Spec: []byte(spec)}}})
	if o, _ := r.Object(KindTeam, "t"); string(o.Spec) != spec {
		t.Errorf("got %s", o.Spec)
	}
	s := stored{map[Ref]Object{}, map[uint64]HistoryEntry{}}
	s.flush(r)
	if o, _ := s.load(t, 1).Object(KindTeam, "t"); string(o.Spec) != spec {
		t.Errorf("loaded %s", o.Spec)
	}
}

// drawOrg draws an org.yaml that parses, with secrets, references and prices that vary.
func drawOrg(t *rapid.T) string {
	var b strings.Builder
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	some := func(name string, from ...string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(string) bool { return !rapid.Bool().Draw(t, name) })
	}
	b.WriteString("version: 1\n" + pick("currency", "", "currency: USD\n", "currency: INR\n"))
	b.WriteString("fx: { '2026-11': { INR: " + pick("rate", "88", "88.5") + ", JPY: 150 } }\n")
	b.WriteString(pick("classes", "", "org: { limits: { rpm: 5 } }\n", "org: { classes: { batch: 0.1 } }\n", "org: { budget: { monthly: 9, currency: USD } }\n"))
	b.WriteString("prices:\n")
	b.WriteString("  - { id: base, valid_from: 2026-01-01, per_million_usd: { m: { input: 1 }, n: { input: 0.25 } } }\n")
	for _, p := range some("prices", "1", "2", "3") {
		b.WriteString("  - { id: p" + p + ", valid_from: 2026-02-0" + p + ", per_million_usd: { m: { input: " + p +
			", output: 4 }, n: { input: 1 } } }\n")
	}
	b.WriteString("deployments:\n")
	for _, d := range []string{"d1", "d2"} {
		b.WriteString("  - { id: " + d + ", provider: openai, base_url: 'http://h', model: " + pick("model", "x", "y") +
			", price: " + pick("price", "m", "n") + pick("limits", "", ", limits: { rpm: 7 }", ", limits: { input_tpm: 900, tpm: 1000 }") + " }\n")
	}
	b.WriteString("aliases:\n")
	for _, a := range []string{"a1", "a2"} {
		b.WriteString("  " + a + ": { targets: [{ deployment: " + pick("target", "d1", "d2") + ", weight: " +
			pick("weight", "1", "2") + " }] }\n")
	}
	b.WriteString("teams:\n  t0: {}\n")
	teams := append([]string{"t0"}, some("teams", "t1", "t2")...)
	for _, t := range teams[1:] {
		b.WriteString("  " + t + ": { budget: { monthly: " + pick("monthly", "1", "2.5", "0.000000001") + pick("in", "", ", currency: JPY") + " }" +
			pick("runs", "", ", run_budget: { max: 0.5 }", ", run_budget: { max: 2, max_calls: 9, lifetime: 90m }") +
			pick("users", "", ", end_user_limits: { rpm: 3 }") + ", timezone: " +
			pick("zone", "UTC", "Asia/Tokyo") + " }\n")
	}
	b.WriteString("keys:\n  - { id: k0, team: t0 }\n")
	for _, k := range some("keys", "k1", "k2", "k3") {
		extra := pick("extra", "", ", app: x", ", aliases: [a1]", ", revoked: true", ", expires: 2027-01-01",
			", secret_sha256: "+hash(int(k[1]-'0')))
		b.WriteString("  - { id: " + k + ", team: " + rapid.SampledFrom(teams).Draw(t, "team") + extra + " }\n")
	}
	return b.String()
}

// withoutSecrets are objects as the file gave them: keys without what a change keeps of its own accord.
func withoutSecrets(t fataler, objects []Object) []Object {
	out := slices.Clone(objects)
	for i, o := range out {
		if k := keyOf(o); k != nil {
			k.SecretSHA256, k.Revoked = "", false
			out[i] = k.Object()
		}
	}
	return out
}

func TestDiffThenApplyReachesWhatIsDesired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		disk := stored{map[Ref]Object{}, map[uint64]HistoryEntry{}}
		var reached []string // YAML by step
		var versions []uint64
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			desired, _, err := ParseOrg("org.yaml", []byte(drawOrg(t)))
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			before := map[string]Key{}
			for _, k := range r.Keys() {
				before[k.ID] = k
			}
			c, differences, err := r.Diff(desired, true, 0)
			if err != nil {
				t.Fatalf("diff: %v", err)
			}
			if len(differences) != len(c.Objects) {
				t.Fatalf("%d differences for %d objects", len(differences), len(c.Objects))
			}
			for _, d := range differences {
				if d.Action != ActionDelete && len(d.Lines) == 0 {
					t.Fatalf("a difference without lines: %v", d)
				}
			}
			if res := r.Apply(uint64(i)*10+1, c); res.Refusal != nil {
				t.Fatalf("refused: %s", res.Refusal)
			}
			sameObjects(t, withoutSecrets(t, r.Objects("", "")), withoutSecrets(t, desired))
			for _, k := range r.Keys() {
				if b, ok := before[k.ID]; ok && (b.Revoked && !k.Revoked || b.SecretSHA256 != "" && k.SecretSHA256 == "") {
					t.Fatalf("key %s lost its secret or its revocation", k.ID)
				}
			}
			back, _, err := ParseOrg("back.yaml", []byte(r.YAML()))
			if err != nil {
				t.Fatalf("own YAML: %v", err)
			}
			sameObjects(t, back, r.Objects("", ""))
			if again, _, err := r.Diff(back, true, 0); err != nil || len(again.Objects) > 0 {
				t.Fatalf("own YAML differs: %v %v", again, err)
			}
			disk.flush(r)
			reached, versions = append(reached, r.YAML()), append(versions, r.Version())
		}

		loaded := disk.load(t, r.Version())
		if loaded.YAML() != r.YAML() || loaded.Version() != r.Version() ||
			fmt.Sprint(loaded.History(historyMax)) != fmt.Sprint(r.History(historyMax)) ||
			fmt.Sprint(loaded.Specs()) != fmt.Sprint(r.Specs()) {
			t.Fatalf("loaded state differs")
		}
		i := rapid.IntRange(0, len(versions)-1).Draw(t, "back to")
		c, _, err := loaded.Rollback(versions[i], 0)
		if err != nil {
			t.Fatalf("rollback: %v", err)
		}
		if res := loaded.Apply(1000, c); res.Refusal != nil {
			t.Fatalf("rollback refused: %s", res.Refusal)
		}
		want, _, err := ParseOrg("then.yaml", []byte(reached[i]))
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		sameObjects(t, withoutSecrets(t, loaded.Objects("", "")), withoutSecrets(t, want))
	})
}

// TestRollbackTellsWhatStays: a key does not become again what it was before it was revoked or got another secret, and the
// plan tells so, also when nothing else changes.
func TestRollbackTellsWhatStays(t *testing.T) {
	r := applied(t, small)
	set := func(index uint64, change func(*Key)) {
		k, _ := r.Key("k")
		change(&k)
		mustApply(t, r, index, Change{Objects: []Object{k.Object()}})
	}
	set(2, func(k *Key) { k.SecretSHA256 = hash(1) })
	set(3, func(k *Key) { k.Revoked = true })
	set(4, func(k *Key) { k.App = "x" })
	for version, want := range map[uint64]string{
		1: "[{update key k [- app: x]} {keep key k [it stays revoked: going back revives no key it keeps the secret it got since]}]",
		2: "[{update key k [- app: x]} {keep key k [it stays revoked: going back revives no key]}]",
		3: "[{update key k [- app: x]}]",
		4: "[]",
	} {
		if _, ds, err := r.Rollback(version, 0); err != nil || fmt.Sprint(ds) != want {
			t.Errorf("to %d: got %v, %v\nwant %s", version, ds, err, want)
		}
	}
	set(5, func(k *Key) { k.App = "" })
	if c, ds, err := r.Rollback(2, 0); err != nil || len(c.Objects) != 0 || len(ds) != 1 || ds[0].Action != ActionKeep {
		t.Errorf("nothing but the revocation: %v %v %v", c, ds, err)
	}
}
