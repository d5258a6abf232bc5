package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReadmeHasTheCodes: README's table of statuses has every code that a refusal may have, and no other.
func TestReadmeHasTheCodes(t *testing.T) {
	codes := codesInSource(t)
	if len(codes) < 30 {
		t.Fatalf("only %d codes are in the source: the test has gone blind", len(codes))
	}
	delete(codes, "caller_gone") // which nobody is there to read
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	quoted := regexp.MustCompile("`([a-z_]+)`")
	for line := range strings.Lines(string(readme)) {
		if !regexp.MustCompile(`^\| [1-5][0-9][0-9] `).MatchString(line) {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			told[m[1]] = true
			if !codes[m[1]] && !strings.HasSuffix(m[1], "_per_minute") { // which are names of resources
				t.Errorf("README has %s, which no refusal has", m[1])
			}
		}
	}
	for code := range codes {
		if !told[code] {
			t.Errorf("README lacks %s", code)
		}
	}
}

// codesInSource are the texts that this package sets the member code of anything to.
func codesInSource(t *testing.T) map[string]bool {
	t.Helper()
	codes := map[string]bool{}
	collect := func(e ast.Expr) {
		ast.Inspect(e, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil {
					codes[s] = true
				}
			}
			return true
		})
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "code" {
					collect(n.Value)
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if s, ok := to.(*ast.SelectorExpr); ok && s.Sel.Name == "code" && len(n.Rhs) == len(n.Lhs) {
						collect(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	return codes
}
