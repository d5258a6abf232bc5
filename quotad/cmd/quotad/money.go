package main

import (
	"fmt"
	"math/big"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

func budgetCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "budget", Short: "Show and credit budgets"}
	show := &cobra.Command{
		Use: "show [TEAM]", Short: "Show budgets to the nano-dollar", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &adminv1.ShowBudgetsRequest{}
			if len(args) > 0 {
				req.Team = args[0]
			}
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ShowBudgets, req)
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { budgetTable(w, m.GetBudgets()) })
		},
	}
	req := &adminv1.CreditBudgetRequest{}
	credit := &cobra.Command{
		Use: "credit TEAM DOLLARS --reason TEXT", Short: "Give a team's open period more, audited; less with a negative amount",
		Example: "  quotad budget credit support-bot 50 --reason 'launch week'\n" +
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
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { budgetTable(w, []*adminv1.Budget{m.GetBudget()}) })
		},
	}
	credit.Flags().StringVar(&req.Reason, "reason", "", "why; stands in the audit")
	credit.Flags().StringVar(&req.Id, "id", "", "makes a repeated call count once")
	cmd.AddCommand(show, credit)
	return cmd
}

func budgetTable(w *tabwriter.Writer, budgets []*adminv1.Budget) {
	row(w, "SCOPE", "OWNER", "PERIOD", "CAP", "CREDITS", "SETTLED", "ON LEASE", "HELD", "SUSPENSE", "FREE", "USED", "HARD", "ENDS")
	for _, b := range budgets {
		row(w, b.GetScope(), b.GetOwner(), num(int64(b.GetPeriod())), dollars(b.GetCapNano()), dollars(b.GetCreditsNano()),
			dollars(b.GetSettledNano()), dollars(b.GetOutstandingNano()), dollars(b.GetHeldNano()),
			dollars(b.GetSuspenseNano()), dollars(b.GetFreeNano()), used(b), yes(b.GetHard()), when(b.GetEndsMs()))
	}
}

// used is how much of a budget is spent; suspense counts as spent, as it does for alerts.
func used(b *adminv1.Budget) string {
	whole := b.GetCapNano() + b.GetCreditsNano()
	if whole <= 0 {
		return "-"
	}
	spent := big.NewInt(b.GetSettledNano())
	spent.Add(spent, big.NewInt(b.GetSuspenseNano()))
	return new(big.Rat).SetFrac(spent.Mul(spent, big.NewInt(100)), big.NewInt(whole)).FloatString(1) + "%"
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
			head := make([]string, 0, len(groups)+8)
			for _, g := range groups {
				head = append(head, strings.ToUpper(g))
			}
			row(w, append(head, "REQUESTS", "ATTEMPTS", "ERRORS", "INPUT", "CACHED", "CACHE WRITES", "OUTPUT", "COST", "ESTIMATED")...)
			for _, r := range m.GetRows() {
				t := r.GetTokens()
				cells := make([]string, 0, len(groups)+8)
				for _, g := range groups {
					cells = append(cells, r.GetGroup()[g])
				}
				row(w, append(cells, num(r.GetRequests()), num(r.GetAttempts()), num(r.GetErrors()), num(t.GetInput()),
					num(t.GetCacheRead()), num(t.GetCacheWrite_5M()+t.GetCacheWrite_1H()), num(t.GetOutput()),
					dollars(r.GetCostNano()), num(r.GetEstimated()))...)
			}
			if len(m.GetRows()) == 0 {
				fmt.Fprintln(w, "no usage in this time")
			}
		})
	}
	return cmd
}
