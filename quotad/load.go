package quotad

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads settings from a YAML file (none when file is empty), then the environment, then flags (by key); later
// ones win. It reports every fault it finds, with file:line where there is one. The result has its defaults.
func Load(file string, environ []string, flags map[string]string, dev bool) (Config, error) {
	c := Config{Dev: dev}
	from := map[string]string{} // where a key's value stands
	var faults []error
	if file != "" {
		faults = append(faults, loadFile(&c, file, from)...)
	}
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	for _, s := range Settings() {
		set := func(where, value string) {
			from[s.Key] = where
			if err := s.Set(&c, value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", where, err))
			}
		}
		if v, ok := env[s.Env()]; ok {
			set(s.Env(), v)
		}
		if v, ok := flags[s.Key]; ok {
			set("--"+s.Flag(), v)
		}
	}
	c = c.WithDefaults()
	for _, f := range c.faults() {
		if where := from[f.Key]; where != "" {
			faults = append(faults, fmt.Errorf("%s: %s", where, f.What))
			continue
		}
		faults = append(faults, f)
	}
	return c, errors.Join(faults...)
}

func loadFile(c *Config, file string, from map[string]string) []error {
	b, err := os.ReadFile(file)
	if err != nil {
		return []error{fmt.Errorf("read configuration: %w", err)}
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // nothing but comments
	case err != nil:
		return []error{atLine(file, err)}
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s: the file must be one YAML document", file)}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("%s:%d: the file must be a mapping of keys", file, root.Line)}
	}
	settings := map[string]Setting{}
	for _, s := range Settings() {
		settings[s.Key] = s
	}
	seen := map[string]int{}
	var faults []error
	flatten("", root, func(key string, line int, value string, ok bool) {
		s, known := settings[key]
		switch {
		case !known:
			faults = append(faults, fmt.Errorf("%s:%d: unknown key %q", file, line, key))
		case !ok:
			faults = append(faults, fmt.Errorf("%s:%d: %s: must be a plain value", file, line, key))
		case seen[key] > 0:
			faults = append(faults, fmt.Errorf("%s:%d: %s: already set on line %d", file, line, key, seen[key]))
		default:
			seen[key] = line
			from[key] = fmt.Sprintf("%s:%d: %s", file, line, key)
			if err := s.Set(c, value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", from[key], err))
			}
		}
	})
	return faults
}

// atLine puts a syntax error's line, which the parser has in its text, where every other fault has it.
func atLine(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s:%s: %s", file, m[1], text[len(m[0]):])
	}
	return fmt.Errorf("%s: %s", file, text)
}

// flatten visits the leaves of a mapping; a list of plain values is one leaf, joined by commas.
func flatten(prefix string, n *yaml.Node, visit func(key string, line int, value string, ok bool)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := prefix + k.Value
		switch v.Kind {
		case yaml.MappingNode:
			flatten(key+".", v, visit)
		case yaml.ScalarNode:
			visit(key, k.Line, v.Value, true)
		case yaml.SequenceNode:
			var items []string
			for _, e := range v.Content {
				items = append(items, e.Value)
			}
			plain := !slices.ContainsFunc(v.Content, func(e *yaml.Node) bool { return e.Kind != yaml.ScalarNode })
			visit(key, k.Line, strings.Join(items, ","), plain)
		default:
			visit(key, k.Line, "", false)
		}
	}
}
