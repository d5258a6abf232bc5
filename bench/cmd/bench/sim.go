package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/bench/sim"
	"github.com/sluice-gateway/sluice/bench/sim/whatif"
)

// coveredFrom is how many seeds must have met every fault and every check.
const coveredFrom = 100

// gcPercent lets worlds, which are small and make much garbage, be played faster.
const gcPercent = 400

func simCommand() *cobra.Command {
	var (
		first, one         uint64
		seeds, workers     int
		trace, untilBroken bool
		scenario, page     string
	)
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Play seeded worlds of sidecar lease machines and the quota ledger",
		Long: `Play seeded worlds: real sidecar lease machines and the real quota ledger under one scheduler, in virtual time, with
lost, late and repeated messages, cuts, crashes, leader changes, clones, month turns and changed limits. Every invariant
is checked after every event, every promise at the end. The same seed gives the same world.

With --scenario it plays tenants, providers and outages of a file, for operators: see bench/sim/scenarios.

A sweep of ` + fmt.Sprint(coveredFrom) + ` seeds or more also fails when a kind of fault never happened or a check was never made.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if scenario != "" {
				return whatIf(out, scenario, page)
			}
			if page != "" {
				return errors.New("--output needs --scenario")
			}
			if cmd.Flags().Changed("seed") {
				return replay(out, one, trace)
			}
			if trace {
				return errors.New("--trace needs --seed")
			}
			if seeds < 1 || workers < 1 {
				return errors.New("--seeds and --workers must be positive")
			}
			return sweep(cmd, out, first, seeds, workers, untilBroken)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&scenario, "scenario", "", "play this file's scenario instead: who gets what, fair and first come")
	flags.StringVarP(&page, "output", "o", "", "with --scenario: also draw it to this HTML file")
	flags.Uint64Var(&one, "seed", 0, "play this one only")
	flags.BoolVar(&trace, "trace", false, "with --seed: print the event log")
	flags.Uint64Var(&first, "first", 1, "first seed of a sweep")
	flags.IntVar(&seeds, "seeds", 200, "how many seeds to sweep")
	flags.BoolVar(&untilBroken, "until-broken", false, "end a sweep at the first seed that fails")
	flags.IntVar(&workers, "workers", runtime.GOMAXPROCS(0), "seeds at the same time")
	cmd.AddCommand(mutantsCommand())
	return cmd
}

// replay plays one seed and says everything about it.
func replay(out io.Writer, seed uint64, trace bool) error {
	var log io.Writer
	buffered := bufio.NewWriter(out)
	if trace {
		log = buffered
	}
	r := sim.Run(seed, log)
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write the event log: %w", err)
	}
	if err := r.Tally.Write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, summary(&r)); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	if r.Err != nil {
		return fmt.Errorf("seed %d: %w", seed, r.Err)
	}
	return nil
}

func summary(r *sim.Result) string {
	return fmt.Sprintf("seed %d: %d events, %d faults, %.0f s, hash %016x",
		r.Seed, r.Events, r.Faults, r.Passed.Seconds(), r.Hash)
}

// sweep plays many seeds and fails when one does, or when they do not meet everything.
func sweep(cmd *cobra.Command, out io.Writer, first uint64, seeds, workers int, untilBroken bool) error {
	debug.SetGCPercent(gcPercent)
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	var (
		tally          sim.Tally
		played, failed int
		events, fewest int
		report         strings.Builder
	)
	sim.Sweep(ctx, first, seeds, workers, func(r sim.Result) {
		if untilBroken && failed > 0 {
			return
		}
		if played == 0 || r.Events < fewest {
			fewest = r.Events
		}
		played++
		events += r.Events
		tally.Add(r.Tally)
		if r.Err != nil {
			failed++
			fmt.Fprintf(&report, "FAIL seed %d after %d events: %v\n  replay: bin/bench sim --seed %d --trace\n",
				r.Seed, r.Events, r.Err, r.Seed)
			if untilBroken {
				stop()
			}
		}
	})
	fmt.Fprintf(&report, "%d seeds, %d events, at least %d each\n", played, events, fewest)
	if err := tally.Write(out); err != nil {
		return err
	}
	if _, err := io.WriteString(out, report.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	switch missing := tally.Missing(); {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("stopped after %d seeds: %w", played, cmd.Context().Err())
	case failed > 0:
		return fmt.Errorf("%d of %d seeds failed", failed, played)
	case played >= coveredFrom && len(missing) > 0:
		return fmt.Errorf("never met: %s", strings.Join(missing, "; "))
	}
	return nil
}

// whatIf plays a scenario, prints who gets what, and draws it when page is not empty.
func whatIf(out io.Writer, scenario, page string) error {
	file, err := whatif.Read(scenario)
	if err != nil {
		return err
	}
	outcome, err := whatif.Play(file)
	if err != nil {
		return err
	}
	if err := outcome.Write(out); err != nil || page == "" {
		return err
	}
	to, err := os.Create(page)
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return errors.Join(outcome.Draw(to), to.Close())
}
