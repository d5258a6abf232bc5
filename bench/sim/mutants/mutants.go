// Package mutants breaks the product on purpose, one way at a time, and requires that the simulator finds out.
//
// A mutant is a file NAME.patch beside this one. Its first lines say what it breaks. Then come changes of source files:
//
//	--- quotad/ledger/share.go
//	@@
//	 a line that stays
//	-a line that goes
//	+a line that comes
//
// There are no line numbers: what stays and what goes must stand in the file exactly once. Nothing in the tree is
// changed: the go command builds with the changed files laid over it.
package mutants

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// Mutant is one way to break the product.
type Mutant struct {
	Name   string
	Breaks string // what, in a sentence
	edits  []edit
}

// edit is one change of one file.
type edit struct {
	file     string // from the root of the module
	old, new string
}

// All returns the mutants by name.
func All() ([]Mutant, error) {
	entries, err := patches.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list mutants: %w", err)
	}
	var out []Mutant
	var faults []error
	for _, e := range entries {
		text, err := patches.ReadFile(e.Name())
		if err != nil {
			return nil, fmt.Errorf("read mutant: %w", err)
		}
		m, err := parse(strings.TrimSuffix(e.Name(), ".patch"), string(text))
		faults = append(faults, err)
		out = append(out, m)
	}
	return out, errors.Join(faults...)
}

func parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	file := ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		last := len(m.edits) - 1
		switch {
		case strings.HasPrefix(line, "--- "):
			file = strings.TrimPrefix(line, "--- ")
		case line == "@@" && file != "":
			m.edits = append(m.edits, edit{file: file})
		case file == "":
			m.Breaks = strings.TrimSpace(m.Breaks + " " + line)
		case last >= 0 && (line == "" || line[0] == ' '):
			stays := strings.TrimPrefix(line, " ") + "\n"
			m.edits[last].old += stays
			m.edits[last].new += stays
		case last >= 0 && line[0] == '-':
			m.edits[last].old += line[1:] + "\n"
		case last >= 0 && line[0] == '+':
			m.edits[last].new += line[1:] + "\n"
		default:
			return m, fmt.Errorf("%s.patch:%d: neither a file, nor @@, nor a line that stays, goes or comes", name, i+1)
		}
	}
	if m.Breaks == "" || len(m.edits) == 0 {
		return m, fmt.Errorf("%s.patch: it must say what it breaks, and change something", name)
	}
	return m, nil
}

// Apply returns the changed files by their path from root.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	out := map[string]string{}
	var faults []error
	for _, e := range m.edits {
		text, ok := out[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
			if err != nil {
				faults = append(faults, fmt.Errorf("%s.patch: %w", m.Name, err))
				continue
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			faults = append(faults, fmt.Errorf("%s.patch: %s: what it changes stands there %d times, not once:\n%s",
				m.Name, e.file, n, e.old))
			continue
		}
		out[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return out, errors.Join(faults...)
}

// overlay writes the changed files and the go command's list of them to dir, and returns the list's path.
func (m *Mutant) overlay(root, dir string) (string, error) {
	files, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("lay %s over the tree: %w", file, err)
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("list the files of %s: %w", m.Name, err)
	}
	to := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(to, list, 0o600); err != nil {
		return "", fmt.Errorf("list the files of %s: %w", m.Name, err)
	}
	return to, nil
}
