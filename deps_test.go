package sluice

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// forbidden edges, with why. A path stands for itself and everything below it.
var forbidden = []struct{ from, to, why string }{
	{"sidecar", "quotad", "what the two programs share is proto alone"},
	{"quotad", "sidecar", "what the two programs share is proto alone"},
	{"sidecar", "proto/gen/raftlog", "the log's messages never leave quotad"},
	{"sidecar", "proto/gen/admin", "sidecars do not administer"},
	{"quotad/ledger", "proto", "the ledger is pure: the replica carries messages over to it"},
	{"quotad/ledger", "quotad/internal", "the ledger is a leaf"},
	{"quotad/internal/registry", "quotad/internal", "a pure machine: it knows the ledger's nouns and nothing else"},
	{"quotad/internal/rollup", "quotad", "a pure machine"},
	{"quotad/internal/store", "quotad/internal/replica", "the replica drives the store"},
	{"quotad/internal/session", "quotad/internal/api", "edges do not know each other"},
	{"quotad/internal/api", "quotad/internal/session", "edges do not know each other"},
	{"quotad/internal/alert", "quotad/internal/session", "edges do not know each other"},
	{"quotad/internal/alert", "quotad/internal/api", "edges do not know each other"},
	{"sidecar/internal/exchange", "sidecar/internal", "nouns are a leaf"},
	{"sidecar/internal/sse", "sidecar", "framing is a leaf"},
	{"sidecar/internal/jsonseq", "sidecar", "framing is a leaf"},
	{"sidecar/internal/eventstream", "sidecar", "framing is a leaf"},
	{"sidecar/internal/adapter", "sidecar/internal/relay", "adapters own no connection"},
	{"sidecar/internal/adapter", "sidecar/internal/adaptertest", "for tests alone"},
	{"sidecar/internal/adapter", "sidecar/internal/gateway", "adapters know nothing of callers' connections"},
	{"sidecar/internal/adapter/prompt", "sidecar/internal/adapter/reply", "what is asked does not depend on how it is answered"},
	{"sidecar/internal/adapter", "sidecar/internal/credential", "adapters make calls; what needs time or network to authorize them comes later"},
	{"sidecar/internal/credential", "sidecar/internal/relay", "tokens are fetched by their issuers' libraries"},
	{"sidecar/internal/credential", "sidecar/internal/gateway", "rooms do not know the edge"},
	{"sidecar/internal/relay", "sidecar/internal/gateway", "the relay never sees a request context"},
	{"sidecar/internal/policy", "sidecar/internal/gateway", "rooms do not know the edge"},
	{"sidecar/internal/route", "sidecar/internal/relay", "the router decides, the relay does"},
	{"sidecar/lease", "sidecar/internal", "the simulator drives it without the sidecar"},
	{"sidecar/breaker", "sidecar/internal", "the simulator drives it without the sidecar"},
	{"bench/fakeprovider", "sidecar", "a witness shares no code with the accused"},
	{"bench/fakeprovider", "quotad", "a witness shares no code with the accused"},
	{"bench/wire/cost", "sidecar", "a witness shares no code with the accused"},
	{"bench/wire/cost", "quotad", "a witness shares no code with the accused"},
	{"bench/relay/control", "sidecar", "a yardstick shares no code with what it measures"},
	{"quotad/internal/pricelist", "quotad/internal/replica", "it reads files, and knows the registry's nouns alone"},
}

const module = "github.com/sluice-gateway/sluice/"

func TestDependencies(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || path == "tools" || path == "bench/sdk") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		seen[dir] = true
		for _, imp := range f.Imports {
			to, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(to, module)
			if !ours {
				continue
			}
			for _, no := range forbidden {
				if within(dir, no.from) && within(to, no.to) && !within(to, no.from) {
					t.Errorf("%s imports %s: %s", path, to, no.why)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range forbidden {
		found := false
		for dir := range seen {
			found = found || within(dir, no.from)
		}
		if !found {
			t.Errorf("no package %s: the rule about it is dead", no.from)
		}
	}
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// TestSettingsAreReadAlike: the two programs share no package, so each has the files that read its settings and
// certificates. A fault mended in one must be mended in both.
func TestSettingsAreReadAlike(t *testing.T) {
	for _, file := range []string{"load.go", "reload.go"} {
		alike(t, "sidecar/"+file, "quotad/"+file)
	}
}

// TestSecretsAreReadAlike: what quotad takes for a provider's secret is what the sidecar can use.
func TestSecretsAreReadAlike(t *testing.T) {
	alike(t, "sidecar/internal/credential/secret.go", "quotad/internal/api/secret.go")
}

// alike sees that two files differ in the name of their package alone.
func alike(t *testing.T, files ...string) {
	t.Helper()
	var texts []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, text, ok := strings.Cut("\n"+string(b), "\npackage ")
		if !ok {
			t.Fatalf("%s is of no package", file)
		}
		_, text, _ = strings.Cut(text, "\n")
		texts = append(texts, text)
	}
	if texts[0] != texts[1] {
		t.Errorf("%s and %s differ in more than their package", files[0], files[1])
	}
}

// TestNamesAreTheSame: org.yaml takes a name because the sidecar knows what to do with it. The two programs share no
// package, so each has its list of them: one that only quotad had would be served as nobody's in particular, and one that
// only the sidecar had could never be used.
func TestNamesAreTheSame(t *testing.T) {
	const registry = "quotad/internal/registry/deployment.go"
	for what, at := range map[string][2]struct{ file, list string }{
		"vendors":      {{registry, "vendors"}, {"sidecar/internal/adapter/openai/vendor.go", "vendors"}},
		"providers":    {{registry, "supportedProviders"}, {"sidecar/sidecar.go", "Adapters"}},
		"capabilities": {{registry, "capabilities"}, {"sidecar/internal/gateway/steps.go", "demands"}},
	} {
		var names [2][]string
		for i, a := range at {
			if names[i] = namesOf(t, a.file, a.list); len(names[i]) == 0 {
				t.Fatalf("%s has no list %s", a.file, a.list)
			}
			slices.Sort(names[i])
		}
		if !slices.Equal(names[0], names[1]) {
			t.Errorf("%s: quotad has %q, the sidecar %q", what, names[0], names[1])
		}
	}
}

// namesOf are the texts, the keys that are texts, or the texts that entries begin with, of the first literal in what a file
// calls list: a function, a variable or a field.
func namesOf(t *testing.T, file, list string) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	called := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == list }
	inside := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			inside = called(n.Name)
		case *ast.ValueSpec:
			inside = called(n.Names[0])
		case *ast.KeyValueExpr:
			inside = inside || called(n.Key)
		case *ast.CompositeLit:
			if !inside || names != nil {
				return true
			}
			for _, e := range n.Elts {
				if pair, ok := e.(*ast.KeyValueExpr); ok {
					e = pair.Key
				}
				if entry, ok := e.(*ast.CompositeLit); ok && len(entry.Elts) > 0 {
					e = entry.Elts[0]
				}
				if text, ok := e.(*ast.BasicLit); ok {
					name, err := strconv.Unquote(text.Value)
					if err != nil {
						t.Fatal(err)
					}
					names = append(names, name)
				}
			}
		}
		return names == nil
	})
	return names
}
