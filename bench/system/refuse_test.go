package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusalsToStart: a node says which file is in the way, and why, instead of going on with less than it had.
func TestRefusalsToStart(t *testing.T) {
	s := start(t, 1, 0, func(base string) string { return org(base, "{ monthly: 1 }", "{ rpm: 600 }") })
	nd := s.nodes[0]
	inUse := launch(t, nd.id, "quotad", nd.args...)
	<-inUse.Done
	if b, err := os.ReadFile(inUse.Log); err != nil || !strings.Contains(string(b), "in use") {
		t.Errorf("a directory in use: %s", b)
	}
	nd.Term(t)
	other := start(t, 1, 0, func(base string) string { return org(base, "{ monthly: 1 }", "{ rpm: 600 }") })
	other.nodes[0].Term(t)
	for _, tt := range []struct {
		name  string
		spoil func(dir string) error
		args  []string
		want  []string
	}{
		{name: "a newer format", spoil: func(dir string) error {
			return edit(filepath.Join(dir, "meta.json"), func(b []byte) []byte {
				return []byte(strings.Replace(strings.Replace(string(b), `"format":1`, `"format":9`, 1), `"written_by":"`, `"written_by":"9.1-`, 1))
			})
		}, want: []string{"meta.json", "format 9", "9.1-", "newer version of quotad"}},
		{name: "another cluster's log", spoil: func(dir string) error {
			b, err := os.ReadFile(filepath.Join(other.nodes[0].dir, "raft.db"))
			if err != nil {
				return err
			}
			return edit(filepath.Join(dir, "raft.db"), func([]byte) []byte { return b })
		}, want: []string{"raft.db is of cluster", "another cluster"}},
		{name: "another node's name", spoil: func(string) error { return nil }, args: []string{"--id", "quotad-7"}, want: []string{"of node \"quotad-0\""}},
		{name: "another key file", spoil: func(dir string) error {
			return os.WriteFile(dir+".key", []byte(sum("other")+"\n"), 0o600)
		}, args: []string{"--key-file", "DIR.key"}, want: []string{"key_file: credential main is sealed with key"}},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(nd.dir)); err != nil {
			t.Fatal(err)
		}
		if err := tt.spoil(dir); err != nil {
			t.Fatal(err)
		}
		args := append([]string{}, nd.args...)
		for i := range args {
			if args[i] == "--data-dir" {
				args[i+1] = dir
			}
		}
		for _, a := range tt.args {
			args = append(args, strings.ReplaceAll(a, "DIR", dir))
		}
		p := launch(t, nd.id, "quotad", args...)
		<-p.Done
		b, err := os.ReadFile(p.Log)
		for _, want := range tt.want {
			if err != nil || !strings.Contains(string(b), want) || p.Cmd.ProcessState.ExitCode() == 0 {
				t.Errorf("%s: exit %d, no %q in %s", tt.name, p.Cmd.ProcessState.ExitCode(), want, b)
			}
		}
	}
}
