package rollup

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOldHoursBecomeDays(t *testing.T) {
	r := New()
	day := noon - 12*hourMS
	r.Apply(noon, Batch{"s", 1, 1, []Row{row(day, "t", "f", 1), row(day+hourMS, "t", "f", 2), row(day+5*hourMS, "t", "g", 4)}})
	hours := func() string {
		rows, err := r.Query(Query{ToMS: noon * 2, GroupBy: []string{ByHour}})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, x := range rows {
			out = append(out, fmt.Sprintf("%d:%d", (x.HourMS-day)/hourMS, x.CostNano))
		}
		return fmt.Sprint(out)
	}
	all := func(from, to int64) int64 {
		rows, err := r.Query(Query{FromMS: from, ToMS: to})
		if err != nil || len(rows) == 0 {
			return 0
		}
		return rows[0].CostNano
	}
	for _, step := range []struct {
		name string
		now  int64
		want string
	}{
		{"young", day + 40*dayMS, "[0:1 1:2 5:4]"},
		{"the first hour is old", day + 40*dayMS + hourMS, "[0:1 1:2 5:4]"},
		{"the second joins it", day + 40*dayMS + 2*hourMS, "[0:3 5:4]"},
		{"time that went back changes nothing", day, "[0:3 5:4]"},
		{"all", day + 41*dayMS, "[0:7]"},
		{"just kept", day + 401*dayMS - 1, "[0:7]"},
		{"gone", day + 401*dayMS, "[]"},
	} {
		r.Advance(step.now)
		if got := hours(); got != step.want {
			t.Fatalf("%s: %s, want %s", step.name, got, step.want)
		}
		if step.name == "the second joins it" && (all(day+hourMS, day+2*hourMS) != 3 || all(day+2*hourMS, day+5*hourMS) != 0) {
			t.Errorf("a day counts for as much as has joined it: %d and %d", all(day+hourMS, day+2*hourMS), all(day+2*hourMS, day+5*hourMS))
		}
		if step.name == "all" && all(day+20*hourMS, day+21*hourMS) != 7 {
			t.Error("a range within a day that is kept as one is rounded out to it")
		}
	}
	// What comes late goes where its like is; what is too old is not counted, and still answered.
	now := day + 401*dayMS
	late := now - 50*dayMS + 3*hourMS
	if ack := r.Apply(now, Batch{"s", 2, 3, []Row{row(late, "t", "f", 8), row(day, "t", "f", 16)}}); ack != 3 || r.Dropped() != 1 {
		t.Errorf("ack %d, dropped %d", ack, r.Dropped())
	}
	if rows := r.Rows(); len(rows) != 1 || rows[0].HourMS%dayMS != 0 || rows[0].CostNano != 8 {
		t.Errorf("rows: %v", rows)
	}
}

func TestAnOldDayKeepsAsManyFeaturesAsAnHour(t *testing.T) {
	r := New()
	day := noon - 12*hourMS
	var rows []Row
	for h := range int64(24) {
		for i := range 10 {
			rows = append(rows, row(day+h*hourMS, "t", fmt.Sprint("f", h, "-", i), 1))
		}
	}
	r.Apply(noon, Batch{"s", 1, 1, rows})
	r.Advance(day + 41*dayMS)
	other, _ := r.Row(row(day, "t", Other, 0).Names)
	if got := len(r.Rows()); got != featuresMax+1 || other.CostNano != int64(len(rows)-featuresMax) {
		t.Errorf("%d rows, other %d", got, other.CostNano)
	}
}

// TestAMonthStaysExact: whatever is folded, when, on whichever replica, and however often one is loaded anew from what
// Touched told to store, a month sums up to the nano-dollar by every name but the feature, and that one never loses
// more than names. Replicas stay equal.
func TestAMonthStaysExact(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type key struct{ month, team, key, alias, deployment, price string }
	rapid.Check(t, func(rt *rapid.T) {
		r, twin := New(), New()
		stored := map[Names]Row{}
		want := map[key]int64{}
		now, seq := start.UnixMilli(), uint64(0)
		pick := func(what string, names ...string) string { return rapid.SampledFrom(names).Draw(rt, what) }
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += rapid.SampledFrom([]int64{0, hourMS / 2, hourMS, 5 * hourMS, 3 * dayMS, 12 * dayMS}).Draw(rt, "passes")
			if now > start.UnixMilli()+380*dayMS {
				break
			}
			r.Advance(now)
			twin.Advance(now)
			age := rapid.SampledFrom([]int64{0, 0, hourMS, dayMS, 39*dayMS + 23*hourMS, 45 * dayMS}).Draw(rt, "age")
			at := max(start.UnixMilli(), now-age)
			x := row(at, pick("team", "t", "u"), fmt.Sprint("f", rapid.IntRange(0, featuresMax+20).Draw(rt, "feature")), rapid.Int64Range(0, 1e12).Draw(rt, "cost"))
			x.Key, x.Deployment, x.PriceVersion = pick("key", "k", "l"), pick("deployment", "d", "e"), pick("price", "p", "q")
			seq++
			b := Batch{"s", seq, seq, []Row{x}}
			if r.Apply(now, b) != seq || twin.Apply(now, b) != seq {
				rt.Fatal("a batch was not counted")
			}
			want[key{time.UnixMilli(at).UTC().Format("2006-01"), x.Team, x.Key, x.Alias, x.Deployment, x.PriceVersion}] += x.CostNano
			if rapid.Bool().Draw(rt, "load") { // the twin starts anew from its records
				rows, _ := twin.Touched(math.MaxInt)
				for _, n := range rows {
					if y, ok := twin.Row(n); ok {
						stored[n] = y
					} else {
						delete(stored, n)
					}
				}
				var all []Row
				for _, y := range stored {
					all = append(all, y)
				}
				fresh := New()
				fresh.Load(all, twin.Sources())
				fresh.Advance(now)
				twin = fresh
			}
			if !slices.Equal(r.Rows(), twin.Rows()) {
				rt.Fatalf("replicas differ:\n%v\n%v", r.Rows(), twin.Rows())
			}
		}
		got := map[key]int64{}
		for m := start; m.UnixMilli() <= now; m = m.AddDate(0, 1, 0) {
			rows, err := r.Query(Query{
				FromMS: m.UnixMilli(), ToMS: m.AddDate(0, 1, 0).UnixMilli(),
				GroupBy: []string{ByTeam, ByKey, ByAlias, ByDeployment, ByPriceVersion},
			})
			if err != nil {
				rt.Fatal(err)
			}
			for _, x := range rows {
				got[key{m.Format("2006-01"), x.Team, x.Key, x.Alias, x.Deployment, x.PriceVersion}] += x.CostNano
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("sums are %v, want %v", got, want)
		}
		for _, x := range r.Rows() {
			if x.HourMS < r.foldedMS && x.HourMS%dayMS != 0 || x.HourMS < now-401*dayMS {
				rt.Fatalf("kept too finely or too long: %v", x)
			}
		}
	})
}
