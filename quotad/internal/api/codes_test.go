package api

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCodesAreDocumented: each code that the code gives is explained in the service's description.
func TestCodesAreDocumented(t *testing.T) {
	description, err := os.ReadFile("../../../proto/admin/v1/admin.proto")
	must(t, err)
	sources, err := filepath.Glob("*.go")
	must(t, err)
	given := map[string]bool{}
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		must(t, err)
		for _, m := range regexp.MustCompile(`connect\.Code([A-Z]\w+)`).FindAllStringSubmatch(string(b), -1) {
			if m[1] != "Of" {
				given[m[1]] = true
			}
		}
	}
	if len(given) < 9 {
		t.Fatalf("codes found: %v", given)
	}
	for code := range given {
		name := strings.ToUpper(regexp.MustCompile(`(.)([A-Z])`).ReplaceAllString(code, "${1}_$2"))
		if !regexp.MustCompile(`//.*\b` + name + `\b`).Match(description) {
			t.Errorf("%s is not explained", name)
		}
	}
}
