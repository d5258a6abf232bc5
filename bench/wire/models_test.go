package wire

import (
	"io"
	"net/http"
	"slices"
	"testing"
)

// TestModels: callers are shown the aliases of their key and never a provider's models: what openai/models-list.http lists
// is what they see because the aliases are named so, and the provider, which would answer with it, is not asked.
func TestModels(t *testing.T) {
	all := load(t)
	at := slices.IndexFunc(all, func(f *fixture) bool { return f.API == "models" })
	f := all[at]
	p := listen(t)
	p.will("models", play{raw: f.raw, cut: whole, closes: f.closes})
	var targets []target
	for _, id := range f.Want.Models {
		targets = append(targets, target{id, p.base("models"), deploymentOf(f, dialects()[0])})
	}
	org, secrets := organisation(targets, nil)
	st := start(t, org, secrets)
	ask := func(path string, to any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, st.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+appKey)
		resp, err := st.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", path, resp.StatusCode, b, err)
		}
		decode(t, string(b), to)
	}
	type model struct {
		ID, Object string
		Created    int64
		OwnedBy    string `json:"owned_by"`
	}
	var list struct {
		Object string
		Data   []model
	}
	ask("/v1/models", &list)
	var ids []string
	for _, m := range list.Data {
		var one model
		if ask("/v1/models/"+m.ID, &one); one != m || m.Object != "model" || m.OwnedBy == "" {
			t.Errorf("%+v in the list, %+v by itself", m, one)
		}
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	want := slices.Sorted(slices.Values(f.Want.Models))
	if list.Object != "list" || !slices.Equal(ids, want) {
		t.Errorf("%s %q, want %q", list.Object, ids, want)
	}
	if n := len(p.requests("models")); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
}
