package ledger

import (
	"cmp"
	"slices"
)

// A child is one of a resource that is one for each name, made when an ask names it. It shares its template's spec. Its
// id is never used again, so what a sidecar says late of a child that was dropped meets nothing.
//
// A run is dropped some time after its last use, with what is still out on it. Any other child is dropped only when
// that changes nothing: nothing is out on it and its bucket is full.

// drawn returns the pool that a need draws on; nil when there is none, and why. It makes the child that the need names.
func (l *Ledger) drawn(n *Need) (*pool, Shortage) {
	r := l.resources[n.Resource]
	switch {
	case r == nil || r.of != nil:
		return nil, Gone
	case !r.template() && n.Name == "":
		p := l.pool(n.Resource, n.Period)
		if p == nil {
			return nil, Gone
		}
		return p, ShortageNone
	case !r.template() || n.Period != 0:
		return nil, Gone
	}
	kid := l.child(r, n.Name)
	if kid == nil {
		return nil, Reserved
	}
	l.use(kid)
	return kid.pools[0], ShortageNone
}

// drew returns m's counter on what an ask's need drew on; nil when it is gone. A message may be answered again after the
// name has got a child of its own: what was granted is where the counter is.
func (l *Ledger) drew(m *member, n *Need) *counter {
	r := l.resources[n.Resource]
	if r == nil || !r.template() {
		return m.find(n.Resource, n.Period)
	}
	for _, name := range [...]string{n.Name, ""} {
		if i, ok := r.searchChild(name); ok {
			if c := m.find(r.kids[i].id, 0); c != nil {
				return c
			}
		}
	}
	return nil
}

func (r *resource) searchChild(name string) (int, bool) {
	return slices.BinarySearchFunc(r.kids, name, func(k *resource, n string) int { return cmp.Compare(k.name, n) })
}

// child returns the child of a name, made if need be. When there are too many it is the one that further names share.
// It is nil when the entry at hand has made as many as it may.
func (l *Ledger) child(t *resource, name string) *resource {
	i, ok := t.searchChild(name)
	if ok {
		return t.kids[i]
	}
	if name != "" && (len(t.kids) >= t.kidsMax() || l.children >= childrenMax) {
		if !l.makeRoom(t) {
			return l.child(t, "")
		}
		i, _ = t.searchChild(name)
	}
	id := max(l.index*ordinalsMax, l.lastID+1)
	if id >= l.index*ordinalsMax+entryChildrenMax {
		return nil
	}
	l.lastID = id
	kid := newChild(t, id, name)
	kid.used = l.now
	switch {
	case t.budget():
		p := kid.pools[0]
		p.rate = t.spec.rate(l.month(t.spec))
		p.cap = t.spec.cap(p.rate)
		p.free = p.cap
	case kid.claimant():
		kid.rank(&l.fair)
	default:
		l.fill(kid)
	}
	t.kids = slices.Insert(t.kids, i, kid)
	l.adopt(kid)
	l.touchResource(kid)
	return kid
}

// newChild returns a child that is known to nobody yet, with an empty pool.
func newChild(t *resource, id uint64, name string) *resource {
	kid := &resource{id: id, of: t, name: name, spec: t.spec, money: t.money, each: t.each}
	kid.alarm = alarm{id: id, r: kid, at: -1}
	kid.pools = []*pool{{res: kid}}
	return kid
}

// adopt enters a child, which its template has, into the other indexes.
func (l *Ledger) adopt(kid *resource) {
	l.resources[kid.id] = kid
	l.children++
	kid.of.oldest.set(&kid.alarm, kid.used)
	l.rescheduleTemplate(kid.of)
}

// use notes that a child is in use.
func (l *Ledger) use(kid *resource) {
	if kid.used == l.now {
		return
	}
	kid.used = l.now
	kid.of.oldest.set(&kid.alarm, l.now)
	l.rescheduleTemplate(kid.of)
	l.touchResource(kid)
}

func (l *Ledger) rescheduleTemplate(t *resource) {
	if len(t.oldest) == 0 {
		l.due.remove(&t.alarm)
		return
	}
	l.due.set(&t.alarm, t.expiry())
}

// expiry is when the child that was used the longest ago is looked at: at a whole second, so that a crowd goes at
// once.
func (r *resource) expiry() int64 {
	due := r.oldest[0].due + r.keepMS()
	return due + (expireEveryMS-due%expireEveryMS)%expireEveryMS
}

// keepMS is how long a child is kept after its last use.
func (r *resource) keepMS() int64 {
	if r.budget() {
		return r.spec.KeepMS
	}
	return childKeepMS
}

// kidsMax is how many children a template has, but for the one that further names share.
func (r *resource) kidsMax() int {
	if r.budget() {
		return runsMax
	}
	return namesMax
}

// expire looks at the child of t that was used the longest ago. One that may not go is in use.
func (l *Ledger) expire(t *resource) {
	kid := t.oldest[0].r
	if t.budget() || l.idle(kid) {
		l.removeChild(kid)
	} else {
		l.use(kid)
	}
}

// makeRoom drops one of the children used the longest ago, if it may go. Those that may not have another turn.
func (l *Ledger) makeRoom(t *resource) bool {
	if t.budget() || len(t.kids) < t.kidsMax() {
		return false
	}
	for range evictTries {
		kid := t.oldest[0].r
		if kid.name != "" && l.idle(kid) { // the shared one has a place of its own
			l.removeChild(kid)
			return true
		}
		l.use(kid)
	}
	return false
}

// idle says that it would make no difference if a child of a bucket or pool were made anew.
func (l *Ledger) idle(kid *resource) bool {
	p := kid.pools[0]
	if p.out != 0 || p.wants != 0 {
		return false
	}
	return kid.claimant() || kid.spec.Limit == 0 || kid.levelNow(l.now) >= kid.spec.Burst*perUnit
}

// removeChild drops a child with all its counters.
func (l *Ledger) removeChild(kid *resource) {
	t := kid.of
	l.dropPool(kid.pools[0])
	if kid.claimant() {
		kid.credit(-kid.aside)
	}
	if i, ok := t.searchChild(kid.name); ok {
		t.kids = slices.Delete(t.kids, i, i+1)
	}
	t.oldest.remove(&kid.alarm)
	l.rescheduleTemplate(t)
	delete(l.resources, kid.id)
	l.children--
	l.touchResource(kid)
}

// Child returns a read view of the child of a name.
func (l *Ledger) Child(template uint64, name string) (Resource, bool) {
	t, ok := l.resources[template]
	if !ok {
		return Resource{}, false
	}
	i, ok := t.searchChild(name)
	if !ok {
		return Resource{}, false
	}
	return t.kids[i].view(l.now), true
}

// Children returns read views of the children of a template, sorted by name.
func (l *Ledger) Children(template uint64) []Resource {
	t, ok := l.resources[template]
	if !ok || len(t.kids) == 0 {
		return nil
	}
	out := make([]Resource, len(t.kids))
	for i, kid := range t.kids {
		out[i] = kid.view(l.now)
	}
	return out
}
