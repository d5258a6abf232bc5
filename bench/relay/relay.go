// Package relay measures what the sidecar's relay does with one chunk of a stream, beside a plain loop of the recipe
// (package control) over the same bytes in the same run. README.md in bench/ says how.
package relay

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/sluice-gateway/sluice/bench/measure"
)

// The units in which BenchmarkCost of sidecar/internal/relay reports a lane, behind its name and a colon.
const (
	Nanoseconds = "ns/chunk"
	Allocs      = "allocs/chunk"
	Bytes       = "B/chunk"
)

// aimFactor is how much longer than the recipe's loop the product may take. allocsNone is where a count of allocations is
// none: the runtime's own are among those counted.
const (
	aimFactor  = 1.5
	allocsNone = 0.005
)

// lane is one row of the table.
type lane struct {
	name, what string
	control    string // the lane it is held against, "" for a control itself
}

// lanes are what is measured, in the order of the table. Each of the product's has a control.
var lanes = [...]lane{
	{name: "control-chat", what: "recipe: a chat chunk"},
	{name: "chat", what: "chat → chat", control: "control-chat"},
	{name: "control-chat-burst", what: "recipe: the same, 4 KiB at once"},
	{name: "chat-burst", what: "chat → chat, 4 KiB at once", control: "control-chat-burst"},
	{name: "control-responses", what: "recipe: a delta of the Responses API"},
	{name: "responses", what: "Responses → Responses", control: "control-responses"},
	{name: "control-messages", what: "recipe: a delta of Anthropic's"},
	{name: "messages", what: "Messages → Messages", control: "control-messages"},
	{name: "control-messages-burst", what: "recipe: the same, 4 KiB at once"},
	{name: "messages-burst", what: "Messages → Messages, 4 KiB at once", control: "control-messages-burst"},
	{name: "control-translated", what: "recipe: the same, as a chat chunk"},
	{name: "translated", what: "Anthropic → chat", control: "control-translated"},
	{name: "control-translated-burst", what: "recipe: the same, 4 KiB at once"},
	{name: "translated-burst", what: "Anthropic → chat, 4 KiB at once", control: "control-translated-burst"},
	{name: "control-gemini", what: "recipe: Gemini's, as a chat chunk"},
	{name: "gemini", what: "Gemini → chat", control: "control-gemini"},
	{name: "control-bedrock", what: "recipe: Bedrock's frame, as a chat chunk"},
	{name: "bedrock", what: "Bedrock → chat", control: "control-bedrock"},
	{name: "control-chat-to-messages", what: "recipe: a chat chunk, as Anthropic's"},
	{name: "chat-to-messages", what: "chat → Messages", control: "control-chat-to-messages"},
	{name: "control-chat-to-responses", what: "recipe: a chat chunk, as the Responses API's"},
	{name: "chat-to-responses", what: "chat → Responses", control: "control-chat-to-responses"},
}

// Lanes are the names of what BenchmarkCost must measure.
func Lanes() (names []string) {
	for _, l := range lanes {
		names = append(names, l.name)
	}
	return names
}

// roundsMax bounds a run to about five minutes.
const roundsMax = 5000

// Cost is what one chunk costs in a lane.
type Cost struct {
	Lane   string  `json:"lane"`
	NS     float64 `json:"ns"`
	Allocs float64 `json:"allocs"`
	Bytes  float64 `json:"bytes"`
	Ratio  float64 `json:"ratio,omitempty"` // of the time, to the lane's control
}

// Report is one run.
type Report struct {
	At      time.Time       `json:"at"`
	Machine measure.Machine `json:"machine"`
	LoadEnd string          `json:"load_end"`
	Rounds  int             `json:"rounds"`
	Costs   []Cost          `json:"costs"` // by lane
}

// Run measures for that many rounds, 2 or more, in the module's root.
func Run(ctx context.Context, rounds int) (Report, error) {
	if rounds < 2 || rounds > roundsMax {
		return Report{}, fmt.Errorf("rounds %d: want 2 to %d", rounds, roundsMax)
	}
	out := Report{At: time.Now().UTC(), Machine: measure.Here(), Rounds: rounds}
	got, err := measure.GoBench(ctx, "./sidecar/internal/relay", "BenchmarkCost", "-benchtime", strconv.Itoa(rounds)+"x", "-timeout", "20m")
	if err != nil {
		return out, err
	}
	out.LoadEnd = measure.Here().Load
	out.Costs, err = costs(got)
	return out, err
}

// costs sorts what the benchmark reported.
func costs(got map[string]float64) ([]Cost, error) {
	out, at := make([]Cost, len(lanes)), map[string]int{}
	for i, l := range lanes {
		at[l.name], out[i].Lane = i, l.name
		for unit, to := range map[string]*float64{Nanoseconds: &out[i].NS, Allocs: &out[i].Allocs, Bytes: &out[i].Bytes} {
			v, ok := got[l.name+":"+unit]
			if !ok || unit == Nanoseconds && v <= 0 {
				return nil, fmt.Errorf("BenchmarkCost reports no %s of %s", unit, l.name)
			}
			*to = v
		}
	}
	for i, l := range lanes {
		if l.control != "" {
			out[i].Ratio = out[i].NS / out[at[l.control]].NS
		}
	}
	return out, nil
}

// Missed are the aims that a run misses.
func (r Report) Missed() (out []string) {
	for i, l := range lanes {
		if c := r.Costs[i]; l.control != "" && !c.met() {
			out = append(out, fmt.Sprintf("%s: %.2f of the recipe, %.2f allocations (aim: at most %.1f, none)", l.what, c.Ratio, c.Allocs, aimFactor))
		}
	}
	return out
}

func (c Cost) met() bool { return c.Ratio <= aimFactor && c.Allocs < allocsNone }

// WriteTable prints the report for people.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "machine\t%s, %s\n", r.Machine, r.At.Format(time.DateTime))
	fmt.Fprintf(t, "load average\t%s at the start, %s at the end\n", r.Machine.Load, r.LoadEnd)
	fmt.Fprintf(t, "rounds\t%d, medians\n\n", r.Rounds)
	fmt.Fprintf(t, "\tns/chunk\tallocs\tB\tratio\t\n")
	for i, l := range lanes {
		c := r.Costs[i]
		fmt.Fprintf(t, "%s\t%.1f\t%s\t%.0f\t", l.what, c.NS, strconv.FormatFloat(math.Round(c.Allocs*100)/100, 'f', -1, 64), c.Bytes)
		switch {
		case l.control == "":
			fmt.Fprint(t, "\t\n")
		case c.met():
			fmt.Fprintf(t, "%.2f\tmet (aim: at most %.1f, no allocation)\n", c.Ratio, aimFactor)
		default:
			fmt.Fprintf(t, "%.2f\tMISSED (aim: at most %.1f, no allocation)\n", c.Ratio, aimFactor)
		}
	}
	// tabwriter keeps the first write error for Flush.
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
