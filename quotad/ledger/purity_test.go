package ledger

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPurity keeps out of the package what would make two replicas differ: clocks, chance, I/O, goroutines, channels,
// floats, and walks over maps, whose order is random.
func TestPurity(t *testing.T) {
	allowed := []string{"cmp", "errors", "fmt", "math", "math/bits", "slices"}
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".go") || strings.HasSuffix(n.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, n.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		for _, i := range f.Imports {
			if path := strings.Trim(i.Path.Value, `"`); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", n.Name(), path)
			}
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	if _, err := conf.Check("ledger", set, files, info); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if what := impure(info, n); what != "" {
				t.Errorf("%s: %s", set.Position(n.Pos()), what)
			}
			return true
		})
	}
}

func impure(info *types.Info, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "goroutine or channel"
	case *ast.RangeStmt:
		if _, ok := info.TypeOf(n.X).Underlying().(*types.Map); ok {
			return "walk over a map"
		}
	case ast.Expr:
		tv := info.Types[n]
		if b, ok := tv.Type.(*types.Basic); ok && b.Info()&(types.IsFloat|types.IsComplex) != 0 && tv.Value == nil {
			return "float"
		}
	}
	return ""
}
