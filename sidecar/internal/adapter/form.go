package adapter

import (
	"bytes"
	"slices"

	"github.com/tidwall/gjson"
)

const (
	// HolesMax bounds what may differ between two events of a form.
	HolesMax = 12
	// formBytesMax is the longest event whose form is remembered.
	formBytesMax = 2 << 10
)

// HoleKind is what may stand in a hole.
type HoleKind uint8

// The kinds.
const (
	HoleText   HoleKind = iota // the inside of a JSON string
	HoleNumber                 // a natural number of up to nine digits
	HoleMark                   // nothing: the place alone is asked for
)

// Hole is a part of an event in which the next one may differ: its bytes From up to To.
type Hole struct {
	From, To int
	Kind     HoleKind
}

// Filling is what stands in a hole of another event.
type Filling struct {
	From, To int
	N        int // bytes of a text once decoded; the value of a number
}

// Form is how the events of a stream are spelled. Nearly all of them differ in nothing but a text and a few numbers. So
// whoever has read one the long way, and knows where these stand, learns its form; the next one that equals it but for
// them need not be read: it says the same of all else. A form thus needs no knowledge of how a provider spells. The
// zero value matches nothing.
type Form struct {
	// In are the fillings of the event that matched last, in the order of the holes.
	In [HolesMax]Filling

	fixed []byte        // what stands around the holes
	at    [HolesMax]int // where in it they are
	kinds [HolesMax]HoleKind
	n     int
}

// Learn remembers the form of an event, which is sound JSON or several of them. Holes may come in any order and do not
// overlap. false: there are none, or too much to remember, and nothing will match.
func (f *Form) Learn(event []byte, holes []Hole) bool {
	f.n = 0
	if len(holes) == 0 || len(holes) > HolesMax || len(event) > formBytesMax {
		return false
	}
	slices.SortStableFunc(holes, func(a, b Hole) int { return a.From - b.From })
	f.fixed = f.fixed[:0]
	from := 0
	for i, h := range holes {
		f.fixed = append(f.fixed, event[from:h.From]...)
		f.at[i], f.kinds[i], from = len(f.fixed), h.Kind, h.To
	}
	f.fixed = append(f.fixed, event[from:]...)
	f.n = len(holes)
	return true
}

// Last is the filling of the last hole.
func (f *Form) Last() Filling { return f.In[max(f.n-1, 0)] }

// Forget makes the form match nothing.
func (f *Form) Forget() { f.n = 0 }

// Match reports whether an event is of the form, and finds its fillings. Only what is in the holes is looked at closely;
// it is such that no copy of it can break the JSON around.
func (f *Form) Match(event []byte) bool {
	if f.n == 0 {
		return false
	}
	at, from := 0, 0
	for i := range f.n {
		fixed := f.fixed[from:f.at[i]]
		if !bytes.HasPrefix(event[at:], fixed) {
			return false
		}
		from, at = f.at[i], at+len(fixed)
		in := &f.In[i]
		in.From, in.To = at, at
		switch f.kinds[i] {
		case HoleText:
			in.To, in.N = TextEnd(event, at)
		case HoleNumber:
			in.To, in.N = NumberEnd(event, at)
		}
		if at = in.To; at < 0 {
			return false
		}
	}
	return bytes.Equal(event[at:], f.fixed[from:])
}

// HoleIn is the hole that the text v leaves in the document that it was read from; ok is false for what is no text.
func HoleIn(doc []byte, v gjson.Result) (h Hole, ok bool) {
	to := v.Index + len(v.Raw)
	if v.Type != gjson.String || v.Index <= 0 || to > len(doc) || string(doc[v.Index:to]) != v.Raw {
		return h, false
	}
	return Hole{From: v.Index + 1, To: to - 1}, true
}

// HolesOf appends holes for the natural numbers in the value v, and marks for where it begins and ends. What a document
// counts is told by v alone.
func HolesOf(holes []Hole, doc []byte, v gjson.Result) []Hole {
	end := v.Index + len(v.Raw)
	if v.Index <= 0 || end > len(doc) || string(doc[v.Index:end]) != v.Raw {
		return holes
	}
	holes = append(holes, Hole{From: v.Index, To: v.Index, Kind: HoleMark})
	for i := v.Index; i < end; i++ {
		switch c := doc[i]; {
		case c == '"':
			to, _ := TextEnd(doc[:end], i+1)
			if to < 0 {
				return append(holes, Hole{From: end, To: end, Kind: HoleMark})
			}
			i = to
		case c >= '0' && c <= '9':
			to, _ := NumberEnd(doc, i)
			if to > 0 && to < end && bytes.IndexByte([]byte(`:[, `), doc[i-1]) >= 0 && bytes.IndexByte([]byte(`,}] `), doc[to]) >= 0 {
				holes = append(holes, Hole{From: i, To: to, Kind: HoleNumber})
			}
			for i+1 < end && doc[i+1] >= '0' && doc[i+1] <= '9' {
				i++
			}
		}
	}
	return append(holes, Hole{From: end, To: end, Kind: HoleMark})
}

// digitsMax keeps a number in a hole below CountMax.
const digitsMax = 9

// NumberEnd finds the end of the natural number that begins at i, and its value; to is -1 for none, and for one that is
// spelled unusually or very long.
func NumberEnd(b []byte, i int) (to, n int) {
	to = i
	for ; to < len(b) && b[to] >= '0' && b[to] <= '9' && to-i <= digitsMax; to++ {
		n = n*10 + int(b[to]-'0')
	}
	if digits := to - i; digits == 0 || digits > digitsMax || digits > 1 && b[i] == '0' {
		return -1, 0
	}
	return to, n
}
