package registry

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const orgPage = "../../../docs/org.md"

// page is what docs/org.md says, as far as a test can read it.
type page struct {
	pieces []string       // of one org.yaml
	wrong  [][2]string    // files that are refused, and what is told then
	rows   map[string]row // of the tables of keys, by heading and key: deployments.base_url
}

type row struct{ values, def string }

var (
	fence    = regexp.MustCompile("(?s)(?:^|\n)```([a-z]*)\n(.*?)```\n")
	quoted   = regexp.MustCompile("`([^`]+)`")
	keyTable = "| key |"
)

// readPage takes a page apart. A block of YAML with a block of text behind it is a file that is refused.
func readPage(t *testing.T, file string) page {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := page{rows: map[string]row{}}
	for _, m := range fence.FindAllStringSubmatch(string(b), -1) {
		switch last := len(p.pieces) - 1; m[1] {
		case "yaml":
			p.pieces = append(p.pieces, m[2])
		case "text":
			p.wrong = append(p.wrong, [2]string{p.pieces[last], m[2]})
			p.pieces = p.pieces[:last]
		}
	}
	heading, keys := "", false
	for line := range strings.SplitSeq(string(b), "\n") {
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimPrefix(line, "## ") + "."
			if strings.Contains(heading, " ") { // the file itself
				heading = ""
			}
		case strings.HasPrefix(line, keyTable):
			keys = true
		case !strings.HasPrefix(line, "|"):
			keys = false
		case keys && len(cells) != 6:
			if t.Errorf("%s: a row of %d cells: %s", file, len(cells)-2, line); len(cells) < 6 {
				continue
			}
			fallthrough
		case keys:
			for _, k := range quoted.FindAllStringSubmatch(cells[1], -1) {
				if _, twice := p.rows[heading+k[1]]; twice {
					t.Errorf("%s: %s%s stands here twice", file, heading, k[1])
				}
				p.rows[heading+k[1]] = row{strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])}
			}
		}
	}
	return p
}

// joined is the one file that pieces are of: what stands in a section here and there stands in it together.
func joined(t *testing.T, pieces []string) *yaml.Node {
	t.Helper()
	root := newMapping()
	for _, piece := range pieces {
		n, err := parseYAML([]byte(piece))
		if err != nil {
			t.Fatalf("%v in\n%s", err, piece)
		}
		for i := 0; i < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			at := slices.IndexFunc(root.Content, func(o *yaml.Node) bool { return o.Value == k.Value })
			if at < 0 || v.Kind == yaml.ScalarNode || v.Kind != root.Content[at+1].Kind {
				root.Content = append(root.Content, k, v) // a second time, the parser says
				continue
			}
			root.Content[at+1].Content = append(root.Content[at+1].Content, v.Content...)
		}
	}
	return root
}

// TestPageParses: the pieces of YAML in docs/org.md are one good file, with a deployment of every provider; the file that
// it calls wrong is told as it says. The blocks of the pages it leads to are good files too.
func TestPageParses(t *testing.T) {
	p := readPage(t, orgPage)
	objects, faults := parseNode(joined(t, p.pieces))
	for _, f := range faults {
		t.Errorf("%s: %s: %s", orgPage, f.Path, f.What)
	}
	seen := map[string]bool{}
	for _, o := range objects {
		if v, err := decode(o); err != nil {
			t.Error(err)
		} else if d, ok := v.(*Deployment); ok {
			seen[d.Provider] = true
		}
	}
	for _, provider := range supportedProviders() {
		if !seen[provider] {
			t.Errorf("%s: no deployment of %s", orgPage, provider)
		}
	}
	if len(p.wrong) == 0 {
		t.Errorf("%s: no fault is shown: the pattern has gone blind", orgPage)
	}
	allowed := regexp.MustCompile(`(unknown key.* \(allowed: ).*\)`)
	for _, w := range p.wrong {
		_, _, err := ParseOrg("org.yaml", []byte(w[0]))
		var f *Faults
		if !errors.As(err, &f) {
			t.Errorf("%s: this file is said to be refused: %v\n%s", orgPage, err, w[0])
		} else if got := allowed.ReplaceAllString(err.Error(), "${1}…)") + "\n"; got != w[1] {
			t.Errorf("%s says\n%sthe parser\n%s", orgPage, w[1], got)
		}
	}
	for _, other := range []string{"prices", "model-server"} {
		for _, piece := range readPage(t, "../../../docs/"+other+".md").pieces {
			if _, _, err := ParseOrg(other+".md", []byte("version: 1\n"+piece)); err != nil {
				t.Errorf("%v in\n%s", err, piece)
			}
		}
	}
}

// laterKeys has the keys that are known and not supported, each in its form.
const laterKeys = `version: 1
deployments: [{ id: d, provider: compatible, base_url: "http://h", model: m, unpriced: allow }]
aliases:
  a:
    targets: [{ deployment: d }]
    fallback_alias: b
    hedge_after: 2s
    continuation: same_model
    split: { candidate: d, percent: 5, by: user }
    shadow: { deployment: d, percent: 5 }
    canary: { deployment: d, steps: [1, 100] }
    cache: {}
    guard: {}
`

// TestPageNamesEveryKey: the tables of docs/org.md have the keys that the parser takes and no others, with its defaults
// and bounds, and every key stands in an example. The keys of a price stand in docs/prices.md instead.
func TestPageNamesEveryKey(t *testing.T) {
	p := readPage(t, orgPage)
	facts := findOut(t, joined(t, p.pieces))
	if len(facts) < 80 {
		t.Fatalf("found only %d keys: the probes have gone blind", len(facts))
	}
	priced := findOut(t, joined(t, append(readPage(t, "../../../docs/prices.md").pieces, "version: 1\n")))
	_, faults := parseNode(joined(t, []string{laterKeys}))
	later := map[string]bool{}
	for _, f := range faults {
		if strings.HasPrefix(f.What, "not supported in this version") {
			later["aliases"+f.Path[strings.LastIndex(f.Path, "."):]] = true
		}
	}
	found := map[string]*fact{} // by row
	for _, place := range sortedKeys(facts) {
		if strings.HasPrefix(place, "prices.per_million_usd.") {
			if priced[place] == nil || !priced[place].shown {
				t.Errorf("docs/prices.md has no %s", place)
			}
			continue
		}
		at := place
		if _, ok := p.rows[at]; !ok { // budget and limits have tables of their own
			parts := strings.Split(place, ".")
			at = strings.Join(parts[max(0, len(parts)-2):], ".")
		}
		if _, ok := p.rows[at]; !ok {
			t.Errorf("%s: no row for %s", orgPage, place)
			continue
		}
		if found[at] == nil {
			found[at] = newFact()
		}
		found[at].add(facts[place])
	}
	for _, at := range sortedKeys(p.rows) {
		f := found[at]
		if f == nil {
			t.Errorf("%s: the parser knows no %s", orgPage, at)
			continue
		}
		if f.shown == later[at] {
			t.Errorf("%s: %s stands in an example: %v; the parser does not support it: %v", orgPage, at, f.shown, later[at])
		}
		for _, what := range f.differs(p.rows[at]) {
			t.Errorf("%s: %s: %s", orgPage, at, what)
		}
	}
}
