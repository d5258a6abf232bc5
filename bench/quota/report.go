package quota

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteTable prints the report for people.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	m := r.Machine
	row("machine", "%s, %s", m, r.At.Format(time.DateTime))
	row("load average", "%s at the start, %s at the end", m.Load, r.LoadEnd)
	row("files", "%s", r.Dir)
	for i, l := range r.Lease {
		fmt.Fprintln(t)
		where := "in one process with the driver"
		if l.Processes {
			where = "in processes of their own"
		}
		row(fmt.Sprintf("%d node(s)", l.Nodes), "%s, one disk; %d sidecars with a gRPC connection and stream each, made in %s", where, l.Sidecars, brief(l.Connect))
		row("a renew", "%d lease operations: %d counters of %d keys and their team, settled and topped up, and %d asks of 6 needs each; %d bytes in the log, %.0f operations an entry in the closed loop",
			l.OpsPerRenew, l.OpsPerRenew-l.asks(), keysInTeam, l.asks(), l.Closed.BytesPerRenew, l.OpsPerEntry)
		row("\tops/s\tp50\tp99\tp99.9\tmax\tCPU/op\tcores: quotad, driver, other", "")
		for _, x := range []struct {
			name string
			m    Measured
		}{{"idle, a renew every 2 s", l.Idle}, {"closed loop", l.Closed}, {"open loop", l.Open}} {
			row(x.name, "%.0f\t%s\t%s\t%s\t%s\t%s\t%.2f, %.2f, %.2f%s", x.m.OpsPerSecond, brief(x.m.Latency.P50), brief(x.m.Latency.P99),
				brief(x.m.Latency.P999), brief(x.m.Latency.Max), brief(x.m.PerOp()), x.m.CPU.Nodes, x.m.CPU.Driver, x.m.CPU.Other, x.m.troubles())
		}
		row("a grant, others idle", "\t%s\t%s\t%s\t%s", brief(l.GrantIdle.P50), brief(l.GrantIdle.P99), brief(l.GrantIdle.P999), brief(l.GrantIdle.Max))
		row("a grant, open loop", "\t%s\t%s\t%s\t%s", brief(l.GrantLoaded.P50), brief(l.GrantLoaded.P99), brief(l.GrantLoaded.P999), brief(l.GrantLoaded.Max))
		row("the leader's memory", "%.0f KiB a stream", l.BytesPerStream/1024)
		if i < len(r.Control) {
			c := r.Control[i]
			row("bare raft", "%.0f\t%s\t%s\t%s\t%s\t\t%.2f in one process, other %.2f; %.0f operations of %d bytes an entry",
				c.OpsPerSecond, brief(c.Latency.P50), brief(c.Latency.P99), brief(c.Latency.P999), brief(c.Latency.Max), c.CPU.Driver,
				c.CPU.Other, c.OpsPerEntry, controlOpBytes)
			row("closed loop / bare raft", "%.2f", c.Ratio)
		}
	}
	fmt.Fprintln(t)
	if f := r.Failover; f != nil {
		row("no grants after kill -9", "%v, longest %s", all(f.Killed), brief(longest(f.Killed)))
		row("no grants after SIGTERM", "%v, longest %s", all(f.Transfer), brief(longest(f.Transfer)))
	}
	if s := r.Restart; s != nil {
		row("start with 1M resources", "%s until it serves; %.0f bytes on disk and %.0f of heap a resource", brief(s.UntilServing), s.DiskBytes, s.HeapBytes)
	}
	if l := r.Local; l != nil {
		row("admission in a sidecar", "%s, %.0f allocations", l.PerRequest, l.Allocs)
	}
	for _, j := range r.Judge() {
		row(j.verdict(), "%s: %s (aim: %s)", j.What, j.Got, j.Aim)
	}
	// tabwriter keeps the first write error for Flush.
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (l Lease) asks() int64 {
	if l.Closed.Latency.Count == 0 {
		return 0
	}
	return l.Closed.Asked / l.Closed.Latency.Count
}

// troubles says what should not have been.
func (m Measured) troubles() (s string) {
	if m.Granted < m.Asked {
		s += fmt.Sprintf("; %d of %d asks refused", m.Asked-m.Granted, m.Asked)
	}
	if m.Resent > 0 {
		s += fmt.Sprintf("; %d renews unanswered for 2 s", m.Resent)
	}
	if m.Reconnects > 0 {
		s += fmt.Sprintf("; %d sessions lost", m.Reconnects)
	}
	return s
}

// brief rounds to three digits.
func brief(d time.Duration) string {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
}

func all(ds []time.Duration) (out []string) {
	for _, d := range ds {
		out = append(out, brief(d))
	}
	return out
}

// Judgement is one aim and how the run stands to it.
type Judgement struct {
	What   string  `json:"what"`
	Got    string  `json:"got"`
	Aim    string  `json:"aim"`
	Factor float64 `json:"factor"` // beyond the aim; at most 1 is met
}

func (j Judgement) verdict() string {
	switch {
	case j.Factor <= 1:
		return "met"
	case j.Factor <= gross:
		return "MISSED"
	}
	return "MISSED grossly"
}

// Judge holds the report against the aims.
func (r Report) Judge() (out []Judgement) {
	most := func(what string, got, aim time.Duration) {
		out = append(out, Judgement{what, brief(got), "at most " + aim.String(), float64(got) / float64(aim)})
	}
	least := func(what, format string, got, aim float64) {
		out = append(out, Judgement{what, fmt.Sprintf(format, got), "at least " + fmt.Sprintf(format, aim), aim / max(got, 1e-9)})
	}
	for i, l := range r.Lease {
		name := fmt.Sprintf("%d node(s), ", l.Nodes)
		switch l.Nodes {
		case 3:
			least(name+"closed loop, operations a second", "%.0f", l.Closed.OpsPerSecond, aimOps)
			if i < len(r.Control) {
				least(name+"closed loop / bare raft", "%.2f", r.Control[i].Ratio, aimControl)
			}
		case 1:
			most(name+"open loop, p99", l.Open.Latency.P99, aimP99)
		}
	}
	if f := r.Failover; f != nil {
		most("no grants after kill -9", longest(f.Killed), aimKilled)
		most("no grants after SIGTERM", longest(f.Transfer), aimTransfer)
	}
	if s := r.Restart; s != nil {
		most("start with 1M resources", s.UntilServing, aimRestart)
	}
	if l := r.Local; l != nil {
		most("admission in a sidecar", l.PerRequest, aimAcquire)
		if l.Allocs > 0 {
			out = append(out, Judgement{"admission in a sidecar, allocations", fmt.Sprintf("%.0f", l.Allocs), "0", gross + 1})
		}
	}
	return out
}

// Gross are the aims that a run misses by so much that no other work on the machine explains it.
func (r Report) Gross() (out []string) {
	for _, j := range r.Judge() {
		if j.Factor > gross {
			out = append(out, fmt.Sprintf("%s: %s, aim: %s", j.What, j.Got, j.Aim))
		}
	}
	return out
}
