package registry

import (
	"errors"
	"strings"
	"testing"
)

func TestValidAlias(t *testing.T) {
	for name, want := range map[string]bool{
		"chat-large": true, "meta-llama/llama-3:free": true, "a/b/c": true, "ft:mid:acme::x1": true, "..a": true,
		"": false, "/a": false, "a/": false, "a//b": false, "a/../b": false, ".": false, "a b": false, "a?b": false,
		"a%2Fb": false, "é": false, strings.Repeat("a", idBytesMax): true, strings.Repeat("a", idBytesMax+1): false,
	} {
		if got := validAlias(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
	if validID("a/b") || validID("a:b") {
		t.Error("only aliases may hold slashes and colons")
	}
}

// TestAliasNamedAsModelsAre: an alias may have the name of a model, and keys may list it.
func TestAliasNamedAsModelsAre(t *testing.T) {
	const head = `version: 1
deployments: [{ id: d, provider: openai, base_url: "http://h", model: m, unpriced: allow }]
teams: { t: {} }
`
	objects, _, err := ParseOrg("org.yaml", []byte(head+`aliases: { "meta-llama/llama-3:free": { targets: [{ deployment: d }] } }
keys: [{ id: k, team: t, aliases: ["meta-llama/llama-3:free"] }]
`))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, o := range objects {
		found = found || o.Kind == KindAlias && o.ID == "meta-llama/llama-3:free"
	}
	if !found {
		t.Errorf("no such alias in %v", objects)
	}
	_, _, err = ParseOrg("org.yaml", []byte(head+`aliases: { "a//b": { targets: [{ deployment: d }] } }
keys: [{ id: k, team: t, aliases: ["a b"] }]
`))
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v", err)
	}
	expectFaults(t, faults.List, []string{
		`org.yaml:4: aliases.a//b: "a//b" is not an alias`, `org.yaml:5: keys[k].aliases[0]: "a b" is not an alias`,
	})
}
