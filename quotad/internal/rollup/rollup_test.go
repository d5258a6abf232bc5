package rollup

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const noon = int64(1_793_534_400_000) // 2026-11-01T12:00:00Z

func row(hourMS int64, team, feature string, cost int64) Row {
	return Row{
		Names{HourMS: hourMS, Team: team, Key: "k", Alias: "a", Deployment: "d", Feature: feature, PriceVersion: "p"},
		Sums{Attempts: 2, Requests: 1, Errors: 1, Input: 3, CacheRead: 4, CacheWrite5m: 5, CacheWrite1h: 6, Output: 8,
			Reasoning: 7, InputAudio: 9, OutputAudio: 10, InputImage: 11, WebSearches: 12, CostNano: cost, Estimated: 1},
	}
}

func TestEachEventCountsOnce(t *testing.T) {
	r := New()
	for _, s := range []struct {
		name     string
		from, to uint64
		cost     int64
		ack      uint64
		total    int64
	}{
		{"gap at the start", 2, 3, 1, 0, 0},
		{"number 0", 0, 3, 1, 0, 0},
		{"first", 1, 3, 10, 3, 10},
		{"again", 1, 3, 10, 3, 10},
		{"overlapping", 3, 5, 100, 3, 10},
		{"gap", 5, 6, 100, 3, 10},
		{"backwards", 4, 3, 100, 3, 10},
		{"next", 4, 4, 5, 4, 15},
		{"older", 2, 2, 5, 4, 15},
		{"without end", 5, math.MaxUint64, 5, 4, 15},
		{"nothing in it", 5, 9, 0, 9, 15},
	} {
		ack := r.Apply(1, Batch{"s", s.from, s.to, []Row{row(noon, "t", "", s.cost)}})
		var total int64
		for _, got := range r.Rows() {
			total += got.CostNano
		}
		if ack != s.ack || total != s.total {
			t.Errorf("%s: ack %d, total %d, want %d, %d", s.name, ack, total, s.ack, s.total)
		}
	}
	if ack := r.Apply(1, Batch{"other", 1, 2, []Row{row(noon, "t", "", 1)}}); ack != 2 {
		t.Errorf("another source: ack %d", ack)
	}
	for _, source := range []string{"", strings.Repeat("s", sourceBytesMax+1)} {
		if ack := r.Apply(1, Batch{source, 1, 1, []Row{row(noon, "t", "", 1)}}); ack != 0 {
			t.Errorf("source %.8q: ack %d", source, ack)
		}
	}
	if got := fmt.Sprint(r.Sources()); got != "[{other 2 1} {s 9 1}]" {
		t.Errorf("sources %s", got)
	}
}

func TestRowsThatCannotBeCounted(t *testing.T) {
	long := strings.Repeat("x", nameBytesMax+1)
	bad := []Row{row(-1, "t", "", 1), row(hourMaxMS, "t", "", 1), row(noon, long, "", 1), row(noon, "t", "", -1)}
	r := New()
	if ack := r.Apply(0, Batch{"s", 1, 5, append(bad, row(noon+5, "t", long, 1))}); ack != 5 {
		t.Errorf("ack %d", ack)
	}
	rows := r.Rows()
	if r.Dropped() != 4 || len(rows) != 1 || rows[0].Feature != Other || rows[0].HourMS != noon {
		t.Errorf("dropped %d, rows %v", r.Dropped(), rows)
	}
}

func TestSumsStopAtTheLargest(t *testing.T) {
	r := New()
	r.Apply(0, Batch{"s", 1, 2, []Row{row(noon, "t", "", math.MaxInt64), row(noon, "t", "", 1)}})
	if got := r.Rows()[0]; got.CostNano != math.MaxInt64 || got.Attempts != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestFeaturesAreBoundedPerTeamAndHour(t *testing.T) {
	r := New()
	var seq uint64
	send := func(hourMS int64, team, feature string) {
		seq++
		r.Apply(0, Batch{"s", seq, seq, []Row{row(hourMS, team, feature, 1)}})
	}
	for i := range featuresMax + 3 {
		send(noon, "t", fmt.Sprint("f", i))
	}
	send(noon, "t", "f0")
	send(noon, "t", "")
	send(noon, "u", "f100")
	send(noon+hourMS, "t", "f100")
	cost := func(hourMS int64, team, feature string) int64 {
		got, _ := r.Row(row(hourMS, team, feature, 0).Names)
		return got.CostNano
	}
	for _, tc := range []struct {
		name    string
		hourMS  int64
		team    string
		feature string
		want    int64
	}{
		{"too many", noon, "t", Other, 3},
		{"not kept", noon, "t", "f100", 0},
		{"known one", noon, "t", "f0", 2},
		{"none", noon, "t", "", 1},
		{"another team", noon, "u", "f100", 1},
		{"another hour", noon + hourMS, "t", "f100", 1},
	} {
		if got := cost(tc.hourMS, tc.team, tc.feature); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
	// The bound holds across a restart.
	loaded := New()
	loaded.Load(r.Rows(), r.Sources())
	r = loaded
	send(noon, "t", "new")
	if got := cost(noon, "t", Other); got != 4 {
		t.Errorf("after loading: %d, want 4", got)
	}
}

func TestForgettingSources(t *testing.T) {
	r := New()
	r.Apply(0, Batch{"old", 1, 3, nil})
	r.Apply(10, Batch{"seen", 1, 3, nil})
	r.Touched(math.MaxInt)
	r.Apply(sourceKeepMS, Batch{"seen", 1, 3, nil}) // a repeat, yet a sign of life
	if _, ok := r.Source("old"); !ok {
		t.Error("forgotten at 40 days, not after")
	}
	r.Apply(sourceKeepMS+1, Batch{"new", 1, 1, nil})
	if _, ok := r.Source("old"); ok {
		t.Error("not forgotten")
	}
	if s, ok := r.Source("seen"); !ok || s.LastSeq != 3 || s.AtMS != sourceKeepMS {
		t.Errorf("seen: %+v", s)
	}
	if _, sources := r.Touched(math.MaxInt); !slices.Equal(slices.Sorted(slices.Values(sources)), []string{"new", "old", "seen"}) {
		t.Errorf("touched %v", sources)
	}
	// One that is back after the time goes on where it was, as nothing made it forgotten before.
	if ack := r.Apply(3*sourceKeepMS, Batch{"seen", 4, 5, nil}); ack != 5 {
		t.Errorf("ack %d, want 5", ack)
	}
	if got := len(r.Sources()); got != 1 {
		t.Errorf("%d sources, want 1", got)
	}
	// Ledger time that stands still or is older never makes a source older.
	r.Apply(0, Batch{"seen", 6, 6, nil})
	if s, _ := r.Source("seen"); s.AtMS != 3*sourceKeepMS {
		t.Errorf("at %d", s.AtMS)
	}
}

func TestSourcesAreBounded(t *testing.T) {
	r := New()
	for i := range sourcesMax {
		r.Apply(int64(i), Batch{fmt.Sprintf("%07d", i), 1, 1, nil})
	}
	r.Apply(sourcesMax, Batch{"one more", 1, 1, nil})
	_, first := r.Source("0000000")
	_, second := r.Source("0000001")
	if len(r.Sources()) != sourcesMax || first || !second {
		t.Errorf("%d sources, the oldest there: %v, the next: %v", len(r.Sources()), first, second)
	}
}

func TestQuery(t *testing.T) {
	r := New()
	day := noon - 12*hourMS
	rows := []Row{
		row(noon, "t", "chat", 1), row(noon+hourMS, "t", "chat", 2), row(noon+dayMS, "t", "mail", 4), row(noon, "u", "chat", 8),
	}
	rows[1].Key, rows[2].Deployment, rows[2].PriceVersion, rows[3].Alias = "k2", "d2", "p2", "a2"
	r.Apply(0, Batch{"s", 1, 9, rows})
	const far = noon * 2
	for _, tc := range []struct {
		name  string
		query Query
		want  string // value:...=cost
	}{
		{"all", Query{ToMS: far}, "=15"},
		{"team", Query{Team: "t", ToMS: far}, "=7"},
		{"no such team", Query{Team: "x", ToMS: far}, ""},
		{"by team", Query{ToMS: far, GroupBy: []string{"team"}}, "t=7 u=8"},
		{"by feature", Query{ToMS: far, GroupBy: []string{"feature"}}, "chat=11 mail=4"},
		{"by key", Query{ToMS: far, GroupBy: []string{"key"}}, "k=13 k2=2"},
		{"by alias", Query{ToMS: far, GroupBy: []string{"alias"}}, "a=7 a2=8"},
		{"by deployment and price", Query{ToMS: far, GroupBy: []string{"deployment", "price_version"}}, "d:p=11 d2:p2=4"},
		{"by day", Query{ToMS: far, GroupBy: []string{"day"}}, "2026-11-01=11 2026-11-02=4"},
		{"by hour", Query{Team: "t", ToMS: far, GroupBy: []string{"hour"}},
			"2026-11-01T12:00:00Z=1 2026-11-01T13:00:00Z=2 2026-11-02T12:00:00Z=4"},
		{"by day and hour", Query{Team: "u", ToMS: far, GroupBy: []string{"day", "hour"}}, "2026-11-01:2026-11-01T12:00:00Z=8"},
		{"one day", Query{FromMS: day, ToMS: day + dayMS}, "=11"},
		{"rounded down", Query{FromMS: noon + hourMS + 1, ToMS: far}, "=6"},
		{"rounded up", Query{FromMS: 0, ToMS: noon + 1}, "=9"},
		{"exclusive end", Query{FromMS: 0, ToMS: noon}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.Query(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, g := range got {
				var values []string
				for _, name := range tc.query.GroupBy {
					values = append(values, g.Value(name))
				}
				parts = append(parts, fmt.Sprintf("%s=%d", strings.Join(values, ":"), g.CostNano))
			}
			if s := strings.Join(parts, " "); s != tc.want {
				t.Errorf("got %q, want %q", s, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		name  string
		query Query
		want  string
	}{
		{"unknown name", Query{ToMS: far, GroupBy: []string{"model"}},
			`usage query: cannot group by "model" (allowed: team, alias, feature, key, deployment, day, hour, price_version)`},
		{"twice", Query{ToMS: far, GroupBy: []string{"team", "day", "team"}}, `usage query: cannot group by team twice`},
		{"empty name", Query{ToMS: far, GroupBy: []string{""}}, `usage query: cannot group by ""`},
		{"empty range", Query{FromMS: 5, ToMS: 5}, "usage query: from must be before to"},
	} {
		if _, err := r.Query(tc.query); !errors.Is(err, ErrQuery) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestQueryRefusesTooManyGroups(t *testing.T) {
	r := New()
	rows := make([]Row, groupsMax+1)
	for i := range rows {
		rows[i] = row(noon, "t", "", 1)
		rows[i].Key = fmt.Sprint(i)
	}
	r.Apply(0, Batch{"s", 1, 1, rows})
	if _, err := r.Query(Query{ToMS: noon * 2, GroupBy: []string{"key"}}); !errors.Is(err, ErrQuery) {
		t.Errorf("got %v", err)
	}
	if got, err := r.Query(Query{ToMS: noon * 2}); err != nil || got[0].CostNano != groupsMax+1 {
		t.Errorf("got %v, %v", got, err)
	}
}

// Batches are sent again, late and doubled; a node restarts from what Touched told it to store. Every event is in the
// sums exactly once all the same, whatever way it is summed.
func TestExactlyOnceWhateverIsSentAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		storedRows, storedSources := map[Names]Row{}, map[string]Source{}
		sent := map[string][]Batch{}
		var want int64
		byFeature := map[string]int64{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			source := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "source")
			past := sent[source]
			last := uint64(0)
			if len(past) > 0 {
				last = past[len(past)-1].ToSeq
			}
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				b := Batch{Source: source, FromSeq: last + 1, ToSeq: last + 1 + rapid.Uint64Range(0, 3).Draw(t, "more")}
				for range rapid.IntRange(0, 3).Draw(t, "rows") {
					f := rapid.SampledFrom([]string{"", "f", "g"}).Draw(t, "feature")
					cost := rapid.Int64Range(0, 1000).Draw(t, "cost")
					b.Rows = append(b.Rows, row(noon+rapid.Int64Range(0, 3*hourMS).Draw(t, "at"), "t", f, cost))
					want += cost
					byFeature[f] += cost
				}
				sent[source] = append(past, b)
				if ack := r.Apply(1, b); ack != b.ToSeq {
					t.Fatalf("ack %d, want %d", ack, b.ToSeq)
				}
			case 2:
				if len(past) > 0 {
					if ack := r.Apply(1, rapid.SampledFrom(past).Draw(t, "again")); ack != last {
						t.Fatalf("ack %d, want %d", ack, last)
					}
				}
			case 3:
				rows, sources := r.Touched(math.MaxInt)
				for _, n := range rows {
					storedRows[n], _ = r.Row(n)
				}
				for _, s := range sources {
					storedSources[s], _ = r.Source(s)
				}
				var rs []Row
				for _, x := range storedRows {
					rs = append(rs, x)
				}
				var ss []Source
				for _, x := range storedSources {
					ss = append(ss, x)
				}
				loaded := New()
				loaded.Load(rs, ss)
				if fmt.Sprint(loaded.Rows(), loaded.Sources()) != fmt.Sprint(r.Rows(), r.Sources()) {
					t.Fatalf("loaded state differs")
				}
				r = loaded
			}
		}
		for _, by := range [][]string{nil, {"feature"}, {"hour", "feature", "key"}, {"day"}} {
			rows, err := r.Query(Query{Team: "t", ToMS: noon * 2, GroupBy: by})
			if err != nil {
				t.Fatal(err)
			}
			var total int64
			for _, g := range rows {
				total += g.CostNano
				if len(by) == 1 && by[0] == "feature" && g.CostNano != byFeature[g.Feature] {
					t.Fatalf("feature %q: %d, want %d", g.Feature, g.CostNano, byFeature[g.Feature])
				}
			}
			if total != want {
				t.Fatalf("by %v: %d, want %d", by, total, want)
			}
		}
	})
}
