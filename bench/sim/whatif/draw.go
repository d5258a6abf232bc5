package whatif

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/sluice-gateway/sluice/bench/sim"
)

// This file draws an outcome as one HTML file that needs nothing from elsewhere.

const (
	width, height           = 760.0, 300.0
	left, right, top, below = 64.0, 16.0, 16.0, 48.0
)

// colours of the series; beside each other also in grey, and on light and dark ground.
var colours = []string{"#3b7dd8", "#e07b39", "#3a9d63", "#a05cc4", "#c9a227", "#c44e6c", "#4aa6b5", "#8a8a8a"}

const head = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%s</title><style>
:root { color-scheme: light dark; --ink: #1d2430; --soft: #68707d; --line: #d5d9e0; --ground: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ec; --soft: #9aa3b0; --line: #3a414d; --ground: #15181d } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 800px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem } p { margin: .3rem 0; color: var(--soft) }
table { border-collapse: collapse; width: 100%%; font-variant-numeric: tabular-nums } th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child { text-align: left } svg { width: 100%%; height: auto } text { font: 12px system-ui, sans-serif; fill: var(--soft) }
.axis { stroke: var(--soft) } .grid { stroke: var(--line) } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; color: var(--ink) }
.legend i { display: inline-block; width: 1.4em; height: .6em; margin-right: .4em } .away { fill: var(--soft); opacity: .15 }
</style></head><body>
`

// Draw writes the page.
func (o *Outcome) Draw(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, head, html.EscapeString(o.File.Name))
	fmt.Fprintf(&b, "<h1>%s</h1><p>%v, %d sidecars. Callers that are refused come again for 15 s.</p>\n",
		html.EscapeString(o.File.Name), o.File.Scenario.Lasts, o.File.Scenario.Sidecars)
	rows := o.Rows()
	o.table(&b, rows)
	o.bars(&b, rows)
	o.overTime(&b, "Answered at fair shares", "Requests a minute by tenant.", &o.Fair)
	o.overTime(&b, "Answered first come, first served", "The same callers, when the limit is not divided.", &o.FirstCome)
	o.breakers(&b)
	o.burnDown(&b, rows)
	b.WriteString("</body></html>\n")
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func (o *Outcome) table(b *strings.Builder, rows []Row) {
	b.WriteString("<h2>Who gets what</h2><p>Requests a minute.</p><table><tr><th>tenant<th>class<th>weight<th>wants<th>fair share<th>first come<th>mean wait<th>budget</tr>\n")
	for _, r := range rows {
		budget := "none"
		switch {
		case r.Ends > 0:
			budget = fmt.Sprintf("ends on day %d", int(r.Ends)+1)
		case r.Tenant.CapNano > 0:
			budget = "lasts the month"
		}
		fmt.Fprintf(b, "<tr><td>%s<td>%s<td>%d<td>%.1f<td>%.1f<td>%.1f<td>%.2f s<td>%s</tr>\n", html.EscapeString(r.Tenant.Name),
			r.Tenant.Class, r.Tenant.Weight, r.Wants, r.Fair, r.First, r.Wait.Seconds(), budget)
	}
	b.WriteString("</table>\n")
}

// chart is a drawing with axes from 0 to the largest values.
type chart struct {
	b     *strings.Builder
	xMost float64
	yMost float64
	xUnit string
}

// begin draws the frame: axes with numbers, and what they count.
func begin(b *strings.Builder, title, note, xUnit, yUnit string, xMost, yMost float64, xTicks bool) *chart {
	c := &chart{b: b, xMost: xMost, yMost: nice(yMost), xUnit: xUnit}
	fmt.Fprintf(b, "<h2>%s</h2><p>%s</p>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
		html.EscapeString(title), html.EscapeString(note), width, height, html.EscapeString(title))
	for i := range 5 {
		v := c.yMost * float64(i) / 4
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
			left, width-right, c.y(v), c.y(v), left-6, c.y(v)+4, v)
	}
	if xTicks {
		for i := range 6 {
			v := xMost * float64(i) / 5
			fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.4g</text>\n", c.x(v), height-below+18, v)
		}
	}
	fmt.Fprintf(b, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", left, width-right, height-below, height-below)
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", (left+width-right)/2, height-8, html.EscapeString(xUnit))
	fmt.Fprintf(b, "<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", (height-below+top)/2, html.EscapeString(yUnit))
	return c
}

// end closes the drawing with a legend.
func (c *chart) end(names, paints []string) {
	c.b.WriteString("</svg>\n<div class=\"legend\">")
	for i, n := range names {
		fmt.Fprintf(c.b, "<span><i style=\"background:%s\"></i>%s</span>", paints[i], html.EscapeString(n))
	}
	c.b.WriteString("</div>\n")
}

func (c *chart) x(v float64) float64 { return left + v/c.xMost*(width-left-right) }
func (c *chart) y(v float64) float64 { return height - below - v/c.yMost*(height-below-top) }

func (c *chart) line(xs, ys []float64, paint string) {
	points := make([]string, len(xs))
	for i := range xs {
		points[i] = fmt.Sprintf("%.1f,%.1f", c.x(xs[i]), c.y(ys[i]))
	}
	fmt.Fprintf(c.b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n", paint, strings.Join(points, " "))
}

// nice is the next number above that is 1, 2, 4 or 8 times a power of ten.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, k := range []float64{1, 2, 4, 8, 10} {
		if v <= k*power {
			return k * power
		}
	}
	return v
}

func paint(i int) string { return colours[i%len(colours)] }

func (o *Outcome) bars(b *strings.Builder, rows []Row) {
	most := 0.0
	for _, r := range rows {
		most = max(most, r.Wants, r.Fair, r.First)
	}
	c := begin(b, "Fair share against first come", "What each tenant wants, and what it gets in the mean.", "tenant", "requests a minute",
		float64(len(rows)), most, false)
	paints := []string{"#9aa3b0", colours[0], colours[1]}
	for i, r := range rows {
		for k, v := range []float64{r.Wants, r.Fair, r.First} {
			from, to := c.x(float64(i)+0.12+0.25*float64(k)), c.x(float64(i)+0.12+0.25*float64(k+1))
			fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f</text>\n",
				from, c.y(v), to-from-2, height-below-c.y(v), paints[k], (from+to)/2, c.y(v)-3, v)
		}
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", c.x(float64(i)+0.5), height-below+18, html.EscapeString(r.Tenant.Name))
	}
	c.end([]string{"wants", "fair share", "first come"}, paints)
}

// minutes are the middles of a course's slots.
func minutes(c *sim.Course) []float64 {
	var out []float64
	for i := range c.Tenants[0].Wanted {
		out = append(out, (float64(i)+0.5)*c.Slot.Minutes())
	}
	return out
}

func (o *Outcome) overTime(b *strings.Builder, title, note string, course *sim.Course) {
	series, most := make([][]float64, len(course.Tenants)), 0.0
	var names, paints []string
	for i := range course.Tenants {
		for _, n := range course.Tenants[i].Answered {
			v := float64(n) / course.Slot.Minutes()
			series[i], most = append(series[i], v), max(most, v)
		}
		names, paints = append(names, o.File.Scenario.Tenants[i].Name), append(paints, paint(i))
	}
	c := begin(b, title, note, "minutes", "requests a minute", o.File.Scenario.Lasts.Minutes(), most, true)
	o.shade(c)
	for i := range series {
		c.line(minutes(course), series[i], paint(i))
	}
	c.end(names, paints)
}

// shade marks when something is away.
func (o *Outcome) shade(c *chart) {
	mark := func(s sim.Span, what string) {
		from, to := c.x(min(s.From.Minutes(), c.xMost)), c.x(min(s.To.Minutes(), c.xMost))
		fmt.Fprintf(c.b, "<rect class=\"away\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s</title></rect><text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			from, top, to-from, height-below-top, html.EscapeString(what), from+3, top+12, html.EscapeString(what))
	}
	for _, s := range o.File.Scenario.Away {
		mark(s, "quotad away")
	}
	for _, p := range o.File.Scenario.Providers {
		for _, s := range p.Down {
			mark(s, p.Name+" down")
		}
	}
}

func (o *Outcome) breakers(b *strings.Builder) {
	if o.NoBreaker == nil {
		return
	}
	on, onWait := answered(&o.Fair)
	off, offWait := answered(o.NoBreaker)
	names, paints := []string{"breaker on", "breaker off"}, []string{colours[0], colours[1]}
	for _, chart := range []struct {
		title, note, unit string
		on, off           []float64
	}{
		{"Breaker on and off: answered", "All tenants together.", "requests a minute", on, off},
		{"Breaker on and off: waited", "Until answered or given up, in the mean of those who came.", "seconds", onWait, offWait},
	} {
		most := 0.0
		for i := range chart.on {
			most = max(most, chart.on[i], chart.off[i])
		}
		c := begin(b, chart.title, chart.note, "minutes", chart.unit, o.File.Scenario.Lasts.Minutes(), most, true)
		o.shade(c)
		c.line(minutes(&o.Fair), chart.off, paints[1])
		c.line(minutes(&o.Fair), chart.on, paints[0])
		c.end(names, paints)
	}
}

// burnDown draws what is left of the budgets if every day is like the time that was played.
func (o *Outcome) burnDown(b *strings.Builder, rows []Row) {
	var names, paints []string
	c := (*chart)(nil)
	for i, r := range rows {
		if r.Tenant.CapNano == 0 {
			continue
		}
		if c == nil {
			c = begin(b, "Budgets over a month", "If every day goes like the time that was played, at fair shares.", "day", "left of the budget, per cent",
				days, 100, true)
		}
		name := r.Tenant.Name + " (lasts the month)"
		if r.Ends > 0 {
			name = fmt.Sprintf("%s (ends on day %d)", r.Tenant.Name, int(r.Ends)+1)
			c.line([]float64{0, r.Ends, days}, []float64{100, 0, 0}, paint(i))
			fmt.Fprintf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", c.x(r.Ends), c.y(0), paint(i))
		} else {
			c.line([]float64{0, days}, []float64{100, 100 * (1 - r.PerDay*days/(float64(r.Tenant.CapNano)/1e9))}, paint(i))
		}
		names, paints = append(names, name), append(paints, paint(i))
	}
	if c != nil {
		c.end(names, paints)
	}
}
