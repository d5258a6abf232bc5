// Package whatif plays scenarios for operators: who gets what of the providers' limits, with fair shares and first come,
// with breakers and without, and until when the budgets last.
package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-gateway/sluice/bench/sim"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Bounds of a scenario file.
const (
	tenantsMax   = 64
	providersMax = 16
	sidecarsMax  = 32
	stepsMax     = 64
	lastsMax     = 24 * time.Hour
	ratesMax     = 100_000 // requests a minute, of anything
	moneyMax     = 1_000_000_000
)

// File is a scenario file.
type File struct {
	Name     string
	Scenario sim.Scenario
}

// Read reads a scenario file. All of its faults are reported together, each with its line.
func Read(path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read scenario: %w", err)
	}
	return Parse(path, text)
}

// Parse is Read of a text; path is for its faults.
func Parse(path string, text []byte) (File, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	r := &reader{path: path}
	f := File{Scenario: sim.Scenario{Lasts: 10 * time.Minute, Sidecars: 2}}
	if len(doc.Content) == 0 {
		return File{}, fmt.Errorf("%s: the file is empty", path)
	}
	r.file(doc.Content[0], &f)
	slices.SortStableFunc(r.faults, func(a, b fault) int { return cmp.Compare(a.line, b.line) })
	var faults []error
	for _, x := range r.faults {
		faults = append(faults, fmt.Errorf("%s:%d: %s", path, x.line, x.what))
	}
	return f, errors.Join(faults...)
}

type fault struct {
	line int
	what string
}

// reader collects the faults of a file.
type reader struct {
	path   string
	faults []fault
}

func (r *reader) fault(n *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, fault{n.Line, fmt.Sprintf(format, args...)})
}

// fields walks a mapping. A key that is not among the known ones, is there twice or is missing is a fault.
func (r *reader) fields(n *yaml.Node, what string, known map[string]func(*yaml.Node), required ...string) {
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s must be a mapping", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read := known[key.Value]
		switch {
		case read == nil:
			r.fault(key, "%s has no %q", what, key.Value)
		case seen[key.Value]:
			r.fault(key, "%s: %q is there twice", what, key.Value)
		default:
			read(value)
		}
		seen[key.Value] = true
	}
	for _, k := range required {
		if !seen[k] {
			r.fault(n, "%s needs %q", what, k)
		}
	}
}

// items walks a list of at most so many.
func (r *reader) items(n *yaml.Node, what string, most int, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.fault(n, "%s must be a list", what)
		return
	}
	if len(n.Content) == 0 || len(n.Content) > most {
		r.fault(n, "%s must have 1 to %d entries", what, most)
		return
	}
	for _, c := range n.Content {
		each(c)
	}
}

func (r *reader) text(what string, to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.Value == "" || len(n.Value) > 100 {
			r.fault(n, "%s must be a text of 1 to 100 characters", what)
			return
		}
		*to = n.Value
	}
}

func (r *reader) number(what string, least, most float64, to *float64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(v) || v < least || v > most {
			r.fault(n, "%s must be a number from %g to %g", what, least, most)
			return
		}
		*to = v
	}
}

func (r *reader) whole(what string, least, most int64, to *int64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
			r.fault(n, "%s must be a whole number from %d to %d", what, least, most)
			return
		}
		*to = v
	}
}

func (r *reader) duration(what string, least, most time.Duration, to *time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
			r.fault(n, "%s must be a duration from %v to %v, as 90s or 5m", what, least, most)
			return
		}
		*to = v
	}
}

func (r *reader) file(n *yaml.Node, f *File) {
	sc := &f.Scenario
	sidecars := int64(sc.Sidecars)
	var tenants *yaml.Node
	r.fields(n, "the scenario", map[string]func(*yaml.Node){
		"name":     r.text("name", &f.Name),
		"lasts":    r.duration("lasts", time.Minute, lastsMax, &sc.Lasts),
		"sidecars": r.whole("sidecars", 1, sidecarsMax, &sidecars),
		"classes":  func(n *yaml.Node) { r.classes(n, sc) },
		"providers": func(n *yaml.Node) {
			r.items(n, "providers", providersMax, func(n *yaml.Node) { r.provider(n, sc) })
		},
		"tenants":     func(n *yaml.Node) { tenants = n },
		"quotad_away": r.spans("quotad_away", &sc.Away),
	}, "name", "providers", "tenants")
	sc.Sidecars = int(sidecars)
	if tenants != nil { // they name providers, which may stand behind them
		r.items(tenants, "tenants", tenantsMax, func(n *yaml.Node) { r.tenant(n, sc) })
	}
}

func (r *reader) classes(n *yaml.Node, sc *sim.Scenario) {
	known, sum := map[string]func(*yaml.Node){}, int64(0)
	for _, class := range classes {
		known[class] = func(n *yaml.Node) {
			permille := int64(0)
			r.whole(class, 0, 1000, &permille)(n)
			sum += permille
			sc.Reserves = append(sc.Reserves, ledger.ClassReserve{Class: class, Permille: permille})
		}
	}
	r.fields(n, "classes", known)
	if sum > 1000 {
		r.fault(n, "classes reserve %d thousandths together, more than all", sum)
	}
}

// classes are the priority classes.
var classes = []string{"interactive", "standard", "batch"}

func (r *reader) spans(what string, to *[]sim.Span) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.items(n, what, stepsMax, func(n *yaml.Node) {
			var s sim.Span
			before := len(r.faults)
			r.fields(n, what, map[string]func(*yaml.Node){
				"from": r.duration("from", 0, lastsMax, &s.From), "to": r.duration("to", 0, lastsMax, &s.To),
			}, "from", "to")
			if len(r.faults) == before && s.To <= s.From {
				r.fault(n, "%s: \"to\" must be after \"from\"", what)
			}
			*to = append(*to, s)
		})
	}
}

func (r *reader) provider(n *yaml.Node, sc *sim.Scenario) {
	p := sim.Provider{FailsAfter: 5 * time.Second, Takes: 2 * time.Second}
	r.fields(n, "a provider", map[string]func(*yaml.Node){
		"name":        r.text("name", &p.Name),
		"rpm":         r.whole("rpm", 1, ratesMax, &p.PerMinute),
		"burst":       r.whole("burst", 1, ratesMax, &p.Burst),
		"down":        r.spans("down", &p.Down),
		"fails_after": r.duration("fails_after", time.Millisecond, time.Minute, &p.FailsAfter),
		"takes":       r.duration("takes", time.Millisecond, 10*time.Minute, &p.Takes),
	}, "name", "rpm")
	if p.Burst == 0 {
		p.Burst = max(1, p.PerMinute/10)
	}
	if slices.ContainsFunc(sc.Providers, func(o sim.Provider) bool { return o.Name == p.Name }) {
		r.fault(n, "provider %q is there twice", p.Name)
	}
	sc.Providers = append(sc.Providers, p)
}

func (r *reader) tenant(n *yaml.Node, sc *sim.Scenario) {
	t := sim.Tenant{Class: "interactive", Weight: 1}
	cost, budget := 0.0, 0.0
	listed := false
	r.fields(n, "a tenant", map[string]func(*yaml.Node){
		"name": r.text("name", &t.Name),
		"class": func(n *yaml.Node) {
			if !slices.Contains(classes, n.Value) {
				r.fault(n, "class must be one of %v", classes)
			}
			t.Class = n.Value
		},
		"weight": r.whole("weight", 1, 1000, &t.Weight),
		"rpm":    r.whole("rpm", 1, ratesMax, &t.PerMinute),
		"demand": func(n *yaml.Node) { r.demand(n, &t) },
		"bursts": func(n *yaml.Node) {
			size := int64(0)
			r.fields(n, "bursts", map[string]func(*yaml.Node){
				"every":    r.duration("every", time.Second, lastsMax, &t.BurstGap),
				"requests": r.whole("requests", 1, ratesMax, &size),
			}, "every", "requests")
			t.BurstSize = int(size)
		},
		"cost":   r.number("cost", 0, 1000, &cost),
		"budget": r.number("budget", 0, moneyMax, &budget),
		"providers": func(n *yaml.Node) {
			listed = true
			r.items(n, "providers", providersMax, func(n *yaml.Node) {
				i := slices.IndexFunc(sc.Providers, func(p sim.Provider) bool { return p.Name == n.Value })
				switch {
				case i < 0:
					r.fault(n, "there is no provider %q", n.Value)
				case slices.Contains(t.Providers, i):
					r.fault(n, "provider %q is there twice", n.Value)
				}
				t.Providers = append(t.Providers, i)
			})
		},
	}, "name", "demand")
	if budget > 0 && cost == 0 {
		r.fault(n, "a budget needs the \"cost\" of a request")
	}
	if !listed {
		for i := range sc.Providers {
			t.Providers = append(t.Providers, i)
		}
	}
	t.CostNano, t.CapNano = int64(math.Round(cost*1e9)), int64(math.Round(budget*1e9))
	if slices.ContainsFunc(sc.Tenants, func(o sim.Tenant) bool { return o.Name == t.Name }) {
		r.fault(n, "tenant %q is there twice", t.Name)
	}
	sc.Tenants = append(sc.Tenants, t)
}

// demand is a number, or a list of steps.
func (r *reader) demand(n *yaml.Node, t *sim.Tenant) {
	if n.Kind == yaml.ScalarNode {
		s := sim.Step{}
		r.number("demand", 0, ratesMax, &s.PerMinute)(n)
		t.Demand = []sim.Step{s}
		return
	}
	r.items(n, "demand", stepsMax, func(n *yaml.Node) {
		s := sim.Step{}
		r.fields(n, "a step", map[string]func(*yaml.Node){
			"at": r.duration("at", 0, lastsMax, &s.At), "rpm": r.number("rpm", 0, ratesMax, &s.PerMinute),
		}, "at", "rpm")
		if k := len(t.Demand); k > 0 && s.At <= t.Demand[k-1].At {
			r.fault(n, "steps must follow each other in time")
		}
		t.Demand = append(t.Demand, s)
	})
}
