package lease

import (
	"slices"
	"time"
)

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
	sums := map[uint64]*CounterStats{} // by template
	for _, c := range m.counters {
		one := CounterStats{
			Resource: c.key.resource, Period: c.key.period, Granted: c.granted, Spent: c.spent, Returned: c.returned,
			Forfeited: c.forfeited, Held: c.held, Balance: c.balance(), Demand: c.demand(now-m.windowStart, interval),
		}
		if c.res.of == nil {
			s.Counters = append(s.Counters, one)
			continue
		}
		sum := sums[c.res.id]
		if sum == nil {
			sum = &CounterStats{Resource: c.res.id}
			sums[c.res.id] = sum
		}
		sum.add(&one)
	}
	for _, sum := range sums {
		s.Counters = append(s.Counters, *sum)
	}
	slices.SortFunc(s.Counters, func(a, b CounterStats) int {
		return counterKey{a.Resource, a.Period}.compare(counterKey{b.Resource, b.Period})
	})
	for _, sh := range m.sortedShares() {
		s.Shares = append(s.Shares, ShareStats{sh.Resource, sh.PerMinute})
	}
	if m.journal != nil {
		s.Journal = m.journal.stats()
	}
	return s
}

func (s *CounterStats) add(one *CounterStats) {
	s.Names++
	s.Granted += one.Granted
	s.Spent += one.Spent
	s.Returned += one.Returned
	s.Forfeited += one.Forfeited
	s.Held += one.Held
	s.Balance += one.Balance
	s.Demand = min(s.Demand+one.Demand, maxDemand)
}
