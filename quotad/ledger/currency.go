package ledger

// A budget may be written in another currency. Its cap is converted once, when its period opens, and the rate is kept
// with it: an edit of the limit goes by that rate, and a new rate waits for the next period.

const usd = 1_000_000_000 // nano

// rate returns the rate of a month: its own, or the newest before it, or the oldest; 0 for USD.
func (s *Spec) rate(period uint32) int64 {
	if s.Currency == "" || len(s.Rates) == 0 {
		return 0
	}
	out := s.Rates[0].PerUSDNano
	for _, r := range s.Rates {
		if r.Period <= period {
			out = r.PerUSDNano // they ascend
		}
	}
	return out
}

// cap returns the limit in nano-USD, rounded down.
func (s *Spec) cap(rate int64) int64 {
	if rate == 0 {
		return s.Limit
	}
	return min(mulDiv(s.Limit, usd, rate), totalMax)
}

// CapIn is the limit in nano-USD at the rate of a month (yyyymm): the cap of a period that opens in it.
func (s *Spec) CapIn(period uint32) int64 { return s.cap(s.rate(period)) }

// month is the open month of a budget's time zone; while none is known it is later than any.
func (l *Ledger) month(s *Spec) uint32 {
	if i, ok := l.searchZone(zone(s.Timezone)); ok {
		return l.zones[i].Period
	}
	return periodMax
}
