// Command bench holds the tools that stand around a gateway: a fake provider behind it, a load generator in front, and a
// simulator of its quota protocol.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := &cobra.Command{Use: "bench", Short: "Fake provider, load generator and simulator", SilenceUsage: true}
	root.AddCommand(fakeProviderCommand(), loadCommand(), simCommand(), quotaCommand(), relayCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1) // cobra has printed it
	}
}

// readLines reads the lines of a file that are neither empty nor comments (#). "-" is standard input.
func readLines(path string) ([]string, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		defer func() { _ = file.Close() }() // only read
	}
	var out []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return out, nil
}
