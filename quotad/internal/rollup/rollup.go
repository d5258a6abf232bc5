// Package rollup sums usage by hour and names, counts every event once whatever is sent again, and answers queries.
//
// It is pure. It reads no clock, does no I/O and starts nothing; the same batches in the same order give the same
// state on every node. Apply is total: what cannot be counted changes nothing, or is dropped and counted as such.
//
// Units: money in nano-dollars, tokens and requests as counts, hours in Unix milliseconds by the sidecars' clocks.
// Ledger time, in milliseconds, tells what is old.
package rollup

import (
	"cmp"
	"math"
	"slices"
)

// The bounds of this package.
const (
	// featuresMax is how many different features a team may have in an hour, or an old day. Further ones are summed as Other:
	// callers choose the names, and one that sends a new name with each request must not fill the memory.
	featuresMax = 100
	// nameBytesMax bounds a name. A longer feature is summed as Other; a row with another longer name is dropped,
	// as names from the configuration are never that long.
	nameBytesMax = 128
	// sourcesMax bounds the sources that are remembered. Beyond it the one that was silent for longest is forgotten.
	sourcesMax = 1 << 17
	// sourceBytesMax bounds a source's name. A batch from a longer one changes nothing.
	sourceBytesMax = 256
	// groupsMax bounds the rows of an answer. Beyond it the query is refused.
	groupsMax = 100_000

	hourMS       = int64(3_600_000)
	dayMS        = 24 * hourMS
	sourceKeepMS = 40 * dayMS // ledger time; far longer than a sidecar keeps events
	hourMaxMS    = int64(7_258_118_400_000)
)

// Other is the feature under which too many or too long ones are summed.
const Other = "other"

// Names is what a row sums over.
type Names struct {
	HourMS       int64 // start of the hour, UTC; of the day in old rows and grouped by day; 0 grouped by neither
	Team         string
	Key          string
	Alias        string
	Deployment   string
	Feature      string
	PriceVersion string
}

// Sums are totals. None is negative; the largest int64 stands for more.
type Sums struct {
	Attempts     int64
	Requests     int64 // billed attempts
	Errors       int64 // attempts that ended other than OK
	Input        int64
	CacheRead    int64
	CacheWrite5m int64
	CacheWrite1h int64
	Output       int64
	Reasoning    int64 // part of Output
	InputAudio   int64 // not part of Input
	OutputAudio  int64 // not part of Output
	InputImage   int64 // not part of Input
	OutputImage  int64 // not part of Output
	WebSearches  int64
	CostNano     int64
	Estimated    int64 // requests whose counts were not stated by the provider
}

// Row is one sum.
type Row struct {
	Names
	Sums
}

// Batch is a run of events of one source, summed.
type Batch struct {
	Source  string
	FromSeq uint64 // first event, from 1
	ToSeq   uint64 // last event
	Rows    []Row
}

// Source says how far a source's events are counted.
type Source struct {
	Source  string
	LastSeq uint64
	AtMS    int64 // ledger time of its last batch
}

// hour is the rows of one hour, or of one old day.
type hour struct {
	rows     map[Names]*Sums
	features map[string]map[string]bool // by team; without "" and Other
}

// Rollup is all sums. It has one owner at a time: the caller guards it.
type Rollup struct {
	hours    map[int64]*hour
	foldedMS int64 // rows of before are kept by the day; not in the records, as ledger time tells it
	sources  map[string]Source
	// oldestMS is not above any source's AtMS, so that most calls need not look for old ones.
	oldestMS       int64
	dropped        int64
	touchedRows    map[Names]bool
	touchedSources map[string]bool
}

// New makes an empty rollup.
func New() *Rollup {
	return &Rollup{
		hours: map[int64]*hour{}, sources: map[string]Source{}, oldestMS: math.MaxInt64,
		touchedRows: map[Names]bool{}, touchedSources: map[string]bool{},
	}
}

// Apply counts a batch if it begins right after the last event counted of its source, and gives the number of the
// last event counted, which answers the batch. A batch that begins elsewhere changes no sum: an earlier one was
// counted, a later one shows a gap, and the answer tells the source where to go on. nowMS is ledger time.
func (r *Rollup) Apply(nowMS int64, b Batch) (lastSeq uint64) {
	if b.Source == "" || len(b.Source) > sourceBytesMax {
		return 0
	}
	s, known := r.sources[b.Source]
	follows := b.FromSeq == s.LastSeq+1 && b.ToSeq >= b.FromSeq && b.ToSeq < math.MaxUint64
	if follows {
		for _, row := range b.Rows {
			r.count(row)
		}
		s.LastSeq = b.ToSeq
	}
	if follows || known {
		s.Source, s.AtMS = b.Source, max(s.AtMS, nowMS)
		r.sources[b.Source] = s
		r.touchedSources[b.Source] = true
		r.oldestMS = min(r.oldestMS, s.AtMS)
	}
	// After the batch: a source that is back after a long time goes on where it was.
	r.forget(nowMS)
	return s.LastSeq
}

// count adds one row.
func (r *Rollup) count(row Row) {
	if !row.valid() {
		r.dropped++
		return
	}
	row.HourMS = r.startOf(row.HourMS)
	if r.tooOld(row.HourMS - row.HourMS%dayMS) {
		r.dropped++
		return
	}
	r.add(row)
}

// add sums one row that lies where it belongs.
func (r *Rollup) add(row Row) {
	h := r.hours[row.HourMS]
	if h == nil {
		h = &hour{rows: map[Names]*Sums{}, features: map[string]map[string]bool{}}
		r.hours[row.HourMS] = h
	}
	row.Feature = h.admit(row.Team, row.Feature)
	sums := h.rows[row.Names]
	if sums == nil {
		sums = &Sums{}
		h.rows[row.Names] = sums
	}
	sums.add(row.Sums)
	r.touchedRows[row.Names] = true
}

// admit gives the feature under which a row is summed.
func (h *hour) admit(team, feature string) string {
	if feature == "" || feature == Other {
		return feature
	}
	seen := h.features[team]
	if seen[feature] {
		return feature
	}
	if len(seen) >= featuresMax || len(feature) > nameBytesMax {
		return Other
	}
	if seen == nil {
		seen = map[string]bool{}
		h.features[team] = seen
	}
	seen[feature] = true
	return feature
}

func (row *Row) valid() bool {
	for _, s := range []string{row.Team, row.Key, row.Alias, row.Deployment, row.PriceVersion} {
		if len(s) > nameBytesMax {
			return false
		}
	}
	for _, n := range row.Sums.fields() {
		if *n < 0 {
			return false
		}
	}
	return row.HourMS >= 0 && row.HourMS < hourMaxMS
}

func (s *Sums) fields() []*int64 {
	return []*int64{&s.Attempts, &s.Requests, &s.Errors, &s.Input, &s.CacheRead, &s.CacheWrite5m, &s.CacheWrite1h,
		&s.Output, &s.Reasoning, &s.InputAudio, &s.OutputAudio, &s.InputImage, &s.OutputImage, &s.WebSearches, &s.CostNano, &s.Estimated}
}

func (s *Sums) add(o Sums) {
	from := o.fields()
	for i, to := range s.fields() {
		if *to > math.MaxInt64-*from[i] {
			*to = math.MaxInt64
			continue
		}
		*to += *from[i]
	}
}

// forget drops the sources that were silent for too long, and the most silent ones beyond the bound.
func (r *Rollup) forget(nowMS int64) {
	before := nowMS - sourceKeepMS
	if r.oldestMS >= before && len(r.sources) <= sourcesMax {
		return
	}
	all := make([]Source, 0, len(r.sources))
	for _, s := range r.sources {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.AtMS, b.AtMS), cmp.Compare(a.Source, b.Source))
	})
	r.oldestMS = math.MaxInt64
	for _, s := range all {
		if s.AtMS >= before && len(r.sources) <= sourcesMax {
			r.oldestMS = s.AtMS
			break
		}
		delete(r.sources, s.Source)
		r.touchedSources[s.Source] = true
	}
}

// Dropped counts the rows that could not be counted since this node started, for a metric: they are a fault of a
// sidecar, or older than what is kept.
func (r *Rollup) Dropped() int64 { return r.dropped }

// Row finds the sums of names.
func (r *Rollup) Row(n Names) (Row, bool) {
	h := r.hours[n.HourMS]
	if h == nil || h.rows[n] == nil {
		return Row{}, false
	}
	return Row{n, *h.rows[n]}, true
}

// Source finds a source.
func (r *Rollup) Source(name string) (Source, bool) {
	s, ok := r.sources[name]
	return s, ok
}

// Touched takes at most most of the rows and sources that changed since they were taken last, in no order; there are no
// more when it returns fewer. A row that is no longer found by Row, or a source by Source, is gone.
func (r *Rollup) Touched(most int) (rows []Names, sources []string) {
	for n := range r.touchedRows {
		if len(rows) == most {
			break
		}
		rows = append(rows, n)
		delete(r.touchedRows, n)
	}
	for s := range r.touchedSources {
		if len(rows)+len(sources) == most {
			break
		}
		sources = append(sources, s)
		delete(r.touchedSources, s)
	}
	return rows, sources
}

// Load replaces everything by a stored state, in any order. Advance must follow: it says what is old.
func (r *Rollup) Load(rows []Row, sources []Source) {
	fresh := New()
	for _, row := range rows {
		h := fresh.hours[row.HourMS]
		if h == nil {
			h = &hour{rows: map[Names]*Sums{}, features: map[string]map[string]bool{}}
			fresh.hours[row.HourMS] = h
		}
		h.admit(row.Team, row.Feature)
		sums := row.Sums
		h.rows[row.Names] = &sums
	}
	for _, s := range sources {
		fresh.sources[s.Source] = s
		fresh.oldestMS = min(fresh.oldestMS, s.AtMS)
	}
	*r = *fresh
}

// Rows lists every row, sorted.
func (r *Rollup) Rows() []Row {
	var out []Row
	for _, h := range r.hours {
		for n, s := range h.rows {
			out = append(out, Row{n, *s})
		}
	}
	slices.SortFunc(out, func(a, b Row) int { return compareNames(a.Names, b.Names) })
	return out
}

// Sources lists every source by name.
func (r *Rollup) Sources() []Source {
	out := make([]Source, 0, len(r.sources))
	for _, s := range r.sources {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Source) int { return cmp.Compare(a.Source, b.Source) })
	return out
}

func compareNames(a, b Names) int {
	return cmp.Or(
		cmp.Compare(a.HourMS, b.HourMS),
		cmp.Compare(a.Team, b.Team),
		cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Alias, b.Alias),
		cmp.Compare(a.Deployment, b.Deployment),
		cmp.Compare(a.Feature, b.Feature),
		cmp.Compare(a.PriceVersion, b.PriceVersion),
	)
}
