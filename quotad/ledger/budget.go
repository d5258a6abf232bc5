package ledger

import (
	"cmp"
	"slices"
)

// A budget has a pool for each period it keeps. Only the last one is granted from, and only while it is not closed;
// the others are there for late settles.

// OpenPeriods opens budget periods, each for all budgets of its time zone. Periods go forward only: what is not newer
// than the zone's known one is ignored, and so is nonsense. A zone is remembered for budgets defined later.
func (l *Ledger) OpenPeriods(ps []Period) {
	for _, p := range ps {
		p.Timezone = zone(p.Timezone)
		if month := p.Period % 100; month < 1 || month > 12 || p.Period > periodMax || len(p.Timezone) > nameMax {
			continue
		}
		i, known := l.searchZone(p.Timezone)
		switch {
		case known && p.Period <= l.zones[i].Period, !known && len(l.zones) >= zonesMax:
			continue
		case known:
			l.zones[i] = p
		default:
			l.zones = slices.Insert(l.zones, i, p)
		}
		l.events = append(l.events, Event{Kind: PeriodOpened})
		for _, r := range l.byName {
			if r.budget() && !r.template() && zone(r.spec.Timezone) == p.Timezone {
				l.open(r, p)
			}
		}
	}
}

// zone spells a time zone in one way.
func zone(name string) string {
	if name == "UTC" {
		return ""
	}
	return name
}

func (l *Ledger) searchZone(name string) (int, bool) {
	return slices.BinarySearchFunc(l.zones, name, func(p Period, n string) int { return cmp.Compare(p.Timezone, n) })
}

// openKnown opens the known period of the budget's zone, if there is one.
func (l *Ledger) openKnown(r *resource) {
	if i, ok := l.searchZone(zone(r.spec.Timezone)); ok {
		l.open(r, l.zones[i])
	}
}

// open opens p for a budget and closes the one before. When that makes too many, the oldest goes, and with it what
// is still out in it: late settles of it are answered as gone.
func (l *Ledger) open(r *resource, p Period) {
	if n := len(r.pools); n > 0 {
		last := r.pools[n-1]
		if last.period >= p.Period {
			if last.period == p.Period && last.endsMS != p.EndsMS { // the budget moved to another zone
				last.endsMS = p.EndsMS
				l.touchResource(r)
			}
			return
		}
		last.closed = true
	}
	rate := r.spec.rate(p.Period)
	limit := r.spec.cap(rate)
	r.pools = append(r.pools, &pool{
		res: r, period: p.Period, endsMS: p.EndsMS, cap: limit, free: limit, rate: rate,
	})
	for _, old := range r.pools {
		l.wake(old)
	}
	if len(r.pools) > periodsMax {
		l.dropPool(r.pools[0])
		r.pools = slices.Delete(r.pools, 0, 1)
	}
	l.touchResource(r)
}

// Credit gives nano-dollars to the open period of a budget; a negative amount takes them. A repeated one counts once.
func (l *Ledger) Credit(resource uint64, period uint32, c Credit) CreditResult {
	first, id, amount := l.rules == RulesFirst, c.ID, c.Amount
	switch {
	case id == "" || len(id) > nameMax || amount == 0 || amount < -totalMax || amount > totalMax:
		return CreditInvalid
	case !first && (len(c.Actor) > nameMax || len(c.Reason) > reasonMax):
		return CreditInvalid
	}
	p := l.pool(resource, period)
	if p == nil || !p.res.budget() {
		return CreditGone
	}
	i, found := slices.BinarySearch(p.creditIDs, id)
	same := slices.IndexFunc(p.given, func(g Credit) bool { return g.ID == id })
	switch {
	case same >= 0 && p.given[same].Amount != amount:
		return CreditOther
	case found || same >= 0:
		return CreditRepeated
	case p.closed:
		return CreditGone
	case len(p.creditIDs)+len(p.given) >= creditsMax:
		return CreditFull
	case p.credits+amount > totalMax || p.credits+amount < -totalMax:
		return CreditInvalid
	}
	if first {
		p.creditIDs = slices.Insert(p.creditIDs, i, id)
	} else {
		c.AtMS = l.now
		p.given = append(p.given, c)
		if old := len(p.given) - creditNotesMax; old > 0 {
			p.given[old-1].Actor, p.given[old-1].Reason = "", ""
		}
	}
	p.credits += amount
	p.free += amount
	l.touchResource(p.res)
	l.alert(p)
	if amount > 0 {
		l.wake(p)
	}
	return CreditApplied
}

// alert raises the thresholds that were reached. What stands in suspense counts as spent. A threshold once raised
// stays raised in its period, also when the cap goes up or suspense comes back.
func (l *Ledger) alert(p *pool) {
	spent, base := p.settled+p.suspense, max(p.cap+p.credits, 0)
	if spent <= 0 {
		return
	}
	for _, permille := range p.res.spec.AlertPermille {
		if mulLess(spent, 1000, permille, base) {
			break // they ascend
		}
		i, raised := slices.BinarySearch(p.alerted, permille)
		if raised {
			continue
		}
		p.alerted = slices.Insert(p.alerted, i, permille)
		l.touchResource(p.res)
		l.events = append(l.events, Event{Kind: AlertRaised})
	}
}

// Untold returns the alerts of which nobody was told yet, by resource and period.
func (l *Ledger) Untold() []Alert {
	var out []Alert
	for _, r := range l.byName {
		for _, p := range r.pools {
			for _, permille := range p.alerted {
				if _, told := slices.BinarySearch(p.told, permille); !told {
					out = append(out, Alert{
						Resource: r.id, Period: p.period, Permille: permille, Spec: r.view(l.now).Spec,
						Spent: p.settled + p.suspense, Cap: p.cap + p.credits,
					})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Alert) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// Told notes that someone was told of an alert. Of one that was not raised it notes nothing.
func (l *Ledger) Told(resource uint64, period uint32, permille int64) {
	p := l.pool(resource, period)
	if p == nil {
		return
	}
	if _, raised := slices.BinarySearch(p.alerted, permille); !raised {
		return
	}
	if i, told := slices.BinarySearch(p.told, permille); !told {
		p.told = slices.Insert(p.told, i, permille)
		l.touchResource(p.res)
	}
}

// setCap changes the cap of the open period. Free may go negative; then nothing is granted.
func (l *Ledger) setCap(p *pool, limit int64) {
	p.free += limit - p.cap
	p.cap = limit
	l.touchResource(p.res)
}
