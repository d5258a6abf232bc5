// Package registry is the configuration: teams, keys, aliases, deployments, prices and what else stands in an
// org.yaml, as a state machine over objects.
//
// It is pure. It reads no clock, does no I/O and starts nothing; the same changes in the same order give the same
// state on every node. Parsing (ParseOrg, ParseObject) is strict and reports every fault. Applying checks again only
// what depends on the state: that references lead somewhere, that no price version is edited, that secrets differ.
//
// Units: money in nano-dollars, durations and times in milliseconds, times since the Unix epoch.
package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Object is one piece of configuration.
type Object struct {
	Kind    string
	ID      string
	Spec    []byte // JSON; empty in a change means deleted
	Version uint64 // of its last change; ignored in a change
}

// Ref names an object.
type Ref struct{ Kind, ID string }

// Change replaces objects, all or none.
type Change struct {
	BaseVersion uint64 // version it was computed against; 0 skips the check, unless First
	First       bool   // it was computed against no configuration at all, which is version 0
	Objects     []Object
	Actor       string
	AtMS        int64 // wall clock of the proposer: for the history only
	Note        string
}

// Result is the outcome of a change.
type Result struct {
	Version uint64   // in force now, whatever the outcome
	Refusal *Refusal // nil: applied
}

// Reason is why a change was refused.
type Reason uint8

// The reasons.
const (
	// ReasonConflict: the configuration is no longer at BaseVersion.
	ReasonConflict Reason = 1
	// ReasonMalformed: an unknown kind, a bad id, a spec that does not decode, an object twice.
	ReasonMalformed Reason = 2
	// ReasonBroken: a reference would lead nowhere, or objects would not fit each other.
	ReasonBroken Reason = 3
	// ReasonImmutable: a price version would be edited.
	ReasonImmutable Reason = 4
	// ReasonTooMany: more objects than limits.go allows.
	ReasonTooMany Reason = 5
)

// Refusal is why a change was not applied. Nothing changed.
type Refusal struct {
	Reason   Reason
	Problems []Problem // at least one
}

// Problem is one fault of an object.
type Problem struct {
	Ref
	Path string // within the spec; may be empty
	What string
}

// String is one line for people.
func (p Problem) String() string {
	s := p.What
	if p.Path != "" {
		s = p.Path + ": " + s
	}
	if p.Kind != "" {
		s = p.Kind + " " + p.ID + ": " + s
	}
	return s
}

// Error is String.
func (r *Refusal) Error() string { return r.String() }

// String is one line a problem.
func (r *Refusal) String() string {
	lines := make([]string, len(r.Problems))
	for i, p := range r.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func refuse(reason Reason, ref Ref, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Problems: []Problem{{Ref: ref, What: fmt.Sprintf(format, args...)}}}
}

func (o Object) ref() Ref { return Ref{o.Kind, o.ID} }

func (o Object) clone() Object {
	o.Spec = bytes.Clone(o.Spec)
	return o
}

// kindsInOrder is the order of objects everywhere: that of the file.
func kindsInOrder() []string {
	return []string{
		KindCurrency, KindFX, KindPrice, KindCredential, KindDeployment, KindAlias,
		KindOrg, KindBusinessUnit, KindTeam, KindKey, KindSidecar,
	}
}

func compareRefs(a, b Ref) int {
	if a.Kind != b.Kind {
		kinds := kindsInOrder()
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	}
	return cmp.Compare(a.ID, b.ID)
}

func validID(s string) bool { return validName(s, "._-") }

// validAlias allows what callers call models besides: meta-llama/llama-3:free. Names stand in URLs, so that no part
// between slashes may be one that clients and proxies clean away.
func validAlias(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return validName(s, "._-/:")
}

// validName allows letters, digits and the marks.
func validName(s, marks string) bool {
	if s == "" || len(s) > idBytesMax {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte(marks, c) < 0 {
			return false
		}
	}
	return true
}

// validIdentity allows what stands in a certificate: visible ASCII, for example a SPIFFE id.
func validIdentity(s string) bool {
	if s == "" || len(s) > identityBytesMax {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func validObjectID(kind, id string) bool {
	switch kind {
	case KindSidecar:
		return validIdentity(id)
	case KindOrg, KindCurrency:
		return id == OrgID
	case KindAlias:
		return validAlias(id)
	}
	return validID(id)
}
