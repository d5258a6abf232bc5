package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
)

func (r *rig) secret(text string) {
	r.g.Policy.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "main", Secret: []byte(text)}}})
}

func (r *rig) wantMisconfigured(want ...string) {
	r.t.Helper()
	if got := r.g.Misconfigured(); !slices.Equal(got, want) {
		r.t.Errorf("got %q, want %q", got, want)
	}
}

// TestMisconfigured: operators see what is wrong with a deployment until it is another or works, and callers are told what
// is true: whether the provider was asked at all.
func TestMisconfigured(t *testing.T) {
	var answer atomic.Value
	p := &provider{
		id: "a", dialect: "azure", model: "gpt",
		answer: func(w http.ResponseWriter, r *http.Request) { answer.Load().(http.HandlerFunc)(w, r) },
		change: func(d *quotav1.Deployment) { d.Credential = "main" },
	}
	r := newRig(t, []*provider{p}, nil)
	refused := func(calls int64, text string) {
		t.Helper()
		a := r.chat(hello)
		if a.status != 502 || a.get("error.code").Str != "upstream_misconfigured" || !strings.Contains(a.get("error.message").Str, text) || p.calls.Load() != calls {
			t.Errorf("after %d calls: %d %s", p.calls.Load(), a.status, a.body)
		}
	}
	r.wantMisconfigured()

	refused(0, "was not asked")
	r.wantMisconfigured(`deployment a is misconfigured: credential "main" has not been received`)
	r.secret(`{"tenant_id":"hidden"}`)
	r.wantMisconfigured() // it may be well now
	refused(0, "was not asked")
	if got := r.g.Misconfigured(); len(got) != 1 || !strings.HasPrefix(got[0], `deployment a is misconfigured: credential "main": `) || strings.Contains(got[0], "hidden") {
		t.Errorf("got %q", got)
	}
	if n := r.metric("sluice_upstream_failures_total"); n != 2 {
		t.Errorf("%v failures are counted", n)
	}

	answer.Store(failing(401))
	r.secret("a plain key")
	refused(1, "the provider refused")
	r.wantMisconfigured("deployment a is misconfigured: the provider refuses its credential or account: status 401")
	answer.Store(http.HandlerFunc(fine))
	if a := r.chat(hello); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.wantMisconfigured()

	answer.Store(failing(404))
	refused(3, "the provider refused")
	r.wantMisconfigured("deployment a is misconfigured: the provider does not know its model or path: status 404, code model_not_found")
	again, err := policy.Compile(r.snap)
	r.must(err)
	r.must(r.g.Policy.Install(again, r.snap))
	r.wantMisconfigured("deployment a is misconfigured: the provider does not know its model or path: status 404, code model_not_found") // all is as it was
	r.snap.GetDeployments()[0].Model = "another"
	changed, err := policy.Compile(r.snap)
	r.must(err)
	r.must(r.g.Policy.Install(changed, r.snap))
	r.wantMisconfigured()
}
