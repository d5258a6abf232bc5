package registry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// ErrUnknownVersion is returned for a version that is not in the history: it never was, or is too long ago.
var ErrUnknownVersion = errors.New("version is not in the history")

// HistoryEntry is one change. Before and After name the same objects in the same order; an empty spec is an object
// that did not or does not exist.
type HistoryEntry struct {
	Version uint64
	Actor   string
	AtMS    int64 // wall clock of the proposer, Unix milliseconds
	Note    string
	Before  []Object
	After   []Object
}

func (h *HistoryEntry) bytes() int {
	n := len(h.Actor) + len(h.Note)
	for _, o := range h.Before {
		n += len(o.Spec) + len(o.ID)
	}
	for _, o := range h.After {
		n += len(o.Spec) + len(o.ID)
	}
	return n
}

// check sees that an entry from the disk can be shown and undone.
func (h *HistoryEntry) check() error {
	if len(h.Before) != len(h.After) {
		return fmt.Errorf("%d objects before and %d after", len(h.Before), len(h.After))
	}
	for i := range h.Before {
		if h.Before[i].ref() != h.After[i].ref() {
			return fmt.Errorf("%s %s before and %s %s after",
				h.Before[i].Kind, h.Before[i].ID, h.After[i].Kind, h.After[i].ID)
		}
		for _, o := range []Object{h.Before[i], h.After[i]} {
			if len(o.Spec) == 0 {
				continue
			}
			if _, err := decode(o); err != nil {
				return fmt.Errorf("%s %s: %w", o.Kind, o.ID, err)
			}
		}
	}
	return nil
}

// Differences show the change, one for each object.
func (h *HistoryEntry) Differences() []Difference {
	out := make([]Difference, 0, len(h.After))
	for i := range h.After {
		out = append(out, difference(h.Before[i], h.After[i]))
	}
	return out
}

// remember appends a change and drops the oldest ones beyond the bounds.
func (r *Registry) remember(h HistoryEntry) {
	r.history = append(r.history, h)
	r.historyBytes += h.bytes()
	r.touchedPast[h.Version] = true
	drop := 0
	for len(r.history)-drop > 1 && (len(r.history)-drop > historyMax || r.historyBytes > historyBytesMax) {
		r.historyBytes -= r.history[drop].bytes()
		r.touchedPast[r.history[drop].Version] = true
		drop++
	}
	if drop > 0 {
		r.history = slices.Clone(r.history[drop:])
	}
}

// History lists the newest changes first, at most limit of them.
func (r *Registry) History(limit int) []HistoryEntry {
	n := min(max(limit, 0), len(r.history))
	out := slices.Clone(r.history[len(r.history)-n:])
	slices.Reverse(out)
	return out
}

// HistoryAt finds one change.
func (r *Registry) HistoryAt(version uint64) (HistoryEntry, bool) {
	for i := range slices.Backward(r.history) {
		if r.history[i].Version == version {
			return r.history[i], true
		}
	}
	return HistoryEntry{}, false
}

// Rollback computes the change that undoes every change after version, which must be in the history (or is the
// current one, and the change is empty). Secrets and revocations stay as they are now: going back must not revive a
// key that was taken back or a secret that was replaced. So does a price version that has been in force at nowMS. The caller
// fills in actor, time and note.
func (r *Registry) Rollback(version uint64, nowMS int64) (Change, []Difference, error) {
	if _, ok := r.HistoryAt(version); !ok && version != r.version {
		return Change{}, nil, fmt.Errorf("roll back to %d: %w", version, ErrUnknownVersion)
	}
	target := map[Ref]Object{}
	newest := map[Ref]*Key{} // what a key was when it last existed
	for _, h := range slices.Backward(r.history) {
		if h.Version <= version {
			break
		}
		for _, o := range h.Before {
			target[o.ref()] = o
			if k := keyOf(o); k != nil && newest[o.ref()] == nil {
				newest[o.ref()] = k
			}
		}
	}
	var objects []Object
	var kept []Difference
	for ref, o := range target {
		current, _ := r.Object(ref.Kind, ref.ID)
		if k := keyOf(o); k != nil {
			last := newest[ref]
			if now := keyOf(current); now != nil {
				last = now
			}
			if k.Revoked != last.Revoked || k.SecretSHA256 != last.SecretSHA256 {
				o = rewound(k, last).Object()
				kept = append(kept, keptOf(k, last)...)
			}
		}
		if !bytes.Equal(o.Spec, current.Spec) {
			objects = append(objects, Object{Kind: ref.Kind, ID: ref.ID, Spec: o.Spec})
		}
	}
	change, differences := r.changeTo(objects, nowMS)
	differences = append(differences, kept...)
	slices.SortStableFunc(differences, func(a, b Difference) int { return compareRefs(Ref{a.Kind, a.ID}, Ref{b.Kind, b.ID}) })
	return change, differences, nil
}

// keptOf tells what of a key does not become what it was.
func keptOf(was, last *Key) []Difference {
	d := Difference{Action: ActionKeep, Kind: KindKey, ID: was.ID}
	if last.Revoked && !was.Revoked {
		d.Lines = append(d.Lines, "it stays revoked: going back revives no key")
	}
	if last.SecretSHA256 != "" && was.SecretSHA256 != last.SecretSHA256 {
		d.Lines = append(d.Lines, "it keeps the secret it got since")
	}
	if len(d.Lines) == 0 {
		return nil
	}
	return []Difference{d}
}

// rewound is the key as it was, with its last secret and revocation.
func rewound(was, last *Key) *Key {
	k := *was
	k.Revoked = last.Revoked
	if last.SecretSHA256 != "" {
		k.SecretSHA256 = last.SecretSHA256
	}
	return &k
}

// keyOf decodes a stored key, nil for anything else and for one that does not exist.
func keyOf(o Object) *Key {
	if o.Kind != KindKey || len(o.Spec) == 0 {
		return nil
	}
	v, err := decode(o)
	if err != nil {
		panic("BUG: a stored key does not decode: " + err.Error())
	}
	return v.(*Key)
}
