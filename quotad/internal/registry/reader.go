package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// reader collects faults while a document is read. It remembers the line of every path, so that a fault found later,
// between objects, can still say where it stands.
type reader struct {
	file   string
	faults []Fault
	lines  map[string]int
}

func newReader(file string) *reader { return &reader{file: file, lines: map[string]int{}} }

func (rd *reader) fault(line int, path, format string, args ...any) {
	rd.faults = append(rd.faults, Fault{rd.file, line, path, fmt.Sprintf(format, args...)})
}

// lineOf finds the line of a path, or of the nearest thing around it: a missing key has no line of its own.
func (rd *reader) lineOf(path string) int {
	for path != "" {
		if line, ok := rd.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

func join(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	if strings.HasPrefix(key, "[") {
		return path + key
	}
	return path + "." + key
}

// label is a key as it stands in a path: as it is when it is plain, else quoted and shortened.
func label(key string) string {
	if validIdentity(key) && len(key) <= quoteMax {
		return key
	}
	return clip(key)
}

// mapping is a YAML mapping being read. Every key that is asked for becomes a known one; close refuses the others.
type mapping struct {
	rd    *reader
	path  string
	line  int
	keys  []string // in the order of the text
	at    map[string]*yaml.Node
	from  map[string]int // line of the key
	known []string
}

// mapping opens n. A missing or empty value is an empty mapping: what must stand in it is then reported by name.
func (rd *reader) mapping(n *yaml.Node, path string) *mapping {
	m := &mapping{rd: rd, path: path, at: map[string]*yaml.Node{}, from: map[string]int{}}
	if n == nil {
		return m
	}
	m.line = n.Line
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return m
	case n.Kind != yaml.MappingNode || n.Tag != "!!map":
		rd.fault(n.Line, path, "must be a mapping of keys to values")
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			rd.fault(k.Line, path, "a key must be plain text")
			continue
		}
		if first, ok := m.from[k.Value]; ok {
			rd.fault(k.Line, join(path, label(k.Value)), "stands here a second time%s", seeLine(first))
			continue
		}
		m.keys = append(m.keys, k.Value)
		m.at[k.Value] = v
		m.from[k.Value] = k.Line
		rd.lines[join(path, label(k.Value))] = k.Line
	}
	return m
}

func seeLine(line int) string {
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(", first in line %d", line)
}

// take finds the value of a key, nil when it is absent.
func (m *mapping) take(key string) *yaml.Node {
	m.know(key)
	return m.at[key]
}

func (m *mapping) know(key string) {
	if !slices.Contains(m.known, key) {
		m.known = append(m.known, key)
	}
}

func (m *mapping) sub(key string) string { return join(m.path, label(key)) }

// need is take for a key that must be there.
func (m *mapping) need(key string) *yaml.Node {
	n := m.take(key)
	if n == nil {
		m.rd.fault(m.line, m.sub(key), "is missing")
	}
	return n
}

// close refuses the keys that nobody asked for.
func (m *mapping) close() {
	for _, k := range m.keys {
		if !slices.Contains(m.known, k) {
			m.rd.fault(m.from[k], m.sub(k), "unknown key%s (allowed: %s)", didYouMean(k, m.known), strings.Join(m.known, ", "))
		}
	}
}

// forbid refuses a key with a reason of its own and keeps it out of the list of allowed keys. The value is never
// repeated: it may be a secret.
func (m *mapping) forbid(why string, keys ...string) {
	for _, key := range keys {
		if m.at[key] == nil {
			continue
		}
		m.rd.fault(m.from[key], m.sub(key), "%s", why)
		m.keys = slices.DeleteFunc(m.keys, func(k string) bool { return k == key })
	}
}

// unsupported reads a key whose feature this version does not have. Its shape is checked all the same; taking it and
// doing nothing would be a lie.
func (m *mapping) unsupported(key string, shape func()) {
	if m.at[key] == nil {
		m.know(key)
		return
	}
	before := len(m.rd.faults)
	shape()
	if len(m.rd.faults) == before {
		m.rd.fault(m.from[key], m.sub(key), "not supported in this version: remove it")
	}
}

// scalar is the exact text of a single value.
func (rd *reader) scalar(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		rd.fault(n.Line, path, "must be a single value")
		return "", false
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return n.Value, true
	case "!!null":
		rd.fault(n.Line, path, "has no value")
	default:
		rd.fault(n.Line, path, "YAML tags (%s) are not read", clip(n.Tag))
	}
	return "", false
}

// items are the elements of a list, nil and a fault when it is none or too long.
func (rd *reader) items(n *yaml.Node, path string, max int) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind != yaml.SequenceNode || n.Tag != "!!seq":
		rd.fault(n.Line, path, "must be a list")
		return nil
	case len(n.Content) > max:
		rd.fault(n.Line, path, "has %d items, more than %d", len(n.Content), max)
		return nil
	}
	for i, c := range n.Content {
		rd.lines[fmt.Sprintf("%s[%d]", path, i)] = c.Line
	}
	return n.Content
}

// with reads one value of a mapping, if it is there, and turns the parser's error into a fault.
func (m *mapping) with(n *yaml.Node, key string, parse func(text string) error) {
	if n == nil {
		return
	}
	text, ok := m.rd.scalar(n, m.sub(key))
	if !ok {
		return
	}
	if err := parse(text); err != nil {
		m.rd.fault(n.Line, m.sub(key), "%s", err)
	}
}

func (m *mapping) id(key string, to *string)     { m.with(m.take(key), key, parseID(to)) }
func (m *mapping) needID(key string, to *string) { m.with(m.need(key), key, parseID(to)) }

func parseID(to *string) func(string) error {
	return func(text string) error {
		if !validID(text) {
			return fmt.Errorf("%s is not a name (1 to %d of a-z A-Z 0-9 . _ -)", clip(text), idBytesMax)
		}
		*to = text
		return nil
	}
}

func parseAlias(to *string) func(string) error {
	return func(text string) error {
		if !validAlias(text) {
			return notAlias(text)
		}
		*to = text
		return nil
	}
}

func notAlias(text string) error {
	return fmt.Errorf("%s is not an alias (1 to %d of a-z A-Z 0-9 . _ - : and single slashes)", clip(text), idBytesMax)
}

// text reads a name that is not one of ours, for example a provider's model.
func parseText(to *string) func(string) error {
	return func(text string) error {
		if text == "" || len(text) > textBytesMax || !utf8.ValidString(text) || strings.TrimSpace(text) != text {
			return fmt.Errorf("must be 1 to %d bytes of text without surrounding white space", textBytesMax)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("has characters that do not print")
		}
		*to = text
		return nil
	}
}

// choice reads one of a few words; def stands for an absent key.
func (m *mapping) choice(key string, to *string, def string, allowed ...string) {
	*to = def
	m.with(m.take(key), key, func(text string) error {
		if !slices.Contains(allowed, text) {
			return fmt.Errorf("%s is not allowed (allowed: %s)", clip(text), strings.Join(allowed, ", "))
		}
		*to = text
		return nil
	})
}

func (m *mapping) boolean(key string, to *bool, def bool) {
	*to = def
	m.with(m.take(key), key, func(text string) error {
		if text != "true" && text != "false" {
			return fmt.Errorf("%s is not allowed (allowed: true, false)", clip(text))
		}
		*to = text == "true"
		return nil
	})
}

// integer reads a whole number of at least low and at most high; def stands for an absent key.
func (m *mapping) integer(key string, to *int64, def, low, high int64) {
	*to = def
	m.with(m.take(key), key, parseInteger(to, low, high))
}

const wholeExample = 128_000

func parseInteger(to *int64, low, high int64) func(string) error {
	return func(text string) error {
		v, err := parseDecimal(text, 0)
		if errors.Is(err, errNotDecimal) {
			err = fmt.Errorf("is not a whole number, like %d", min(high, wholeExample))
		}
		if err != nil {
			return fmt.Errorf("%s %w (allowed: %d to %d)", clip(text), err, low, high)
		}
		if v < low || v > high {
			return fmt.Errorf("%s is out of range (allowed: %d to %d)", clip(text), low, high)
		}
		*to = v
		return nil
	}
}

// parseNano reads an amount between low and high billionths.
func parseNano(to *Nano, low, high int64) func(string) error {
	return func(text string) error {
		v, err := parseDecimal(text, nanoDigits)
		if err != nil {
			return fmt.Errorf("%s %w", clip(text), err)
		}
		if v < low || v > high {
			return fmt.Errorf("%s is out of range (allowed: %s to %s)", clip(text),
				formatDecimal(low, nanoDigits), formatDecimal(high, nanoDigits))
		}
		*to = Nano(v)
		return nil
	}
}

// parseShare reads a share between low and high thousandths.
func parseShare(to *Permille, low, high int64) func(string) error {
	return func(text string) error {
		v, err := parseDecimal(text, permilleDigits)
		if err != nil {
			return fmt.Errorf("%s %w", clip(text), err)
		}
		if v < low || v > high {
			return fmt.Errorf("%s is out of range (allowed: %s to %s)", clip(text),
				formatDecimal(low, permilleDigits), formatDecimal(high, permilleDigits))
		}
		*to = Permille(v)
		return nil
	}
}

// duration reads between low and high milliseconds; def stands for an absent key.
func (m *mapping) duration(key string, to *Millis, def, low, high Millis) {
	*to = def
	m.with(m.take(key), key, func(text string) error {
		v, err := parseMillis(text)
		if err != nil {
			return fmt.Errorf("%s %w", clip(text), err)
		}
		if Millis(v) < low || Millis(v) > high {
			return fmt.Errorf("%s is out of range (allowed: %s to %s)", clip(text),
				formatMillis(int64(low)), formatMillis(int64(high)))
		}
		*to = Millis(v)
		return nil
	})
}

func parseMoment(to *Time) func(string) error {
	return func(text string) error {
		v, err := parseTime(text)
		if err != nil {
			return fmt.Errorf("%s %w", clip(text), err)
		}
		*to = Time(v)
		return nil
	}
}

// list reads a list of different words. An empty one is refused where an absent one means all: it reads like none.
func (m *mapping) list(key string, emptyMeans string, parse func(*string) func(string) error) []string {
	n := m.take(key)
	if n == nil {
		return nil
	}
	path := m.sub(key)
	before := len(m.rd.faults)
	nodes := m.rd.items(n, path, listMax)
	if len(nodes) == 0 && len(m.rd.faults) == before && emptyMeans != "" {
		m.rd.fault(n.Line, path, "is empty: %s", emptyMeans)
	}
	var out []string
	seen := make(map[string]bool, len(nodes))
	for i, c := range nodes {
		at := fmt.Sprintf("%s[%d]", path, i)
		// A wrong item stays as "", so that the others keep their places in paths.
		var v string
		if text, ok := m.rd.scalar(c, at); ok {
			if err := parse(&v)(text); err != nil {
				m.rd.fault(c.Line, at, "%s", err)
			}
		}
		if v != "" && seen[v] {
			m.rd.fault(c.Line, at, "%s stands in the list twice", clip(v))
		}
		seen[v] = true
		out = append(out, v)
	}
	return out
}
