package openai

import (
	"cmp"
	"slices"
)

// edits are the changes to one document. Everything they do not name stays as it is, byte for byte.
type edits struct {
	list []edit
	text []byte // what the edits put in, one behind the other
}

// edit puts text[begin:end] in place of the span at.
type edit struct {
	at         span
	begin, end int
}

func (e *edits) reset() { e.list, e.text = e.list[:0], e.text[:0] }

// set puts the parts in place of a span; an empty span inserts.
func (e *edits) set(at span, parts ...string) {
	begin := len(e.text)
	for _, p := range parts {
		e.text = append(e.text, p...)
	}
	e.list = append(e.list, edit{at, begin, len(e.text)})
}

// put is set for a text that is written in place.
func (e *edits) put(at span, write func(dst []byte) []byte) {
	begin := len(e.text)
	e.text = write(e.text)
	e.list = append(e.list, edit{at, begin, len(e.text)})
}

// front inserts members, each with its comma behind it, into an object that keeps a member of its own.
func (e *edits) front(object span, parts ...string) {
	e.set(span{object.from + 1, object.from + 1}, parts...)
}

// back inserts members, each with its comma before it, into an object that keeps a member of its own.
func (e *edits) back(object span, parts ...string) {
	e.set(span{object.to - 1, object.to - 1}, parts...)
}

// drop removes the item in hand and one comma. kept says whether an item before it stays: then the comma before it
// goes, otherwise the one behind it.
func (e *edits) drop(c *cursor, kept bool) {
	switch next := c.follow(); {
	case kept:
		e.set(span{c.prev, c.value.to})
	case next < len(c.doc)-1:
		e.set(span{c.item, next})
	default:
		e.set(span{c.item, c.value.to})
	}
}

// apply appends doc[of] with the edits made.
func (e *edits) apply(dst, doc []byte, of span) []byte {
	e.sort()
	at := of.from
	for _, x := range e.list {
		dst = append(dst, doc[at:x.at.from]...)
		dst = append(dst, e.text[x.begin:x.end]...)
		at = x.at.to
	}
	return append(dst, doc[at:of.to]...)
}

// sort brings the edits into the document's order: what is inserted at a place before what is done to the text there,
// and several insertions in the order they were made.
func (e *edits) sort() {
	order := func(a, b edit) int { return cmp.Or(cmp.Compare(a.at.from, b.at.from), cmp.Compare(a.at.to, b.at.to)) }
	if !slices.IsSortedFunc(e.list, order) {
		slices.SortStableFunc(e.list, order)
	}
}

// shift is how far what stands at a place moves. The edits must be sorted.
func (e *edits) shift(at int) int {
	n := 0
	for _, x := range e.list {
		if x.at.from >= at {
			break
		}
		n += x.end - x.begin - (x.at.to - x.at.from)
	}
	return n
}
