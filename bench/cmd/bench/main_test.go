package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
	"github.com/sluice-gateway/sluice/bench/load"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBothCommands runs the provider and sends load at it, the way the binary does.
func TestBothCommands(t *testing.T) {
	keys := write(t, "keys", "# both kinds of line\n\nmain secret\nplain\n")
	control := write(t, "control.json", `{"defaults":{"tokens":3}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	provider := fakeProviderCommand()
	ready, out := io.Pipe()
	provider.SetOut(out)
	provider.SetArgs([]string{"--listen", "127.0.0.1:0", "--api-key-file", keys, "--control-file", control})
	ended := make(chan error, 1)
	go func() {
		err := provider.ExecuteContext(ctx)
		out.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		t.Fatalf("ready line: %v", err)
	}
	words := strings.Fields(line)
	if len(words) != 7 || words[5] != "2" {
		t.Fatalf("ready line %q", line)
	}

	callers := write(t, "callers", "secret\nplain\n")
	for _, format := range []string{"json", "table"} {
		var report bytes.Buffer
		generator := loadCommand()
		generator.SetOut(&report)
		generator.SetArgs([]string{"--url", words[3], "--key-file", callers, "--concurrency", "4", "--requests", "20", "--stream", "-o", format})
		if err := generator.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if format == "table" {
			if !strings.Contains(report.String(), "20 ok") {
				t.Errorf("table\n%s", report.String())
			}
			continue
		}
		var got load.Report
		if err := json.Unmarshal(report.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.OK != 20 || got.OutputTokens != 60 || len(got.Records) != 0 {
			t.Errorf("report %s", report.String())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("provider ended with %v", err)
	}
}

func TestAcceptedKeys(t *testing.T) {
	file := write(t, "keys", "main s1\ns2\n")
	tests := []struct {
		name    string
		file    string
		given   []string
		want    []fakeprovider.Key
		wantErr bool
	}{
		{"file", file, nil, []fakeprovider.Key{{Name: "main", Secret: "s1"}, {Name: "key-2", Secret: "s2"}}, false},
		{"flag", "", []string{"x"}, []fakeprovider.Key{{Name: "key-1", Secret: "x"}}, false},
		{"both", file, []string{"x"}, []fakeprovider.Key{{Name: "main", Secret: "s1"}, {Name: "key-2", Secret: "s2"}, {Name: "key-3", Secret: "x"}}, false},
		{"none", "", nil, nil, true},
		{"empty file", write(t, "empty", "# nothing\n"), nil, nil, true},
		{"missing file", file + ".gone", nil, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := acceptedKeys(tt.file, tt.given)
			if (err != nil) != tt.wantErr || !slices.Equal(got, tt.want) {
				t.Errorf("acceptedKeys = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestLoadCommandRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no loop":    {},
		"both loops": {"--rate", "1", "--concurrency", "1"},
		"format":     {"--rate", "1", "-o", "yaml"},
		"header":     {"--rate", "1", "--header", "nothing"},
		"no keys":    {"--rate", "1", "--key-file", write(t, "empty", "")},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := loadCommand()
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			cmd.SetArgs(args)
			if err := cmd.ExecuteContext(t.Context()); err == nil {
				t.Error("the command took it")
			}
		})
	}
}
