package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one mistake in a configuration text.
type Fault struct {
	File string
	Line int    // 0: not known, as in JSON
	Path string // for example teams.support-bot.budget.monthly
	What string // what is wrong, and what is allowed
}

// Error is file:line: path: what, without the parts that are not known.
func (f Fault) Error() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%s:%d: ", f.File, f.Line)
	} else if f.File != "" {
		b.WriteString(f.File + ": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.What)
	return b.String()
}

// Faults are all the mistakes of a text, by line.
type Faults struct {
	List []Fault // at most 50
	More int     // further ones
}

// Error is one line a fault.
func (f *Faults) Error() string {
	lines := make([]string, 0, len(f.List)+1)
	for _, x := range f.List {
		lines = append(lines, x.Error())
	}
	if f.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", f.More))
	}
	return strings.Join(lines, "\n")
}

// sorted gives the faults as an error, nil when there are none.
func sorted(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	f := &Faults{List: faults}
	if len(faults) > faultsMax {
		f.List, f.More = faults[:faultsMax:faultsMax], len(faults)-faultsMax
	}
	return f
}
