package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// racedNode lets another change in before each of the next changes proposed through it.
type racedNode struct {
	Node
	races    atomic.Int64
	proposed atomic.Int64
	other    func()
}

func (n *racedNode) Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]replica.Result, error) {
	n.proposed.Add(1)
	if n.races.Add(-1) >= 0 {
		n.other()
	}
	return n.Node.Propose(ctx, ops...)
}

// newRaced serves a second admin plane of the node, whose changes race with new aliases. reset says with how many.
func newRaced(t *testing.T, p *plane) (q *plane, node *racedNode) {
	t.Helper()
	made := 0
	node = &racedNode{Node: p.node, other: func() {
		made++
		call(p, client.PutAlias, &adminv1.PutAliasRequest{Alias: "other-" + strconv.Itoa(made), Spec: spec(t, map[string]any{
			"targets": []any{map[string]any{"deployment": "d"}},
		})})
	}}
	return serve(t, node, nil, zap.NewNop()), node
}

func (n *racedNode) reset(races int64) {
	n.races.Store(races)
	n.proposed.Store(0)
}

func TestConcurrentChanges(t *testing.T) {
	p := newPlane(t)
	first := p.apply(orgYAML).GetVersion()
	p.apply(strings.Replace(orgYAML, "monthly: 100", "monthly: 90", 1))
	q, node := newRaced(t, p)

	node.reset(conflictTries - 1)
	call(q, client.RevokeKey, &adminv1.RevokeKeyRequest{Id: "red-app"})
	if got := node.proposed.Load(); got != conflictTries || p.keyState("red-app") != "revoked" {
		t.Errorf("a single object: proposed %d times, want %d; the key is %s", got, conflictTries, p.keyState("red-app"))
	}
	node.reset(conflictTries)
	e := refusal(q, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red", Spec: spec(t, map[string]any{"monthly": 1})})
	if got := node.proposed.Load(); e.Code() != connect.CodeAborted || got != conflictTries {
		t.Errorf("a single object that never fits: %v, proposed %d times, want %d", e, got, conflictTries)
	}

	// A reviewed diff holds for the version it was computed for.
	for _, tc := range []struct {
		name string
		ask  func() *connect.Error
	}{
		{"apply", func() *connect.Error {
			return refusal(q, client.Apply, &adminv1.ApplyRequest{Yaml: strings.Replace(orgYAML, "monthly: 100", "monthly: 80", 1)})
		}},
		{"rollback", func() *connect.Error { return refusal(q, client.Rollback, &adminv1.RollbackRequest{Version: first}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node.reset(1)
			if e := tc.ask(); e.Code() != connect.CodeAborted || !strings.Contains(e.Message(), "try again") || node.proposed.Load() != 1 {
				t.Errorf("got %v, proposed %d times, want one refusal", e, node.proposed.Load())
			}
		})
	}
	if b := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetBudgets(); b[0].GetCapNano() != 90e9 {
		t.Errorf("what was refused was applied: %v", b)
	}
}

// pairedNode holds back proposals until there are two, so that both were computed against the same configuration.
type pairedNode struct {
	Node
	both sync.WaitGroup
}

func (n *pairedNode) Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]replica.Result, error) {
	n.both.Done()
	n.both.Wait()
	return n.Node.Propose(ctx, ops...)
}

func TestTwoFirstAppliesAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name    string
		force   bool
		applied int
	}{{"checked", false, 1}, {"forced", true, 2}} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlane(t)
			node := &pairedNode{Node: p.node}
			node.both.Add(2)
			q := serve(t, node, nil, zap.NewNop())
			errs := make(chan error, 2)
			for _, monthly := range []string{"monthly: 1", "monthly: 2"} {
				go func() {
					_, err := q.client.Apply(ctxFor(t), connect.NewRequest(&adminv1.ApplyRequest{
						Yaml: strings.Replace(orgYAML, "monthly: 100", monthly, 1), Force: tc.force,
					}))
					errs <- err
				}()
			}
			applied := 0
			for range 2 {
				err := <-errs
				if err == nil {
					applied++
				} else if connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "try again") {
					t.Errorf("refused with %v", err)
				}
			}
			if h := call(p, client.History, &adminv1.HistoryRequest{}).GetEntries(); applied != tc.applied || len(h) != tc.applied {
				t.Errorf("%d were applied, %d are in the history, want %d", applied, len(h), tc.applied)
			}
		})
	}
}

func TestARevokedKeyNeedsRotate(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	for _, tc := range []struct {
		name   string
		secret bool
	}{{"with a secret", true}, {"that never had one", false}} {
		t.Run(tc.name, func(t *testing.T) {
			id := strings.ReplaceAll(tc.name, " ", "-")
			p.apply(strings.Replace(orgYAML, "keys:\n", "keys:\n  - { id: "+id+", team: red }\n", 1))
			if tc.secret {
				p.createKey(id)
			}
			call(p, client.RevokeKey, &adminv1.RevokeKeyRequest{Id: id})
			e := refusal(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: id})
			if e.Code() != connect.CodeAlreadyExists || !strings.Contains(e.Message(), "revoked") || p.keyState(id) != "revoked" {
				t.Errorf("without rotate: %v, and the key is %s", e, p.keyState(id))
			}
			call(p, client.CreateKey, &adminv1.CreateKeyRequest{Id: id, Rotate: true})
			if got := p.keyState(id); got != "active" {
				t.Errorf("with rotate the key is %s", got)
			}
		})
	}
}

func TestSpecNumbersAreExact(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	for _, tc := range []struct {
		monthly string
		want    int64 // 0: refused
	}{
		{"0.000000001", 1}, {"1e2", 100e9}, {"999999.999999999", 999_999_999_999_999}, {"123456789012.5", 0},
		{"1234567.123456789", 0}, {"12345678.123456789", 0}, {"0.30000000000000004", 0},
	} {
		t.Run(tc.monthly, func(t *testing.T) {
			status, v, body := p.rest("PUT", "/admin/v1/budgets/red", `{"monthly":`+tc.monthly+`}`)
			if tc.want == 0 {
				if m, _ := v["message"].(string); status != http.StatusBadRequest || m == "" {
					t.Errorf("status %d: %s", status, body)
				}
				return
			}
			b := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetBudgets()
			if status != http.StatusOK || b[0].GetCapNano() != tc.want {
				t.Errorf("status %d, the cap is %d, want %d", status, b[0].GetCapNano(), tc.want)
			}
		})
	}
	nested := map[string]any{"valid_from": "2027-01-01", "per_million_usd": map[string]any{"mid": map[string]any{"input": 1234567.123456789}}}
	listed := map[string]any{"monthly": 1, "alert_at": []any{0.12345678901234567}}
	for name, e := range map[string]*connect.Error{
		"nested": refusal(p, client.PutPrice, &adminv1.PutPriceRequest{Version: "p2", Spec: spec(t, nested)}),
		"listed": refusal(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red", Spec: spec(t, listed)}),
	} {
		if e.Code() != connect.CodeInvalidArgument || !strings.Contains(e.Message(), "digits") {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// TestPriceAsText: a price that is sent as text arrives with every digit.
func TestPriceAsText(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	const text = `{"valid_from":"2027-01-01","per_million_usd":{"mid":{"input":1234567.123456789,"service_tiers":{"flex":0.123456789}}}}`
	call(p, client.PutPrice, &adminv1.PutPriceRequest{Version: "p2", SpecJson: text})
	p.node.View(func(m *replica.Machine) {
		for _, v := range m.Registry.Prices() {
			if e := v.PerMillionUSD["mid"]; v.ID == "p2" && (e.Input != 1_234_567_123_456_789 || e.ServiceTiers["flex"] != 123_456_789) {
				t.Errorf("price: %+v", e)
			}
		}
		if len(m.Registry.Prices()) != 2 {
			t.Error("the price is not there")
		}
	})
	for want, m := range map[string]*adminv1.PutPriceRequest{
		"spec_json: give it or spec, not both": {Version: "p3", SpecJson: text, Spec: spec(t, nil)},
		"is not JSON":                          {Version: "p3", SpecJson: "{"},
		"never edited":                         {Version: "p2", SpecJson: strings.Replace(text, "1234567", "7", 1)},
	} {
		if e := refusal(p, client.PutPrice, m); !strings.Contains(e.Message(), want) {
			t.Errorf("got %v, want %s", e, want)
		}
	}
}

func TestGetUnknownKind(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	e := refusal(p, client.Get, &adminv1.GetRequest{Kind: "teams"})
	if e.Code() != connect.CodeInvalidArgument || !strings.Contains(e.Message(), "team, key, alias") {
		t.Errorf("got %v", e)
	}
	for _, kind := range []string{ // all that an org.yaml can hold
		"team", "key", "alias", "deployment", "price", "credential", "org", "business_unit", "fx", "sidecar",
	} {
		call(p, client.Get, &adminv1.GetRequest{Kind: kind})
	}
	for _, o := range call(p, client.Get, &adminv1.GetRequest{}).GetObjects() {
		if got := call(p, client.Get, &adminv1.GetRequest{Kind: o.GetKind(), Id: o.GetId()}).GetObjects(); len(got) != 1 {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetId(), got)
		}
	}
}

// TestBudgetOfAZone: a budget in a zone that was not known is open at once, and its month ends there.
func TestBudgetOfAZone(t *testing.T) {
	p := newPlane(t)
	p.apply(strings.Replace(orgYAML, "red: { budget", "red: { timezone: Asia/Kolkata, budget", 1))
	b := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetBudgets()
	if len(b) != 1 {
		t.Fatalf("budgets: %v", b)
	}
	end := time.UnixMilli(b[0].GetEndsMs()).UTC()
	if end.Hour() != 18 || end.Minute() != 30 || !end.After(time.Now()) || b[0].GetFreeNano() != 100e9 {
		t.Errorf("ends at %v, want midnight in India: %v", end, b[0])
	}
}

func TestFollowerNamesTheLeaderOverREST(t *testing.T) {
	p := serve(t, brokenNode{err: replica.ErrNotLeader{LeaderID: "b", AdminAddress: "b:7072"}}, nil, zap.NewNop())
	req, err := http.NewRequestWithContext(ctxFor(t), http.MethodGet, p.url+"/admin/v1/keys", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get(LeaderHeader); resp.StatusCode != http.StatusServiceUnavailable || got != "b:7072" {
		t.Errorf("status %d, leader %q", resp.StatusCode, got)
	}
}

// TestPriceInForceIsKept: going back leaves the price version in place that usage may name, and says so.
func TestPriceInForceIsKept(t *testing.T) {
	p := newPlane(t)
	first := p.apply(orgYAML).GetVersion()
	added := p.apply(strings.Replace(orgYAML, "credentials:",
		"  - { id: p2, valid_from: 2026-02-01, per_million_usd: { mid: { input: 3 } } }\ncredentials:", 1)).GetVersion()
	pruned := call(p, client.Apply, &adminv1.ApplyRequest{Yaml: orgYAML, Prune: true})
	back := call(p, client.Rollback, &adminv1.RollbackRequest{Version: first})
	for what, ds := range map[string][]*adminv1.Difference{"prune": pruned.GetDifferences(), "rollback": back.GetDifferences()} {
		if len(ds) != 1 || ds[0].GetAction() != "keep" || ds[0].GetId() != "p2" || len(ds[0].GetLines()) != 1 {
			t.Errorf("%s: %v", what, ds)
		}
	}
	if pruned.GetVersion() != added || back.GetVersion() != added {
		t.Errorf("something changed: %d and %d, want %d", pruned.GetVersion(), back.GetVersion(), added)
	}
	if got := call(p, client.Get, &adminv1.GetRequest{Kind: "price"}); len(got.GetObjects()) != 2 {
		t.Errorf("prices: %v", got)
	}
}
