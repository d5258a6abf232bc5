package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

func applyCommand(c *console) *cobra.Command {
	req := &adminv1.ApplyRequest{}
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Make the configuration equal to an org.yaml; prints what changes", Args: cobra.NoArgs,
	}
	cmd.Flags().StringVarP(&req.File, "file", "f", "", "org.yaml, - for standard input")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only print what would change")
	cmd.Flags().BoolVar(&req.Prune, "prune", false, "delete what the file does not name, but for price versions that have been in force")
	cmd.Flags().BoolVar(&req.Force, "force", false, "apply even if another change came in meanwhile, which it may undo")
	_ = cmd.MarkFlagRequired("file") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := whole(cmd, "--file", req.GetFile(), registry.FileBytesMax)
		if err != nil {
			return err
		}
		if req.File = shown(req.GetFile()); !utf8.Valid(b) {
			return fmt.Errorf("--file: %s is not text in UTF-8", req.GetFile())
		}
		req.Yaml, req.Actor = string(b), actor()
		req.File = strings.ToValidUTF8(req.GetFile(), "?") // a file may be called anything
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.Apply, req)
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			return faultsError{err}
		}
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			differences(w, m.GetDifferences(), colourful(cmd.OutOrStdout()))
			fmt.Fprintf(w, "%d %s; version %d\n", changed(m.GetDifferences()), verb("applied", req.GetDryRun()), m.GetVersion())
		})
	}
	return cmd
}

// changed counts the objects that a diff changes.
func changed(ds []*adminv1.Difference) (n int) {
	for _, d := range ds {
		if d.GetAction() != "keep" {
			n++
		}
	}
	return n
}

// verb says what happened to the objects of a diff.
func verb(done string, dryRun bool) string {
	if dryRun {
		return "would change (dry run)"
	}
	return done
}

// summaryNames is how many objects a summary names.
const summaryNames = 3

// summary names the first objects of a change, each with its sign, and counts the others.
func summary(ds []*adminv1.Difference) string {
	var parts []string
	for _, d := range ds[:min(len(ds), summaryNames)] {
		parts = append(parts, signs[d.GetAction()]+d.GetKind()+" "+d.GetId())
	}
	if more := len(ds) - summaryNames; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

var signs = map[string]string{"create": "+", "update": "~", "delete": "-", "keep": "="}

func differences(w io.Writer, ds []*adminv1.Difference, colour bool) {
	line := func(indent, text string) {
		if colour {
			text = coloured(text)
		}
		fmt.Fprintln(w, indent+text)
	}
	for _, d := range ds {
		line("", signs[d.GetAction()]+" "+d.GetKind()+" "+d.GetId())
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
	diff := false
	cmd := &cobra.Command{
		Use: "history", Short: "List changes of the configuration, newest first", Args: cobra.NoArgs,
		Example: "  quotad history\n  quotad history -n 1 --diff   # what the last change did\n  quotad rollback 42           # back to how it was after change 42",
	}
	cmd.Flags().Int32VarP(&req.Limit, "limit", "n", 20, "how many")
	cmd.Flags().BoolVar(&diff, "diff", false, "show each change in full")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.History, req)
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) {
			if !diff {
				row(w, "VERSION", "AT", "BY", "WHAT", "CHANGED")
			}
			for _, e := range m.GetEntries() {
				version := strconv.FormatUint(e.GetVersion(), 10)
				if !diff {
					row(w, version, when(e.GetAtMs()), e.GetActor(), e.GetNote(), summary(e.GetDifferences()))
					continue
				}
				fmt.Fprintf(w, "%s  %s  %s  %s\n", version, when(e.GetAtMs()), e.GetActor(), e.GetNote())
				differences(w, e.GetDifferences(), colourful(cmd.OutOrStdout()))
			}
		})
	}
	return cmd
}

func rollbackCommand(c *console) *cobra.Command {
	req := &adminv1.RollbackRequest{}
	cmd := &cobra.Command{Use: "rollback VERSION", Short: "Undo every change after a version, as a new change; revocations and price versions that have been in force stay", Args: cobra.ExactArgs(1)}
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
			fmt.Fprintf(w, "%d %s; version %d\n", changed(m.GetDifferences()), verb("changed", req.GetDryRun()), m.GetVersion())
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
