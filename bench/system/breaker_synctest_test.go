package system

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// live is when a change is in force everywhere.
const live = 2 * time.Second

func (w *world) credential(secret string) {
	w.t.Helper()
	w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
		_, err := c.SetCredential(ctx, connect.NewRequest(&adminv1.SetCredentialRequest{Name: "main", Secret: []byte(secret)}))
		return err
	})
	w.pass(live)
}

// wantProblems checks what a sidecar's status says is wrong: a text in each.
func (w *world) wantProblems(m *member, texts ...string) {
	w.t.Helper()
	got := w.status(m).Problems
	if len(got) != len(texts) {
		w.t.Errorf("problems %q, want %q", got, texts)
		return
	}
	for i, text := range texts {
		if !strings.Contains(got[i], text) {
			w.t.Errorf("problem %q, want %q", got[i], text)
		}
	}
}

// TestCredentialIsMended: while a wrong one is in force callers are told so, whether or not the deployment is left alone
// for it, and the status says why. With the right one it serves at once.
func TestCredentialIsMended(t *testing.T) {
	inWorld(t, 1, 1, org(provider, "{ monthly: 100 }", "{ rpm: 60000 }"), func(t *testing.T, w *world) {
		car := w.cars[0]
		w.credential("sk-wrong")
		for range 30 {
			a := w.chat(car, say("tokens=1", ""))
			if a.status != 502 || a.code() != "upstream_misconfigured" || a.header.Get("x-should-retry") != "false" || a.header.Get("retry-after") != "" {
				t.Fatalf("%d %s %v", a.status, a.body, a.header)
			}
		}
		w.wantProblems(car, "deployment main is left alone for 30 s more: 10 of its last 10 requests failed, the last with status 401",
			"deployment main is misconfigured: the provider refuses its credential or account: status 401")
		w.credential("sk-wrong") // which is looked at again
		w.wantProblems(car, "deployment main is misconfigured")
		for range 10 {
			w.chat(car, say("tokens=1", ""))
		}
		w.wantProblems(car, "deployment main is left alone", "deployment main is misconfigured")
		w.credential(providerKey)
		w.wantProblems(car)
		if a := w.chat(car, say("tokens=1", "")); a.status != 200 {
			t.Errorf("%d %s %v", a.status, a.body, a.err)
		}
		w.agree()
	})
}

// TestDeploymentIsMended: a deployment that is another is not left alone for what the old one did.
func TestDeploymentIsMended(t *testing.T) {
	right := org(provider, "{ monthly: 100 }", "{ rpm: 60000 }")
	inWorld(t, 1, 1, strings.Replace(right, ":80/v1", ":81/v1", 1), func(t *testing.T, w *world) {
		car := w.cars[0]
		for range 10 {
			w.chat(car, say("tokens=1", ""))
		}
		a := w.chat(car, say("tokens=1", ""))
		if a.status != 503 || a.code() != "upstream_unavailable" || a.header.Get("x-should-retry") != "true" || a.header.Get("retry-after") == "" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		w.apply(strings.Replace(right, ":80/v1", ":81/v1", 1) + "  - { id: other, team: t }\n")
		w.pass(live)
		w.wantProblems(car, "deployment main is left alone for ")
		w.apply(right)
		w.pass(live)
		w.wantProblems(car)
		if a := w.chat(car, say("tokens=1", "")); a.status != 200 {
			t.Errorf("%d %s %v", a.status, a.body, a.err)
		}
		w.agree()
	})
}
