package registry

import (
	"fmt"
	"strings"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// entry is one stored object with its decoded spec. It is replaced whole, never changed.
type entry struct {
	Object
	value value
}

// state is the objects by kind and id.
type state struct {
	objects map[string]map[string]*entry
	count   int
	rates   map[string][]ledger.Rate // of each currency, by month; replaced whole, never changed
}

func newState() *state {
	return &state{objects: map[string]map[string]*entry{}, rates: map[string][]ledger.Rate{}}
}

func (s *state) find(r Ref) *entry { return s.objects[r.Kind][r.ID] }

func (s *state) put(e *entry) {
	ids := s.objects[e.Kind]
	if ids == nil {
		ids = map[string]*entry{}
		s.objects[e.Kind] = ids
	}
	if ids[e.ID] == nil {
		s.count++
	}
	s.rate(ids[e.ID], e)
	ids[e.ID] = e
}

func (s *state) remove(r Ref) {
	if e := s.find(r); e != nil {
		s.rate(e, nil)
		delete(s.objects[r.Kind], r.ID)
		s.count--
	}
}

// set makes e what is stored under r; nil removes.
func (s *state) set(r Ref, e *entry) {
	if e == nil {
		s.remove(r)
		return
	}
	s.put(e)
}

// each visits the objects in order of kind and id.
func (s *state) each(visit func(*entry)) {
	for _, kind := range kindsInOrder() {
		for _, id := range sortedKeys(s.objects[kind]) {
			visit(s.objects[kind][id])
		}
	}
}

func valueOf[V value](s *state, kind, id string) (v V, ok bool) {
	e := s.objects[kind][id]
	if e == nil {
		return v, false
	}
	return e.value.(V), true
}

func valuesOf[V value](s *state, kind string) []V {
	out := make([]V, 0, len(s.objects[kind]))
	for _, id := range sortedKeys(s.objects[kind]) {
		out = append(out, s.objects[kind][id].value.(V))
	}
	return out
}

// checker checks objects against the state they stand in. It is used once, on a state that does not change meanwhile.
type checker struct {
	s *state
	// whole: every object was read without faults. While a file with faults is read, what is missing was reported
	// already.
	whole   bool
	newest  *PriceVersion
	secrets map[string]string // secret hash to the first key that has it
	starts  map[Time]string   // start to the first price version with it
}

// newChecker prepares the checks. secrets limits which secret hashes will be asked for; nil is all.
func newChecker(s *state, whole bool, secrets map[string]bool) *checker {
	c := &checker{s: s, whole: whole, secrets: map[string]string{}, starts: map[Time]string{}}
	for _, p := range valuesOf[*PriceVersion](s, KindPrice) {
		if c.newest == nil || p.ValidFrom > c.newest.ValidFrom {
			c.newest = p
		}
		if _, ok := c.starts[p.ValidFrom]; !ok {
			c.starts[p.ValidFrom] = p.ID
		}
	}
	for id, e := range s.objects[KindKey] {
		sum := e.value.(*Key).SecretSHA256
		if sum == "" || secrets != nil && !secrets[sum] {
			continue
		}
		if first, ok := c.secrets[sum]; !ok || id < first {
			c.secrets[sum] = id
		}
	}
	return c
}

// check lists what is wrong with e; the problems' paths are within the object.
func (c *checker) check(e *entry) []Problem {
	var out []Problem
	add := func(path, format string, args ...any) {
		out = append(out, Problem{Ref: e.ref(), Path: path, What: fmt.Sprintf(format, args...)})
	}
	for _, l := range e.value.links() {
		switch {
		case l.id == "" && c.whole:
			add(l.path, "is missing")
		case l.id != "" && c.s.find(Ref{l.kind, l.id}) == nil:
			add(l.path, "no %s %q%s%s", l.kind, l.id, c.inFile(), c.knownOf(l.kind))
		}
	}
	c.checkAmounts(e.value, add)
	switch v := e.value.(type) {
	case *Key:
		if first := c.secrets[v.SecretSHA256]; v.SecretSHA256 != "" && first != v.ID {
			add("secret_sha256", "is the secret of key %q too", first)
		}
	case *Deployment:
		c.checkDeployment(v, add)
	case *Alias:
		c.checkNeeds(v, add)
	case *PriceVersion:
		if first := c.starts[v.ValidFrom]; first != v.ID && (c.whole || v.ValidFrom != 0) {
			add("valid_from", "is the start of price version %q too", first)
		}
	}
	return out
}

// inFile says where a name was looked for when it was not in what is stored.
func (c *checker) inFile() string {
	if c.whole {
		return ""
	}
	return " in this file"
}

// knownOf lists some names, for whoever mistyped one.
func (c *checker) knownOf(kind string) string {
	ids := sortedKeys(c.s.objects[kind])
	if len(ids) == 0 {
		return ": there is none"
	}
	more := ""
	if len(ids) > namesMax {
		ids, more = ids[:namesMax], ", …"
	}
	return fmt.Sprintf(" (known: %s%s)", strings.Join(ids, ", "), more)
}

// checkDeployment sees to it that nothing is served at a silent price of 0. The newest price list decides: older ones
// may not know a new model, and lists are never edited.
func (c *checker) checkDeployment(d *Deployment, add func(path, format string, args ...any)) {
	if cred, ok := valueOf[*Credential](c.s, KindCredential, d.Credential); ok {
		if cred.Provider != "" && d.Provider != "" && cred.Provider != d.Provider {
			add("credential", "%q is for provider %s, not %s", d.Credential, cred.Provider, d.Provider)
		}
	}
	if d.Unpriced == "allow" {
		return
	}
	const cure = "or say `unpriced: allow` to serve without counting cost"
	switch {
	case d.Price == "":
		add("price", "is missing: name an entry of per_million_usd, %s", cure)
	case c.newest == nil:
		add("price", "%q: there is no price version: add one, %s", d.Price, cure)
	default:
		if _, ok := c.newest.PerMillionUSD[d.Price]; !ok {
			add("price", "the newest price version, %q, has no price %q: add a version that has, %s",
				c.newest.ID, d.Price, cure)
		}
	}
}

// checkNeeds refuses a target that would never be chosen.
func (c *checker) checkNeeds(a *Alias, add func(path, format string, args ...any)) {
	for i, t := range a.Targets {
		d, ok := valueOf[*Deployment](c.s, KindDeployment, t.Deployment)
		if !ok || len(d.Capabilities) == 0 {
			continue
		}
		has := map[string]bool{"": true}
		for _, capability := range d.Capabilities {
			has[capability] = true
		}
		for _, n := range a.Needs {
			if !has[n] {
				add(fmt.Sprintf("targets[%d].deployment", i), "%q lacks %q, which the alias needs", t.Deployment, n)
			}
		}
	}
}
