package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMistakes gives verbs what people mistype, and scripts whose variables are empty. Each is refused, names the word,
// and reaches nobody: there is no node.
func TestMistakes(t *testing.T) {
	o := &operator{t: t, addr: "127.0.0.1:1"}
	for _, tc := range []struct {
		want string
		args []string
	}{
		{`quotad budget: no verb "shw" (there are credit, show)`, []string{"budget", "shw"}},
		{`quotad member: no verb "lst"`, []string{"member", "lst"}},
		{`quotad key: no verb "delete"`, []string{"key", "delete", "x"}},
		{"quotad member add: takes other arguments than the 0 given: quotad member add ID=HOST | ", []string{"member", "add"}},
		{"quotad member list: takes other arguments than the 1 given: quotad member list", []string{"member", "list", "x"}},
		{"quotad budget credit: takes other arguments than the 1 given: quotad budget credit TEAM DOLLARS --reason TEXT", []string{"budget", "credit", "red"}},
		{"TEAM: must not be empty", []string{"budget", "credit", "", "1", "--reason", "x"}},
		{"TEAM: must not be empty", []string{"budget", "show", ""}},
		{"DEPLOYMENT: must not be empty", []string{"pool", "show", ""}},
		{"ID: must not be empty", []string{"member", "remove", ""}},
		{"ID=HOST: must not be empty", []string{"member", "add", ""}},
		{"FILE: must not be empty", []string{"restore", ""}},
		{"--output: must not be empty", []string{"backup", "-o", ""}},
		{"--file: must not be empty", []string{"apply", "-f", ""}},
		{"--run: must not be empty", []string{"budget", "credit", "red", "1", "--reason", "x", "--run", ""}},
		{"--id: must not be empty", []string{"budget", "credit", "red", "1", "--reason", "x", "--id", ""}},
		{"--reason: must not be empty", []string{"budget", "credit", "red", "1", "--reason", ""}},
		{"--alias: must not be empty", []string{"key", "create", "k", "--team", "red", "--alias", ""}},
		{"--alias: must not be empty", []string{"key", "create", "k", "--team", "red", "--alias", "a", "--alias", ",b"}},
		{"--team: must not be empty", []string{"key", "list", "--team", ""}},
		{"--team: must not be empty", []string{"usage", "--team", ""}},
		{`DEPLOYMENT: "d\xff" is not text in UTF-8`, []string{"pool", "show", "d\xff"}},
		{`--run: "\xff" is not text in UTF-8`, []string{"budget", "credit", "red", "1", "--reason", "x", "--run", "\xff"}},
		{`--limit: "99999999999" is out of range`, []string{"budget", "show", "--runs", "red", "-n", "99999999999"}},
		{`--limit: "many" is not a whole number`, []string{"history", "--limit", "many"}},
		{"--limit: must be 1 to 1000", []string{"budget", "show", "--runs", "red", "-n", "0"}},
		{"--limit: goes with --runs", []string{"budget", "show", "red", "-n", "5"}},
		{`--wait: "1" is not a duration such as 30s or 5m`, []string{"member", "add", "x=h", "--wait", "1"}},
		{`"x=1.2.3.4:99999": a host alone takes no port`, []string{"member", "add", "x=1.2.3.4:99999"}},
		{`"x=h:7071": a host alone takes no port`, []string{"member", "add", "x=h:7071"}},
		{"no quotad answers", []string{"member", "add", "x=fe80::1"}},
		{"--wait: -1s is below 0", []string{"member", "add", "x=h", "--wait", "-1s"}},
		{`--other-cluster: "maybe" is neither true nor false`, []string{"restore", "f", "--other-cluster=maybe"}},
		{"-2.50 is read as a flag: arguments that begin with - come last, after --: quotad budget credit [flags] -- … -2.50",
			[]string{"budget", "credit", "red", "-2.50", "--reason", "x"}},
		{"unknown shorthand flag: 'x'", []string{"status", "-x"}},
		{"unknown flag: --nope", []string{"status", "--nope"}},
		{"--file: none.yaml: no such file", []string{"apply", "-f", "none.yaml"}},
		{"--file: /: is a directory", []string{"apply", "-f", "/"}},
		{"FILE: none: no such file", []string{"restore", "none"}},
		{"FILE: /: is a directory", []string{"restore", "/"}},
		{"FILE: /: is a directory", []string{"prices", "import", "/"}},
		{"--file: /dev/zero is longer than 16777216 bytes", []string{"apply", "-f", "/dev/zero"}},
		{"--output: /nope/x: no such file", []string{"backup", "-o", "/nope/x"}},
	} {
		out, err := o.try("", tc.args...)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("quotad %q: got %v and %q, want %q", tc.args, err, out, tc.want)
		}
	}
	binary := filepath.Join(t.TempDir(), "org.yaml")
	must(t, os.WriteFile(binary, []byte{0x7f, 'E', 'L', 'F', 0xff}, 0o600))
	o.refused("org.yaml is not text in UTF-8", "apply", "-f", binary)
	if out := o.run("budget"); !strings.Contains(out, "Available Commands") {
		t.Errorf("verbs alone explain themselves: %q", out)
	}
}

// TestFIFOIsInterrupted: a verb that reads a FIFO ends when it is told to, also before anybody has opened the other end.
func TestFIFOIsInterrupted(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for _, args := range [][]string{{"apply", "-f", fifo}, {"restore", fifo}, {"prices", "import", fifo}} {
		for _, opened := range []bool{false, true} {
			ctx, stop := context.WithCancel(context.Background())
			cmd := command()
			cmd.SetArgs(append(args, "--addr", "127.0.0.1:1"))
			ended := make(chan error, 1)
			go func() { ended <- cmd.ExecuteContext(ctx) }()
			var writer *os.File
			var err error
			if opened {
				writer, err = os.OpenFile(fifo, os.O_WRONLY, 0) // which waits until it reads
				must(t, err)
			}
			stop()
			var said bytes.Buffer
			explain(&said, <-ended)
			if said.String() != "quotad: interrupted\n" {
				t.Errorf("%v, opened %v: %s", args, opened, said.String())
			}
			if !opened { // what still waits for the other end
				writer, err = os.OpenFile(fifo, os.O_RDWR, 0)
				must(t, err)
			}
			_ = writer.Close()
		}
	}
}

// TestInterrupted: a verb that waits for its input ends when it is told to.
func TestInterrupted(t *testing.T) {
	for _, args := range [][]string{{"apply", "-f", "-"}, {"credential", "set", "c"}, {"restore", "-"}} {
		ctx, stop := context.WithCancel(context.Background())
		in, typing := io.Pipe()
		cmd := command()
		cmd.SetIn(in)
		cmd.SetArgs(append(args, "--addr", "127.0.0.1:1"))
		ended := make(chan error, 1)
		go func() { ended <- cmd.ExecuteContext(ctx) }()
		_, err := typing.Write([]byte("s")) // it reads
		must(t, err)
		stop()
		var said bytes.Buffer
		explain(&said, <-ended)
		if said.String() != "quotad: interrupted\n" {
			t.Errorf("%v: %s", args, said.String())
		}
		_ = typing.Close()
	}
}
