// Command quotad runs a control-plane node (`quotad serve`) and is the operator's tool for a running cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // what does not end at the first signal is ended by the second
	if err := command().ExecuteContext(ctx); err != nil {
		explain(os.Stderr, err)
		os.Exit(1)
	}
}

// faultsError is what is wrong with a file: a line each, as file:line: what.
type faultsError struct{ error }

// explain writes an error for people. Faults of a file come first and all look alike, so that eyes and editors find
// them.
func explain(w io.Writer, err error) {
	if faults := (faultsError{}); errors.As(err, &faults) {
		fmt.Fprintln(w, faults)
		err = errors.New("nothing was applied")
	}
	if errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	fmt.Fprintln(w, "quotad:", err)
}

// errInterrupted is what a verb ends with that was stopped by a signal.
var errInterrupted = errors.New("interrupted")

func command() *cobra.Command {
	c := &console{}
	root := &cobra.Command{
		Use:           "quotad",
		Short:         "Sluice's control plane: limits, budgets, keys, routes, prices and provider credentials",
		Version:       build(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, verb := range []*cobra.Command{
		applyCommand(c), getCommand(c), historyCommand(c), rollbackCommand(c), keyCommand(c), credentialCommand(c),
		budgetCommand(c), pricesCommand(c), poolCommand(c), usageCommand(c), statusCommand(c), memberCommand(c), restoreCommand(c),
	} {
		c.flags(verb)
		root.AddCommand(verb)
	}
	root.AddCommand(backupCommand(c), inspectCommand()) // neither asks and prints as the others do
	for _, verb := range root.Commands() {
		strict(verb)
	}
	root.AddCommand(serveCommand()) // its settings may be empty, as those of the environment may
	root.SetFlagErrorFunc(explainFlag)
	return root
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

// actor is who the audit names.
func actor() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
