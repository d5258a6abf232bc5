package rollup

import (
	"maps"
	"slices"
)

// Usage is kept by the hour for 40 days, then by the day (UTC) for 400 days, then not at all. A month and its invoice
// so stay exact to the nano-dollar for more than a year, by every name but the feature: a day keeps as many of a
// team's as an hour does, and sums the rest as Other.
//
// A row of a day lies at the day's first hour, where the day's later hours join it as they grow old. What is old is
// told by ledger time, so every node folds at the same entry.
const (
	hourKeepMS = 40 * dayMS
	dayKeepMS  = 400 * dayMS
)

// Advance folds and drops what has grown old by nowMS, ledger time. It costs as much as what changes, and looks at
// each hour once an hour.
func (r *Rollup) Advance(nowMS int64) {
	now := nowMS - nowMS%hourMS
	if now-hourKeepMS <= r.foldedMS {
		return
	}
	r.foldedMS = now - hourKeepMS
	for _, at := range slices.Sorted(maps.Keys(r.hours)) {
		switch day := at - at%dayMS; {
		case r.tooOld(day):
			for n := range r.hours[at].rows {
				r.touchedRows[n] = true
			}
			delete(r.hours, at)
		case at < r.foldedMS && at != day:
			r.fold(at, day)
		}
	}
}

// fold moves the rows of an hour to those of its day.
func (r *Rollup) fold(at, day int64) {
	h := r.hours[at]
	delete(r.hours, at)
	for _, n := range slices.SortedFunc(maps.Keys(h.rows), compareNames) { // the first features are the ones kept
		r.touchedRows[n] = true
		sums := *h.rows[n]
		n.HourMS = day
		r.add(Row{n, sums})
	}
}

// startOf is where a row of some time lies.
func (r *Rollup) startOf(atMS int64) int64 {
	if at := atMS - atMS%hourMS; at >= r.foldedMS {
		return at
	}
	return atMS - atMS%dayMS
}

// endOf is the end of what the rows that lie at some hour are the sum of.
func (r *Rollup) endOf(at int64) int64 {
	if at < r.foldedMS {
		return min(at+dayMS, r.foldedMS)
	}
	return at + hourMS
}

// tooOld says that a day is not kept any more.
func (r *Rollup) tooOld(day int64) bool { return day+dayMS+dayKeepMS <= r.foldedMS+hourKeepMS }
