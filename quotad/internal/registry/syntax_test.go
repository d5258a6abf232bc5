package registry

import (
	"strings"
	"testing"
)

// TestSyntaxIsFaultyWhereItIs: a mistake in YAML is told with the line it stands in, whatever is around it.
func TestSyntaxIsFaultyWhereItIs(t *testing.T) {
	const head = "version: 1\nteams:\n  a:\n    weight: 1\n"
	long := strings.Repeat("# x\n", suspectsMax)
	for _, tc := range []struct{ name, text, want string }{
		{"a brace too many", head + "  b: { weight: 2 } }\n  c: {}\n", "org.yaml:5: did not find expected key"},
		{"comments after it", head + "  b: { weight: 2 } } # b\n# c\n\n  # d\n  c: {}\n", "org.yaml:5: did not find expected key"},
		{"the last line", head + "  b: { weight: 2 } }", "org.yaml:5: did not find expected key"},
		{"an open list", head + "x: [1, 2\nkeys: []\norg: {}\n", "org.yaml:5: did not find expected ',' or ']'"},
		{"an open list of several lines", head + "x: [1,\n  2\nkeys: []\norg: {}\n", "org.yaml:6: did not find expected ',' or ']'"},
		{"a wrong indent", head + "    priority: batch\n   account: x\n  b: {}\n", "org.yaml:6: did not find expected key"},
		{"a wrong indent of a mapping", head + "   b:\n      weight: 1\n  c: {}\n", "org.yaml:5: did not find expected key"},
		{"a key among items", head + "keys:\n  - id: a\n  team: b\n  - id: c\n", "org.yaml:7: did not find expected '-' indicator"},
		{"text after a text", head + "    account: 'x' y\n  b: {}\n", "org.yaml:5: did not find expected key"},
		{"no colon", head + "  b\n  c: {}\n", "org.yaml:5: could not find expected ':'"},
		{"a tab", head + "\tweight: 2\n", "org.yaml:5: found a tab character that violates indentation"},
		{"a control character", head + "  b: \x01\n  c: {}\n", "org.yaml:5: control characters are not allowed"},
		{"an open quote", head + "x: 'y\nkeys: []\n", "org.yaml:5: found unexpected end of stream"},
		{"an open list, far from where it shows", head + "x: [1\n" + long + "keys: 1\n",
			"org.yaml:22: did not find expected ',' or ']' (here or before, in what begins in line 5)"},
		{"an open quote, far from where it shows", head + "x: 'y\n" + long + "keys: 1\n", "org.yaml:5: found unexpected end of stream"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := ParseOrg("org.yaml", []byte(tc.text)); err == nil || err.Error() != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}
