package whatif

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func play(t *testing.T, name string) Outcome {
	t.Helper()
	f, err := Read(filepath.Join("..", "scenarios", name))
	if err != nil {
		t.Fatal(err)
	}
	o, err := Play(f)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFairAgainstFirstCome: 26 requests a minute among demands of 6, 4 and 24. By arrival each gets about the same part of
// its wishes, and who asks most a little more: over a dozen seeds 4.4, 2.9 and 18.7. By fair shares the small ones get all
// of theirs: 6, 4 and 16.
func TestFairAgainstFirstCome(t *testing.T) {
	o := play(t, "fair.yaml")
	fair, first := []float64{6, 4, 16}, []float64{4.4, 2.9, 18.7}
	for i, r := range o.Rows() {
		if math.Abs(r.Fair-fair[i]) > 0.5 || math.Abs(r.First-first[i]) > 0.6 {
			t.Errorf("%s wants %.1f: %.2f at fair shares and %.2f by arrival, want %.0f and %.1f",
				r.Tenant.Name, r.Wants, r.Fair, r.First, fair[i], first[i])
		}
	}
}

// TestOutage: with breakers callers wait less while a provider fails, and about as many are answered.
func TestOutage(t *testing.T) {
	o := play(t, "outage.yaml")
	on, onWait := answered(&o.Fair)
	off, offWait := answered(o.NoBreaker)
	sum := func(xs []float64) (s float64) {
		for _, x := range xs {
			s += x
		}
		return s
	}
	if sum(onWait) >= sum(offWait) || sum(on) < 0.95*sum(off) {
		t.Errorf("breaker on: %.0f answered, %.1f s waited; off: %.0f, %.1f s", sum(on), sum(onWait), sum(off), sum(offWait))
	}
}

// TestPage: the page is well-formed, fetches nothing and has every chart.
func TestPage(t *testing.T) {
	o := play(t, "outage.yaml")
	o.File.Name = `<b> & "quotes"`
	var page, table bytes.Buffer
	if err := errors.Join(o.Draw(&page), o.Write(&table)); err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"<script", "src=", "href=", "http", "<b>", "NaN", "Inf"} {
		if strings.Contains(page.String(), never) {
			t.Errorf("the page has %q", never)
		}
	}
	if n := strings.Count(page.String(), "<svg"); n != 6 {
		t.Errorf("%d charts", n)
	}
	for svg := range strings.SplitSeq(page.String(), "<svg") {
		svg, _, ok := strings.Cut(svg, "</svg>")
		if !ok {
			continue
		}
		d := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []string{"fair", "first come", "breaker off", "nightly", "ends on day"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	_, err := Parse("f.yaml", []byte(`name: x
lasts: 5
speed: 3
providers:
  - { name: a, rpm: 0, down: [{ from: 2m, to: 1m }] }
  - { name: a, rpm: 10 }
tenants:
  - { name: t, demand: [{ at: 1m, rpm: 1 }, { at: 30s, rpm: x }], class: best }
  - { name: t, demand: 5, providers: [b], budget: 5 }
  - { name: u, bursts: { every: 1s } }
quotad_away: []
`))
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		`f.yaml:2: lasts must be a duration`, `f.yaml:3: the scenario has no "speed"`, `f.yaml:5: rpm must be`,
		`f.yaml:5: down: "to" must be after`, `f.yaml:6: provider "a" is there twice`, `f.yaml:8: rpm must be a number`,
		`f.yaml:8: steps must follow`, `f.yaml:8: class must be one of`, `f.yaml:9: there is no provider "b"`,
		`f.yaml:9: a budget needs the "cost"`, `f.yaml:9: tenant "t" is there twice`, `f.yaml:10: a tenant needs "demand"`,
		`f.yaml:10: bursts needs "requests"`, `f.yaml:11: quotad_away must have 1 to`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "a: [", "- 1", "name: x\n"} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
