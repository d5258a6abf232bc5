package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

func budgetCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "budget", Short: "Show and credit budgets"}
	show := &cobra.Command{
		Use: "show [TEAM]", Short: "Show budgets to the nano-dollar, or the runs of a team", Args: cobra.MaximumNArgs(1),
		Example: "  quotad budget show\n  quotad budget show --runs support-bot   # those that spent most",
	}
	runs, limit := false, int32(0)
	show.Flags().BoolVar(&runs, "runs", false, "the team's runs, those that spent most first")
	show.Flags().Int32VarP(&limit, "limit", "n", 50, "how many runs")
	show.RunE = func(cmd *cobra.Command, args []string) error {
		team := ""
		if len(args) > 0 {
			team = args[0]
		}
		switch {
		case runs && limit < 1: // which the API takes for as many as usual
			return errors.New("--limit: must be 1 to 1000")
		case runs:
			return showRuns(cmd, c, team, limit)
		case cmd.Flags().Changed("limit"):
			return errors.New("--limit: goes with --runs")
		}
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ShowBudgets, &adminv1.ShowBudgetsRequest{Team: team})
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			budgetTable(w, m.GetBudgets())
			namesTable(w, m.GetNames())
			creditsTable(w, creditsOf(m.GetBudgets()))
		})
	}
	req := &adminv1.CreditBudgetRequest{}
	credit := &cobra.Command{
		Use:   "credit TEAM DOLLARS --reason TEXT",
		Short: "Give a team's open period, or one of its runs, more, audited; less with a negative amount",
		Example: "  quotad budget credit support-bot 50 --reason 'launch week'\n" +
			"  quotad budget credit support-bot 2 --run nightly-report-7 --reason 'almost done'\n" +
			"  quotad budget credit --reason 'taken back' -- support-bot -50",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.AmountNano, err = parseDollars(args[1]); err != nil {
				return err
			}
			req.Team, req.Actor = args[0], actor()
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.CreditBudget, req)
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				budgetTable(w, []*adminv1.Budget{m.GetBudget()})
				if m.GetRepeated() {
					fmt.Fprintln(w, "\nThis credit had been given already; nothing changed:")
					creditsTable(w, []credited{{holder(m.GetBudget()), m.GetCredit()}})
				}
			})
		},
	}
	credit.Flags().StringVar(&req.Reason, "reason", "", "why: budget show TEAM tells it")
	credit.Flags().StringVar(&req.Id, "id", "", "makes a repeated call count once; another amount needs another id")
	credit.Flags().StringVar(&req.Run, "run", "", "the run to credit, instead of the team's budget")
	cmd.AddCommand(show, credit)
	return cmd
}

// budgetTable is in dollars; where a budget is written in another currency it says so beside.
func budgetTable(w *tabwriter.Writer, budgets []*adminv1.Budget) {
	head := []string{"SCOPE", "OWNER", "PERIOD", "CAP", "CREDITS", "SETTLED", "ON LEASE", "HELD", "SUSPENSE", "FREE", "USED", "HARD", "ENDS"}
	foreign := slices.ContainsFunc(budgets, func(b *adminv1.Budget) bool { return b.GetPerUsdNano() > 0 })
	if foreign {
		head = append(head, "WRITTEN AS")
	}
	row(w, head...)
	for _, b := range budgets {
		owner, period := b.GetOwner(), num(int64(b.GetPeriod()))
		if b.GetRun() != "" {
			owner, period = owner+" "+b.GetRun(), "-"
		}
		cells := []string{
			b.GetScope(), owner, period, dollars(b.GetCapNano()), dollars(b.GetCreditsNano()), dollars(b.GetSettledNano()),
			dollars(b.GetOutstandingNano()), dollars(b.GetHeldNano()), dollars(b.GetSuspenseNano()), dollars(b.GetFreeNano()),
			used(b), yes(b.GetHard()), when(b.GetEndsMs()),
		}
		if foreign {
			cells = append(cells, writtenAs(b))
		}
		row(w, cells...)
	}
}

// credited is a credit and whose it is.
type credited struct {
	holder string
	*adminv1.Credit
}

func holder(b *adminv1.Budget) string {
	if b.GetRun() != "" {
		return "run " + b.GetRun()
	}
	return b.GetScope() + " " + b.GetOwner()
}

func creditsOf(budgets []*adminv1.Budget) (out []credited) {
	for _, b := range budgets {
		for _, c := range b.GetGiven() {
			out = append(out, credited{holder(b), c})
		}
	}
	return out
}

// creditsTable tells who gave what, and why.
func creditsTable(w io.Writer, credits []credited) {
	if len(credits) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "CREDIT OF", "AMOUNT", "AT", "BY", "ID", "REASON")
	for _, c := range credits {
		row(w, c.holder, dollars(c.GetAmountNano()), when(c.GetAtMs()), c.GetActor(), c.GetId(), strings.Join(strings.Fields(c.GetReason()), " "))
	}
}

// writtenAs is a budget as the configuration states it, with the rate its cap was converted at.
func writtenAs(b *adminv1.Budget) string {
	limit := registry.Nano(b.GetLimitNano()).In(b.GetCurrency())
	if b.GetPerUsdNano() == 0 {
		return limit
	}
	return limit + " at " + registry.Nano(b.GetPerUsdNano()).In("")
}

// namesTable counts what teams have one of for each name.
func namesTable(w *tabwriter.Writer, names []*adminv1.TeamNames) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "TEAM", "RUNS", "END USERS")
	for _, n := range names {
		row(w, n.GetTeam(), num(n.GetRuns()), num(n.GetEndUsers()))
	}
}

func showRuns(cmd *cobra.Command, c *console, team string, limit int32) error {
	if team == "" {
		return errors.New("--runs needs a TEAM: quotad budget show --runs TEAM")
	}
	m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ListRuns, &adminv1.ListRunsRequest{Team: team, Limit: limit})
	if err != nil {
		return err
	}
	return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { runsTable(w, m) })
}

func runsTable(w *tabwriter.Writer, m *adminv1.ListRunsResponse) {
	row(w, "RUN", "CAP", "CREDITS", "SETTLED", "HELD", "SUSPENSE", "FREE", "CALLS", "LAST USE")
	for _, r := range m.GetRuns() {
		id, calls := r.GetId(), "-"
		if id == "" {
			id = "(all others)"
		}
		if r.GetMaxCalls() > 0 {
			calls = fmt.Sprintf("%d of %d", r.GetCalls(), r.GetMaxCalls())
		}
		row(w, id, dollars(r.GetCapNano()), dollars(r.GetCreditsNano()), dollars(r.GetSettledNano()), dollars(r.GetHeldNano()),
			dollars(r.GetSuspenseNano()), dollars(r.GetFreeNano()), calls, ago(r.GetIdleMs()))
	}
	if shown := int64(len(m.GetRuns())); shown < m.GetTotal() {
		fmt.Fprintf(w, "%d of %d runs\n", shown, m.GetTotal())
	}
	var given []credited
	for _, r := range m.GetRuns() {
		for _, c := range r.GetGiven() {
			given = append(given, credited{"run " + r.GetId(), c})
		}
	}
	creditsTable(w, given)
}

// used is how much of a budget is spent; suspense counts as spent, as it does for alerts.
func used(b *adminv1.Budget) string {
	return percent(b.GetSettledNano()+b.GetSuspenseNano(), b.GetCapNano()+b.GetCreditsNano())
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func usageCommand(c *console) *cobra.Command {
	req := &adminv1.QueryUsageRequest{}
	cmd := &cobra.Command{
		Use: "usage", Short: "Sum usage and cost, exact to the nano-dollar",
		Long: "Sum usage and cost, exact to the nano-dollar.\n\n" +
			"Usage is kept by the hour for 40 days and by the day (UTC) for 400 days; a range is rounded outwards to what is kept.",
		Example: "  quotad usage --from 2026-11-01 --to 2026-12-01 --group-by team,deployment\n" +
			"  quotad usage --team support-bot --group-by day,alias -o json",
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&req.Team, "team", "", "only this team's")
	cmd.Flags().StringVar(&req.From, "from", "", "yyyy-mm-dd or RFC 3339; default the start of the month, UTC")
	cmd.Flags().StringVar(&req.To, "to", "", "exclusive; default now")
	cmd.Flags().StringVar(&req.GroupBy, "group-by", "team", "comma list of team, alias, feature, key, deployment, day, hour, price_version")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.QueryUsage, req)
		if err != nil {
			return err
		}
		var groups []string
		if req.GetGroupBy() != "" {
			groups = strings.Split(req.GetGroupBy(), ",")
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			usageTable(w, groups, m.GetRows())
			if len(m.GetRows()) == 0 {
				fmt.Fprintln(w, "no usage in this time")
			}
		})
	}
	return cmd
}

// usageColumn is a column of the table of usage.
type usageColumn struct {
	name string
	of   func(*adminv1.UsageSum) int64
	rare bool // shown when it is not 0 everywhere
}

func usageColumns() []usageColumn {
	tokens := func(of func(*usagev1.Tokens) int64) func(*adminv1.UsageSum) int64 {
		return func(r *adminv1.UsageSum) int64 { return of(r.GetTokens()) }
	}
	return []usageColumn{
		{"REQUESTS", (*adminv1.UsageSum).GetRequests, false},
		{"ATTEMPTS", (*adminv1.UsageSum).GetAttempts, false},
		{"ERRORS", (*adminv1.UsageSum).GetErrors, false},
		{"INPUT", tokens((*usagev1.Tokens).GetInput), false},
		{"CACHED", tokens((*usagev1.Tokens).GetCacheRead), false},
		{"CACHE WRITES", tokens(func(t *usagev1.Tokens) int64 { return t.GetCacheWrite_5M() + t.GetCacheWrite_1H() }), false},
		{"AUDIO IN", tokens((*usagev1.Tokens).GetInputAudio), true},
		{"IMAGES IN", tokens((*usagev1.Tokens).GetInputImage), true},
		{"OUTPUT", tokens((*usagev1.Tokens).GetOutput), false},
		{"AUDIO OUT", tokens((*usagev1.Tokens).GetOutputAudio), true},
		{"IMAGES OUT", tokens((*usagev1.Tokens).GetOutputImage), true},
		{"SEARCHES", tokens((*usagev1.Tokens).GetWebSearches), true},
	}
}

func usageTable(w *tabwriter.Writer, groups []string, rows []*adminv1.UsageSum) {
	columns := slices.DeleteFunc(usageColumns(), func(c usageColumn) bool {
		return c.rare && !slices.ContainsFunc(rows, func(r *adminv1.UsageSum) bool { return c.of(r) != 0 })
	})
	var head []string
	for _, g := range groups {
		head = append(head, strings.ToUpper(g))
	}
	for _, c := range columns {
		head = append(head, c.name)
	}
	row(w, append(head, "COST", "ESTIMATED")...)
	for _, r := range rows {
		var cells []string
		for _, g := range groups {
			cells = append(cells, r.GetGroup()[g])
		}
		for _, c := range columns {
			cells = append(cells, num(c.of(r)))
		}
		row(w, append(cells, dollars(r.GetCostNano()), num(r.GetEstimated()))...)
	}
}
