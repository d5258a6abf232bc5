package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/bench/sim/mutants"
)

func mutantsCommand() *cobra.Command {
	var (
		root  string
		seeds int
	)
	cmd := &cobra.Command{
		Use:   "mutants [NAME...]",
		Short: "Break the product on purpose, in each known way, and require that the simulator finds out",
		RunE: func(cmd *cobra.Command, names []string) error {
			all, err := mutants.All()
			if err != nil {
				return err
			}
			for _, n := range names {
				if !slices.ContainsFunc(all, func(m mutants.Mutant) bool { return m.Name == n }) {
					return fmt.Errorf("no mutant %q", n)
				}
			}
			out, played := cmd.OutOrStdout(), 0
			var faults []error
			for _, m := range all {
				if len(names) > 0 && !slices.Contains(names, m.Name) {
					continue
				}
				if cmd.Context().Err() != nil {
					return cmd.Context().Err()
				}
				played++
				c, err := m.Hunt(cmd.Context(), root, seeds)
				if err != nil {
					faults = append(faults, err)
					fmt.Fprintf(out, "%-32s NOT CAUGHT: %v\n", m.Name, err)
					continue
				}
				fmt.Fprintf(out, "%-32s seed %d, %d events, %.150s\n", m.Name, c.Seed, c.Events, c.Broken)
			}
			if len(faults) > 0 {
				return fmt.Errorf("%d of %d mutants were not caught: %w", len(faults), played, errors.Join(faults...))
			}
			fmt.Fprintf(out, "all %d mutants caught\n", played)
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the module's source")
	cmd.Flags().IntVar(&seeds, "seeds", 500, "seeds to play until a mutant counts as surviving")
	return cmd
}
