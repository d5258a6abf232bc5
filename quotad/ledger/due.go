package ledger

// alarm is what becomes due at some time: a member, or a template whose oldest child may go. A child has one too, in
// the heap of its template, where it is due by its last use.
type alarm struct {
	due int64
	id  uint64 // breaks ties
	at  int    // place in the heap; -1 when it is in none
	m   *member
	r   *resource
}

// alarms is a binary heap by (due, members first, id) in which every alarm knows its place.
type alarms []*alarm

func (h alarms) less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.due != b.due:
		return a.due < b.due
	case (a.m == nil) != (b.m == nil):
		return a.m != nil
	}
	return a.id < b.id
}

func (h alarms) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// set puts a into the heap, or moves it there.
func (h *alarms) set(a *alarm, due int64) {
	switch {
	case a.at < 0:
		a.due, a.at = due, len(*h)
		*h = append(*h, a)
		h.fix(a.at)
	case a.due != due:
		a.due = due
		h.fix(a.at)
	}
}

func (h *alarms) remove(a *alarm) {
	i, last := a.at, len(*h)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	*h = (*h)[:last]
	a.at = -1
	if i < last {
		h.fix(i)
	}
}

func (h alarms) fix(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
