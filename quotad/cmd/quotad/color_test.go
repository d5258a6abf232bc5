package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
)

func TestDifferencesInColour(t *testing.T) {
	ds := []*adminv1.Difference{
		{Action: "create", Kind: "team", Id: "a", Lines: []string{"+ weight: 1"}},
		{Action: "update", Kind: "team", Id: "b", Lines: []string{"- weight: 1", "+ weight: 2"}},
		{Action: "delete", Kind: "team", Id: "c"},
	}
	for _, tc := range []struct {
		name   string
		colour bool
		want   []string
	}{
		{"plain", false, []string{"+ team a", "    + weight: 1", "~ team b", "    - weight: 1", "    + weight: 2", "- team c"}},
		{"coloured", true, []string{
			"\x1b[32m+ team a\x1b[0m", "    \x1b[32m+ weight: 1\x1b[0m", "\x1b[33m~ team b\x1b[0m",
			"    \x1b[31m- weight: 1\x1b[0m", "    \x1b[32m+ weight: 2\x1b[0m", "\x1b[31m- team c\x1b[0m",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			differences(&out, ds, tc.colour)
			if want := strings.Join(tc.want, "\n") + "\n"; out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
		})
	}
}

func TestOnlyATerminalIsColourful(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // like a terminal, a character device
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = device.Close() }()
	regular, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = regular.Close() }()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if !colourful(device) {
		t.Error("a terminal gets no colours")
	}
	if colourful(regular) || colourful(&bytes.Buffer{}) {
		t.Error("what is no terminal gets colours")
	}
	t.Setenv("TERM", "dumb")
	if colourful(device) {
		t.Error("a terminal that knows no colours gets them")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if colourful(device) {
		t.Error("NO_COLOR is not heeded")
	}
}
