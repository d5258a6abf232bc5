package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// TestMutantsApply: every patch still fits the tree, and what it makes is Go. That the simulator catches each is
// `make sim-mutants`.
func TestMutantsApply(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Errorf("only %d mutants", len(all))
	}
	for _, m := range all {
		files, err := m.Apply(root)
		if err != nil {
			t.Error(err)
		}
		for name, text := range files {
			was, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || text == string(was) {
				t.Errorf("%s changes nothing in %s: %v", m.Name, name, err)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"says nothing":    "--- a.go\n@@\n-x\n+y\n",
		"changes nothing": "breaks it\n",
		"stray line":      "breaks it\n--- a.go\n@@\n-x\nstray\n",
		"no hunk":         "breaks it\n--- a.go\n-x\n",
	} {
		if _, err := parse("m", text); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one\ntwo\none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for edits, want := range map[string]string{
		"--- a.go\n@@\n-one\n+x\n": "2 times", "--- a.go\n@@\n-three\n+x\n": "0 times", "--- b.go\n@@\n-one\n+x\n": "b.go",
	} {
		m, err := parse("m", "breaks it\n"+edits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", edits, err, want)
		}
	}
}
