package wire

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// ours is what may be imported: another witness.
const ours = `"github.com/sluice-gateway/sluice/bench/wire/cost"`

// TestAWitnessSharesNoCodeWithTheAccused: nothing of the product is imported here, in tests neither.
func TestAWitnessSharesNoCodeWithTheAccused(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	costs, err := filepath.Glob("cost/*.go")
	if err != nil || len(costs) < 3 {
		t.Fatalf("%v, %v", costs, err)
	}
	files = append(files, costs...)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if strings.Contains(imp.Path.Value, "/sluice/") && imp.Path.Value != ours {
				t.Errorf("%s imports %s", name, imp.Path.Value)
			}
		}
	}
}
