package sluice

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitectureNamesWhatExists: every package and path that ARCHITECTURE.md and README.md name in backquotes is there.
func TestArchitectureNamesWhatExists(t *testing.T) {
	path := regexp.MustCompile("`((?:sidecar|quotad|proto|bench|deploy|tools)(?:/[a-zA-Z0-9_.-]+)*)`")
	count := 0
	for _, doc := range []string{"ARCHITECTURE.md", "README.md"} {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range path.FindAllStringSubmatch(string(b), -1) {
			count++
			if _, err := os.Stat(strings.TrimSuffix(m[1], "/")); err != nil {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
	if count < 20 {
		t.Errorf("found only %d names: the pattern has gone blind", count)
	}
}

// TestTestsNamedExist: every test that ARCHITECTURE.md gives as evidence is there.
func TestTestsNamedExist(t *testing.T) {
	b, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	files, err := filepath.Glob("bench/system/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(src)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(b), -1) {
		if !strings.Contains(all.String(), "func "+name[1]+"(") {
			t.Errorf("no test %s", name[1])
		}
	}
}
