package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/bench/relay"
)

func relayCommand() *cobra.Command {
	var (
		rounds       int
		output, keep string
	)
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Measure what the relay does with one chunk of a stream",
		Long: `Measure what the relay does with one chunk of a stream, beside a plain loop of the recipe over the same bytes. Run it
from the root of the repository: the figures are a Go benchmark's. The exit status is 1 when an aim is missed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			report, err := relay.Run(cmd.Context(), rounds)
			if err != nil {
				return err
			}
			err = figures{output, keep}.tell(cmd.OutOrStdout(), "relay", report.At, report)
			if missed := report.Missed(); err == nil && len(missed) > 0 {
				err = errors.New("missed: " + strings.Join(missed, "; "))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&rounds, "rounds", 300, "in each of which every lane gets a turn")
	flags.StringVar(&keep, "keep", "", "also write the table into this directory, dated")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
