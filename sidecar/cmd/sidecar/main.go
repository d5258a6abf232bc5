// Command sidecar runs the data plane next to an application.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/sluice-gateway/sluice/sidecar"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

// version is set by the linker for releases.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sidecar:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var file string
	var dev bool
	values := map[string]*string{}
	cmd := &cobra.Command{
		Use:           "sidecar",
		Short:         "Sluice's data plane: speaks the OpenAI and Anthropic dialects on localhost, within leases from quotad",
		Args:          cobra.NoArgs,
		Version:       build(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML file; flags and SLUICE_… variables override it")
	cmd.Flags().BoolVar(&dev, "dev", false, "no TLS, loopback only")
	for _, s := range sidecar.Settings() {
		values[s.Key] = cmd.Flags().String(s.Flag(), "", s.Usage+" (or "+s.Env()+")")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set := map[string]string{}
		for _, s := range sidecar.Settings() {
			if cmd.Flags().Changed(s.Flag()) {
				set[s.Key] = *values[s.Key]
			}
		}
		cfg, err := sidecar.Load(file, os.Environ(), set, dev)
		if err != nil {
			return fmt.Errorf("configuration:\n%w", err)
		}
		return run(cmd.Context(), cfg)
	}
	return cmd
}

func run(ctx context.Context, cfg sidecar.Config) error {
	zc := zap.NewProductionConfig()
	zc.Level = zap.NewAtomicLevelAt(cfg.LogLevel)
	zc.Sampling = nil
	zc.DisableStacktrace = true // errors are the world's faults, not ours; a panic is logged with its stack
	log, err := zc.Build()
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	cfg.Host = host(cfg.Host)
	s, err := sidecar.New(cfg, build(), log)
	if err != nil {
		return err
	}
	fmt.Printf("sidecar ready: data http://%s, ops http://%s\n", s.Addr(), s.OpsAddr())
	err = s.Run(ctx)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	return err
}

func build() string {
	if version != "" {
		return version
	}
	if i, ok := debug.ReadBuildInfo(); ok && i.Main.Version != "" {
		return i.Main.Version
	}
	return "dev"
}
