package ledger

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// small returns a ledger with a bucket and a hard budget, and their ids.
func small(t *testing.T) (l *Ledger, bucket, budget uint64) {
	t.Helper()
	l = New(Config{})
	err := l.Define(1, []Spec{
		{Scope: "team", Owner: "a", Kind: Requests, Limit: 600},
		{Scope: "team", Owner: "a", Kind: Money, Limit: 1_000_000, Hard: true},
	}, Fairness{})
	if err != nil {
		t.Fatal(err)
	}
	l.OpenPeriods([]Period{{Period: 202601, EndsMS: 1}})
	return l, 1 << 12, 1<<12 | 1
}

func TestRenewRefusals(t *testing.T) {
	_, bucket, budget := small(t)
	many := func(n int) (cs []Counter) {
		for i := range n {
			cs = append(cs, Counter{Resource: uint64(i)})
		}
		return cs
	}
	asks := func(n int) (as []Ask) {
		for i := range n {
			as = append(as, Ask{ID: uint64(i), Needs: []Need{{Resource: bucket, Amount: 1}}})
		}
		return as
	}
	needs := func(n int) (ns []Need) {
		for i := range n {
			ns = append(ns, Need{Resource: uint64(i), Amount: 1})
		}
		return ns
	}
	one := func(c Counter) []Counter { return []Counter{c} }
	ask := func(ns ...Need) []Ask { return []Ask{{ID: 1, Needs: ns}} }
	tests := []struct {
		name string
		r    Renew
		want Refusal
	}{
		{"plain", Renew{Incarnation: 1, Seq: 1}, RefusedNot},
		{"no incarnation", Renew{Seq: 1}, RefusedMalformed},
		{"no seq", Renew{Incarnation: 1}, RefusedMalformed},
		{"the seq of liars", Renew{Incarnation: 1, Seq: math.MaxUint64}, RefusedMalformed},
		{"long name", Renew{Incarnation: 1, Seq: 1, Identity: strings.Repeat("x", nameMax+1)}, RefusedMalformed},
		{"negative spent", Renew{Incarnation: 1, Seq: 1, Counters: one(Counter{Spent: -1})}, RefusedMalformed},
		{"negative returned", Renew{Incarnation: 1, Seq: 1, Counters: one(Counter{Returned: -1})}, RefusedMalformed},
		{"negative held", Renew{Incarnation: 1, Seq: 1, Counters: one(Counter{Held: -1})}, RefusedMalformed},
		{"negative demand", Renew{Incarnation: 1, Seq: 1, Counters: one(Counter{Demand: -1})}, RefusedMalformed},
		{"absurd spent", Renew{Incarnation: 1, Seq: 1, Counters: one(Counter{Spent: totalMax + 1})}, RefusedMalformed},
		{"a counter twice", Renew{Incarnation: 1, Seq: 1, Counters: []Counter{{Resource: 2}, {Resource: 1}, {Resource: 2}}},
			RefusedMalformed},
		{"unsorted counters", Renew{Incarnation: 1, Seq: 1, Counters: []Counter{{Resource: 2}, {Resource: 1}}}, RefusedNot},
		{"two periods", Renew{Incarnation: 1, Seq: 1, Counters: []Counter{{Resource: budget, Period: 202601},
			{Resource: budget, Period: 202602}}}, RefusedNot},
		{"many counters", Renew{Incarnation: 1, Seq: 1, Counters: many(countersMax)}, RefusedNot},
		{"too many counters", Renew{Incarnation: 1, Seq: 1, Counters: many(countersMax + 1)}, RefusedMalformed},
		{"many asks", Renew{Incarnation: 1, Seq: 1, Asks: asks(asksMax)}, RefusedNot},
		{"too many asks", Renew{Incarnation: 1, Seq: 1, Asks: asks(asksMax + 1)}, RefusedMalformed},
		{"an ask twice", Renew{Incarnation: 1, Seq: 1, Asks: append(asks(2), asks(1)...)}, RefusedMalformed},
		{"an empty ask", Renew{Incarnation: 1, Seq: 1, Asks: ask()}, RefusedMalformed},
		{"many needs", Renew{Incarnation: 1, Seq: 1, Asks: ask(needs(needsMax)...)}, RefusedNot},
		{"too many needs", Renew{Incarnation: 1, Seq: 1, Asks: ask(needs(needsMax + 1)...)}, RefusedMalformed},
		{"a need twice", Renew{Incarnation: 1, Seq: 1, Asks: ask(Need{Resource: bucket, Period: 0, Amount: 1}, Need{Resource: bucket, Period: 0, Amount: 1})}, RefusedMalformed},
		{"a need of nothing", Renew{Incarnation: 1, Seq: 1, Asks: ask(Need{Resource: bucket, Period: 0, Amount: 0})}, RefusedMalformed},
		{"a negative need", Renew{Incarnation: 1, Seq: 1, Asks: ask(Need{Resource: bucket, Period: 0, Amount: -1})}, RefusedMalformed},
		{"an absurd need", Renew{Incarnation: 1, Seq: 1, Asks: ask(Need{Resource: bucket, Period: 0, Amount: totalMax + 1})}, RefusedMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _, _ := small(t)
			l.Touched(math.MaxInt)
			got := l.Renew(tt.r)
			if got.Refusal != tt.want || got.Fenced || got.Seq != tt.r.Seq {
				t.Errorf("got %+v, want refusal %d", got, tt.want)
			}
			if rs, cs, ms := l.Touched(math.MaxInt); tt.want != RefusedNot && len(rs)+len(cs)+len(ms) > 0 {
				t.Error("a refused renew changed something")
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFences(t *testing.T) {
	first := Renew{Identity: "pod", Incarnation: 1, Seq: 1}
	tests := []struct {
		name   string
		r      Renew
		fenced bool // the answer
		member bool // the process itself
	}{
		{"next", Renew{Identity: "pod", Incarnation: 1, Seq: 2}, false, false},
		{"unknown in the middle", Renew{Identity: "pod", Incarnation: 2, Seq: 2}, true, false},
		{"another's incarnation", Renew{Identity: "mallory", Incarnation: 1, Seq: 2}, true, false},
		{"small overrun", Renew{Identity: "pod", Incarnation: 1, Seq: 2, Counters: []Counter{
			{Resource: 1 << 12, Spent: 1200}}}, false, false},
		{"wild overrun of a bucket", Renew{Identity: "pod", Incarnation: 1, Seq: 2, Counters: []Counter{
			{Resource: 1 << 12, Spent: 1201}}}, true, true},
		{"wild return", Renew{Identity: "pod", Incarnation: 1, Seq: 2, Counters: []Counter{
			{Resource: 1<<12 | 1, Period: 202601, Returned: 1_000_000_001}}}, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _, _ := small(t)
			l.Renew(first)
			if got := l.Renew(tt.r); got.Fenced != tt.fenced || got.Refusal != RefusedNot {
				t.Errorf("got %+v, want fenced %v", got, tt.fenced)
			}
			if m := l.Members(); len(m) != 1 || m[0].Fenced != tt.member {
				t.Errorf("got members %+v, want one, fenced %v", m, tt.member)
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForfeitedUse: a sidecar used a large lease, lapsed before it could say so, and meanwhile the limit was lowered.
// What it reports is more than the bucket could give now; it is no liar.
func TestForfeitedUse(t *testing.T) {
	l, bucket, _ := small(t)
	r := Renew{Incarnation: 1, Seq: 1, Counters: []Counter{{Resource: bucket, Demand: 200}}}
	if got := l.Renew(r).Grants[0].Granted; got != 400 {
		t.Fatalf("got a lease of %d, want 400", got)
	}
	if err := l.Define(2, []Spec{{Scope: "team", Owner: "a", Kind: Requests, Limit: 60}}, Fairness{}); err != nil {
		t.Fatal(err)
	}
	l.Advance(l.NextDue())
	r.Seq, r.Counters[0].Spent = 2, 400
	if got := l.Renew(r); got.Fenced {
		t.Errorf("got %+v, want it served", got)
	}
}

func TestDefineRefusals(t *testing.T) {
	ok := Spec{Scope: "team", Owner: "a", Kind: Requests, Limit: 1}
	with := func(f func(s *Spec)) []Spec {
		s := ok
		f(&s)
		return []Spec{s}
	}
	var many []Spec
	for i := range ordinalsMax + 1 {
		many = append(many, Spec{Owner: fmt.Sprint(i), Kind: Requests})
	}
	tests := []struct {
		name  string
		index uint64
		specs []Spec
		ok    bool
	}{
		{"plain", 2, []Spec{ok}, true},
		{"nothing", 2, nil, true},
		{"known ones at an older index", 1, []Spec{{Scope: "team", Owner: "a", Kind: Money, Limit: 7}}, true},
		{"no index", 0, []Spec{ok}, false},
		{"absurd index", indexMax + 1, []Spec{ok}, false},
		{"twice", 2, []Spec{ok, ok}, false},
		{"no kind", 2, with(func(s *Spec) { s.Kind = 0 }), false},
		{"unknown kind", 2, with(func(s *Spec) { s.Kind = 6 }), false},
		{"negative limit", 2, with(func(s *Spec) { s.Limit = -1 }), false},
		{"absurd limit", 2, with(func(s *Spec) { s.Limit = bucketMax + 1 }), false},
		{"large cap", 2, with(func(s *Spec) { s.Kind, s.Limit = Money, totalMax }), true},
		{"absurd cap", 2, with(func(s *Spec) { s.Kind, s.Limit = Money, totalMax+1 }), false},
		{"negative burst", 2, with(func(s *Spec) { s.Burst = -1 }), false},
		{"absurd burst", 2, with(func(s *Spec) { s.Burst = bucketMax + 1 }), false},
		{"negative weight", 2, with(func(s *Spec) { s.Weight = -1 }), false},
		{"long owner", 2, with(func(s *Spec) { s.Owner = strings.Repeat("x", nameMax+1) }), false},
		{"alert of 0", 2, with(func(s *Spec) { s.AlertPermille = []int64{0} }), false},
		{"too many alerts", 2, with(func(s *Spec) { s.AlertPermille = make([]int64, alertsMax+1) }), false},
		{"as many as fit", 2, many[1:], true},
		{"more than fit", 2, many, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _, _ := small(t)
			before := recordsOf(l)
			checked := l.CheckDefine(tt.index, tt.specs, Fairness{})
			if !recordsOf(l).equal(before) {
				t.Error("CheckDefine changed something")
			}
			err := l.Define(tt.index, tt.specs, Fairness{})
			if (err == nil) != tt.ok || (checked == nil) != tt.ok || err != nil && !errors.Is(err, ErrSpecs) {
				t.Errorf("got %v, checked %v, want ok %v", err, checked, tt.ok)
			}
			if !tt.ok && !recordsOf(l).equal(before) {
				t.Error("a refused Define changed something")
			}
			if tt.ok && len(l.Resources()) != len(tt.specs) {
				t.Errorf("got %d resources, want %d", len(l.Resources()), len(tt.specs))
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDefineOrdinals(t *testing.T) {
	l := New(Config{})
	specs := []Spec{
		{Scope: "team", Owner: "b", Kind: Money}, {Scope: "key", Owner: "z", Kind: Requests},
		{Scope: "team", Owner: "b", Kind: Requests}, {Scope: "team", Owner: "a", Kind: Money},
	}
	if err := l.Define(9, specs, Fairness{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"key/z/1", "team/a/5", "team/b/1", "team/b/5"}
	for i, r := range l.Resources() {
		if r.ID != 9<<12|uint64(i) || r.Spec.name() != want[i] {
			t.Errorf("got %d %s, want %d %s", r.ID, r.Spec.name(), 9<<12|i, want[i])
		}
	}
}

func TestCounterLimit(t *testing.T) {
	l := New(Config{})
	var specs []Spec
	for i := range countersMax + 1 {
		specs = append(specs, Spec{Owner: fmt.Sprintf("%05d", i), Kind: Requests, Limit: 10})
	}
	if err := l.Define(1, specs[:ordinalsMax], Fairness{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Define(2, specs, Fairness{}); err != nil {
		t.Fatal(err)
	}
	r := Renew{Incarnation: 1, Seq: 1}
	for i := range ordinalsMax {
		r.Counters = append(r.Counters, Counter{Resource: 1<<12 | uint64(i), Demand: 1})
	}
	l.Renew(r)
	last := uint64(2 << 12)
	got := l.Renew(Renew{
		Incarnation: 1, Seq: 2, Counters: []Counter{{Resource: last, Demand: 1}},
		Asks: []Ask{{ID: 1, Needs: []Need{{Resource: last, Amount: 1}}}},
	})
	if !got.Grants[0].Gone || got.Asks[0].Granted || got.Asks[0].Shortage != Gone {
		t.Errorf("got %+v, want the counter beyond the limit gone", got)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

func TestMemberLimit(t *testing.T) {
	l := New(Config{})
	for i := range membersMax {
		if got := l.Renew(Renew{Incarnation: uint64(i + 1), Seq: 1, Leaving: true}); got.Refusal != RefusedNot {
			t.Fatalf("process %d: %+v", i, got)
		}
	}
	late := Renew{Incarnation: 1 << 40, Seq: 1}
	if got := l.Renew(late); got.Refusal != RefusedFull {
		t.Errorf("got %+v, want it refused as full", got)
	}
	l.Advance(2 * l.cfg.StandbyForMS)
	if n := len(l.Members()); n != 0 || l.NextDue() != math.MaxInt64 {
		t.Errorf("%d processes that left are remembered, next due %d", n, l.NextDue())
	}
	if got := l.Renew(late); got.Refusal != RefusedNot {
		t.Errorf("got %+v, want it accepted", got)
	}
}

func TestForgetting(t *testing.T) {
	tests := []struct {
		name string
		end  func(l *Ledger)
		at   int64 // it is remembered until then
	}{
		{"left", func(l *Ledger) { l.Renew(Renew{Incarnation: 1, Seq: 2, Leaving: true}) }, 3_619_100},
		{"dead", func(l *Ledger) { l.Fence(1) }, 3_619_100},
		{"silent", func(*Ledger) {}, 3_619_100 + goneKeepMS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, bucket, _ := small(t)
			l.Renew(Renew{Incarnation: 1, Seq: 1, Counters: []Counter{{Resource: bucket, Held: 3, Demand: 5}}})
			tt.end(l)
			l.Advance(tt.at - 1)
			if n := len(l.Members()); n != 1 {
				t.Errorf("%d processes are remembered before its time, want 1", n)
			}
			l.Advance(tt.at)
			if n := len(l.Members()); n != 0 {
				t.Errorf("%d processes are remembered after its time, want 0", n)
			}
			if got := l.Renew(Renew{Incarnation: 1, Seq: 3}); !got.Fenced {
				t.Errorf("got %+v, want a forgotten process told to start over", got)
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForgetAfterSuspense: while money is in suspense at a dead process it is remembered; once the period has gone
// it is forgotten.
func TestForgetAfterSuspense(t *testing.T) {
	l, _, budget := small(t)
	l.Renew(Renew{Incarnation: 1, Seq: 1, Asks: []Ask{{Needs: []Need{{Resource: budget, Period: 202601, Amount: 10}}}}})
	l.Fence(1)
	l.Advance(10 * goneKeepMS)
	if len(l.Members()) != 1 || l.NextDue() != math.MaxInt64 {
		t.Fatalf("got members %+v, next due %d", l.Members(), l.NextDue())
	}
	for month := uint32(202602); month <= 202604; month++ {
		l.OpenPeriods([]Period{{Period: month, EndsMS: 1}})
	}
	if l.NextDue() > l.Now() {
		t.Errorf("got next due %d, want it due at once", l.NextDue())
	}
	l.Advance(l.Now())
	if n := len(l.Members()); n != 0 {
		t.Errorf("%d processes are remembered, want 0", n)
	}
}

func TestCreditRefusals(t *testing.T) {
	tests := []struct {
		name   string
		res    uint64
		amount int64
		id     string
		want   CreditResult
	}{
		{"credit", 1<<12 | 1, 5, "x", CreditApplied},
		{"debit", 1<<12 | 1, -5, "x", CreditApplied},
		{"bucket", 1 << 12, 5, "x", CreditGone},
		{"unknown", 5, 5, "x", CreditGone},
		{"nothing", 1<<12 | 1, 0, "x", CreditInvalid},
		{"no id", 1<<12 | 1, 5, "", CreditInvalid},
		{"absurd", 1<<12 | 1, math.MinInt64, "x", CreditInvalid},
		{"too much together", 1<<12 | 1, totalMax, "x", CreditInvalid},
		{"repeated", 1<<12 | 1, 1, "first", CreditRepeated},
		{"of another amount", 1<<12 | 1, 2, "first", CreditOther},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _, budget := small(t)
			if got := l.Credit(budget, 202601, Credit{ID: "first", Amount: 1}); got != CreditApplied {
				t.Fatal(got)
			}
			period := uint32(202601)
			if tt.res == 1<<12 {
				period = 0
			}
			if got := l.Credit(tt.res, period, Credit{ID: tt.id, Amount: tt.amount}); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	l, _, budget := small(t)
	for i := range creditsMax {
		l.Credit(budget, 202601, Credit{ID: fmt.Sprint(i), Amount: 1, Actor: "ann", Reason: "why"})
	}
	if got := l.Credit(budget, 202601, Credit{ID: "one more", Amount: 1}); got != CreditFull {
		t.Errorf("got %d, want it full", got)
	}
	given := l.Resources()[1].Periods[0].Given
	for i, c := range given {
		if noted := i >= creditsMax-creditNotesMax; c.ID != fmt.Sprint(i) || (c.Reason == "why") != noted || (c.Actor == "ann") != noted {
			t.Fatalf("credit %d: %+v", i, c)
		}
	}
	if len(given) != creditsMax {
		t.Errorf("%d credits", len(given))
	}
}

func TestConfigDefaults(t *testing.T) {
	tests := []struct {
		name      string
		got, want Config
	}{
		{"defaults", Config{}, Config{10_000, 11_100, 3_600_000, 19_100, 60_000, 5}},
		{"negative", Config{-1, -1, -1, -1, -1, -1}, Config{10_000, 11_100, 3_600_000, 19_100, 60_000, 5}},
		{"lapse above usable", Config{UsableForMS: 500, LapseAfterMS: 500}, Config{500, 501, 3_600_000, 19_100, 60_000, 5}},
		{"a margin no clock keeps", Config{StandbyForMS: 60_000, StandbyMarginMS: 299}, Config{10_000, 11_100, 60_000, 300, 60_000, 5}},
		{"absurd", Config{IdleLeasePermille: 5000, StandbyForMS: math.MaxInt64},
			Config{10_000, 11_100, durationMax, durationMax/200 + 1_100, 60_000, 1000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.got.WithDefaults(); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestLoadRefusals(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(r *records)
	}{
		{"time", func(r *records) { r.Now = -1 }},
		{"zone twice", func(r *records) { r.Periods = append(r.Periods, r.Periods[0]) }},
		{"resource twice", func(r *records) { r.Resources = append(r.Resources, r.Resources[0]) }},
		{"name twice", func(r *records) {
			r.Resources = append(r.Resources, r.Resources[0])
			r.Resources[2].ID = 77
		}},
		{"resource 0", func(r *records) { r.Resources[0].ID = 0 }},
		{"unknown kind", func(r *records) { r.Resources[0].Kind = 9 }},
		{"level above capacity", func(r *records) { r.Resources[0].Level60k = 601 * perUnit }},
		{"level of the future", func(r *records) { r.Resources[0].LevelAtMS = 1 << 40 }},
		{"periods of a bucket", func(r *records) { r.Resources[0].Periods = r.Resources[1].Periods }},
		{"free", func(r *records) { r.Resources[1].Periods[0].Free++ }},
		{"settled", func(r *records) { r.Resources[1].Periods[0].Settled = -1 }},
		{"process 0", func(r *records) { r.Members[0].Incarnation = 0 }},
		{"process twice", func(r *records) { r.Members = append(r.Members, r.Members[0]) }},
		{"process missing", func(r *records) { r.Members = nil }},
		{"resource missing", func(r *records) { r.Resources = r.Resources[:1] }},
		{"counter twice", func(r *records) { r.Counters = append(r.Counters, r.Counters[0]) }},
		{"negative held", func(r *records) { r.Counters[0].Held = -1 }},
		{"absurd held", func(r *records) { r.Counters[0].Held = math.MaxInt64 }},
		{"overdrawn", func(r *records) { r.Counters[0].Spent = r.Counters[0].Granted + 1 }},
		{"suspense of a bucket", func(r *records) { r.Counters[0].Suspense = 1 }},
		{"suspense of the living", func(r *records) { r.Counters[1].Suspense = 1 }},
		{"forfeited money", func(r *records) { r.Counters[1].Forfeited = 1 }},
		{"share of money", func(r *records) { r.Counters[1].Shares = []ShareState{{1, 1}} }},
		{"negative share", func(r *records) { r.Counters[0].Shares = []ShareState{{1, -1}} }},
		{"shares out of order", func(r *records) { r.Counters[0].Shares = []ShareState{{2, 1}, {1, 1}} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, bucket, budget := small(t)
			l.Renew(Renew{Incarnation: 1, Seq: 1, Counters: []Counter{
				{Resource: bucket, Demand: 5}, {Resource: budget, Period: 202601, Demand: 5},
			}})
			r := recordsOf(l)
			if err := r.load(New(Config{})); err != nil {
				t.Fatalf("before it is spoilt: %v", err)
			}
			tt.spoil(&r)
			got := New(Config{})
			if err := r.load(got); !errors.Is(err, ErrRecords) {
				t.Errorf("got %v, want %v", err, ErrRecords)
			}
			if len(got.Resources())+len(got.Members()) > 0 {
				t.Error("something was left behind")
			}
		})
	}
}
