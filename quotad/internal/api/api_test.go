package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

type client = adminv1connect.AdminServiceClient

func spec(t *testing.T, v map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(v)
	must(t, err)
	return s
}

func TestApplyGetHistoryRollback(t *testing.T) {
	p := newPlane(t)
	dry := call(p, client.Apply, &adminv1.ApplyRequest{Yaml: orgYAML, DryRun: true})
	if len(dry.GetDifferences()) != 7 || dry.GetVersion() != 0 {
		t.Fatalf("dry run: %v", dry)
	}
	first := p.apply(orgYAML)
	if len(first.GetDifferences()) != 7 || first.GetVersion() == 0 {
		t.Fatalf("first: %v", first)
	}
	if again := p.apply(orgYAML); len(again.GetDifferences()) != 0 || again.GetVersion() != first.GetVersion() {
		t.Fatalf("the same file again: %v", again)
	}
	smaller := strings.Replace(orgYAML, "  blue: {}\n", "", 1)
	if kept := p.apply(smaller); len(kept.GetDifferences()) != 0 {
		t.Fatalf("without prune nothing is deleted: %v", kept)
	}
	pruned := call(p, client.Apply, &adminv1.ApplyRequest{Yaml: smaller, Prune: true, Actor: "bob", File: "x.yaml"})
	if ds := pruned.GetDifferences(); len(ds) != 1 || ds[0].GetAction() != "delete" || ds[0].GetId() != "blue" {
		t.Fatalf("pruned: %v", pruned)
	}
	got := call(p, client.Get, &adminv1.GetRequest{Kind: "team"})
	if len(got.GetObjects()) != 1 || got.GetObjects()[0].GetId() != "red" || got.GetVersion() != pruned.GetVersion() {
		t.Fatalf("teams: %v", got)
	}
	if all := call(p, client.Get, &adminv1.GetRequest{}); !strings.Contains(all.GetYaml(), "red-app") {
		t.Fatalf("yaml: %s", all.GetYaml())
	}
	h := call(p, client.History, &adminv1.HistoryRequest{}).GetEntries()
	if len(h) != 2 || h[0].GetActor() != "bob" || h[0].GetNote() != "apply x.yaml" || h[0].GetVersion() != pruned.GetVersion() ||
		h[1].GetActor() != "ann" || h[0].GetAtMs() == 0 {
		t.Fatalf("history: %v", h)
	}
	if h := call(p, client.History, &adminv1.HistoryRequest{Limit: 1}).GetEntries(); len(h) != 1 {
		t.Fatalf("history of one: %v", h)
	}
	if back := call(p, client.Rollback, &adminv1.RollbackRequest{Version: first.GetVersion(), DryRun: true}); len(back.GetDifferences()) != 1 ||
		back.GetVersion() != pruned.GetVersion() {
		t.Fatalf("dry rollback: %v", back)
	}
	back := call(p, client.Rollback, &adminv1.RollbackRequest{Version: first.GetVersion()})
	if back.GetVersion() <= pruned.GetVersion() {
		t.Fatalf("rollback: %v", back)
	}
	if got := call(p, client.Get, &adminv1.GetRequest{Kind: "team", Id: "blue"}); len(got.GetObjects()) != 1 {
		t.Fatalf("after the rollback: %v", got)
	}
}

// tenMistakes has one mistake a line on the lines of wantMistakes.
const tenMistakes = `version: 1
prices:
  - { id: p1, valid_from: yesterday, per_million_usd: { mid: { input: 2, output: 10 } } }
credentials:
  main: { provider: opnai }
deployments:
  - id: d
    provider: openai
    base_url: ftp://h
    model: ""
    credential: main
    context_tokens: many
aliases:
  chat:
    targets: [{ deployment: nowhere }]
    reserve: all
teams:
  red: { budget: { monthly: -1 } }
  blue: { colour: blue }
keys:
  - { id: k, team: green }
`

func TestApplyReportsTenMistakesAtOnce(t *testing.T) {
	p := newPlane(t)
	e := refusal(p, client.Apply, &adminv1.ApplyRequest{Yaml: tenMistakes, File: "conf/org.yaml"})
	if e.Code() != connect.CodeInvalidArgument {
		t.Fatalf("code: %v", e.Code())
	}
	for _, line := range []int{3, 5, 9, 10, 12, 15, 16, 18, 19, 21} {
		if !strings.Contains("\n"+e.Message(), fmt.Sprintf("\nconf/org.yaml:%d: ", line)) {
			t.Errorf("line %d is not reported", line)
		}
	}
	if v := call(p, client.Get, &adminv1.GetRequest{}).GetVersion(); v != 0 {
		t.Errorf("something was applied: version %d", v)
	}
	if t.Failed() {
		t.Log(e.Message())
	}
}

func TestKeys(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	if s := p.keyState("red-app"); s != "without_secret" {
		t.Fatalf("configured key: %q", s)
	}
	secret := p.createKey("red-app")
	var stored string
	p.node.View(func(m *replica.Machine) {
		k, _ := m.Registry.Key("red-app")
		stored = k.SecretSHA256
	})
	if sum := sha256.Sum256([]byte(secret)); !strings.HasPrefix(secret, secretPrefix) || stored != hex.EncodeToString(sum[:]) {
		t.Fatalf("stored %q for the secret", stored)
	}
	if e := refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "red-app"}); e.Code() != connect.CodeAlreadyExists ||
		!strings.Contains(e.Message(), "rotate") {
		t.Fatalf("a second time: %v", e)
	}
	if again := call(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "red-app", Rotate: true}); again.GetSecret() == secret {
		t.Fatal("rotate gave the same secret")
	}
	call(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "ad-hoc", Team: "blue", App: "x", Aliases: []string{"chat"}})
	keys := call(p, client.ListKeys, &adminv1.ListKeysRequest{Team: "blue"}).GetKeys()
	if len(keys) != 1 || keys[0].GetId() != "ad-hoc" || keys[0].GetApp() != "x" || keys[0].GetState() != "active" {
		t.Fatalf("keys of blue: %v", keys)
	}
	call(p, client.RevokeKey, &adminv1.RevokeKeyRequest{Id: "red-app"})
	if s := p.keyState("red-app"); s != "revoked" {
		t.Fatalf("after revoke: %q", s)
	}
	p.apply(orgYAML)
	if s := p.keyState("red-app"); s != "revoked" {
		t.Fatalf("after the old file: %q", s)
	}
}

func TestBudgetsAndCredit(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	show := func() *adminv1.Budget {
		t.Helper()
		bs := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetBudgets()
		if len(bs) != 1 || bs[0].GetOwner() != "red" || bs[0].GetScope() != "team" {
			t.Fatalf("budgets of red: %v", bs)
		}
		return bs[0]
	}
	if b := show(); b.GetCapNano() != 100e9 || b.GetFreeNano() != 100e9 || !b.GetHard() {
		t.Fatalf("at first: %v", b)
	}
	for again := range 2 { // the id makes it count once, and what was given is told
		m := call(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "red", AmountNano: 5e9, Actor: "ann", Reason: "launch", Id: "one"})
		if b := m.GetBudget(); b.GetCreditsNano() != 5e9 || b.GetFreeNano() != 105e9 {
			t.Fatalf("credited: %v", b)
		}
		if c := m.GetCredit(); m.GetRepeated() != (again > 0) || c.GetAmountNano() != 5e9 || c.GetActor() != "ann" || c.GetReason() != "launch" {
			t.Errorf("time %d: %v", again, m)
		}
	}
	other := refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "red", AmountNano: 4e9, Reason: "more", Id: "one"})
	if want := `id: "one" is that of a credit of $5.00, `; other.Code() != connect.CodeAlreadyExists || !strings.Contains(other.Message(), want) ||
		!strings.Contains(other.Message(), `by ann: "launch"; nothing was done`) {
		t.Errorf("another amount: %v", other)
	}
	b := call(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "red", AmountNano: -2e9, Reason: "back"}).GetBudget()
	if b.GetCreditsNano() != 3e9 {
		t.Fatalf("debited: %v", b)
	}
	if given := show().GetGiven(); len(given) != 2 || given[0].GetId() != "one" || given[1].GetAmountNano() != -2e9 || given[1].GetReason() != "back" {
		t.Errorf("given: %v", given)
	}
	call(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red", Spec: spec(t, map[string]any{"monthly": 12.5, "hard": false})})
	if b := show(); b.GetCapNano() != 12_500_000_000 || b.GetHard() {
		t.Fatalf("after put: %v", b)
	}
	call(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "blue", Spec: spec(t, map[string]any{"monthly": 1})})
	if bs := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{}).GetBudgets(); len(bs) != 2 || bs[0].GetOwner() != "blue" {
		t.Fatalf("all budgets: %v", bs)
	}
}

func (p *plane) usage(rows ...*raftlogv1.UsageRow) {
	p.t.Helper()
	_, err := p.node.Propose(ctxFor(p.t), &raftlogv1.Op{Op: &raftlogv1.Op_UsageBatch{UsageBatch: &raftlogv1.UsageBatch{
		Source: "s", FromSeq: 1, ToSeq: uint64(len(rows)), Rows: rows,
	}}})
	must(p.t, err)
}

func aRow(team, alias string, cost int64) *raftlogv1.UsageRow {
	return &raftlogv1.UsageRow{
		HourMs: time.Now().Truncate(time.Hour).UnixMilli(), Team: team, Key: "k", Alias: alias, Deployment: "d", PriceVersion: "p1",
		Attempts: 2, Requests: 1, Errors: 1, Input: 10, Output: 20, CostNano: cost,
	}
}

func TestUsage(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	p.usage(aRow("red", "chat", 7), aRow("red", "other", 5), aRow("blue", "chat", 90), aRow("gone", "chat", 10))
	rows := call(p, client.QueryUsage, &adminv1.QueryUsageRequest{Team: "red", GroupBy: "team,alias"}).GetRows()
	if len(rows) != 2 || rows[0].GetGroup()["alias"] != "chat" || rows[0].GetCostNano() != 7 || rows[0].GetTokens().GetOutput() != 20 ||
		rows[0].GetGroup()["team"] != "red" || rows[0].GetAttempts() != 2 {
		t.Fatalf("red: %v", rows)
	}
	if rows := call(p, client.QueryUsage, &adminv1.QueryUsageRequest{}).GetRows(); len(rows) != 1 || rows[0].GetCostNano() != 112 {
		t.Fatalf("all: %v", rows)
	}
	if rows := call(p, client.QueryUsage, &adminv1.QueryUsageRequest{From: "2020-01-01", To: "2020-02-01T00:00:00Z"}).GetRows(); len(rows) != 0 {
		t.Fatalf("long ago: %v", rows)
	}
	if rows := call(p, client.QueryUsage, &adminv1.QueryUsageRequest{Team: "gone"}).GetRows(); len(rows) != 1 || rows[0].GetCostNano() != 10 {
		t.Fatalf("of a team that is no more: %v", rows)
	}
	if rows := call(p, client.QueryUsage, &adminv1.QueryUsageRequest{Team: "gone", To: "2020-02-01", From: "2020-01-01"}).GetRows(); len(rows) != 0 {
		t.Fatalf("of a team that is no more, long ago: %v", rows)
	}
}

func TestPutAliasAndPrice(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	a := call(p, client.PutAlias, &adminv1.PutAliasRequest{Alias: "new", Spec: spec(t, map[string]any{
		"targets": []any{map[string]any{"deployment": "d", "weight": 3}},
	})})
	pr := call(p, client.PutPrice, &adminv1.PutPriceRequest{Version: "p2", Spec: spec(t, map[string]any{
		"valid_from": "2027-01-01", "per_million_usd": map[string]any{"mid": map[string]any{"input": 0.000000001, "output": 1e6}},
	})})
	if a.GetVersion() == 0 || pr.GetVersion() <= a.GetVersion() {
		t.Fatalf("versions %d and %d", a.GetVersion(), pr.GetVersion())
	}
	p.node.View(func(m *replica.Machine) {
		for _, v := range m.Registry.Prices() {
			if e := v.PerMillionUSD["mid"]; v.ID == "p2" && (e.Input != 1 || e.Output != 1e15) {
				t.Errorf("price: %+v", e)
			}
		}
		if as := m.Registry.Aliases(); len(as) != 2 || as[1].ID != "new" || as[1].Targets[0].Weight != 3 {
			t.Errorf("aliases: %+v", as)
		}
	})
}

func TestStatus(t *testing.T) {
	p := newPlane(t)
	v := p.apply(orgYAML).GetVersion()
	_, err := p.node.Propose(ctxFor(t), &raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: &raftlogv1.Renew{Identity: "gone", Incarnation: 9, Seq: 1}}})
	must(t, err)
	s := call(p, client.Status, &adminv1.StatusRequest{})
	if s.GetClusterId() == "" || s.GetNodeId() != "a" || s.GetLeaderId() != "a" || s.GetBuild() != "build-1" ||
		s.GetConfigVersion() != v || s.GetConservationViolations() != 0 {
		t.Errorf("status: %v", s)
	}
	if ms := s.GetMembers(); len(ms) != 1 || !ms[0].GetLeader() || !ms[0].GetVoter() || ms[0].GetLag() < 0 {
		t.Errorf("members: %v", ms)
	}
	if cs := s.GetSidecars(); len(cs) != 2 || cs[0].GetState() != "connected" || cs[1].GetState() != "silent" || cs[1].GetIdentity() != "gone" {
		t.Errorf("sidecars: %v", cs)
	}
}

func TestRefusals(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	for _, tc := range []struct {
		name string
		got  *connect.Error
		code connect.Code
		want string
	}{
		{"get: no object", refusal(p, client.Get, &adminv1.GetRequest{Kind: "team", Id: "x"}), connect.CodeNotFound, `no team "x"`},
		{"history: limit", refusal(p, client.History, &adminv1.HistoryRequest{Limit: 1001}), connect.CodeInvalidArgument, "limit: must be 1 to 1000"},
		{"rollback: unknown", refusal(p, client.Rollback, &adminv1.RollbackRequest{Version: 1 << 40}), connect.CodeNotFound, "is not in the history"},
		{"create: team missing", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "x"}), connect.CodeInvalidArgument, "team: required"},
		{"create: no team", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "x", Team: "x"}), connect.CodeNotFound, `no team "x"`},
		{"create: other team", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "red-app", Team: "blue"}), connect.CodeInvalidArgument, `belongs to team "red"`},
		{"create: other aliases", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "red-app", Aliases: []string{"x"}}), connect.CodeInvalidArgument, "configured already"},
		{"create: no alias", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "x", Team: "red", Aliases: []string{"x"}}), connect.CodeInvalidArgument, `"x"`},
		{"create: bad id", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: "a b", Team: "red"}), connect.CodeInvalidArgument, `"a b"`},
		{"create: no id", refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Team: "red"}), connect.CodeInvalidArgument, "id: required"},
		{"revoke: no key", refusal(p, client.RevokeKey, &adminv1.RevokeKeyRequest{Id: "x"}), connect.CodeNotFound, `no key "x"`},
		{"credential: unknown", refusal(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "x", Secret: []byte("s")}), connect.CodeNotFound, "org.yaml configures main"},
		{"credential: empty", refusal(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "main", Secret: []byte(" \n")}), connect.CodeInvalidArgument, "secret: is no key: it is empty"},
		{"credential: two lines", refusal(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "main", Secret: []byte("s\nt\n")}), connect.CodeInvalidArgument, "byte 2"},
		{"credential: no ASCII", refusal(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "main", Secret: []byte("é")}), connect.CodeInvalidArgument, "byte 1"},
		{"credential: long", refusal(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "main", Secret: bytes.Repeat([]byte("s"), 70<<10)}), connect.CodeInvalidArgument, "too long"},
		{"budgets: no team", refusal(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "x"}), connect.CodeNotFound, `no team "x"`},
		{"credit: no reason", refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "red", AmountNano: 1}), connect.CodeInvalidArgument, "reason: required"},
		{"credit: nothing", refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "red", Reason: "r"}), connect.CodeInvalidArgument, "must not be 0"},
		{"credit: no team named", refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{AmountNano: 1, Reason: "r"}), connect.CodeInvalidArgument, "team: required"},
		{"credit: no budget", refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "blue", AmountNano: 1, Reason: "r"}), connect.CodeNotFound, `team "blue" has no budget`},
		{"put budget: no team", refusal(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "x", Spec: spec(t, nil)}), connect.CodeNotFound, `no team "x"`},
		{"put budget: no spec", refusal(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red"}), connect.CodeInvalidArgument, "spec: required"},
		{"put budget: bad", refusal(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red", Spec: spec(t, map[string]any{"mothly": 1})}), connect.CodeInvalidArgument, "mothly"},
		{"put alias: bad target", refusal(p, client.PutAlias, &adminv1.PutAliasRequest{Alias: "a", Spec: spec(t, map[string]any{"targets": []any{map[string]any{"deployment": "x"}}})}), connect.CodeInvalidArgument, `"x"`},
		{"put price: bad date", refusal(p, client.PutPrice, &adminv1.PutPriceRequest{Version: "p", Spec: spec(t, map[string]any{"valid_from": "soon"})}), connect.CodeInvalidArgument, "valid_from"},
		{"usage: from", refusal(p, client.QueryUsage, &adminv1.QueryUsageRequest{From: "soon"}), connect.CodeInvalidArgument, `from: "soon"`},
		{"usage: group", refusal(p, client.QueryUsage, &adminv1.QueryUsageRequest{GroupBy: "colour"}), connect.CodeInvalidArgument, `cannot group by "colour"`},
		{"usage: no team", refusal(p, client.QueryUsage, &adminv1.QueryUsageRequest{Team: "nope"}), connect.CodeNotFound, `no team "nope"`},
		{"usage: to come", refusal(p, client.QueryUsage, &adminv1.QueryUsageRequest{From: "9999-12-31"}), connect.CodeInvalidArgument, "from: 9999-12-31T00:00:00Z is in the future: without to, the time ends now"},
		{"usage: backwards", refusal(p, client.QueryUsage, &adminv1.QueryUsageRequest{From: "2026-02-01", To: "2026-01-01"}), connect.CodeInvalidArgument, "from: 2026-02-01T00:00:00Z is not before 2026-01-01T00:00:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got.Code() != tc.code || !strings.Contains(tc.got.Message(), tc.want) {
				t.Errorf("got %v %q, want %v with %q", tc.got.Code(), tc.got.Message(), tc.code, tc.want)
			}
		})
	}
}

// brokenNode answers every call with err.
type brokenNode struct {
	Node
	err error
}

func (n brokenNode) Linearizable(context.Context) error { return n.err }

func TestFaultsOfTheReplica(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		code   connect.Code
		want   string
		leader string
	}{
		{"follower", replica.ErrNotLeader{LeaderID: "b", AdminAddress: "b:7072"}, connect.CodeUnavailable, "ask the leader, b, at b:7072", "b:7072"},
		{"no leader", replica.ErrNoLeader, connect.CodeUnavailable, "nothing was done", ""},
		{"closed", replica.ErrClosed, connect.CodeUnavailable, "nothing was done", ""},
		{"an older node", replica.ErrOlderBuild{What: "to restore", Node: "b"}, connect.CodeFailedPrecondition, "nothing was done: to restore: node b runs an older build: upgrade it first", ""},
		{"busy", replica.ErrBusy, connect.CodeResourceExhausted, "nothing was done", ""},
		{"unknown", errors.Join(replica.ErrUnknown, context.DeadlineExceeded), connect.CodeUnavailable, "may or may not", ""},
		{"late", context.DeadlineExceeded, connect.CodeDeadlineExceeded, "no answer in time", ""},
		{"other", errors.New("odd"), connect.CodeInternal, "odd", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := serve(t, brokenNode{err: tc.err}, nil, zap.NewNop())
			e := refusal(p, client.ListKeys, &adminv1.ListKeysRequest{})
			if e.Code() != tc.code || !strings.Contains(e.Message(), tc.want) || e.Meta().Get(LeaderHeader) != tc.leader {
				t.Errorf("got %v %q, leader %q", e.Code(), e.Message(), e.Meta().Get(LeaderHeader))
			}
			if again := e.Meta().Get(RetryHeader) != ""; again != strings.HasSuffix(e.Message(), "nothing was done, try again") {
				t.Errorf("%s: asked again %v", e.Message(), again)
			}
		})
	}
}

func TestREST(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	p.usage(aRow("red", "chat", 7))
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		want                     []string // in the body
	}{
		{"create", "POST", "/admin/v1/keys", `{"id":"r","team":"red"}`, 200, []string{`"id":"r"`, `"secret":"sk-sluice-`}},
		{"create again", "POST", "/admin/v1/keys", `{"id":"r","team":"red"}`, 409, []string{`"message":"the key already has a secret`}},
		{"create without a team", "POST", "/admin/v1/keys", `{"id":"z"}`, 400, []string{`"message":"team: required`}},
		{"create, not JSON", "POST", "/admin/v1/keys", `{"id":`, 400, []string{`"message":`}},
		{"create, unknown field", "POST", "/admin/v1/keys", `{"idd":"z"}`, 400, []string{`"message":`, "idd"}},
		{"apply, misspelt dry_run", "POST", "/admin/v1/config:apply", `{"yaml":"version: 1\n","dryrun":true}`, 400, []string{`"message":`, "dryrun"}},
		{"revoke", "POST", "/admin/v1/keys/r:revoke", `{}`, 200, []string{`"version":`}},
		{"revoke unknown", "POST", "/admin/v1/keys/x:revoke", `{}`, 404, []string{`"message":"no key \"x\""`}},
		{"keys", "GET", "/admin/v1/keys?team=red", "", 200, []string{`"id":"r"`, `"state":"revoked"`}},
		{"put budget", "PUT", "/admin/v1/budgets/red", `{"monthly":20}`, 200, []string{`"version":`}},
		{"put budget, bad", "PUT", "/admin/v1/budgets/red", `{"monthly":-20}`, 400, []string{`"message":"`, "monthly"}},
		{"put budget, no team", "PUT", "/admin/v1/budgets/x", `{"monthly":20}`, 404, []string{`"message":"no team`}},
		{"put budget, no body", "PUT", "/admin/v1/budgets/red", "", 400, []string{`"message":"`}},
		{"credit", "POST", "/admin/v1/budgets/red:credit", `{"amount_nano":"5","reason":"r"}`, 200, []string{`"creditsNano":"5"`}},
		{"put alias", "PUT", "/admin/v1/aliases/fast", `{"targets":[{"deployment":"d"}]}`, 200, []string{`"version":`}},
		{"put alias of a model's name", "PUT", "/admin/v1/aliases/meta-llama%2Fllama-3%3Afree", `{"targets":[{"deployment":"d"}]}`, 200, []string{`"version":`}},
		{"get alias of a model's name", "GET", "/admin/v1/config?kind=alias&id=meta-llama/llama-3:free", "", 200, []string{`"id":"meta-llama/llama-3:free"`}},
		{"put alias, no name", "PUT", "/admin/v1/aliases/a%2F%2Fb", `{"targets":[{"deployment":"d"}]}`, 400, []string{`"message":"`, "not an alias"}},
		{"put alias, bad", "PUT", "/admin/v1/aliases/fast", `{"targets":[]}`, 400, []string{`"message":"`, "targets"}},
		{"put price", "PUT", "/admin/v1/prices/p9", `{"valid_from":"2027-01-01","per_million_usd":{"mid":{"input":1,"output":2}}}`, 200, []string{`"version":`}},
		{"put price, bad", "PUT", "/admin/v1/prices/p9", `{"valid_from":"2027-01-01","per_million_usd":{"mid":{"inptu":1}}}`, 400, []string{`"message":"`, "inptu"}},
		{"usage", "GET", "/admin/v1/usage?team=red&group_by=alias", "", 200, []string{`"group":{"alias":"chat"}`, `"costNano":"7"`}},
		{"usage, bad", "GET", "/admin/v1/usage?group_by=colour", "", 400, []string{`"message":"`, "colour"}},
		{"status", "GET", "/admin/v1/status", "", 200, []string{`"leaderId":"a"`}},
		{"budgets", "GET", "/admin/v1/budgets?team=red", "", 200, []string{`"capNano":"20000000000"`}},
		{"budgets, no team", "GET", "/admin/v1/budgets?team=x", "", 404, []string{`"message":"no team \"x\""`}},
		{"config", "GET", "/admin/v1/config?kind=team&id=red", "", 200, []string{`"specJson":"{`}},
		{"history", "GET", "/admin/v1/history?limit=1", "", 200, []string{`"note":"put price p9"`}},
		{"credentials", "GET", "/admin/v1/credentials", "", 200, []string{`"name":"main"`}},
		{"apply, bad", "POST", "/admin/v1/config:apply", `{"yaml":"version: 2\n"}`, 400, []string{`"message":"org.yaml:1: `}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, v, body := p.rest(tc.method, tc.path, tc.body)
			if status != tc.status {
				t.Errorf("status %d, want %d: %s", status, tc.status, body)
			}
			if status != http.StatusOK {
				if m, _ := v["message"].(string); m == "" {
					t.Errorf("no message: %s", body)
				}
			}
			for _, w := range tc.want {
				if !strings.Contains(body, w) {
					t.Errorf("%s is not in %s", w, body)
				}
			}
		})
	}
}

func TestSecretsStayInside(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	const provider = "sk-provider-0123456789"
	if v := call(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "main", Secret: []byte(provider + "\n"), Actor: "ann"}).GetVersion(); v != 1 {
		t.Fatalf("version %d", v)
	}
	key := p.createKey("red-app")
	var said strings.Builder
	for _, path := range []string{"config", "history", "keys", "credentials", "budgets", "usage", "status"} {
		_, _, body := p.rest("GET", "/admin/v1/"+path, "")
		said.WriteString(body)
	}
	cs := call(p, client.ListCredentials, &adminv1.ListCredentialsRequest{}).GetCredentials()
	if len(cs) != 1 || cs[0].GetVersion() != 1 || cs[0].GetActor() != "ann" || cs[0].GetProvider() != "openai" ||
		len(cs[0].GetDeployments()) != 1 || cs[0].GetSetAtMs() == 0 {
		t.Errorf("credentials: %v", cs)
	}
	fmt.Fprint(&said, cs, refusal(p, client.SetCredential, &adminv1.SetCredentialRequest{Name: "x", Secret: []byte(provider)}))
	if p.logs.Len() == 0 {
		t.Fatal("nothing was logged at all: the test sees nothing")
	}
	for _, e := range p.logs.All() {
		fmt.Fprintln(&said, e.Message, e.ContextMap())
	}
	for _, secret := range []string{provider, key} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("%.12s… got out", secret)
		}
	}
	if err := p.node.Linearizable(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	p.node.View(func(m *replica.Machine) {
		if s, ok := m.Sealed("main"); !ok || strings.Contains(string(s.GetSealed()), provider) {
			t.Error("the secret is stored open, or not at all")
		}
	})
}
