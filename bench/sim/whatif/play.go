package whatif

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-gateway/sluice/bench/sim"
)

// Outcome is a scenario as it went in the modes that are compared.
type Outcome struct {
	File      File
	Fair      sim.Course
	FirstCome sim.Course
	NoBreaker *sim.Course // nil: no provider fails
}

// days is what a month is taken for.
const days = 30

// Play plays a file's scenario in every mode.
func Play(f File) (Outcome, error) {
	out := Outcome{File: f}
	var err error
	if out.Fair, err = sim.PlayScenario(f.Scenario, 1); err != nil {
		return out, fmt.Errorf("fair shares: %w", err)
	}
	other := f.Scenario
	other.FirstCome = true
	if out.FirstCome, err = sim.PlayScenario(other, 1); err != nil {
		return out, fmt.Errorf("first come: %w", err)
	}
	if slices.ContainsFunc(f.Scenario.Providers, func(p sim.Provider) bool { return len(p.Down) > 0 }) {
		other = f.Scenario
		other.NoBreaker = true
		course, err := sim.PlayScenario(other, 1)
		if err != nil {
			return out, fmt.Errorf("without breakers: %w", err)
		}
		out.NoBreaker = &course
	}
	return out, nil
}

// Row is one tenant in numbers.
type Row struct {
	Tenant             *sim.Tenant
	Wants, Fair, First float64 // requests a minute
	Wait               time.Duration
	PerDay             float64 // spent at fair shares, in currency
	Ends               float64 // day on which the budget ends, counted from 0; 0 for none, or not in the month
}

// Rows are the tenants in the order of the file.
func (o *Outcome) Rows() []Row {
	minutes := o.File.Scenario.Lasts.Minutes()
	out := make([]Row, len(o.File.Scenario.Tenants))
	for i := range out {
		t, fair := &o.File.Scenario.Tenants[i], &o.Fair.Tenants[i]
		wanted := total(fair.Wanted)
		r := Row{
			Tenant: t, Wants: float64(wanted) / minutes, Fair: float64(total(fair.Answered)) / minutes,
			First:  float64(total(o.FirstCome.Tenants[i].Answered)) / minutes,
			Wait:   total(fair.Waited) / time.Duration(max(1, wanted)),
			PerDay: float64(total(fair.Nano)) / 1e9 / minutes * 24 * 60,
		}
		if end := float64(t.CapNano) / 1e9 / max(r.PerDay, 1e-9); t.CapNano > 0 && end < days {
			r.Ends = end
		}
		out[i] = r
	}
	return out
}

func total[T int | int64 | time.Duration](xs []T) T {
	sum := T(0)
	for _, x := range xs {
		sum += x
	}
	return sum
}

// answered are requests a minute and the mean wait of all tenants, by slots.
func answered(c *sim.Course) (perMinute, wait []float64) {
	for slot := range c.Tenants[0].Wanted {
		n, came, waited := 0, 0, time.Duration(0)
		for i := range c.Tenants {
			n += c.Tenants[i].Answered[slot]
			came += c.Tenants[i].Wanted[slot]
			waited += c.Tenants[i].Waited[slot]
		}
		perMinute = append(perMinute, float64(n)/c.Slot.Minutes())
		wait = append(wait, waited.Seconds()/float64(max(1, came)))
	}
	return perMinute, wait
}

// Write prints who gets what.
func (o *Outcome) Write(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n%v, %d sidecars; requests a minute\n\n", o.File.Name, o.File.Scenario.Lasts, o.File.Scenario.Sidecars)
	tab := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "tenant\tclass\tweight\twants\tfair\tfirst come\tmean wait\tspends a day\tbudget\t")
	for _, r := range o.Rows() {
		budget, spends := "-", "-"
		if r.Tenant.CostNano > 0 {
			spends = fmt.Sprintf("%.2f", r.PerDay)
		}
		if r.Tenant.CapNano > 0 {
			budget = fmt.Sprintf("lasts the month (%.2f)", float64(r.Tenant.CapNano)/1e9)
			if r.Ends > 0 {
				budget = fmt.Sprintf("ends on day %d", int(r.Ends)+1)
			}
		}
		fmt.Fprintf(tab, "%s\t%s\t%d\t%.1f\t%.1f\t%.1f\t%.2f s\t%s\t%s\t\n",
			r.Tenant.Name, r.Tenant.Class, r.Tenant.Weight, r.Wants, r.Fair, r.First, r.Wait.Seconds(), spends, budget)
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	if o.NoBreaker != nil {
		for _, mode := range []struct {
			name   string
			course *sim.Course
		}{{"breaker on", &o.Fair}, {"breaker off", o.NoBreaker}} {
			perMinute, _ := answered(mode.course)
			waited, came := time.Duration(0), 0
			for i := range mode.course.Tenants {
				waited += total(mode.course.Tenants[i].Waited)
				came += total(mode.course.Tenants[i].Wanted)
			}
			sum := 0.0
			for _, n := range perMinute {
				sum += n
			}
			fmt.Fprintf(&text, "\n%s: %.1f answered a minute, %.2f s waited in the mean", mode.name,
				sum/float64(len(perMinute)), (waited / time.Duration(max(1, came))).Seconds())
		}
		text.WriteString("\n")
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
