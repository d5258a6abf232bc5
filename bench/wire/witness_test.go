package wire

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestAWitnessSharesNoCodeWithTheAccused: nothing of the product is imported here, in tests neither.
func TestAWitnessSharesNoCodeWithTheAccused(t *testing.T) {
	files, err := filepath.Glob("*.go")
	more, _ := filepath.Glob("*/*.go")
	if files = append(files, more...); err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if strings.Contains(imp.Path.Value, "/sluice/") && !strings.Contains(imp.Path.Value, "/sluice/bench/wire/") {
				t.Errorf("%s imports %s", name, imp.Path.Value)
			}
		}
	}
}
