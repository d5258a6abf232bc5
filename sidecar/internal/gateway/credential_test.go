package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// TestTokenTakenBack: a token that the provider takes no more is replaced within the attempt, once. A provider that takes
// none is not asked again and again.
func TestTokenTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		takes  string // the token the provider takes
		calls  int64
		tokens int64
		status int
	}{
		"at once":  {"Bearer t1", 1, 1, 200},
		"the next": {"Bearer t2", 2, 2, 200},
		"none":     {"", 2, 2, 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tokens atomic.Int64
			issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"access_token":"t`+strconv.FormatInt(tokens.Add(1), 10)+`","expires_in":3600}`)
			}))
			t.Cleanup(issuer.Close)
			p := &provider{id: "a", dialect: "azure", model: "gpt", answer: func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != c.takes || r.URL.Path != "/v1/openai/v1/chat/completions" {
					failing(401)(w, r)
					return
				}
				fine(w, r)
			}, change: func(d *quotav1.Deployment) { d.Credential = "entra" }}
			r := newRig(t, []*provider{p}, nil)
			r.g.Policy.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "entra", Secret: []byte(
				`{"tenant_id":"t","client_id":"c","client_secret":"s","token_uri":"` + issuer.URL + `"}`)}}})
			a := r.chat(hello)
			if a.status != c.status || p.calls.Load() != c.calls || tokens.Load() != c.tokens || len(r.attempts()) != 1 {
				t.Errorf("%d after %d calls, %d tokens, %d attempts: %s", a.status, p.calls.Load(), tokens.Load(), len(r.attempts()), a.body)
			}
		})
	}
}

// TestCallerLeavesBeforeTheToken: who hangs up while a token is fetched is waited for no longer, no other deployment is
// tried, and nothing of what was reserved stays.
func TestCallerLeavesBeforeTheToken(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	issuer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	}))
	t.Cleanup(issuer.Close)
	defer close(answer) // after all that is asked below
	entra := func(d *quotav1.Deployment) { d.Credential = "entra" }
	a := &provider{id: "a", dialect: "azure", model: "gpt", answer: fine, change: entra}
	b := &provider{id: "b", answer: fine}
	r := newRig(t, []*provider{a, b}, all(limited(100, 100_000, 50_000, allMoney), pooled(0, plenty)))
	r.g.Policy.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "entra", Secret: []byte(
		`{"tenant_id":"t","client_id":"c","client_secret":"s","token_uri":"` + issuer.URL + `"}`)}}})
	r.leaves(asked)
	r.eventually("the reservation is given back", func() bool { return r.g.Lease.Stats().OpenHolds == 0 })
	if n := r.metric("sluice_refusals_total"); n != 1 {
		t.Errorf("%v refusals are counted", n)
	}
	if left, _, _, _ := r.g.Lease.Remaining(teamMoney); left != allMoney {
		t.Errorf("%d of the budget is gone", allMoney-left)
	}
	if n := a.calls.Load() + b.calls.Load(); n != 0 || len(r.attempts()) != 0 {
		t.Errorf("%d calls, %d attempts", n, len(r.attempts()))
	}
	r.settled()
}

// TestNoTokenThenAnother: without a token the deployment is passed over.
func TestNoTokenThenAnother(t *testing.T) {
	issuer := httptest.NewServer(failing(401))
	t.Cleanup(issuer.Close)
	a := &provider{id: "a", dialect: "azure", model: "gpt", answer: fine, change: func(d *quotav1.Deployment) { d.Credential = "entra" }}
	b := &provider{id: "b", answer: fine}
	r := newRig(t, []*provider{a, b}, nil)
	r.g.Policy.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "entra", Secret: []byte(
		`{"tenant_id":"t","client_id":"c","client_secret":"s","token_uri":"` + issuer.URL + `"}`)}}})
	if got := r.chat(hello); got.status != 200 || a.calls.Load() != 0 || b.calls.Load() != 1 {
		t.Errorf("%d, %d and %d calls: %s", got.status, a.calls.Load(), b.calls.Load(), got.body)
	}
	// That nobody is there who gives tokens is seen too, though no call was made.
	issuer.Close()
	r = newRig(t, []*provider{a, b}, nil)
	r.g.Policy.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "entra", Secret: []byte(
		`{"tenant_id":"t","client_id":"c","client_secret":"s","token_uri":"` + issuer.URL + `"}`)}}})
	r.chat(hello)
	if p := r.g.Misconfigured(); len(p) != 1 || !strings.HasPrefix(p[0], "deployment a cannot be used: ") || !strings.Contains(p[0], "token endpoint was not reached") {
		t.Errorf("problems %q", p)
	}
	if n := r.metric("sluice_upstream_failures_total"); n != 1 {
		t.Errorf("%v failures are counted", n)
	}
}

// TestParamInTheCallersWords: a member that went out under another name comes back under the caller's.
func TestParamInTheCallersWords(t *testing.T) {
	detail := func(param string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(422)
			_, _ = io.WriteString(w, `{"object":"error","message":{"detail":[{"loc":["body","`+param+`"],"msg":"must be less"}]},"type":"invalid_request_error"}`)
		}
	}
	for name, c := range map[string]struct{ vendor, dialect, theirs, members, want string }{
		"renamed on the way":      {"mistral", "compatible", "random_seed", `"seed":-1`, "seed"},
		"the caller's own word":   {"mistral", "compatible", "random_seed", `"random_seed":-1`, "random_seed"},
		"nobody renamed it":       {"vllm", "compatible", "random_seed", `"seed":-1`, "random_seed"},
		"the cap":                 {"mistral", "compatible", "max_tokens", `"max_completion_tokens":5`, "max_completion_tokens"},
		"the cap, newly named":    {"", "openai", "max_completion_tokens", `"max_tokens":5`, "max_tokens"},
		"who the user is":         {"vllm", "compatible", "safety_identifier", `"user":"u"`, "user"},
		"something inside of one": {"mistral", "compatible", `random_seed","int`, `"seed":-1`, "seed.int"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{id: "a", dialect: c.dialect, answer: detail(c.theirs), change: func(d *quotav1.Deployment) { d.Vendor = c.vendor }}
			a := newRig(t, []*provider{p}, nil).chat(with(c.members))
			if a.status != 400 || a.get("error.param").Str != c.want || p.calls.Load() != 1 {
				t.Errorf("%d after %d calls, %s, want %s", a.status, p.calls.Load(), a.body, c.want)
			}
		})
	}
}

// TestVendorThatCannot: what the first target's vendor cannot honour goes to the next, and is named when there is none.
func TestVendorThatCannot(t *testing.T) {
	mistral := func(d *quotav1.Deployment) { d.Vendor = "mistral" }
	a := &provider{id: "a", dialect: "compatible", answer: fine, change: mistral}
	b := &provider{id: "b", answer: fine}
	r := newRig(t, []*provider{a, b}, nil)
	if got := r.chat(with(`"logprobs":true`)); got.status != 200 || a.calls.Load() != 0 || b.calls.Load() != 1 {
		t.Errorf("%d, %d and %d calls: %s", got.status, a.calls.Load(), b.calls.Load(), got.body)
	}
	r = newRig(t, []*provider{{id: "a", dialect: "compatible", answer: fine, change: mistral}}, nil)
	got := r.chat(with(`"logprobs":true`))
	if got.status != 400 || got.get("error.code").Str != "unsupported_parameter" || got.get("error.param").Str != "logprobs" {
		t.Errorf("%d: %s", got.status, got.body)
	}
}

// leaves is a caller that hangs up once something was asked, before there is an answer.
func (r *rig) leaves(asked <-chan struct{}) {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	go func() {
		<-asked
		leave()
	}()
	req, err := http.NewRequestWithContext(ctx, "POST", r.url+"/v1/chat/completions", strings.NewReader(hello))
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+r.key)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
		r.t.Fatal("answered")
	}
}
