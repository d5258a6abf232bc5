package registry

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// YAML is the whole configuration as one org.yaml. ParseOrg reads the same objects back.
func (r *Registry) YAML() string {
	root := newMapping()
	put(root, "version", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: "1"})
	put(root, "currency", text(r.Currency()))
	for _, s := range sections() {
		var objects []Object
		for _, id := range sortedKeys(r.state.objects[s.kind]) {
			objects = append(objects, r.state.objects[s.kind][id].Object)
		}
		if len(objects) > 0 {
			put(root, s.name, s.render(objects))
		}
	}
	return rendered(root)
}

// YAML is the object as it stands in an org.yaml, within its section.
func (o Object) YAML() string {
	root := newMapping()
	for _, s := range sections() {
		if s.kind == o.Kind {
			put(root, s.name, s.render([]Object{o}))
		}
	}
	return rendered(root)
}

// render is a section with these objects.
func (s section) render(objects []Object) *yaml.Node {
	out := newMapping()
	if s.id != "" {
		out = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	for _, o := range objects {
		spec := forYAML(storedTree(o.Spec))
		switch {
		case s.kind == KindOrg:
			out = spec
		case s.id == "":
			put(out, o.ID, spec)
		default:
			item := newMapping()
			put(item, s.id, text(o.ID))
			item.Content = append(item.Content, spec.Content...)
			out.Content = append(out.Content, item)
		}
	}
	return out
}

func rendered(root *yaml.Node) string {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		panic("BUG: the configuration does not encode: " + err.Error())
	}
	if err := e.Close(); err != nil {
		panic("BUG: the configuration does not encode: " + err.Error())
	}
	return b.String()
}

func newMapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} }

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func put(m *yaml.Node, key string, v *yaml.Node) { m.Content = append(m.Content, text(key), v) }

// forYAML makes a JSON tree read well: what fits a line stands on one, and numbers carry no tag, which would be
// written out where YAML calls them something else than JSON does.
func forYAML(n *yaml.Node) *yaml.Node {
	if n.Tag == "!!float" {
		n.Tag = ""
	}
	for _, c := range n.Content {
		forYAML(c)
	}
	if n.Kind != yaml.ScalarNode && plain(n) {
		n.Style = yaml.FlowStyle
	}
	return n
}
