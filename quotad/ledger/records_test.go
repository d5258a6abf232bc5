package ledger

import (
	"reflect"
	"testing"
)

// records is the whole state as the machine outside keeps it.
type records struct {
	Now       int64
	Periods   []Period
	Fairness  Fairness
	Resources []ResourceState
	Counters  []CounterState
	Members   []MemberState
}

func recordsOf(l *Ledger) records {
	out := records{Now: l.Now(), Periods: l.Periods(), Fairness: l.Fairness()}
	for _, r := range l.Resources() {
		s, _ := l.ResourceState(r.ID)
		out.Resources = append(out.Resources, s)
		for _, kid := range l.Children(r.ID) {
			s, _ := l.ResourceState(kid.ID)
			out.Resources = append(out.Resources, s)
		}
	}
	for _, m := range l.Members() {
		s, _ := l.MemberState(m.Incarnation)
		out.Members = append(out.Members, s)
		out.Counters = append(out.Counters, l.Counters(m.Incarnation)...)
	}
	return out
}

func (r records) load(l *Ledger) error {
	return l.Load(r.Now, r.Periods, r.Fairness, r.Resources, r.Counters, r.Members)
}

// equal compares records; nil and empty lists are alike.
func (r records) equal(o records) bool { return reflect.DeepEqual(plain(r), plain(o)) }

func plain(r records) records {
	for i := range r.Resources {
		s := &r.Resources[i]
		s.AlertPermille, s.Rates = some(s.AlertPermille), some(s.Rates)
		for k := range s.Periods {
			s.Periods[k].AlertedPermille = some(s.Periods[k].AlertedPermille)
			s.Periods[k].CreditIDs, s.Periods[k].Given = some(s.Periods[k].CreditIDs), some(s.Periods[k].Given)
		}
		s.Periods = some(s.Periods)
	}
	for i := range r.Counters {
		r.Counters[i].Shares = some(r.Counters[i].Shares)
	}
	for i := range r.Members {
		r.Members[i].Asks = some(r.Members[i].Asks)
	}
	r.Fairness = Fairness{Weights: some(r.Fairness.Weights), Reserves: some(r.Fairness.Reserves)}
	r.Periods, r.Resources, r.Counters, r.Members = some(r.Periods), some(r.Resources), some(r.Counters), some(r.Members)
	return r
}

func some[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// reload returns a new ledger made from l's records.
func reload(t interface {
	Helper()
	Fatalf(string, ...any)
}, l *Ledger) *Ledger {
	t.Helper()
	out := New(l.cfg)
	was := recordsOf(l)
	if err := was.load(out); err != nil {
		t.Fatalf("load: %v", err)
	}
	if now := recordsOf(out); !was.equal(now) {
		t.Fatalf("records changed by loading:\n%+v\n%+v", was, now)
	}
	return out
}

// mirror keeps records by following Touched only, as a state file does.
type mirror struct {
	now       int64
	periods   []Period
	fairness  Fairness
	resources map[uint64]ResourceState
	counters  map[CounterKey]CounterState
	members   map[uint64]MemberState
}

func newMirror() *mirror {
	return &mirror{
		resources: map[uint64]ResourceState{}, counters: map[CounterKey]CounterState{}, members: map[uint64]MemberState{},
	}
}

func (m *mirror) follow(l *Ledger) {
	m.now, m.fairness, m.periods = l.Now(), l.Fairness(), l.Periods()
	const most = 3
	for {
		rs, cs, ms := l.Touched(most)
		for _, k := range rs {
			follow(m.resources, k, l.ResourceState)
		}
		for _, k := range cs {
			follow(m.counters, k, l.CounterState)
		}
		for _, k := range ms {
			follow(m.members, k, l.MemberState)
		}
		if len(rs)+len(cs)+len(ms) < most {
			return
		}
	}
}

func follow[K comparable, V any](m map[K]V, key K, get func(K) (V, bool)) {
	if v, ok := get(key); ok {
		m[key] = v
	} else {
		delete(m, key)
	}
}

// ledger returns the ledger that the mirror's records make.
func (m *mirror) ledger(t *testing.T, cfg Config) *Ledger {
	t.Helper()
	var r records
	r.Now, r.Periods, r.Fairness = m.now, m.periods, m.fairness
	for _, s := range m.resources {
		r.Resources = append(r.Resources, s)
	}
	for _, s := range m.counters {
		r.Counters = append(r.Counters, s)
	}
	for _, s := range m.members {
		r.Members = append(r.Members, s)
	}
	l := New(cfg)
	if err := r.load(l); err != nil {
		t.Fatalf("load: %v", err)
	}
	return l
}
