package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// Registry is the configuration in force and its history. It has one owner at a time: the caller guards it. What it
// returns may be kept and read by others, as it is never changed.
type Registry struct {
	state        *state
	version      uint64
	history      []HistoryEntry // oldest first
	historyBytes int
	touched      map[Ref]bool
	touchedPast  map[uint64]bool
}

// New makes an empty registry, at version 0.
func New() *Registry {
	return &Registry{state: newState(), touched: map[Ref]bool{}, touchedPast: map[uint64]bool{}}
}

// Version is that of the newest change, 0 before the first.
func (r *Registry) Version() uint64 { return r.version }

// edit is one object of a change with what it replaces; nil is none.
type edit struct {
	ref           Ref
	before, after *entry
}

// Apply makes a change, all of it or nothing. index is the Raft index of its entry and becomes the version; where it
// is not above the last one (two changes in one entry, a restored cluster) the version is the last one plus one.
//
// A change that changes nothing is applied and leaves the version alone. Apply is total and deterministic. It checks
// no ranges: that is done by the parser, before the proposal, so that versions with other ranges still agree.
func (r *Registry) Apply(index uint64, c Change) Result {
	edits, refusal := r.prepare(c)
	if refusal == nil && len(edits) > 0 {
		refusal = r.install(edits)
	}
	if refusal != nil || len(edits) == 0 {
		return Result{Version: r.version, Refusal: refusal}
	}
	r.version = max(index, r.version+1)
	h := HistoryEntry{Version: r.version, Actor: c.Actor, AtMS: c.AtMS, Note: c.Note}
	for _, e := range edits {
		gone := Object{Kind: e.ref.Kind, ID: e.ref.ID}
		before, after := gone, gone
		if e.before != nil {
			before = e.before.Object
		}
		if e.after != nil {
			e.after.Version = r.version
			after = e.after.Object
		}
		// The history is stored without object versions: its own says it all.
		before.Version, after.Version = 0, 0
		h.Before = append(h.Before, before)
		h.After = append(h.After, after)
		r.touched[e.ref] = true
	}
	r.remember(h)
	return Result{Version: r.version}
}

// Preview is what the configuration would be after a change, or why it would be refused. The registry itself is only
// read. The preview has no history. It costs a copy of the index of all objects.
func (r *Registry) Preview(c Change) (*Registry, *Refusal) {
	next := New()
	next.version = r.version
	r.state.each(next.state.put)
	if res := next.Apply(0, c); res.Refusal != nil {
		return nil, res.Refusal
	}
	return next, nil
}

// prepare decodes a change and leaves out what would not change. Nothing is touched.
func (r *Registry) prepare(c Change) ([]edit, *Refusal) {
	if (c.BaseVersion != 0 || c.First) && c.BaseVersion != r.version {
		return nil, refuse(ReasonConflict, Ref{}, "the configuration is at version %d, no longer at %d",
			r.version, c.BaseVersion)
	}
	if len(c.Objects) > changeObjectsMax {
		return nil, refuse(ReasonTooMany, Ref{}, "%d objects in one change, more than %d",
			len(c.Objects), changeObjectsMax)
	}
	var edits []edit
	seen := make(map[Ref]bool, len(c.Objects))
	for _, o := range c.Objects {
		ref := o.ref()
		switch {
		case newValue(o.Kind) == nil:
			return nil, refuse(ReasonMalformed, Ref{}, "unknown kind %s", clip(o.Kind))
		case !validObjectID(o.Kind, o.ID):
			return nil, refuse(ReasonMalformed, Ref{}, "%s is not an id of a %s", clip(o.ID), o.Kind)
		case seen[ref]:
			return nil, refuse(ReasonMalformed, ref, "stands in the change twice")
		}
		seen[ref] = true
		e := edit{ref: ref, before: r.state.find(ref)}
		if len(o.Spec) > 0 {
			v, err := decode(o)
			if err != nil {
				return nil, refuse(ReasonMalformed, ref, "%s", err)
			}
			e.after = &entry{Object: o.clone(), value: v}
		}
		same := e.before == nil && e.after == nil ||
			e.before != nil && e.after != nil && bytes.Equal(e.before.Spec, e.after.Spec)
		if same {
			continue
		}
		if o.Kind == KindPrice && e.before != nil && e.after != nil {
			return nil, refuse(ReasonImmutable, ref, "%s", editedPrice)
		}
		edits = append(edits, e)
	}
	slices.SortFunc(edits, func(a, b edit) int { return compareRefs(a.ref, b.ref) })
	return edits, nil
}

const editedPrice = "differs from the stored one: price versions are never edited, add a new one"

// install makes the edits and checks the resulting state; on a refusal the state is as before.
func (r *Registry) install(edits []edit) *Refusal {
	keysOnly := true
	for _, e := range edits {
		r.state.set(e.ref, e.after)
		keysOnly = keysOnly && e.ref.Kind == KindKey && e.after != nil
	}
	problems := r.problems(edits, keysOnly)
	reason := ReasonBroken
	if r.state.count > objectsMax {
		reason = ReasonTooMany
		problems = []Problem{{What: fmt.Sprintf("%d objects in all, more than %d", r.state.count, objectsMax)}}
	}
	if len(problems) == 0 {
		return nil
	}
	for _, e := range edits {
		r.state.set(e.ref, e.before)
	}
	return &Refusal{Reason: reason, Problems: problems}
}

// problems checks every object, as any may refer to a changed one. Nothing refers to a key, so where only keys were
// set, which is the common change, they alone are checked.
func (r *Registry) problems(edits []edit, keysOnly bool) []Problem {
	var out []Problem
	if keysOnly {
		secrets := make(map[string]bool, len(edits))
		for _, e := range edits {
			secrets[e.after.value.(*Key).SecretSHA256] = true
		}
		c := newChecker(r.state, true, secrets)
		for _, e := range edits {
			out = append(out, c.check(e.after)...)
		}
	} else {
		c := newChecker(r.state, true, nil)
		r.state.each(func(e *entry) { out = append(out, c.check(e)...) })
	}
	return out[:min(len(out), faultsMax)]
}

// Objects lists objects by kind and id; an empty kind or id means all. Specs are shared: do not write to them.
func (r *Registry) Objects(kind, id string) []Object {
	var out []Object
	if kind != "" && id != "" {
		if o, ok := r.Object(kind, id); ok {
			out = append(out, o)
		}
		return out
	}
	r.state.each(func(e *entry) {
		if (kind == "" || e.Kind == kind) && (id == "" || e.ID == id) {
			out = append(out, e.Object)
		}
	})
	return out
}

// Object finds one object.
func (r *Registry) Object(kind, id string) (Object, bool) {
	e := r.state.find(Ref{kind, id})
	if e == nil {
		return Object{}, false
	}
	return e.Object, true
}

// Touched takes at most most of the objects and history versions that changed since they were taken last, in no order;
// there are no more when it returns fewer. One that is no longer found by Object or HistoryAt is gone.
func (r *Registry) Touched(most int) (objects []Ref, versions []uint64) {
	for ref := range r.touched {
		if len(objects) == most {
			break
		}
		objects = append(objects, ref)
		delete(r.touched, ref)
	}
	for v := range r.touchedPast {
		if len(objects)+len(versions) == most {
			break
		}
		versions = append(versions, v)
		delete(r.touchedPast, v)
	}
	return objects, versions
}

// Load replaces everything by a stored state, in any order. version is the configuration's. It fails, and changes
// nothing, on an object that does not decode: the state is damaged, or was written by a version that is not
// understood.
func (r *Registry) Load(version uint64, objects []Object, history []HistoryEntry) error {
	fresh := New()
	fresh.version = version
	for _, o := range objects {
		if !validObjectID(o.Kind, o.ID) {
			return fmt.Errorf("load %s %s: bad id", clip(o.Kind), clip(o.ID))
		}
		v, err := decode(o)
		if err != nil {
			return fmt.Errorf("load %s %s: %w", o.Kind, o.ID, err)
		}
		fresh.state.put(&entry{Object: o.clone(), value: v})
		fresh.version = max(fresh.version, o.Version)
	}
	sorted := slices.SortedFunc(slices.Values(history), func(a, b HistoryEntry) int {
		return cmp.Compare(a.Version, b.Version)
	})
	for _, h := range sorted {
		if err := h.check(); err != nil {
			return fmt.Errorf("load history %d: %w", h.Version, err)
		}
		fresh.remember(h)
		fresh.version = max(fresh.version, h.Version)
	}
	clear(fresh.touchedPast)
	*r = *fresh
	return nil
}

// Team finds a team.
func (r *Registry) Team(id string) (Team, bool) { return deref(valueOf[*Team](r.state, KindTeam, id)) }

// Key finds a key.
func (r *Registry) Key(id string) (Key, bool) { return deref(valueOf[*Key](r.state, KindKey, id)) }

// Org is the org, the zero Org when none is configured.
func (r *Registry) Org() Org {
	o, _ := deref(valueOf[*Org](r.state, KindOrg, OrgID))
	return o
}

// Currency is what amounts are written in that do not say: an ISO 4217 code.
func (r *Registry) Currency() string { return r.state.currency() }

func deref[V any](p *V, ok bool) (V, bool) {
	if !ok {
		var none V
		return none, false
	}
	return *p, true
}

func list[V any, P interface {
	*V
	value
}](s *state, kind string) []V {
	ps := valuesOf[P](s, kind)
	out := make([]V, len(ps))
	for i, p := range ps {
		out[i] = *p
	}
	return out
}

// Teams lists the teams by id.
func (r *Registry) Teams() []Team { return list[Team](r.state, KindTeam) }

// Keys lists the keys by id.
func (r *Registry) Keys() []Key { return list[Key](r.state, KindKey) }

// Aliases lists the aliases by name.
func (r *Registry) Aliases() []Alias { return list[Alias](r.state, KindAlias) }

// Deployments lists the deployments by id.
func (r *Registry) Deployments() []Deployment { return list[Deployment](r.state, KindDeployment) }

// Credentials lists the credentials by name.
func (r *Registry) Credentials() []Credential { return list[Credential](r.state, KindCredential) }

// BusinessUnits lists the business units by name.
func (r *Registry) BusinessUnits() []BusinessUnit {
	return list[BusinessUnit](r.state, KindBusinessUnit)
}

// FX lists the months' rates by month.
func (r *Registry) FX() []FX { return list[FX](r.state, KindFX) }

// Sidecars lists the sidecar rules by identity.
func (r *Registry) Sidecars() []Sidecar { return list[Sidecar](r.state, KindSidecar) }

// Prices lists the price versions by start, oldest first.
func (r *Registry) Prices() []PriceVersion {
	ps := list[PriceVersion](r.state, KindPrice)
	slices.SortStableFunc(ps, func(a, b PriceVersion) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
	return ps
}

// TeamsOf says which teams an identity may serve. all is true when it may serve every team: it has the rule "*", or
// no sidecar is configured at all, as in development. An unknown identity among known ones serves none.
func (r *Registry) TeamsOf(identity string) (teams []string, all bool) {
	if len(r.state.objects[KindSidecar]) == 0 {
		return nil, true
	}
	s, ok := valueOf[*Sidecar](r.state, KindSidecar, identity)
	if !ok {
		return nil, false
	}
	if slices.Contains(s.Teams, "*") {
		return nil, true
	}
	return s.Teams, false
}

// Unpriced lists the deployments that have no price in the version in force at nowMS and are not allowed to be
// without: sidecars refuse to use them. It happens while the only versions that name the price lie in the future.
func (r *Registry) Unpriced(nowMS int64) []string {
	var prices map[string]Price
	if inForce := r.priceAt(nowMS); inForce != nil {
		prices = inForce.PerMillionUSD
	}
	var out []string
	for _, d := range r.Deployments() {
		if _, ok := prices[d.Price]; !ok && d.Unpriced != "allow" {
			out = append(out, d.ID)
		}
	}
	return out
}

// priceAt is the price version in force at nowMS; nil when none has begun.
func (r *Registry) priceAt(nowMS int64) (inForce *PriceVersion) {
	for _, p := range r.Prices() {
		if int64(p.ValidFrom) <= nowMS {
			inForce = &p
		}
	}
	return inForce
}
