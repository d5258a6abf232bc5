package lease

import "time"

// Stats is a picture of the moment.
func (m *Machine) Stats(now int64) Stats {
	s := Stats{
		Connected: m.connected, Incarnation: m.incarnation, Seq: m.seq, LastReplyAge: -1, Leaving: m.leaving,
		UsableFor:  time.Duration(max(0, m.usableUntil-now)),
		StandbyFor: time.Duration(max(0, m.standbyUntil-now)),

		LocalAdmissions: m.stats.local, AskedAdmissions: m.stats.asked,
		TrickleAdmissions: m.stats.trickled, OpenAdmissions: m.stats.opened, Refusals: m.stats.refusals,
		DoubleSettles: m.stats.doubleSettles, StraySettles: m.stats.straySettles, Fences: m.stats.fences,

		Waiting: len(m.queue), OpenHolds: len(m.open), PendingFinals: len(m.finals), ShareVersion: m.shareVersion,
	}
	s.Refusals[Granted] = 0
	for _, w := range m.sent {
		if !w.withdrawn {
			s.Waiting++
		}
	}
	if m.reached {
		s.LastReplyAge = time.Duration(now - m.lastReply)
	}
	interval := int64(m.cfg.RenewEvery)
	for _, c := range m.counters {
		s.Counters = append(s.Counters, CounterStats{
			Resource: c.key.resource, Period: c.key.period, Granted: c.granted, Spent: c.spent, Returned: c.returned,
			Forfeited: c.forfeited, Held: c.held, Balance: c.balance(), Demand: c.demand(now-m.windowStart, interval),
		})
	}
	for _, sh := range m.sortedShares() {
		s.Shares = append(s.Shares, ShareStats{sh.Resource, sh.PerMinute})
	}
	if m.journal != nil {
		s.Journal = m.journal.stats()
	}
	return s
}
