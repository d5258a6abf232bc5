package api

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// countedYAML has one of everything that is counted.
var countedYAML = strings.NewReplacer(
	"red: { budget: { monthly: 100 }", "red: { budget: { monthly: 100 }, priority: interactive, weight: 2, "+
		"run_budget: { max: 2, max_calls: 50 }, end_user_limits: { rpm: 20, tpm: 1000 }",
	"price: mid }", "price: mid, limits: { rpm: 100, input_tpm: 5000 } }",
).Replace(orgYAML)

func (p *plane) propose(op *raftlogv1.Op) replica.Result {
	p.t.Helper()
	res, err := p.node.Propose(ctxFor(p.t), op)
	must(p.t, err)
	return res[0]
}

// resource finds one as the configuration has it.
func (p *plane) resource(scope, owner string, kind ledger.Kind) (found ledger.Resource) {
	p.t.Helper()
	p.node.View(func(m *replica.Machine) {
		for _, r := range m.Ledger.Resources() {
			if r.Spec.Scope == scope && r.Spec.Owner == owner && r.Spec.Kind == kind {
				found = r
			}
		}
	})
	if found.ID == 0 {
		p.t.Fatalf("no resource %s %s %d", scope, owner, kind)
	}
	return found
}

// process is a sidecar's process that asks for what it is told and reports it.
type process struct {
	*plane
	id, seq uint64
}

// ask draws on resources that are one for each name, each alone.
func (p *process) ask(needs ...*raftlogv1.Need) ledger.RenewReply {
	p.t.Helper()
	p.seq++
	r := &raftlogv1.Renew{Identity: "gw", Incarnation: p.id, Seq: p.seq}
	for i, n := range needs {
		r.Asks = append(r.Asks, &raftlogv1.Ask{Id: p.seq<<16 + uint64(i), Needs: []*raftlogv1.Need{n}})
	}
	reply := p.propose(&raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: r}}).Renew
	for i, a := range reply.Asks {
		if !a.Granted {
			p.t.Fatalf("%v was not granted: %+v", needs[i], a)
		}
	}
	return reply
}

// report sends totals of what was granted in a reply: spent of each by the name and the resource it is one of.
func (p *process) report(of ledger.RenewReply, held bool, spent func(ledger.Grant) int64) {
	p.t.Helper()
	p.seq++
	r := &raftlogv1.Renew{Identity: "gw", Incarnation: p.id, Seq: p.seq}
	for _, g := range of.Grants {
		c := &raftlogv1.Counter{Resource: g.Resource, Period: g.Period, Spent: spent(g), Granted: g.Granted}
		if held {
			c.Held = g.Granted - c.GetSpent()
		}
		r.Counters = append(r.Counters, c)
	}
	if reply := p.propose(&raftlogv1.Op{Op: &raftlogv1.Op_Renew{Renew: r}}).Renew; reply.Refusal != 0 || reply.Fenced {
		p.t.Fatalf("refused: %+v", reply)
	}
}

func TestRunsAreListedAndCredited(t *testing.T) {
	p := newPlane(t)
	p.apply(countedYAML)
	money, calls := p.resource(registry.ScopeRun, "red", ledger.Money), p.resource(registry.ScopeRun, "red", ledger.Calls)
	gw := &process{plane: p, id: 7}
	reply := gw.ask(
		&raftlogv1.Need{Resource: money.ID, Amount: 1e9, Name: "small"}, &raftlogv1.Need{Resource: calls.ID, Amount: 3, Name: "small"},
		&raftlogv1.Need{Resource: money.ID, Amount: 2e9, Name: "large"}, &raftlogv1.Need{Resource: calls.ID, Amount: 1, Name: "large"},
	)
	gw.report(reply, true, func(g ledger.Grant) int64 {
		return map[string]int64{fmt.Sprint(money.ID, "small"): 4e8, fmt.Sprint(calls.ID, "small"): 2, fmt.Sprint(money.ID, "large"): 19e8}[fmt.Sprint(g.Of, g.Name)]
	})

	got := call(p, client.ListRuns, &adminv1.ListRunsRequest{Team: "red"})
	if got.GetTotal() != 2 || len(got.GetRuns()) != 2 {
		t.Fatalf("runs: %v", got)
	}
	large, small := got.GetRuns()[0], got.GetRuns()[1]
	for _, r := range got.GetRuns() {
		if r.GetCapNano() != 2e9 || r.GetMaxCalls() != 50 || r.GetSettledNano()+r.GetOutstandingNano()+r.GetSuspenseNano()+r.GetFreeNano() != 2e9 {
			t.Errorf("run %s: %v", r.GetId(), r)
		}
	}
	if large.GetId() != "large" || large.GetSettledNano() != 19e8 || large.GetHeldNano() != 1e8 || large.GetFreeNano() != 0 || large.GetCalls() != 1 {
		t.Errorf("large: %v", large)
	}
	if small.GetId() != "small" || small.GetSettledNano() != 4e8 || small.GetHeldNano() != 6e8 || small.GetCalls() != 3 {
		t.Errorf("small: %v", small)
	}
	if one := call(p, client.ListRuns, &adminv1.ListRunsRequest{Team: "red", Limit: 1}); one.GetTotal() != 2 || len(one.GetRuns()) != 1 || one.GetRuns()[0].GetId() != "large" {
		t.Errorf("the first of them: %v", one)
	}
	if status, v, body := p.rest("GET", "/admin/v1/budgets/red/runs?limit=1", ""); status != 200 || v["total"] != "2" || !strings.Contains(body, `"settledNano":"1900000000"`) {
		t.Errorf("REST: %d %s", status, body)
	}
	names := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetNames()
	if len(names) != 1 || names[0].GetRuns() != 2 || names[0].GetEndUsers() != 0 {
		t.Errorf("names: %v", names)
	}

	// A credit with the same id counts once, and reaches the one run alone.
	credit := &adminv1.CreditBudgetRequest{Team: "red", Run: "large", AmountNano: 5e8, Reason: "almost done", Id: "ticket-1"}
	for range 2 {
		b := call(p, client.CreditBudget, credit).GetBudget()
		if b.GetScope() != "run" || b.GetOwner() != "red" || b.GetRun() != "large" || b.GetPeriod() != 0 || b.GetCreditsNano() != 5e8 || b.GetFreeNano() != 5e8 {
			t.Errorf("credited: %v", b)
		}
	}
	gw.ask(&raftlogv1.Need{Resource: money.ID, Amount: 5e8, Name: "large"})
	got = call(p, client.ListRuns, &adminv1.ListRunsRequest{Team: "red"})
	if given := got.GetRuns()[0].GetGiven(); len(given) != 1 || given[0].GetReason() != "almost done" {
		t.Errorf("given: %v", given)
	}
	if got.GetRuns()[0].GetCreditsNano() != 5e8 || got.GetRuns()[1].GetCreditsNano() != 0 {
		t.Errorf("after the credit: %v", got)
	}
	if b := call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetBudgets(); len(b) != 1 || b[0].GetCreditsNano() != 0 {
		t.Errorf("the team's budget: %v", b)
	}
	if status, _, body := p.rest("POST", "/admin/v1/budgets/red:credit", `{"run":"small","amountNano":"7","reason":"r"}`); status != 200 || !strings.Contains(body, `"run":"small"`) {
		t.Errorf("REST credit: %d %s", status, body)
	}
	for _, tc := range []struct {
		team, run string
		code      connect.Code
		want      string
	}{
		{"red", "unheard-of", connect.CodeNotFound, `team "red" has no run "unheard-of"`},
		{"blue", "large", connect.CodeNotFound, `team "blue" has no run "large"`},
		{"", "large", connect.CodeInvalidArgument, "team: required"},
	} {
		if e := refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: tc.team, Run: tc.run, AmountNano: 1, Reason: "r"}); e.Code() != tc.code || !strings.Contains(e.Message(), tc.want) {
			t.Errorf("credit %s of %s: %v", tc.run, tc.team, e)
		}
	}
	if e := refusal(p, client.ListRuns, &adminv1.ListRunsRequest{Team: "nobody"}); e.Code() != connect.CodeNotFound {
		t.Errorf("runs of nobody: %v", e)
	}
	if e := refusal(p, client.ListRuns, &adminv1.ListRunsRequest{Team: "red", Limit: runsMax + 1}); e.Code() != connect.CodeInvalidArgument {
		t.Errorf("too many: %v", e)
	}
}

func TestPoolsAreShown(t *testing.T) {
	p := newPlane(t)
	p.apply(countedYAML)
	rpm := p.resource(registry.ScopeDeployment, "d", ledger.Requests)
	gw := &process{plane: p, id: 7}
	reply := gw.ask(&raftlogv1.Need{Resource: rpm.ID, Amount: 10, Name: "batch/red"}, &raftlogv1.Need{Resource: rpm.ID, Amount: 20, Name: "interactive/red"})
	gw.report(reply, true, func(g ledger.Grant) int64 { return map[string]int64{"batch/red": 4}[g.Name] })
	got := call(p, client.ShowPools, &adminv1.ShowPoolsRequest{Deployment: "d"}).GetPools()
	if len(got) != 2 || got[0].GetKind() != "input_tokens" || got[0].GetLimit() != 4500 || got[0].GetLevel() != 4500 || len(got[0].GetClaimants()) != 0 {
		t.Fatalf("pools: %v", got)
	}
	requests := got[1]
	if requests.GetKind() != "requests" || requests.GetDeployment() != "d" || requests.GetLimit() != 90 || requests.GetSidecars() != 1 ||
		requests.GetLevel() > 60 || requests.GetOutstanding() < 26 || requests.GetHeld() != requests.GetOutstanding() {
		t.Errorf("requests: %v", requests)
	}
	var claimants []string
	for _, c := range requests.GetClaimants() {
		claimants = append(claimants, c.GetClass()+"/"+c.GetTeam())
	}
	if fmt.Sprint(claimants) != "[interactive/red batch/red]" {
		t.Errorf("claimants: %v", requests.GetClaimants())
	}
	if status, v, body := p.rest("GET", "/admin/v1/pools?deployment=d", ""); status != 200 || len(v["pools"].([]any)) != 2 {
		t.Errorf("REST: %d %s", status, body)
	}
	if all := call(p, client.ShowPools, &adminv1.ShowPoolsRequest{}).GetPools(); len(all) != 2 {
		t.Errorf("all: %v", all)
	}
	if e := refusal(p, client.ShowPools, &adminv1.ShowPoolsRequest{Deployment: "x"}); e.Code() != connect.CodeNotFound {
		t.Errorf("of no deployment: %v", e)
	}
}

// TestBudgetsInOtherCurrencies: the cap is in dollars at the rate of the month, and keeps the rate.
func TestBudgetsInOtherCurrencies(t *testing.T) {
	p := newPlane(t)
	inr := strings.NewReplacer("version: 1\n", "version: 1\ncurrency: INR\nfx: { \"2026-01\": { INR: 80, JPY: 150 } }\n",
		"monthly: 100", "monthly: 100.01").Replace(orgYAML)
	p.apply(inr)
	budget := func() *adminv1.Budget {
		return call(p, client.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: "red"}).GetBudgets()[0]
	}
	if b := budget(); b.GetCapNano() != 1_250_125_000 || b.GetCurrency() != "INR" || b.GetLimitNano() != 100_010_000_000 || b.GetPerUsdNano() != 80e9 {
		t.Errorf("at first: %v", b)
	}
	// New rates wait for the next month; a new limit goes by the month's rate.
	p.apply(strings.Replace(inr, "INR: 80", "INR: 100", 1))
	if b := budget(); b.GetCapNano() != 1_250_125_000 || b.GetPerUsdNano() != 80e9 {
		t.Errorf("after the rate: %v", b)
	}
	call(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red", Spec: spec(t, map[string]any{"monthly": 160})})
	if b := budget(); b.GetCapNano() != 2e9 || b.GetPerUsdNano() != 80e9 || b.GetCurrency() != "INR" {
		t.Errorf("after the limit, by REST: %v", b)
	}
	for _, tc := range []struct {
		name string
		err  *connect.Error
		want string
	}{
		{"put in a currency without rates", refusal(p, client.PutBudget, &adminv1.PutBudgetRequest{Team: "red",
			Spec: spec(t, map[string]any{"monthly": 160, "currency": "EUR"})}), "team red: budget.currency: there is no rate of EUR"},
		{"apply without rates", refusal(p, client.Apply, &adminv1.ApplyRequest{File: "o.yaml", Yaml: strings.Replace(inr, "INR: 80", "CHF: 1", 1)}),
			"o.yaml:2: currency: there is no rate of INR: add one to fx"},
		{"rates of later months alone", refusal(p, client.Apply, &adminv1.ApplyRequest{Prune: true, Yaml: strings.Replace(inr, "2026-01", "2199-12", 1)}),
			"org.yaml:2: currency: there is no rate of INR for 20"},
		{"the same, dry", refusal(p, client.Apply, &adminv1.ApplyRequest{Prune: true, DryRun: true, Yaml: strings.Replace(inr, "2026-01", "2199-12", 1)}),
			"org.yaml:2: currency: there is no rate of INR for 20"},
	} {
		if tc.err.Code() != connect.CodeInvalidArgument || !strings.HasPrefix(tc.err.Message(), tc.want) {
			t.Errorf("%s: %v", tc.name, tc.err)
		}
	}
}
