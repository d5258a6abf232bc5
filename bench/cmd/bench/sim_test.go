package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"sweep":  {[]string{"--seeds", "2", "--first", "3"}, "2 seeds, "},
		"replay": {[]string{"--seed", "3"}, "seed 3: "},
		"trace":  {[]string{"--seed", "3", "--trace"}, "sidecar-0 starts"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := simCommand()
			cmd.SetOut(&out)
			cmd.SetArgs(tt.args)
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tt.want) || !strings.Contains(out.String(), "month turns") {
				t.Errorf("output lacks %q or the counts", tt.want)
			}
		})
	}
}

func TestSimScenario(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	var out bytes.Buffer
	cmd := simCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--scenario", "../../sim/scenarios/fair.yaml", "-o", page})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(drawn, []byte("</html>")) || !strings.Contains(out.String(), "reports") {
		t.Errorf("%v; printed:\n%s", err, out.String())
	}
}

func TestSimCommandRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"trace of a sweep": {"--trace"},
		"page of a sweep":  {"-o", "x.html"},
		"no scenario":      {"--scenario", "none.yaml"},
		"no mutant":        {"mutants", "none"},
		"no seeds":         {"--seeds", "0"},
		"no workers":       {"--workers", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := simCommand()
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			cmd.SetArgs(args)
			if err := cmd.ExecuteContext(t.Context()); err == nil {
				t.Error("the command took it")
			}
		})
	}
}
