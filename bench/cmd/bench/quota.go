package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/bench/quota"
)

// driverGarbagePercent is GOGC of the process that plays the sidecars, which has half the machine's work.
const driverGarbagePercent = 800

func quotaCommand() *cobra.Command {
	var (
		cfg                   quota.Config
		output, profile, keep string
		inProcess             bool
	)
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Measure quotad: lease operations, latencies, failover, start",
		Long: `Measure quotad on this machine, beside a bare Raft with the same log store, timers and entries. Run it from the
root of the repository: two figures are Go benchmarks. The exit status is 1 when an aim is missed grossly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkOutput(output); err != nil {
				return err
			}
			if inProcess {
				cfg.Binary = ""
			} else if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(driverGarbagePercent) // its own collections are no latency of quotad's
			}
			if profile != "" {
				f, failed := os.Create(profile)
				if failed != nil {
					return failed
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				if failed := pprof.StartCPUProfile(f); failed != nil {
					return failed
				}
				defer pprof.StopCPUProfile()
			}
			report, err := quota.Run(cmd.Context(), cfg, func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), s) })
			if err != nil {
				return err
			}
			err = figures{output, keep}.tell(cmd.OutOrStdout(), "quota", report.At, report)
			if gross := report.Gross(); err == nil && len(gross) > 0 {
				err = errors.New("missed grossly: " + strings.Join(gross, "; "))
			}
			return err
		},
	}
	defaults := quota.Config{}.WithDefaults()
	flags := cmd.Flags()
	flags.StringVar(&cfg.Binary, "quotad", "bin/quotad", "the program to measure")
	flags.BoolVar(&inProcess, "in-process", false, "run the nodes in this process, for --cpuprofile")
	flags.StringVar(&cfg.Dir, "dir", "", "where the nodes write; the disk counts (default: the system's temporary directory)")
	flags.StringSliceVar(&cfg.Parts, "parts", defaults.Parts, "what to measure")
	flags.IntSliceVar(&cfg.Nodes, "nodes", defaults.Nodes, "sizes of clusters")
	flags.IntVar(&cfg.Sidecars, "sidecars", defaults.Sidecars, "sessions")
	flags.IntVar(&cfg.Asks, "asks", defaults.Asks, "asks in each renew under load")
	flags.Float64Var(&cfg.Rate, "rate", defaults.Rate, "lease operations a second of the open loop")
	flags.DurationVar(&cfg.Length, "length", defaults.Length, "of each measured span")
	flags.IntVar(&cfg.Trials, "trials", defaults.Trials, "of each kind of failover")
	flags.StringVar(&keep, "keep", "", "also write the table into this directory, dated")
	flags.StringVar(&profile, "cpuprofile", "", "write a CPU profile of this process")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
