package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/sluice-gateway/sluice/quotad"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// serveCommand runs a node.
func serveCommand() *cobra.Command {
	var file string
	var dev bool
	values := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a quotad node",
		Long: `Run a quotad node.

A new cluster: start every node with the same --peers, each with an empty --data-dir and its own --id. It is made once
every node has answered; without --peers it is this node alone. A node that has state ignores where it came from, and one
that lost its disk finds the cluster and does not make another.

A further node: start it with --join and no --peers, then ` + "`quotad member add ID=HOST`" + ` on any machine.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML file; flags and SLUICE_QUOTAD_… variables override it")
	cmd.Flags().BoolVar(&dev, "dev", false, "no TLS, loopback only, makes its own key file")
	for _, s := range quotad.Settings() {
		values[s.Key] = cmd.Flags().String(s.Flag(), "", s.Usage+" (or "+s.Env()+")")
		if s.Key == "join" {
			cmd.Flags().Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set := map[string]string{}
		for _, s := range quotad.Settings() {
			if cmd.Flags().Changed(s.Flag()) {
				set[s.Key] = *values[s.Key]
			}
		}
		cfg, err := quotad.Load(file, os.Environ(), set, dev)
		if err != nil {
			return fmt.Errorf("configuration:\n%w", err)
		}
		return serve(cmd.Context(), cfg)
	}
	return cmd
}

// garbagePercent is GOGC unless that is set. A node's memory is small beside what it allocates for thousands of streams,
// and while it collects, operations wait: seldom is better, at the price of memory (docs/operations.md).
const garbagePercent = 400

func serve(ctx context.Context, cfg quotad.Config) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	zc := zap.NewProductionConfig()
	zc.Level = zap.NewAtomicLevelAt(cfg.LogLevel)
	zc.Sampling = nil
	zc.DisableStacktrace = true // errors are the world's faults, not ours; a panic is logged with its stack
	log, err := zc.Build()
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	q, err := quotad.New(cfg, build(), log)
	if err != nil {
		return err
	}
	scheme := "https"
	if cfg.Dev {
		scheme = "http"
	}
	fmt.Printf("quotad ready: node %s, sidecars %s, admin %s://%s\n", cfg.ID, q.Addr(), scheme, q.AdminAddr())
	err = q.Run(ctx)
	if cerr := q.Close(); err == nil {
		err = cerr
	}
	return err
}
