package relay

import (
	"bytes"
	"strings"
	"testing"
)

// reported is what BenchmarkCost reports when every lane takes as long as this one is given, 100 ns for none.
func reported(ns map[string]float64) map[string]float64 {
	got := map[string]float64{}
	for _, l := range lanes {
		got[l.name+":"+Nanoseconds], got[l.name+":"+Allocs], got[l.name+":"+Bytes] = 100, 0, 0
		if v, ok := ns[l.name]; ok {
			got[l.name+":"+Nanoseconds] = v
		}
	}
	return got
}

func TestAims(t *testing.T) {
	for name, c := range map[string]struct {
		ns     map[string]float64
		allocs string // a lane with an allocation in every tenth chunk
		missed []string
	}{
		"met":            {ns: map[string]float64{"chat": 150, "translated": 150, "responses": 1}},
		"pass-through":   {ns: map[string]float64{"chat": 151}, missed: []string{"chat → chat: 1.51"}},
		"translated":     {ns: map[string]float64{"control-translated": 50}, missed: []string{"Anthropic → chat: 2.00"}},
		"allocation":     {allocs: "responses", missed: []string{"Responses → Responses: 1.00 of the recipe, 0.10 alloc"}},
		"a face":         {ns: map[string]float64{"chat-to-messages": 151}, missed: []string{"chat → Messages: 1.51"}},
		"several missed": {ns: map[string]float64{"chat": 200, "responses": 200}, missed: []string{"chat → chat: 2", "Responses → Responses: 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := reported(c.ns)
			if c.allocs != "" {
				got[c.allocs+":"+Allocs] = 0.1
			}
			costs, err := costs(got)
			if err != nil {
				t.Fatal(err)
			}
			r := Report{Costs: costs}
			missed := r.Missed()
			if len(missed) != len(c.missed) {
				t.Fatalf("missed %q, want %q", missed, c.missed)
			}
			for i, want := range c.missed {
				if !strings.Contains(missed[i], want) {
					t.Errorf("missed %q, want %q", missed[i], want)
				}
			}
			var table bytes.Buffer
			if err := r.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(table.String(), "MISSED"); n != len(c.missed) {
				t.Errorf("%d rows say MISSED, want %d:\n%s", n, len(c.missed), &table)
			}
		})
	}
}

// TestALaneIsMissing: a lane that was not measured is a fault, not a zero.
func TestALaneIsMissing(t *testing.T) {
	for _, l := range lanes {
		got := reported(nil)
		delete(got, l.name+":"+Nanoseconds)
		if _, err := costs(got); err == nil || !strings.Contains(err.Error(), l.name) {
			t.Errorf("without %s: %v", l.name, err)
		}
	}
}
