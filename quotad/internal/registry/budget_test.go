package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

func TestEveryMistakeOfWhatIsCounted(t *testing.T) {
	_, _, err := ParseOrg("org.yaml", []byte(`version: 1
currency: rupees
fx:
  "2026-11": { USD: 1, EUR: 0.0001, CHF: 2000000, INR: many, YEN2: 3 }
deployments:
  - id: d
    provider: openai
    base_url: http://h
    model: m
    unpriced: allow
    limits: { rpm: 0, itpm: 5, output_tpm: 1.5 }
teams:
  a:
    budget: { monthly: 5, currency: XAU }
    run_budget: { lifetime: 2h }
    end_user_limits: { rpm: -1, input_tpm: 5 }
  b:
    run_budget: { max: 0, max_calls: 1e13, lifetime: 30s, per: run }
    end_user_limits: [20]
  c:
    run_budget: 5
    request_cap: 0
    priority: urgent
  d:
    budget: { monthly: 1000000000, currency: GBP }
  e:
    run_budget:
org: { classes: { interactive: 0.8, batch: 0.2, urgent: 0.1 } }
`+"business_units: { u: { budget: { monthly: 1, currency: usd } } }\n"))
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want Faults", err)
	}
	expectFaults(t, faults.List, []string{
		`org.yaml:2: currency: "rupees" is not a currency code of three capital letters`,
		`org.yaml:4: fx.2026-11.USD: has no rate: rates are units per USD`,
		`org.yaml:4: fx.2026-11.EUR: "0.0001" is out of range (allowed: 0.001 to 1000000)`,
		`org.yaml:4: fx.2026-11.CHF: "2000000" is out of range (allowed: 0.001 to 1000000)`,
		`org.yaml:4: fx.2026-11.INR: "many" is not a decimal number`,
		`org.yaml:4: fx.2026-11.YEN2: is not a currency code of three capital letters`,
		`org.yaml:11: deployments[d].limits.rpm: "0" is out of range`,
		`org.yaml:11: deployments[d].limits.itpm: unknown key: did you mean input_tpm? (allowed: rpm, tpm, input_tpm, output_tpm)`,
		`org.yaml:11: deployments[d].limits.output_tpm: "1.5" must be a whole number`,
		"org.yaml:14: teams.a.budget.currency: there is no rate of XAU: add one to fx, as in `\"2026-11\": { XAU: <units for one US dollar> }`",
		`org.yaml:15: teams.a.run_budget: caps nothing: give max, max_calls or both`,
		`org.yaml:16: teams.a.end_user_limits.rpm: "-1" must not be negative`,
		`org.yaml:16: teams.a.end_user_limits.input_tpm: unknown key (allowed: rpm, tpm)`,
		`org.yaml:18: teams.b.run_budget.max: "0" is out of range`,
		`org.yaml:18: teams.b.run_budget.max_calls: "1e13" is out of range (allowed: 1 to 1000000000000)`,
		`org.yaml:18: teams.b.run_budget.lifetime: "30s" is out of range (allowed: 1m to 744h)`,
		`org.yaml:18: teams.b.run_budget.per: unknown key (allowed: max, max_calls, lifetime)`,
		`org.yaml:19: teams.b.end_user_limits: must be a mapping of keys to values`,
		`org.yaml:21: teams.c.run_budget: must be a mapping of keys to values`,
		`org.yaml:22: teams.c.request_cap: "0" is out of range`,
		`org.yaml:23: teams.c.priority: "urgent" is not allowed (allowed: interactive, standard, batch)`,
		`org.yaml:25: teams.d.budget.currency: there is no rate of GBP`,
		`org.yaml:27: teams.e.run_budget: caps nothing`,
		`org.yaml:28: org.classes: the shares add up to 1.25, more than 1 (interactive: 0.6, standard: 0.25, batch: 0.05 where`,
		`org.yaml:28: org.classes.urgent: unknown key (allowed: interactive, standard, batch)`,
		`org.yaml:29: business_units.u.budget.currency: "usd" is not a currency code`,
	})
}

const rupees = `version: 1
currency: INR
fx:
  "2026-09": { INR: 80, JPY: 150 }
  "2026-11": { INR: 88.00 }
business_units: { u: { budget: { monthly: 1000, currency: USD } } }
teams:
  t: { budget: { monthly: 440000 }, run_budget: { max: 176, max_calls: 5 }, request_cap: 88, timezone: Asia/Kolkata }
  j: { budget: { monthly: 15000, currency: JPY } }
  r: { request_cap: 8, timezone: Europe/Berlin }
keys: [{ id: k, team: t }]
`

func TestAmountsInOtherCurrencies(t *testing.T) {
	r := applied(t, rupees)
	if !strings.HasPrefix(r.YAML(), "version: 1\ncurrency: INR\nfx:\n") {
		t.Errorf("as a file:\n%s", r.YAML())
	}
	var got []string
	for _, s := range r.Specs() {
		got = append(got, fmt.Sprintf("%s/%s/%d %d %q %v keep=%d each=%d", s.Scope, s.Owner, s.Kind, s.Limit, s.Currency, s.Rates, s.KeepMS, s.Each))
	}
	const inr, day = `"INR" [{202609 80000000000} {202611 88000000000}]`, " keep=86400000 each=1"
	want := []string{
		`team/j/5 15000000000000 "JPY" [{202609 150000000000}] keep=0 each=0`,
		`run/t/5 176000000000 ` + inr + day,
		`run/t/6 5 "" []` + day,
		`team/t/5 440000000000000 ` + inr + ` keep=0 each=0`,
		`business_unit/u/5 1000000000000 "" [] keep=0 each=0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := r.Timezones(); !slices.Equal(got, []string{"", "Asia/Kolkata", "Europe/Berlin"}) {
		t.Errorf("zones %q: that of a request cap must be among them", got)
	}
	team, _ := r.Team("t")
	for month, want := range map[uint32]Nano{202608: 1_100_000_000, 202609: 1_100_000_000, 202610: 1_100_000_000, 202611: 1_000_000_000, 202701: 1_000_000_000} {
		if got := r.RequestCap(team, month); got != want {
			t.Errorf("request cap in %d: %d, want %d", month, got, want)
		}
	}
	// A budget put over REST means what the file's mean.
	o, err := r.WithBudget("r", []byte(`{"monthly":880}`))
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, r, 2, Change{Objects: []Object{o}})
	if s := r.Specs(); !slices.ContainsFunc(s, func(s ledger.Spec) bool { return s.Owner == "r" && s.Currency == "INR" }) {
		t.Errorf("the budget that was put is not in rupees: %v", s)
	}
}

// TestAFileBringsItsCurrency: amounts never change their meaning because an old currency stayed behind.
func TestAFileBringsItsCurrency(t *testing.T) {
	r := applied(t, rupees)
	d := apply(t, r, 2, "version: 1\nteams: { t: { budget: { monthly: 5 } } }\n", false)
	if len(d) != 2 || d[0].Kind != KindCurrency || d[0].Action != ActionDelete || r.Currency() != "USD" {
		t.Errorf("%s: %+v", r.Currency(), d)
	}
	rollback(t, r, 3, 1)
	if r.Currency() != "INR" {
		t.Errorf("rolled back to %s", r.Currency())
	}
	for _, tc := range []struct {
		name   string
		change Change
		want   string
	}{
		{"rates in use", Change{Objects: []Object{{Kind: KindFX, ID: "2026-09"}, {Kind: KindFX, ID: "2026-11"}}},
			"currency org: there is no rate of INR"},
		{"the only rate of one", Change{Objects: []Object{{Kind: KindFX, ID: "2026-09"}}},
			"team j: budget.currency: there is no rate of JPY"},
		{"another currency", Change{Objects: []Object{obj(t, KindCurrency, OrgID, `{"code":"CHF"}`)}},
			"currency org: there is no rate of CHF"},
		{"too much", Change{Objects: []Object{obj(t, KindFX, "2026-12", `{"INR":0.001}`)}}, ""},
		{"beyond what can be counted", Change{Objects: []Object{obj(t, KindFX, "2026-12", `{"INR":0.001}`),
			obj(t, KindTeam, "t", `{"budget":{"monthly":2000000},"run_budget":{"max":1000001},"request_cap":1000001}`)}},
			"team t: budget.monthly: is more than 1000000000 dollars at the rate of 202612\n" +
				"team t: request_cap: is more than 1000000000 dollars at the rate of 202612\n" +
				"team t: run_budget.max: is more than 1000000000 dollars at the rate of 202612"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, refusal := r.Preview(tc.change)
			if tc.want == "" && refusal != nil || tc.want != "" && (refusal == nil || !strings.HasPrefix(refusal.String(), tc.want)) {
				t.Errorf("got %v\nwant %s", refusal, tc.want)
			}
		})
	}
}

func TestUnrated(t *testing.T) {
	r := applied(t, rupees)
	if got := fmt.Sprint(r.Unrated(202608)); got != "[currency org: there is no rate of INR for 2026-08, nor an earlier one "+
		"team j: budget.currency: there is no rate of JPY for 2026-08, nor an earlier one]" {
		t.Errorf("before the first rates: %s", got)
	}
	for _, month := range []uint32{202609, 202610, 202701} {
		if got := r.Unrated(month); len(got) > 0 {
			t.Errorf("in %d: %v", month, got)
		}
	}
	if got := applied(t, small).Unrated(202601); len(got) > 0 {
		t.Errorf("dollars: %v", got)
	}
}

func TestPoolsAndFairness(t *testing.T) {
	r := applied(t, string(example(t)))
	if got := fmt.Sprint(r.PoolsOf("openai-mid")); got != "[{deployment openai-mid 1} {deployment openai-mid 2} "+
		"{deployment openai-mid 3} {deployment openai-mid 4}]" {
		t.Errorf("pools: %s", got)
	}
	if got := append(r.PoolsOf("local"), r.PoolsOf("nobody")...); got != nil {
		t.Errorf("pools of what has no limits: %v", got)
	}
	for _, s := range r.Specs() {
		if pool := s.Scope == ScopeDeployment; pool != (s.Each == ledger.EachClaimant) {
			t.Errorf("each of %s/%s is %d", s.Scope, s.Owner, s.Each)
		}
	}
	for limit, want := range map[int64]int64{0: 0, 1: 1, 2: 1, 9: 8, 10: 9, 11: 9, 10_000: 9_000, limitMax: limitMax / 10 * 9} {
		if got := pooled(limit); got != want {
			t.Errorf("of %d: %d, want %d", limit, got, want)
		}
	}
	if got := fmt.Sprint(r.Fairness()); got != "{[{support-bot 2}] [{batch 50} {interactive 600} {standard 250}]}" {
		t.Errorf("fairness: %s", got)
	}
	if got := fmt.Sprint(New().Fairness()); got != "{[] [{batch 50} {interactive 600} {standard 250}]}" {
		t.Errorf("fairness of nothing: %s", got)
	}
	r = applied(t, "version: 1\norg: { classes: { batch: 0.15, standard: 0 } }\n")
	if got := fmt.Sprint(r.Fairness()); got != "{[] [{batch 150} {interactive 600} {standard 0}]}" {
		t.Errorf("what is not said is as ever: %s", got)
	}
}
