package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

func applyCommand(c *console) *cobra.Command {
	req := &adminv1.ApplyRequest{}
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Make the configuration equal to an org.yaml; prints what changes", Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&req.File, "file", "f", "", "org.yaml, - for standard input")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only print what would change")
	cmd.Flags().BoolVar(&req.Prune, "prune", false, "delete what the file does not name")
	cmd.Flags().BoolVar(&req.Force, "force", false, "apply even if another change came in meanwhile, which it may undo")
	_ = cmd.MarkFlagRequired("file") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var b []byte
		var err error
		if req.File == "-" {
			b, err = io.ReadAll(cmd.InOrStdin())
			req.File = "standard input"
		} else {
			b, err = os.ReadFile(req.File)
		}
		if err != nil {
			return err
		}
		req.Yaml, req.Actor = string(b), actor()
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.Apply, req)
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			return faultsError{err}
		}
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			differences(w, m.GetDifferences(), colourful(cmd.OutOrStdout()))
			verb := "applied"
			if req.GetDryRun() {
				verb = "would change (dry run)"
			}
			fmt.Fprintf(w, "%d %s; version %d\n", len(m.GetDifferences()), verb, m.GetVersion())
		})
	}
	return cmd
}

func differences(w io.Writer, ds []*adminv1.Difference, colour bool) {
	line := func(indent, text string) {
		if colour {
			text = coloured(text)
		}
		fmt.Fprintln(w, indent+text)
	}
	sign := map[string]string{"create": "+", "update": "~", "delete": "-"}
	for _, d := range ds {
		line("", sign[d.GetAction()]+" "+d.GetKind()+" "+d.GetId())
		for _, l := range d.GetLines() {
			line("    ", l)
		}
	}
}

func getCommand(c *console) *cobra.Command {
	return &cobra.Command{
		Use: "get [KIND [NAME]]", Short: "Show the configuration: all as one org.yaml, or objects of a kind", Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &adminv1.GetRequest{}
			if len(args) > 0 {
				req.Kind = args[0]
			}
			if len(args) > 1 {
				req.Id = args[1]
			}
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.Get, req)
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
				if req.GetKind() == "" {
					fmt.Fprint(w, m.GetYaml())
					return
				}
				row(w, "KIND", "NAME", "VERSION", "SPEC")
				for _, o := range m.GetObjects() {
					row(w, o.GetKind(), o.GetId(), strconv.FormatUint(o.GetVersion(), 10), o.GetSpecJson())
				}
			})
		},
	}
}

func historyCommand(c *console) *cobra.Command {
	req := &adminv1.HistoryRequest{}
	cmd := &cobra.Command{Use: "history", Short: "List changes of the configuration, newest first", Args: cobra.NoArgs}
	cmd.Flags().Int32VarP(&req.Limit, "limit", "n", 20, "how many")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.History, req)
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			for _, e := range m.GetEntries() {
				fmt.Fprintf(w, "%d  %s  %s  %s\n", e.GetVersion(), when(e.GetAtMs()), e.GetActor(), e.GetNote())
				differences(w, e.GetDifferences(), colourful(cmd.OutOrStdout()))
			}
		})
	}
	return cmd
}

func rollbackCommand(c *console) *cobra.Command {
	req := &adminv1.RollbackRequest{}
	cmd := &cobra.Command{Use: "rollback VERSION", Short: "Undo every change after a version, as a new change", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only print what would change")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			return fmt.Errorf("VERSION: %q is not a number from `quotad history`", args[0])
		}
		req.Version, req.Actor = v, actor()
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.Rollback, req)
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			differences(w, m.GetDifferences(), colourful(cmd.OutOrStdout()))
			fmt.Fprintf(w, "%d changed; version %d\n", len(m.GetDifferences()), m.GetVersion())
		})
	}
	return cmd
}

func when(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
