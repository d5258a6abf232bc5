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
		ids := sortedKeys(r.state.objects[s.kind])
		if len(ids) == 0 {
			continue
		}
		section := newMapping()
		if s.id != "" {
			section = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for _, id := range ids {
			spec := forYAML(storedTree(r.state.objects[s.kind][id].Spec))
			switch {
			case s.kind == KindOrg:
				section = spec
			case s.id == "":
				put(section, id, spec)
			default:
				item := newMapping()
				put(item, s.id, text(id))
				item.Content = append(item.Content, spec.Content...)
				section.Content = append(section.Content, item)
			}
		}
		put(root, s.name, section)
	}
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
