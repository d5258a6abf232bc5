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
