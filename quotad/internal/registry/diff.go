package registry

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The actions of a Difference.
const (
	ActionCreate = "create"
	ActionUpdate = "update"
	ActionDelete = "delete"
	ActionKeep   = "keep" // it was to be deleted, and is not: Lines say why
)

// Difference is what a change does to one object. Lines are one a field: "- path: old" and "+ path: new".
type Difference struct {
	Action string
	Kind   string
	ID     string
	Lines  []string
}

// Diff computes the change that makes the registry hold the desired objects, as ParseOrg gives them. With prune,
// objects that are not desired are deleted; without, they stay. A desired key without secret keeps the stored one,
// and a revoked key stays revoked. What the objects' amounts are written in comes with them: a file that names no
// currency means USD. A price version that has been in force at nowMS is not deleted. A *Refusal names the stored price
// versions that would be edited. The caller fills in actor, time and note. The change is empty when nothing differs.
func (r *Registry) Diff(desired []Object, prune bool, nowMS int64) (Change, []Difference, error) {
	var objects []Object
	var edited []Problem
	wanted := make(map[Ref]bool, len(desired))
	for _, o := range desired {
		wanted[o.ref()] = true
		current, exists := r.Object(o.Kind, o.ID)
		if exists && o.Kind == KindKey {
			v, err := decode(o)
			if err != nil {
				return Change{}, nil, fmt.Errorf("key %s: %w", o.ID, err)
			}
			o = keepSecret(v.(*Key), keyOf(current)).Object()
		}
		if bytes.Equal(o.Spec, current.Spec) {
			continue
		}
		if exists && o.Kind == KindPrice {
			lines := strings.Join(difference(current, o).Lines, "\n  ")
			edited = append(edited, Problem{Ref: o.ref(), What: editedPrice + "\n  " + lines})
			continue
		}
		objects = append(objects, Object{Kind: o.Kind, ID: o.ID, Spec: o.Spec})
	}
	if len(edited) > 0 {
		return Change{}, nil, &Refusal{Reason: ReasonImmutable, Problems: edited}
	}
	r.state.each(func(e *entry) {
		if !wanted[e.ref()] && (prune || e.Kind == KindCurrency) {
			objects = append(objects, Object{Kind: e.Kind, ID: e.ID})
		}
	})
	change, differences := r.changeTo(objects, nowMS)
	return change, differences, nil
}

const keptPrice = "price versions that have been in force are never deleted: usage names them"

// changeTo makes a change of objects, each of which differs from the stored one, and shows it. A price version that has been
// in force at nowMS is kept.
func (r *Registry) changeTo(objects []Object, nowMS int64) (Change, []Difference) {
	slices.SortFunc(objects, func(a, b Object) int { return compareRefs(a.ref(), b.ref()) })
	change := Change{BaseVersion: r.version, First: r.version == 0}
	differences := make([]Difference, 0, len(objects))
	for _, o := range objects {
		current, _ := r.Object(o.Kind, o.ID)
		current.Kind, current.ID = o.Kind, o.ID
		if len(o.Spec) == 0 && r.wasInForce(o, nowMS) {
			differences = append(differences, Difference{Action: ActionKeep, Kind: o.Kind, ID: o.ID, Lines: []string{keptPrice}})
			continue
		}
		change.Objects = append(change.Objects, o)
		d := difference(current, o)
		if d.Action == ActionCreate && o.Kind == KindPrice {
			d.Lines = append(d.Lines, r.begun(o, nowMS)...)
		}
		differences = append(differences, d)
	}
	return change, differences
}

// begun tells what cannot be taken back of a price version that is added at nowMS: it has begun, and another one is in
// force, which it may take the place of. The first one of all has mostly begun.
func (r *Registry) begun(o Object, nowMS int64) []string {
	v, err := decode(o)
	if err != nil {
		return nil // which the change is refused for
	}
	from, inForce := v.(*PriceVersion).ValidFrom, r.priceAt(nowMS)
	switch {
	case int64(from) > nowMS || inForce == nil:
		return nil
	case from > inForce.ValidFrom:
		return []string{fmt.Sprintf("! valid_from has passed: it takes the place of %s at once, for good: %s", inForce.ID, keptPrice)}
	}
	return []string{fmt.Sprintf("! valid_from has passed, and %s, which began later, stays in force: %s", inForce.ID, keptPrice)}
}

// wasInForce reports whether an object is a price version that has begun.
func (r *Registry) wasInForce(o Object, nowMS int64) bool {
	if o.Kind != KindPrice {
		return false
	}
	p, ok := valueOf[*PriceVersion](r.state, o.Kind, o.ID)
	return ok && int64(p.ValidFrom) <= nowMS
}

func difference(before, after Object) Difference {
	d := Difference{Action: ActionUpdate, Kind: after.Kind, ID: after.ID}
	var old, now []field
	if len(before.Spec) == 0 {
		d.Action = ActionCreate
	} else {
		old = flatten(nil, "", storedTree(before.Spec))
	}
	if len(after.Spec) == 0 {
		d.Action = ActionDelete
	} else {
		now = flatten(nil, "", storedTree(after.Spec))
	}
	values := make(map[string]string, len(now))
	for _, f := range now {
		values[f.path] = f.text
	}
	gone := make(map[string]bool, len(old))
	for _, f := range old {
		gone[f.path] = true
		text, ok := values[f.path]
		if ok && text == f.text {
			continue
		}
		d.Lines = append(d.Lines, "- "+f.path+": "+f.text)
		if ok {
			d.Lines = append(d.Lines, "+ "+f.path+": "+text)
		}
	}
	for _, f := range now {
		if !gone[f.path] {
			d.Lines = append(d.Lines, "+ "+f.path+": "+f.text)
		}
	}
	return d
}

// field is one line of a spec.
type field struct{ path, text string }

// flatten lists the fields of a spec in order. A list of plain values is one field: its items mean little alone.
func flatten(out []field, path string, n *yaml.Node) []field {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			out = flatten(out, join(path, label(n.Content[i].Value)), n.Content[i+1])
		}
		return out
	case yaml.SequenceNode:
		if !plain(n) {
			for i, c := range n.Content {
				out = flatten(out, fmt.Sprintf("%s[%d]", path, i), c)
			}
			return out
		}
		texts := make([]string, len(n.Content))
		for i, c := range n.Content {
			texts[i] = c.Value
		}
		return append(out, field{path, "[" + strings.Join(texts, ", ") + "]"})
	}
	if path == "secret_sha256" && len(n.Value) > 8 {
		return append(out, field{path, n.Value[:8] + "…"})
	}
	return append(out, field{path, n.Value})
}

// plain is true of a list or mapping of single values.
func plain(n *yaml.Node) bool {
	return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Kind != yaml.ScalarNode })
}
