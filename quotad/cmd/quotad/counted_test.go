package main

import (
	"bytes"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
)

const countedYAML = `version: 1
currency: INR
fx: { "2026-01": { INR: 80 } }
deployments:
  - { id: d, provider: openai, base_url: "https://h/v1", model: m, unpriced: allow, limits: { rpm: 100, tpm: 7 } }
org: { classes: { batch: 0.1 } }
teams:
  red:
    budget: { monthly: 8000 }
    run_budget: { max: 160, max_calls: 50 }
    request_cap: 80
    end_user_limits: { rpm: 20 }
    priority: interactive
  blue: { budget: { monthly: 5, currency: USD } }
`

// TestWhatIsCountedComesBack: what get prints is what was applied; history and rollback know all of it.
func TestWhatIsCountedComesBack(t *testing.T) {
	o := newOperator(t)
	columns(t, o.run("apply", "-f", o.file(countedYAML)), "+ currency org", "+ code: INR", "+ fx 2026-01", "+ run_budget.max: 160",
		"+ run_budget.lifetime: 24h", "+ end_user_limits.rpm: 20", "+ classes.interactive: 0.6", "+ limits.tpm: 7", "6 applied; version ")
	back := o.run("get")
	for _, file := range []string{countedYAML, back} {
		columns(t, o.run("apply", "--prune", "--dry-run", "-f", o.file(file)), "0 would change (dry run); version ")
	}
	first := strings.Fields(strings.Split(o.run("history", "-n", "1"), "\n")[1])[0]

	changed := strings.NewReplacer("currency: INR\n", "", "request_cap: 80", "request_cap: 1", "max: 160, ", "", "limits: { rpm: 100, tpm: 7 }", "limits: { rpm: 50 }").Replace(countedYAML)
	columns(t, o.run("apply", "-f", o.file(changed)), "- currency org", "- run_budget.max: 160", "~ deployment d", "- limits.rpm: 100",
		"+ limits.rpm: 50", "3 applied; version ")
	columns(t, o.run("history", "-n", "1", "--diff"), "- code: INR", "- request_cap: 80", "+ request_cap: 1")
	columns(t, o.run("rollback", first), "+ currency org", "+ run_budget.max: 160", "3 changed; version ")
	if now := o.run("get"); now != back {
		t.Errorf("rolled back to\n%s\nwant\n%s", now, back)
	}
}

func TestBudgetsRunsPools(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(countedYAML))
	month := time.Now().UTC().Format("200601")
	show := o.run("budget", "show")
	columns(t, show, "SCOPE OWNER PERIOD CAP", "team blue "+month+" $5.00 $0.00", "team red "+month+" $100.00 $0.00",
		"TEAM RUNS END USERS", "red 0 0")
	for line, want := range map[string]string{"team blue": "USD 5.00", "team red": "INR 8000.00 at 80.00", "SCOPE": "WRITTEN AS"} {
		if l := lineOf(show, line); !strings.HasSuffix(l, want) {
			t.Errorf("%q does not end with %q", l, want)
		}
	}
	columns(t, o.run("budget", "show", "--runs", "red"), "RUN CAP CREDITS SETTLED HELD SUSPENSE FREE CALLS LAST USE")
	o.refused("--runs needs a TEAM", "budget", "show", "--runs")
	o.refused(`no team "x"`, "budget", "show", "x", "--runs")
	o.refused(`team "red" has no run "r1"`, "budget", "credit", "red", "5", "--run", "r1", "--reason", "x")
	columns(t, o.run("pool", "show"), "DEPLOYMENT KIND LIMIT/MIN LEVEL LEFT", "d requests 90 90 100.0% 0 0 0 0 0 0", "d total_tokens 6 6 100.0%")
	o.refused(`no deployment "x"`, "pool", "show", "x")
}

// drawn is a table with single spaces.
func drawn(draw func(*tabwriter.Writer)) string {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	draw(w)
	_ = w.Flush() // a buffer takes everything
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// lineOf is the line of a table that begins with cells.
func lineOf(out, cells string) string {
	for line := range strings.Lines(out) {
		if l := strings.Join(strings.Fields(line), " "); strings.HasPrefix(l, cells) {
			return l
		}
	}
	return ""
}

func TestTablesOfRunsAndPools(t *testing.T) {
	for _, tc := range []struct {
		name string
		draw func(*tabwriter.Writer)
		want string
	}{
		{"runs", func(w *tabwriter.Writer) {
			runsTable(w, &adminv1.ListRunsResponse{Total: 3, Runs: []*adminv1.Run{
				{Id: "nightly", CapNano: 2e9, SettledNano: 15e8, HeldNano: 1e8, FreeNano: 4e8, Calls: 12, MaxCalls: 50, IdleMs: 90_000},
				{CapNano: 2e9, FreeNano: -1},
			}})
		}, `RUN CAP CREDITS SETTLED HELD SUSPENSE FREE CALLS LAST USE
nightly $2.00 $0.00 $1.50 $0.10 $0.00 $0.40 12 of 50 1m30s ago
(all others) $2.00 $0.00 $0.00 $0.00 $0.00 -$0.000000001 - now
2 of 3 runs`},
		{"pools", func(w *tabwriter.Writer) {
			pools := []*adminv1.Pool{{
				Deployment: "d", Kind: "requests", Limit: 90, Level: -3, Outstanding: 30, Held: 20, Sidecars: 2, LapsedShares: 45,
				Claimants: []*adminv1.Claimant{{Class: "interactive", Team: "red", SetAside: 5, Outstanding: 20, Held: 15},
					{Class: "batch", Team: "red", SetAside: -8, Outstanding: 10, Held: 5}, {}},
			}}
			poolTable(w, "d", pools)
			claimantTable(w, pools)
		}, `DEPLOYMENT KIND LIMIT/MIN LEVEL LEFT ON LEASE HELD SIDECARS CLAIMANTS SET ASIDE LAPSED/MIN
d requests 90 -3 -3.3% 30 20 2 3 5 45

KIND CLASS TEAM SET ASIDE ON LEASE HELD
requests interactive red 5 20 15
requests batch red -8 10 5
requests - (all others) 0 0 0`},
		{"usage", func(w *tabwriter.Writer) {
			usageTable(w, []string{"team"}, []*adminv1.UsageSum{{
				Group: map[string]string{"team": "red"}, Requests: 1, Attempts: 2, Errors: 1, CostNano: 5e8, Estimated: 1,
				Tokens: &usagev1.Tokens{Input: 3, CacheRead: 4, CacheWrite_5M: 5, CacheWrite_1H: 6, Output: 7, Reasoning: 2},
			}})
		}, `TEAM REQUESTS ATTEMPTS ERRORS INPUT CACHED CACHE WRITES OUTPUT COST ESTIMATED
red 1 2 1 3 4 11 7 $0.50 1`},
		{"usage of rare kinds", func(w *tabwriter.Writer) {
			usageTable(w, nil, []*adminv1.UsageSum{
				{Tokens: &usagev1.Tokens{Input: 3, InputAudio: 8, OutputAudio: 9, InputImage: 10}},
				{Tokens: &usagev1.Tokens{Output: 1, WebSearches: 2}},
			})
		}, `REQUESTS ATTEMPTS ERRORS INPUT CACHED CACHE WRITES AUDIO IN IMAGES IN OUTPUT AUDIO OUT SEARCHES COST ESTIMATED
0 0 0 3 0 0 8 10 0 9 0 $0.00 0
0 0 0 0 0 0 0 0 1 0 2 $0.00 0`},
		{"no pools", func(w *tabwriter.Writer) { poolTable(w, "", nil) }, "no deployment has limits"},
		{"no pools of one", func(w *tabwriter.Writer) { poolTable(w, "d", nil) }, "d has no limits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := drawn(tc.draw); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestKeptIsNotCounted: a price version that stays though the file lacks it is shown, and counted as no change.
func TestKeptIsNotCounted(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(strings.Replace(pricesYAML, "credentials:", "  - { id: p2, valid_from: 2026-02-01, per_million_usd: "+
		"{ mid: { input: 3 }, own: { input: 1 } } }\ncredentials:", 1)))
	columns(t, o.run("apply", "--prune", "-f", o.file(pricesYAML)), "= price p2", "price versions that have been in force are never deleted", "0 applied; version ")
}
