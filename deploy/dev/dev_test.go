package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// freeOffset finds an offset at which nothing listens, nor at the next one. It stays below the ports that connections
// are given.
func freeOffset(t *testing.T) ports {
	t.Helper()
	for p := ports(20_000); p > 10_000; p -= offsetStep {
		if len(p.taken(3, 9)) == 0 && len((p+offsetStep).taken(3, 9)) == 0 {
			return p
		}
	}
	t.Fatal("every port is taken")
	return 0
}

// TestForeignStackIsRefused: whatever listens on one of the ports is named, with what to do.
func TestForeignStackIsRefused(t *testing.T) {
	p := freeOffset(t)
	if err := p.free(3, 9); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{p.fake(), p.plane(2), p.raft(0), p.admin(1), p.data(8), p.ops(0)} {
		t.Run(address, func(t *testing.T) {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			err = p.free(3, 9)
			if err == nil {
				t.Fatal("not noticed")
			}
			if !strings.Contains(err.Error(), address) {
				t.Errorf("%q does not name %s", err, address)
			}
			_, after, _ := strings.Cut(err.Error(), "make run OFFSET=")
			var other ports
			if _, err := fmt.Sscan(after, &other); err != nil || other <= p || other.validate() != nil {
				t.Errorf("the way out is OFFSET=%d: %v", other, err)
			}
			if got := strings.Count(err.Error(), "127.0.0.1:"); got != 1 {
				t.Errorf("%d addresses are named, one is taken: %s", got, err)
			}
		})
	}
}

// TestOffsetsDoNotMeet: stacks one step apart share no port.
func TestOffsetsDoNotMeet(t *testing.T) {
	seen := map[string]ports{}
	for p := ports(0); p <= 10*offsetStep; p += offsetStep {
		all := []string{p.fake()}
		for i := range 9 {
			all = append(all, p.plane(i), p.raft(i), p.admin(i), p.data(i), p.ops(i))
		}
		for _, a := range all {
			if other, ok := seen[a]; ok {
				t.Errorf("%s belongs to the offsets %d and %d", a, other, p)
			}
			seen[a] = p
		}
	}
}

func TestTailShowsThisRunAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	before, now := "old\n", ""
	for i := range tailLines + 5 {
		now += fmt.Sprintf("line %d\n", i)
	}
	if err := os.WriteFile(file, []byte(before+now), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &child{log: file, from: int64(len(before))}
	got := strings.Split(c.tail(), "\n")
	if len(got) != tailLines || got[0] != "  line 5" || got[tailLines-1] != fmt.Sprintf("  line %d", tailLines+4) {
		t.Errorf("got %q", got)
	}
	c.from = int64(len(before + now))
	if got := c.tail(); strings.Contains(got, "line") {
		t.Errorf("a run that wrote nothing shows %q", got)
	}
}

func TestAliasOfModel(t *testing.T) {
	for model, want := range map[string]string{
		"my-model": "my-model", "qwen3:8b": "qwen3-8b", "Qwen/Qwen3-8B": "Qwen-Qwen3-8B", "a b\"c": "a-b-c", "é": "-",
		strings.Repeat("x", 100): strings.Repeat("x", aliasBytesMax),
	} {
		if got := aliasOf(model); got != want {
			t.Errorf("%q: got %q, want %q", model, got, want)
		}
	}
}
