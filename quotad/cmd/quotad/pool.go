package main

import (
	"fmt"
	"math/big"
	"text/tabwriter"

	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

func poolCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "pool", Short: "Show the rented limits of deployments"}
	show := &cobra.Command{
		Use: "show [DEPLOYMENT]", Short: "Show how much is left of each limit; of one deployment's, also who has what", Args: cobra.MaximumNArgs(1),
		Long: "Show how much is left of each limit that a provider rents to a deployment, of which 90% are given out. With DEPLOYMENT,\n" +
			"show also what each claimant has: the requests of a team in a priority class. SET ASIDE is its part of what is left\n" +
			"while there is not enough for all; below 0, what it drew ahead of its part.",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &adminv1.ShowPoolsRequest{}
			if len(args) > 0 {
				req.Deployment = args[0]
			}
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ShowPools, req)
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				poolTable(w, req.GetDeployment(), m.GetPools())
				if req.GetDeployment() != "" {
					claimantTable(w, m.GetPools())
				}
			})
		},
	}
	cmd.AddCommand(show)
	return cmd
}

func poolTable(w *tabwriter.Writer, deployment string, pools []*adminv1.Pool) {
	if len(pools) == 0 {
		none := "no deployment has limits"
		if deployment != "" {
			none = deployment + " has no limits"
		}
		fmt.Fprintln(w, none)
		return
	}
	row(w, "DEPLOYMENT", "KIND", "LIMIT/MIN", "LEVEL", "LEFT", "ON LEASE", "HELD", "SIDECARS", "CLAIMANTS", "SET ASIDE", "LAPSED/MIN")
	for _, p := range pools {
		aside := int64(0)
		for _, c := range p.GetClaimants() {
			aside += max(0, c.GetSetAside())
		}
		row(w, p.GetDeployment(), p.GetKind(), num(p.GetLimit()), num(p.GetLevel()), percent(p.GetLevel(), p.GetLimit()),
			num(p.GetOutstanding()), num(p.GetHeld()), num(p.GetSidecars()), num(int64(len(p.GetClaimants()))), num(aside),
			num(p.GetLapsedShares()))
	}
}

func claimantTable(w *tabwriter.Writer, pools []*adminv1.Pool) {
	head := false
	for _, p := range pools {
		for _, c := range p.GetClaimants() {
			if !head {
				fmt.Fprintln(w)
				row(w, "KIND", "CLASS", "TEAM", "SET ASIDE", "ON LEASE", "HELD")
				head = true
			}
			class, team := c.GetClass(), c.GetTeam()
			if team == "" {
				class, team = "-", "(all others)"
			}
			row(w, p.GetKind(), class, team, num(c.GetSetAside()), num(c.GetOutstanding()), num(c.GetHeld()))
		}
	}
}

// percent is a part of a whole, exact to a tenth.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	hundredfold := new(big.Int).Mul(big.NewInt(part), big.NewInt(100))
	return new(big.Rat).SetFrac(hundredfold, big.NewInt(whole)).FloatString(1) + "%"
}
