package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/bench/load"
)

func loadCommand() *cobra.Command {
	var (
		cfg             load.Config
		keyFile, output string
		headers         []string
		records         bool
	)
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Send chat requests and measure the answers",
		Long: `Send OpenAI-dialect chat requests and measure the answers.

--rate is an open loop: requests start by the clock, however slow the answers are. --concurrency is a closed loop: that
many requests are kept in flight. Give one of them. The exit status says whether the tool worked, not whether the
requests did: look at the classes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("output %q: want table or json", output)
			}
			if keyFile != "" {
				keys, err := readLines(keyFile)
				if err != nil {
					return err
				}
				if len(keys) == 0 {
					return errors.New("the key file holds no key")
				}
				cfg.Keys = keys
			}
			cfg.Header = http.Header{}
			for _, line := range headers {
				name, value, ok := strings.Cut(line, ":")
				if !ok {
					return fmt.Errorf("header %q: want name: value", line)
				}
				cfg.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
			}
			report, err := load.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if output == "table" {
				return report.WriteTable(cmd.OutOrStdout())
			}
			if !records {
				report.Records = nil
			}
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			if err := encoder.Encode(report); err != nil {
				return fmt.Errorf("write report: %w", err)
			}
			return nil
		},
	}
	defaults := load.Config{}.WithDefaults()
	flags := cmd.Flags()
	flags.StringVar(&cfg.URL, "url", "http://127.0.0.1:4000/v1", "base URL, up to and with /v1")
	flags.StringVar(&keyFile, "key-file", "", "keys to use in turn, one a line; - is standard input")
	flags.Float64Var(&cfg.Rate, "rate", 0, "requests per second (open loop)")
	flags.IntVar(&cfg.Concurrency, "concurrency", 0, "requests in flight (closed loop)")
	flags.IntVar(&cfg.InFlightMax, "in-flight", defaults.InFlightMax, "open loop: drop arrivals above this many in flight")
	flags.IntVar(&cfg.Requests, "requests", defaults.Requests, "requests in all")
	flags.DurationVar(&cfg.Duration, "duration", defaults.Duration, "start no requests after this")
	flags.DurationVar(&cfg.Timeout, "timeout", defaults.Timeout, "time for one request, retries included")
	flags.StringVar(&cfg.Model, "model", defaults.Model, "model or alias")
	flags.BoolVar(&cfg.Stream, "stream", false, "ask for streams")
	flags.IntVar(&cfg.PromptTokens, "prompt-tokens", defaults.PromptTokens, "prompt size, four bytes a token")
	flags.IntVar(&cfg.MaxTokens, "max-tokens", defaults.MaxTokens, "max_tokens; negative sends none")
	flags.StringVar(&cfg.Directive, "directive", "", `for the fake provider, as in "tokens=20 gap=5ms"`)
	flags.StringArrayVar(&headers, "header", nil, `more request headers, as in "x-gw-feature: search"`)
	flags.BoolVar(&cfg.Retry, "retry", false, "repeat failed requests as SDKs do")
	flags.IntVar(&cfg.Attempts, "attempts", defaults.Attempts, "with --retry: attempts at most")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	flags.BoolVar(&records, "records", false, "with -o json: every request too")
	return cmd
}
