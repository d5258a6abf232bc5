package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// This file asks the parser what it takes, by giving it files with one thing in them changed: it is the only list there is.

// fact is what the parser was found to make of a key.
type fact struct {
	shown    bool            // it stands in the file
	needed   bool            // without it, it was missing
	optional bool            // without it, the file was good
	defs     map[string]bool // what then stood in its place, as JSON
	allowed  map[string]bool // what may stand there: words, or a range
	asked    bool            // allowed is known
}

func newFact() *fact { return &fact{defs: map[string]bool{}, allowed: map[string]bool{}} }

// prober changes a good file, which is put right again after each question.
type prober struct {
	root  *yaml.Node
	facts map[string]*fact // by place: the keys that lead there, without names and numbers
}

// findOut asks about every key of a file.
func findOut(t *testing.T, root *yaml.Node) map[string]*fact {
	t.Helper()
	if _, faults := parseNode(root); faults != nil {
		t.Fatalf("not a good file: %v", faults)
	}
	p := &prober{root, map[string]*fact{}}
	p.ask(root, nil, nil)
	return p.facts
}

func parseNode(root *yaml.Node) ([]Object, []Fault) {
	objects, _, err := ParseOrg("org.yaml", []byte(rendered(root)))
	var f *Faults
	if errors.As(err, &f) {
		return nil, f.List
	}
	return objects, nil
}

// ask visits the keys of n, which stands at a place, and at a path with all names and numbers.
func (p *prober) ask(n *yaml.Node, place, path []string) {
	switch n.Kind {
	case yaml.SequenceNode:
		for i, c := range n.Content {
			p.ask(c, place, with(path, strconv.Itoa(i)))
		}
	case yaml.MappingNode:
		known := p.known(n)
		for _, k := range known {
			if f := p.fact(with(place, k)); p.under(n, k).IsZero() {
				f.optional = true
			}
		}
		for i := 0; i < len(n.Content); i += 2 {
			k, under := n.Content[i].Value, place
			if known != nil {
				under = with(place, k)
				p.without(n, i, p.fact(under), with(path, k))
			}
			p.ask(n.Content[i+1], under, with(path, k))
		}
	case yaml.ScalarNode:
		if f := p.fact(place); !f.asked { // bounds are the same wherever a key stands
			f.asked = true
			maps.Copy(f.allowed, p.bounds(n))
		}
	}
}

func with(path []string, more string) []string { return append(slices.Clone(path), more) }

func (p *prober) fact(place []string) *fact {
	at := strings.Join(place, ".")
	if p.facts[at] == nil {
		p.facts[at] = newFact()
	}
	return p.facts[at]
}

// known are the keys that the parser says it takes in a mapping; nil where the keys are names.
func (p *prober) known(n *yaml.Node) []string {
	was := n.Content
	defer func() { n.Content = was }()
	n.Content = append(slices.Clone(was), text("no_such_key"), text("x"))
	_, faults := parseNode(p.root)
	for _, f := range faults {
		if list, ok := strings.CutPrefix(f.What, "unknown key (allowed: "); ok {
			known := strings.Split(strings.TrimSuffix(list, ")"), ", ")
			slices.Sort(known)
			return slices.Compact(known)
		}
	}
	return nil
}

// without finds out what the parser makes of a file without the key at i of n.
func (p *prober) without(n *yaml.Node, i int, f *fact, path []string) {
	was := n.Content
	f.shown = true
	defer func() { n.Content = was }()
	n.Content = slices.Concat(was[:i], was[i+2:])
	objects, faults := parseNode(p.root)
	for _, x := range faults {
		if ("." + x.Path)[strings.LastIndex("."+x.Path, "."):] == "."+was[i].Value && strings.HasPrefix(x.What, "is missing") {
			f.needed = true
			return
		}
	}
	if faults != nil {
		return // others are about it
	}
	f.optional = true
	if def := p.lookup(objects, path); def != "" {
		f.defs[def] = true
	}
}

// lookup is what stands at a path in the canonical objects, a text without its quotes; empty for nothing, or for a mapping.
func (p *prober) lookup(objects []Object, path []string) string {
	i := slices.IndexFunc(sections(), func(s section) bool { return s.name == path[0] })
	if i < 0 || len(path) < 2 {
		return ""
	}
	s := sections()[i]
	id, rest := path[1], path[2:]
	switch {
	case s.kind == KindOrg:
		id, rest = OrgID, path[1:]
	case s.id != "":
		number, _ := strconv.Atoi(id)
		list := p.under(p.root, s.name)
		id = p.under(list.Content[number], s.id).Value
	}
	o := slices.IndexFunc(objects, func(o Object) bool { return o.Kind == s.kind && o.ID == id })
	if o < 0 {
		return ""
	}
	at := json.RawMessage(objects[o].Spec)
	for _, step := range rest {
		var m map[string]json.RawMessage
		var l []json.RawMessage
		if json.Unmarshal(at, &m) == nil {
			at = m[step]
		} else if number, err := strconv.Atoi(step); err == nil && json.Unmarshal(at, &l) == nil && number < len(l) {
			at = l[number]
		} else {
			return ""
		}
	}
	if strings.HasPrefix(string(at), "{") {
		return ""
	}
	return strings.Trim(string(at), `"`)
}

// under is the value of a key of a mapping; an empty one without it.
func (*prober) under(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return &yaml.Node{}
}

var bound = regexp.MustCompile(`(?:is not allowed|is out of range|number, like \S+) \(allowed: ([^)]*)\)$`)

// bounds is what the parser says is allowed in the place of n, when something else stands there: a word, and a number and a
// duration beyond all bounds.
func (p *prober) bounds(n *yaml.Node) map[string]bool {
	was := *n
	defer func() { *n = was }()
	out := map[string]bool{}
	for _, wrong := range []string{"no_such_word", "9e15", "99999h"} {
		*n = *text(wrong)
		_, faults := parseNode(p.root)
		for _, f := range faults {
			if m := bound.FindStringSubmatch(f.What); m != nil {
				out[m[1]] = true
			}
		}
	}
	return out
}

var long = regexp.MustCompile(`\d{4,}`)

// grouped writes large whole numbers as people do: 1,000,000.
func grouped(s string) string {
	return long.ReplaceAllStringFunc(s, func(digits string) string {
		if v, err := strconv.ParseInt(digits, 10, 64); err == nil && digits[0] != '0' {
			digits = strconv.FormatInt(v, 10)
			for i := len(digits) - 3; i > 0; i -= 3 {
				digits = digits[:i] + "," + digits[i:]
			}
		}
		return digits
	})
}

// add adds what was found of the same key elsewhere.
func (f *fact) add(o *fact) {
	f.shown, f.needed, f.optional = f.shown || o.shown, f.needed || o.needed, f.optional || o.optional
	maps.Copy(f.defs, o.defs)
	maps.Copy(f.allowed, o.allowed)
}

// differs is how a row of a table is wrong about a key.
func (f *fact) differs(r row) (out []string) {
	if must := f.needed && !f.optional; must != (r.def == "needed") {
		out = append(out, fmt.Sprintf("needed: %v, but the page says %q", must, r.def))
	}
	if len(f.defs) == 1 && !f.needed {
		for def := range f.defs {
			if !strings.Contains(strings.ReplaceAll(r.def, " ", ""), "`"+def+"`") {
				out = append(out, fmt.Sprintf("the default is %s, but the page says %q", def, r.def))
			}
		}
	}
	for allowed := range f.allowed {
		if strings.Contains(allowed, " to ") {
			if !strings.Contains(r.values, grouped(allowed)) {
				out = append(out, fmt.Sprintf("allowed is %s, but the page says %q", grouped(allowed), r.values))
			}
			continue
		}
		words := strings.Split(allowed, ", ")
		for _, word := range words {
			if !strings.Contains(r.values, "`"+word+"`") {
				out = append(out, fmt.Sprintf("%s is allowed, but the page says %q", word, r.values))
			}
		}
		for _, said := range quoted.FindAllStringSubmatch(r.values, -1) {
			if !slices.Contains(words, said[1]) {
				out = append(out, fmt.Sprintf("%s is not allowed, but the page says %q", said[1], r.values))
			}
		}
	}
	return out
}
