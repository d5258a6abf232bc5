package sidecar

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// TestResourcesByName: what the configuration in force does not have is shown by its id, and before the first one
// everything is.
func TestResourcesByName(t *testing.T) {
	rules, err := policy.Compile(&quotav1.Snapshot{Resources: []*quotav1.Resource{
		{Id: 1, Scope: "key", Owner: "app", Kind: quotav1.Kind_KIND_TOTAL_TOKENS}, {Id: 2, Scope: "org", Owner: "org", Kind: quotav1.Kind_KIND_MONEY},
		{Id: 5, Scope: "run", Owner: "red", Kind: quotav1.Kind_KIND_MONEY, Each: quotav1.Each_EACH_NAME},
		{Id: 6, Scope: "deployment", Owner: "gpt", Kind: quotav1.Kind_KIND_REQUESTS, Each: quotav1.Each_EACH_CLAIMANT},
	}})
	must(t, err)
	stats := lease.Stats{
		LastReplyAge: -1,
		Counters: []lease.CounterStats{{Resource: 1, Spent: 5}, {Resource: 2, Period: 202612, Spent: 7}, {Resource: 3, Period: 202701}, {Resource: 4},
			{Resource: 5, Names: 12}, {Resource: 6, Names: 2}},
		Shares: []lease.ShareStats{{Resource: 1, PerMinute: 9}, {Resource: 4}},
	}
	names := func(rules *policy.Rules) string {
		b, err := json.Marshal(leaseStatusOf(stats, rules))
		must(t, err)
		var out []string
		for _, list := range []string{"limits", "budgets", "shares"} {
			for _, r := range gjson.GetBytes(b, list).Array() {
				out = append(out, strings.Join([]string{r.Get("id").Raw, r.Get("scope").Str, r.Get("owner").Str, r.Get("kind").Str, r.Get("period").Str, r.Get("names").Raw}, "/"))
			}
		}
		if age := gjson.GetBytes(b, "last_reply_age_ms"); age.Type != gjson.Null || !age.Exists() {
			t.Errorf("age of a reply there was none of: %s", age.Raw)
		}
		return strings.Join(out, " ")
	}
	if got, want := names(rules), "/key/app/tokens_per_minute// 4///// /deployment/gpt/requests_per_minute//2 "+
		"/org/org/budget/2026-12/ 3////2027-01/ /run/red/budget//12 /key/app/tokens_per_minute// 4/////"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := names(nil), "1///// 4///// 5/////12 6/////2 2////2026-12/ 3////2027-01/ 1///// 4/////"; got != want {
		t.Errorf("without a configuration: got %s, want %s", got, want)
	}
}

// TestSnapshotFaults: one that is not on disk and one that is refused are both told.
func TestSnapshotFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opened(t, config(t, dir))
	defer func() { must(t, s.Close()) }()
	must(t, os.MkdirAll(filepath.Join(dir, "snapshot.pb", "in the way"), 0o700))
	s.Handle(snapshot(3, "http://x"))
	s.wantReady(200, "ready")
	bad := snapshot(4, "http://x")
	bad.GetSnapshot().GetAliases()[0].GetTargets()[0].Deployment = "gone"
	s.Handle(bad)
	_, text := s.get("/status")
	for _, want := range []string{"snapshot 4 is refused", "keep snapshot 3 on disk"} {
		if !strings.Contains(s.problems(), want) || !strings.Contains(gjson.Get(text, "snapshot_fault").Str, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

// TestMisconfiguredIsAProblem: operators see what is wrong with a credential, without any of it, until there is another.
func TestMisconfiguredIsAProblem(t *testing.T) {
	t.Parallel()
	r := start(t, config(t, t.TempDir()))
	m := snapshot(3, "http://x")
	d := m.GetSnapshot().GetDeployments()[0]
	d.Provider, d.Credential, d.Project, d.Region = "vertex", "vtx", "p", "europe-west4"
	r.Handle(m)
	secret := func(text string) {
		r.Handle(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Credentials{Credentials: &quotav1.Credentials{
			Items: []*quotav1.Credential{{Name: "vtx", Secret: []byte(text)}},
		}}})
	}
	const problem = `deployment d is misconfigured: credential \"vtx\": must have access_token`
	secret(`{"private_key":"hidden"}`)
	code, body := fetch(t, http.DefaultClient, "POST", "http://"+r.Addr()+"/v1/chat/completions", appKey, `{"model":"chat","messages":[{"role":"user","content":"hi"}]}`)
	if code != 502 || gjson.Get(body, "error.code").Str != "upstream_misconfigured" {
		t.Errorf("%d %s", code, body)
	}
	if got := r.problems(); !strings.Contains(got, problem) || strings.Contains(got, "hidden") {
		t.Errorf("problems %s", got)
	}
	secret(`{"access_token":"another"}`)
	if got := r.problems(); strings.Contains(got, problem) {
		t.Errorf("a fault that is over: %s", got)
	}
}
