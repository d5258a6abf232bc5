package wire

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestAWitnessSharesNoCodeWithTheAccused: nothing of the product is imported here, in tests neither, nor by what starts its
// processes.
func TestAWitnessSharesNoCodeWithTheAccused(t *testing.T) {
	files, err := filepath.Glob("*.go")
	more, _ := filepath.Glob("*/*.go")
	starts, _ := filepath.Glob("../program/*.go")
	if files = append(append(files, more...), starts...); err != nil || len(files) < 5 || len(starts) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if path := imp.Path.Value; strings.Contains(path, "/sluice/") && !strings.Contains(path, "/sluice/bench/wire/") &&
				!strings.HasSuffix(path, `/sluice/bench/program"`) {
				t.Errorf("%s imports %s", name, imp.Path.Value)
			}
		}
	}
}
