package gateway

import (
	"testing"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// TestAliasesNamedAsModelsAre: an alias may hold slashes and colons; clients write them as they are, or escaped.
func TestAliasesNamedAsModelsAre(t *testing.T) {
	const name = "meta-llama/llama-3:free"
	r := newRig(t, []*provider{{id: "a", answer: fine}}, func(s *quotav1.Snapshot) {
		s.Aliases[0].Name = name
		other := &quotav1.Alias{Name: "hidden/x", Targets: s.GetAliases()[0].GetTargets(), Timeouts: s.GetAliases()[0].GetTimeouts()}
		s.Aliases = append(s.Aliases, other)
		s.Keys[0].Aliases = []string{name}
	})
	for path, status := range map[string]int{
		"/v1/models/meta-llama/llama-3:free": 200, "/v1/models/meta-llama%2Fllama-3%3Afree": 200,
		"/v1/models/meta-llama%2fllama-3:free?x=1": 200, "/v1/models/hidden%2Fx": 404, "/v1/models/meta-llama": 404,
	} {
		a := r.send("GET", path, "")
		if a.status != status || status == 200 && a.get("id").Str != name || status == 404 && a.get("error.code").Str != "model_not_found" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.send("GET", "/v1/models", ""); a.get("data.#").Int() != 1 || a.get("data.0.id").Str != name {
		t.Errorf("%s", a.body)
	}
	a := r.chat(`{"model":"meta-llama/llama-3:free","messages":[{"role":"user","content":"hi"}]}`)
	if a.status != 200 || a.get("model").Str != name {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestModelsInTheCallersDialect: Anthropic's clients are told of models, and refused, in their own words.
func TestModelsInTheCallersDialect(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, nil)
	name := r.send("GET", "/v1/models", "").get("data.0.id").Str
	version := []string{"anthropic-version", "2023-06-01"}
	list := r.send("GET", "/v1/models?limit=20", "", version...)
	if list.get("has_more").Raw != "false" || list.get("first_id").Str != name || list.get("last_id").Str != name || list.get("object").Exists() {
		t.Errorf("list %s", list.body)
	}
	one := r.send("GET", "/v1/models/"+name, "", version...)
	if one.get("@this").Raw != list.get("data.0").Raw || one.get("type").Str != "model" || one.get("id").Str != name ||
		one.get("display_name").Str != name || one.get("created_at").Str != "1970-01-01T00:00:00Z" || one.header.Get("request-id") == "" {
		t.Errorf("one %s of %s", one.body, list.body)
	}
	if a := r.send("GET", "/v1/models/nope", "", version...); a.status != 404 || a.get("error.type").Str != "not_found_error" {
		t.Errorf("unknown: %d %s", a.status, a.body)
	}
	if a := r.send("GET", "/v1/usage", "", version...); a.status == 200 || a.get("type").Exists() {
		t.Errorf("a route of our own: %d %s", a.status, a.body)
	}
	r.key = ""
	if a := r.send("GET", "/v1/models", "", "x-api-key", "sk-wrong"); a.status != 401 || a.get("error.type").Str != "authentication_error" || a.get("type").Str != "error" {
		t.Errorf("a wrong key: %d %s", a.status, a.body)
	}
}
