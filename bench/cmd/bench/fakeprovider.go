package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

func fakeProviderCommand() *cobra.Command {
	var (
		listen, keyFile, controlFile string
		keys                         []string
		records                      int
		detail                       bool
	)
	cmd := &cobra.Command{
		Use:   "fakeprovider",
		Short: "Run a provider that invents its answers and counts what it served",
		Long: `Run a provider that speaks the OpenAI and the Anthropic dialect, breaks on demand, and counts what it served.

Control (POST /control) and witness (GET /witness) stand on the same listener, without a key. Keep it on loopback.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := fakeprovider.Config{RecordsMax: records, Detail: detail}
			var err error
			if cfg.Keys, err = acceptedKeys(keyFile, keys); err != nil {
				return err
			}
			if err := cfg.WithDefaults().Validate(); err != nil {
				return fmt.Errorf("config: %w", err)
			}
			server := fakeprovider.New(cfg)
			if controlFile != "" {
				if err := applyFile(server, controlFile); err != nil {
					return err
				}
			}
			ln, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "fakeprovider ready on http://%s/v1 with %d keys\n", ln.Addr(), len(cfg.Keys))
			return server.Run(cmd.Context(), ln)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:9900", "address to listen on")
	flags.StringVar(&keyFile, "api-key-file", "", `accepted keys, one "secret" or "name secret" a line; - is standard input`)
	flags.StringArrayVar(&keys, "api-key", nil, "accepted key, for development: other users of the machine can see it")
	flags.StringVar(&controlFile, "control-file", "", "JSON of a control call to start with")
	flags.IntVar(&records, "records", 0, "requests to remember (default 10000)")
	flags.BoolVar(&detail, "detail", false, "remember header names and bodies too")
	return cmd
}

// acceptedKeys joins both sources. Keys without a name are called key-1, key-2 and so on by position.
func acceptedKeys(file string, given []string) ([]fakeprovider.Key, error) {
	lines := given
	if file != "" {
		read, err := readLines(file)
		if err != nil {
			return nil, err
		}
		lines = append(read, lines...)
	}
	if len(lines) == 0 {
		return nil, errors.New("no keys: give --api-key-file or --api-key")
	}
	var out []fakeprovider.Key
	for i, line := range lines {
		key := fakeprovider.Key{Name: "key-" + strconv.Itoa(i+1), Secret: line}
		if name, secret, ok := strings.Cut(line, " "); ok {
			key = fakeprovider.Key{Name: name, Secret: strings.TrimSpace(secret)}
		}
		out = append(out, key)
	}
	return out, nil
}

func applyFile(server *fakeprovider.Server, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read control file: %w", err)
	}
	var control fakeprovider.Control
	if err := json.Unmarshal(data, &control); err != nil {
		return fmt.Errorf("control file %s: %w", path, err)
	}
	if err := server.Apply(control); err != nil {
		return fmt.Errorf("control file %s: %w", path, err)
	}
	return nil
}
