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
	trouble time.Duration // until when it carried, or may carry, anything other than at once and once
	arrived [2]uint64     // number of the newest message that has arrived
}

func (l *link) whole() bool { return !l.cut[up] && !l.cut[down] }

func (l *link) mend(now time.Duration) {
	if !l.whole() {
		l.cut, l.trouble = [2]bool{}, max(l.trouble, now)
	}
}

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
			s.link.trouble = max(s.link.trouble, w.now)
			continue
		}
		if w.faulty && w.chance(w.plan.dropMille) {
			w.tally.faults[dropped]++
			s.link.trouble = max(s.link.trouble, w.now)
			continue
		}
		delay := 200*time.Microsecond + w.upTo(15*time.Millisecond)
		if w.faulty && w.chance(w.plan.lateMille) {
			w.tally.faults[late]++
			delay += w.upTo(3 * time.Second)
			s.link.trouble = max(s.link.trouble, w.now+delay)
		}
		w.after(delay, func() {
			if s.link.cut[d] {
				s.link.trouble = max(s.link.trouble, w.now)
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
