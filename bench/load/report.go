package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// Report is one run. Durations are nanoseconds in JSON.
type Report struct {
	URL     string        `json:"url"`
	Model   string        `json:"model"`
	Stream  bool          `json:"stream"`
	Elapsed time.Duration `json:"elapsed"`

	Requests int            `json:"requests"` // arrivals, dropped ones included
	OK       int            `json:"ok"`
	Attempts int            `json:"attempts"`
	ByClass  map[Class]int  `json:"by_class"`
	ByStatus map[string]int `json:"by_status"` // "none": no response head
	ByCode   map[string]int `json:"by_code"`   // error codes

	PromptTokens int64 `json:"prompt_tokens"` // from the usage of all answers
	OutputTokens int64 `json:"output_tokens"`
	Chunks       int64 `json:"chunks"`
	NoUsage      int   `json:"no_usage"` // good answers without usage

	PerSecond float64     `json:"per_second"` // good answers per second of Elapsed
	TTFT      Percentiles `json:"ttft"`       // of good answers
	Duration  Percentiles `json:"duration"`   // of good answers, from the time they were due
	GapMax    Percentiles `json:"gap_max"`    // of good streams with two chunks or more: their longest silence
	Late      Percentiles `json:"late"`       // of all sent: how far the generator itself fell behind

	Records []Record `json:"records,omitempty"` // in order of Index
}

// Percentiles are by nearest rank; all are 0 when Count is 0.
type Percentiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P90   time.Duration `json:"p90"`
	P99   time.Duration `json:"p99"`
	P999  time.Duration `json:"p999"`
	Max   time.Duration `json:"max"`
}

// percentiles sorts values in place.
func percentiles(values []time.Duration) Percentiles {
	if len(values) == 0 {
		return Percentiles{}
	}
	slices.Sort(values)
	// rank is the smallest number of values that is at least perMille of all of them.
	at := func(perMille int) time.Duration {
		rank := (len(values)*perMille + 999) / 1000
		return values[max(rank, 1)-1]
	}
	return Percentiles{Count: len(values), P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: values[len(values)-1]}
}

func summarize(cfg Config, records []Record, elapsed time.Duration) Report {
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Index, b.Index) })
	out := Report{URL: cfg.URL, Model: cfg.Model, Stream: cfg.Stream, Elapsed: elapsed, Requests: len(records),
		ByClass: map[Class]int{}, ByStatus: map[string]int{}, ByCode: map[string]int{}, Records: records}
	var ttft, duration, gaps, late []time.Duration
	for _, r := range records {
		out.ByClass[r.Class]++
		out.Attempts += r.Attempts
		out.PromptTokens += r.PromptTokens
		out.OutputTokens += r.OutputTokens
		out.Chunks += int64(r.Chunks)
		if r.Code != "" {
			out.ByCode[r.Code]++
		}
		if r.Class == ClassDropped {
			continue
		}
		status := "none"
		if r.Status != 0 {
			status = strconv.Itoa(r.Status)
		}
		out.ByStatus[status]++
		late = append(late, r.Late)
		if r.Class != ClassOK {
			continue
		}
		out.OK++
		if !r.UsageSeen {
			out.NoUsage++
		}
		ttft = append(ttft, r.TTFT)
		duration = append(duration, r.Duration)
		if r.Chunks > 1 {
			gaps = append(gaps, r.GapMax)
		}
	}
	if elapsed > 0 {
		out.PerSecond = float64(out.OK) / elapsed.Seconds()
	}
	out.TTFT, out.Duration = percentiles(ttft), percentiles(duration)
	out.GapMax, out.Late = percentiles(gaps), percentiles(late)
	return out
}

// WriteTable prints the summary for people.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "requests\t%d in %s, %d ok (%.1f/s), %d attempts\n",
		r.Requests, r.Elapsed.Round(time.Millisecond), r.OK, r.PerSecond, r.Attempts)
	fmt.Fprintf(t, "tokens\t%d prompt, %d output, %d chunks, %d answers without usage\n",
		r.PromptTokens, r.OutputTokens, r.Chunks, r.NoUsage)
	counts(t, "class", r.ByClass)
	counts(t, "status", r.ByStatus)
	counts(t, "code", r.ByCode)
	fmt.Fprintf(t, "\tcount\tp50\tp90\tp99\tp99.9\tmax\n")
	for _, row := range []struct {
		name string
		p    Percentiles
	}{{"first token", r.TTFT}, {"duration", r.Duration}, {"longest gap", r.GapMax}, {"sent late", r.Late}} {
		p := row.p
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", row.name, p.Count, p.P50.Round(time.Microsecond),
			p.P90.Round(time.Microsecond), p.P99.Round(time.Microsecond), p.P999.Round(time.Microsecond), p.Max.Round(time.Microsecond))
	}
	// tabwriter keeps the first write error for Flush.
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func counts[K ~string](w io.Writer, name string, in map[K]int) {
	for _, key := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(w, "%s\t%s: %d\n", name, key, in[key])
		name = ""
	}
}
