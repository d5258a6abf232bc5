package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// section is a part of org.yaml that holds objects of one kind.
type section struct {
	name string
	kind string
	id   string // the key that holds the id, in a section that is a list; empty: a mapping from id to spec
}

// sections stand in the order of kindsInOrder. The currency is none of them: it stands in the head.
func sections() []section {
	return []section{
		{"fx", KindFX, ""},
		{"prices", KindPrice, "id"},
		{"credentials", KindCredential, ""},
		{"deployments", KindDeployment, "id"},
		{"aliases", KindAlias, ""},
		{"org", KindOrg, ""},
		{"business_units", KindBusinessUnit, ""},
		{"teams", KindTeam, ""},
		{"keys", KindKey, "id"},
		{"sidecars", KindSidecar, "identity"},
	}
}

// document is an org.yaml being read.
type document struct {
	*reader
	state *state
	paths map[Ref]string // where each object stands
	order []Ref
}

// Places say where the objects of an org.yaml stand in it.
type Places struct{ doc *document }

// Faults are problems of objects, found against what is stored, as faults of the file where the object stands in it.
func (p *Places) Faults(problems []Problem) error {
	faults := make([]Fault, len(problems))
	for i, x := range problems {
		base := p.doc.paths[x.Ref]
		if base == "" {
			faults[i] = Fault{What: x.String()}
			continue
		}
		path := join(base, x.Path)
		faults[i] = Fault{p.doc.file, p.doc.lineOf(path), path, x.What}
	}
	return sorted(faults)
}

// ParseOrg reads an org.yaml. file is its name in faults. The objects are in canonical form, ordered by kind and id.
// The file must make sense alone: what it refers to must stand in it. The error is *Faults and lists every mistake.
func ParseOrg(file string, text []byte) ([]Object, *Places, error) {
	d := &document{reader: newReader(file), state: newState(), paths: map[Ref]string{}}
	root, wrong := parseYAML(text)
	if wrong != nil {
		d.fault(wrong.Line, "", "%s", wrong.What)
		return nil, nil, sorted(d.faults)
	}
	if d.noAnchors(root); len(d.faults) > 0 {
		return nil, nil, sorted(d.faults)
	}
	if root != nil && (root.Kind != yaml.MappingNode || root.Tag != "!!map") {
		d.fault(root.Line, "", "the file must be a mapping of sections, like teams and keys")
		return nil, nil, sorted(d.faults)
	}
	m := d.mapping(root, "")
	m.line = max(m.line, 1)
	d.head(m)
	for _, s := range sections() {
		d.section(s, m)
	}
	m.close()
	d.checkAll()
	d.checkCapabilities()
	if err := sorted(d.faults); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(d.order, compareRefs)
	objects := make([]Object, len(d.order))
	for i, r := range d.order {
		objects[i] = object(r.ID, d.state.find(r).value)
	}
	return objects, &Places{d}, nil
}

// noAnchors refuses YAML anchors, and so the aliases of them: expanding those lets a small file stand for an endless one.
func (d *document) noAnchors(n *yaml.Node) {
	if n == nil {
		return
	}
	if n.Anchor != "" {
		d.fault(n.Line, "", "YAML anchors and aliases (&name and *name) are not read: write the value out")
	}
	for _, c := range n.Content {
		d.noAnchors(c)
	}
}

func (d *document) head(m *mapping) {
	m.with(m.need("version"), "version", func(text string) error {
		if text != "1" {
			return fmt.Errorf("%s is not a known version of this file (allowed: 1)", clip(text))
		}
		return nil
	})
	c := &Currency{}
	m.with(m.take("currency"), "currency", parseCurrency(&c.Code))
	if c.Code != "" && c.Code != usd {
		d.keep(Ref{KindCurrency, OrgID}, "currency", c)
	}
}

// section reads the objects of one section.
func (d *document) section(s section, root *mapping) {
	n := root.take(s.name)
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		// A section whose entries are all commented out is an empty one.
	case s.kind == KindOrg:
		if m := d.mapping(n, s.name); m != nil {
			d.add(Ref{s.kind, OrgID}, m, m.line)
		}
	case s.id == "":
		list := d.mapping(n, s.name)
		if list == nil {
			return
		}
		for _, id := range list.keys {
			ref, path := Ref{s.kind, id}, list.sub(id)
			if !d.goodID(ref, path, list.from[id]) {
				continue
			}
			if m := d.mapping(list.take(id), path); m != nil {
				d.add(ref, m, list.from[id])
			} else {
				d.addBroken(ref)
			}
		}
	default:
		for i, c := range d.items(n, s.name, objectsMax) {
			d.item(s, i, c)
		}
	}
}

// item reads one element of a section that is a list. Its path shows the id, which people know, and not its number.
func (d *document) item(s section, i int, n *yaml.Node) {
	path := fmt.Sprintf("%s[%d]", s.name, i)
	id := ""
	if n.Kind == yaml.MappingNode {
		for j := 0; j+1 < len(n.Content); j += 2 {
			if n.Content[j].Value == s.id && n.Content[j+1].Kind == yaml.ScalarNode && n.Content[j+1].Tag != "!!null" {
				id = n.Content[j+1].Value
			}
		}
	}
	if validObjectID(s.kind, id) {
		path = fmt.Sprintf("%s[%s]", s.name, id)
		if d.lines[path] == 0 {
			d.lines[path] = n.Line
		}
	}
	m := d.mapping(n, path)
	if m == nil {
		return
	}
	idNode := m.need(s.id)
	ref := Ref{s.kind, id}
	if idNode == nil || !d.goodID(ref, m.sub(s.id), idNode.Line) {
		// The rest is read for its faults alone.
		d.read(s.kind, m)
		return
	}
	d.add(ref, m, idNode.Line)
}

func (d *document) goodID(r Ref, path string, line int) bool {
	if !validObjectID(r.Kind, r.ID) {
		switch r.Kind {
		case KindSidecar:
			d.fault(line, path, "%s is not an identity (1 to %d visible ASCII characters)", clip(r.ID), identityBytesMax)
		case KindAlias:
			d.fault(line, path, "%s", notAlias(r.ID))
		default:
			d.fault(line, path, "%s is not a name (1 to %d of a-z A-Z 0-9 . _ -)", clip(r.ID), idBytesMax)
		}
		return false
	}
	if r.Kind == KindFX && !isMonth(r.ID) {
		d.fault(line, path, "%s is not a month, like 2026-11", clip(r.ID))
		return false
	}
	return true
}

var month = regexp.MustCompile(`^2[01]\d\d-(0[1-9]|1[0-2])$`)

func isMonth(s string) bool { return month.MatchString(s) }

// add reads an object and keeps it. A second one of the same name is a fault, and read for its faults.
func (d *document) add(r Ref, m *mapping, line int) {
	if _, twice := d.paths[r]; twice {
		d.fault(line, m.path, "%s %q stands here a second time", r.Kind, r.ID)
		d.read(r.Kind, m)
		return
	}
	v := d.read(r.Kind, m)
	v.identify(r.ID)
	d.keep(r, m.path, v)
}

// keep makes v an object of the file that stands at path.
func (d *document) keep(r Ref, path string, v value) {
	d.paths[r] = path
	d.order = append(d.order, r)
	d.state.put(&entry{Object: Object{Kind: r.Kind, ID: r.ID}, value: v})
}

// addBroken keeps the name of an object that cannot be read, so that what refers to it is not reported too.
func (d *document) addBroken(r Ref) {
	v := newValue(r.Kind)
	v.identify(r.ID)
	d.paths[r] = ""
	d.state.put(&entry{Object: Object{Kind: r.Kind, ID: r.ID}, value: v})
}

// checkAll checks the objects against each other.
func (d *document) checkAll() {
	c := newChecker(d.state, false, nil)
	for _, r := range d.order {
		base := d.paths[r]
		for _, p := range c.check(d.state.find(r)) {
			path := join(base, p.Path)
			d.fault(d.lineOf(path), path, "%s", p.What)
		}
	}
}

// checkCapabilities refuses a capability that nothing asks for: it is misspelt, and its deployment would be passed over. What
// is stored already is not asked this: an alias may have gone.
func (d *document) checkCapabilities() {
	known := capabilities()
	for _, a := range valuesOf[*Alias](d.state, KindAlias) {
		if d.paths[Ref{KindAlias, a.ID}] == "" {
			return // it could not be read
		}
		known = append(known, a.Needs...)
	}
	for _, dep := range valuesOf[*Deployment](d.state, KindDeployment) {
		for i, name := range dep.Capabilities {
			if name != "" && !slices.Contains(known, name) {
				path := fmt.Sprintf("%s.capabilities[%d]", d.paths[Ref{KindDeployment, dep.ID}], i)
				d.fault(d.lineOf(path), path, "%s is none of %s, and no alias needs it%s", clip(name), strings.Join(capabilities(), ", "),
					didYouMean(name, known))
			}
		}
	}
}

// ParseObject reads one object from JSON in the shape of its part of org.yaml, without its id. What it refers to is
// checked when it is applied. The error is *Faults; paths are within the object.
func ParseObject(kind, id string, spec []byte) (Object, error) {
	rd := newReader("")
	if newValue(kind) == nil {
		rd.fault(0, "", "unknown kind %s (allowed: %s)", clip(kind), strings.Join(kindsInOrder(), ", "))
		return Object{}, sorted(rd.faults)
	}
	d := &document{reader: rd}
	if !d.goodID(Ref{kind, id}, "id", 0) {
		return Object{}, sorted(rd.faults)
	}
	m := rd.jsonMapping(spec, "")
	if m == nil {
		return Object{}, sorted(rd.faults)
	}
	// An id inside is allowed when it says the same.
	for _, s := range sections() {
		if s.kind == kind && s.id != "" && m.at[s.id] != nil {
			m.with(m.take(s.id), s.id, func(text string) error {
				if text != id {
					return fmt.Errorf("%s is not %q", clip(text), id)
				}
				return nil
			})
		}
	}
	v := rd.read(kind, m)
	if err := sorted(rd.faults); err != nil {
		return Object{}, err
	}
	return object(id, v), nil
}

// WithBudget is the team with another budget, from JSON in the shape of teams.*.budget. The error is *Faults, or a
// Fault when there is no such team.
func (r *Registry) WithBudget(team string, spec []byte) (Object, error) {
	t, ok := r.Team(team)
	if !ok {
		return Object{}, Fault{Path: "team", What: fmt.Sprintf("no team %s", clip(team))}
	}
	rd := newReader("")
	n, err := decodeJSON(spec)
	if err != nil {
		rd.fault(0, "", "%s", err)
		return Object{}, sorted(rd.faults)
	}
	t.Budget = rd.budgetAt(n, "")
	if err := sorted(rd.faults); err != nil {
		return Object{}, err
	}
	return t.Object(), nil
}

func (rd *reader) jsonMapping(spec []byte, path string) *mapping {
	n, err := decodeJSON(spec)
	if err != nil {
		rd.fault(0, path, "%s", err)
		return nil
	}
	if n.Kind != yaml.MappingNode {
		rd.fault(0, path, "must be a JSON object")
		return nil
	}
	return rd.mapping(n, path)
}
