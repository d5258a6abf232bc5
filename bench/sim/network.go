package sim

import "time"

// direction is one way of a link.
type direction uint8

const (
	up   direction = iota // to quotad
	down                  // to the sidecar
)

// link joins one sidecar and quotad.
type link struct {
	cut     [2]bool
	arrived [2]uint64 // number of the newest message that has arrived
}

func (l *link) whole() bool { return !l.cut[up] && !l.cut[down] }

// carry takes something over a link, or loses it, or brings it twice or late. Messages overtake each other.
func (w *world) carry(s *sidecar, d direction, deliver func()) {
	copies := 1
	if w.faulty && w.chance(w.plan.repeatMille) {
		copies = 2
		w.tally.faults[repeated]++
	}
	w.messages++
	number := w.messages
	for range copies {
		if s.link.cut[d] {
			continue
		}
		if w.faulty && w.chance(w.plan.dropMille) {
			w.tally.faults[dropped]++
			continue
		}
		delay := 200*time.Microsecond + w.upTo(15*time.Millisecond)
		if w.faulty && w.chance(w.plan.lateMille) {
			w.tally.faults[late]++
			delay += w.upTo(3 * time.Second)
		}
		w.after(delay, func() {
			if s.link.cut[d] {
				return
			}
			if number < s.link.arrived[d] {
				w.tally.faults[reordered]++
			}
			s.link.arrived[d] = max(s.link.arrived[d], number)
			deliver()
		})
	}
}
