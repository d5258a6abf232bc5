package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

func keyCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Make, list and revoke virtual keys"}
	req := &adminv1.CreateKeyRequest{}
	quiet := false
	create := &cobra.Command{
		Use: "create ID", Short: "Make a key, or give a configured one its secret; the secret is shown once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id, req.Actor = args[0], actor()
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.CreateKey, req)
			if err != nil {
				return err
			}
			if quiet {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), m.GetSecret())
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				fmt.Fprintf(w, "key %s: %s\nIt is not shown again.\n", m.GetId(), m.GetSecret())
			})
		},
	}
	create.Flags().StringVar(&req.Team, "team", "", "team, for a key that org.yaml does not configure")
	create.Flags().StringVar(&req.App, "app", "", "application it names")
	create.Flags().StringSliceVar(&req.Aliases, "alias", nil, "alias it may use, repeatable; all when none is given")
	create.Flags().BoolVar(&req.Rotate, "rotate", false, "replace an existing secret")
	create.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the secret alone")
	list := &adminv1.ListKeysRequest{}
	ls := &cobra.Command{
		Use: "list", Short: "List keys, without secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ListKeys, list)
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				row(w, "KEY", "TEAM", "APP", "STATE", "EXPIRES", "ALIASES")
				for _, k := range m.GetKeys() {
					aliases := strings.Join(k.GetAliases(), ",")
					if aliases == "" {
						aliases = "*"
					}
					row(w, k.GetId(), k.GetTeam(), k.GetApp(), k.GetState(), when(k.GetExpiresMs()), aliases)
				}
			})
		},
	}
	ls.Flags().StringVar(&list.Team, "team", "", "only this team's")
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "End a key, on every sidecar at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.RevokeKey, &adminv1.RevokeKeyRequest{Id: args[0], Actor: actor()})
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				fmt.Fprintf(w, "key %s is revoked; version %d\n", args[0], m.GetVersion())
			})
		},
	}
	cmd.AddCommand(create, ls, revoke)
	return cmd
}

// secretMax bounds what is read of a secret from standard input.
const secretMax = 64 << 10

func credentialCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "credential", Short: "Set and list provider credentials"}
	set := &cobra.Command{
		Use: "set NAME < FILE", Short: "Store a provider secret, read from standard input, sealed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := whole(cmd, "the secret", "-", secretMax)
			if err != nil {
				return err
			}
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.SetCredential,
				&adminv1.SetCredentialRequest{Name: args[0], Secret: b, Actor: actor()})
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				fmt.Fprintf(w, "credential %s is at version %d\n", args[0], m.GetVersion())
			})
		},
	}
	status := &cobra.Command{
		Use: "status", Short: "List credentials, without secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ListCredentials, &adminv1.ListCredentialsRequest{})
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				row(w, "CREDENTIAL", "PROVIDER", "VERSION", "SET", "BY", "DEPLOYMENTS")
				for _, i := range m.GetCredentials() {
					row(w, i.GetName(), i.GetProvider(), num(int64(i.GetVersion())), when(i.GetSetAtMs()), i.GetActor(),
						strings.Join(i.GetDeployments(), ","))
				}
			})
		},
	}
	cmd.AddCommand(set, status)
	return cmd
}
