// Package quota measures quotad: lease operations a second, latencies, failover, start, and what they cost, beside a
// bare Raft on the same machine in the same run. README.md in bench/ says how.
package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-gateway/sluice/bench/measure"
)

// The parts of a run.
const (
	PartLease    = "lease"    // operations a second, latencies, idle sidecars; on one node and on three
	PartControl  = "control"  // bare Raft, for the ratio; needs lease
	PartFailover = "failover" // gaps when the leader ends
	PartStart    = "start"    // a node with 1M resources
	PartLocal    = "local"    // admission in one sidecar
)

// Parts lists the parts in order.
func Parts() []string { return []string{PartLease, PartControl, PartFailover, PartStart, PartLocal} }

// Config is a run.
type Config struct {
	Binary   string // quotad; empty runs the nodes in this process
	Dir      string // for data directories; on the disk that is to be measured
	Parts    []string
	Nodes    []int         // sizes of clusters for the lease part
	Sidecars int           // with a session each
	Asks     int           // in each renew under load
	Rate     float64       // lease operations a second of the open loop
	Length   time.Duration // of each measured span
	Trials   int           // of each kind of failover
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if len(c.Parts) == 0 {
		c.Parts = Parts()
	}
	if len(c.Nodes) == 0 {
		c.Nodes = []int{1, 3}
	}
	fill := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	fill(&c.Sidecars, 5000)
	fill(&c.Asks, 5)
	fill(&c.Trials, 5)
	if c.Rate == 0 {
		c.Rate = openRateDefault
	}
	if c.Length == 0 {
		c.Length = 30 * time.Second
	}
	return c
}

// Validate reports all faults together.
func (c Config) Validate() error {
	var errs []error
	for _, p := range c.Parts {
		if !slices.Contains(Parts(), p) {
			errs = append(errs, fmt.Errorf("part %q: want some of %v", p, Parts()))
		}
	}
	for _, n := range c.Nodes {
		if n < 1 || n > 5 {
			errs = append(errs, fmt.Errorf("nodes %d: want 1 to 5", n))
		}
	}
	if c.Sidecars < 1 || c.Sidecars > 15_000 {
		errs = append(errs, fmt.Errorf("sidecars %d: want 1 to 15000", c.Sidecars))
	}
	if c.Asks < 0 || c.Asks > 100 || c.Trials < 0 || c.Rate <= 0 || c.Length < time.Second {
		errs = append(errs, errors.New("asks: 0 to 100; trials: not negative; rate: positive; length: at least 1s"))
	}
	return errors.Join(errs...)
}

// Lease is what sidecars get of one cluster.
type Lease struct {
	Nodes          int           `json:"nodes"`
	Processes      bool          `json:"processes"` // each node has its own
	Sidecars       int           `json:"sidecars"`
	OpsPerRenew    int64         `json:"ops_per_renew"`
	BytesPerRenew  int           `json:"bytes_per_renew"`  // in the log
	BytesPerStream float64       `json:"bytes_per_stream"` // of the leader's memory, idle
	Idle           Measured      `json:"idle"`
	Closed         Measured      `json:"closed"`
	Open           Measured      `json:"open"`
	OpsPerEntry    float64       `json:"ops_per_entry"` // closed loop
	GrantIdle      Latency       `json:"grant_idle"`    // one sidecar's asks while the others idle
	GrantLoaded    Latency       `json:"grant_loaded"`  // and during the open loop
	Connect        time.Duration `json:"connect"`       // until all sessions stood
}

// Report is one run.
type Report struct {
	At       time.Time       `json:"at"`
	Machine  measure.Machine `json:"machine"`
	Dir      string          `json:"dir"`      // where the nodes write
	LoadEnd  string          `json:"load_end"` // /proc/loadavg at the end
	Lease    []Lease         `json:"lease,omitempty"`
	Control  []Control       `json:"control,omitempty"`
	Failover *Failover       `json:"failover,omitempty"`
	Restart  *Restart        `json:"restart,omitempty"`
	Local    *Local          `json:"local,omitempty"`
}

// Run measures. Say is told what is being done.
func Run(ctx context.Context, cfg Config, say func(string)) (out Report, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return out, err
	}
	dir, err := os.MkdirTemp(cfg.Dir, "sluice-bench-quota-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out.At, out.Machine, out.Dir = time.Now().UTC(), measure.Here(), dir
	has := func(part string) bool { return slices.Contains(cfg.Parts, part) }
	below := func(name string) string { return filepath.Join(dir, name) }

	if has(PartLocal) {
		say("admission in one sidecar")
		l, err := runLocal(ctx)
		if err != nil {
			return out, err
		}
		out.Local = &l
	}
	for _, n := range cfg.Nodes {
		if !has(PartLease) {
			break
		}
		say(fmt.Sprintf("%d sidecars at %d node(s)", cfg.Sidecars, n))
		l, err := runLease(ctx, cfg, below(fmt.Sprintf("lease-%d", n)), n, say)
		if err != nil {
			return out, err
		}
		out.Lease = append(out.Lease, l)
		if !has(PartControl) {
			continue
		}
		say(fmt.Sprintf("bare raft, %d node(s)", n))
		where := below(fmt.Sprintf("control-%d", n))
		if err := os.MkdirAll(where, 0o700); err != nil {
			return out, err
		}
		c, err := runControl(ctx, where, n, cfg.Length)
		if err != nil {
			return out, err
		}
		c.Ratio = l.Closed.OpsPerSecond / c.OpsPerSecond
		out.Control = append(out.Control, c)
	}
	if has(PartFailover) && cfg.Trials > 0 {
		say("failover")
		f, err := runFailover(ctx, cfg, below("failover"))
		if err != nil {
			return out, err
		}
		out.Failover = &f
	}
	if has(PartStart) {
		say("a start with 1M resources")
		r, err := runRestart(ctx)
		if err != nil {
			return out, err
		}
		out.Restart = &r
	}
	out.LoadEnd = measure.Here().Load
	return out, nil
}

// runLease measures one cluster: its sidecars idle, then send as fast as they are answered, then at a rate.
func runLease(ctx context.Context, cfg Config, dir string, nodes int, say func(string)) (out Lease, err error) {
	out = Lease{Nodes: nodes, Processes: cfg.Binary != "", Sidecars: cfg.Sidecars}
	c, err := startCluster(ctx, cfg.Binary, dir, nodes)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.apply(ctx, org((cfg.Sidecars+sidecarsInTeam-1)/sidecarsInTeam)); err != nil {
		return out, err
	}
	lead, err := c.leader(ctx)
	if err != nil {
		return out, err
	}
	before := lead.resident()
	began := time.Now()
	d, err := startDriver(ctx, c.planes(), cfg.Sidecars)
	if err != nil {
		return out, err
	}
	defer d.close()
	out.Connect = time.Since(began)

	say("  idle")
	p := newProber(c.planes())
	defer p.close()
	probed := func(phase func() *phase, warm time.Duration) (m Measured, l Latency, err error) {
		g, gctx := errgroup.WithContext(ctx)
		gctx, done := context.WithCancel(gctx)
		p.grants = histogram{}
		g.Go(func() error { return p.run(gctx, 10*proberEvery) })
		g.Go(func() error {
			defer done()
			if err := d.warm(gctx, phase, warm); err != nil {
				return err
			}
			m, err = d.during(gctx, phase, cfg.Length, c.pids())
			return err
		})
		err = g.Wait()
		return m, p.grants.latency(), err
	}
	if out.Idle, out.GrantIdle, err = probed(idlePhase, 3*renewEvery); err != nil {
		return out, err
	}
	if before > 0 {
		out.BytesPerStream = float64(lead.resident()-before) / float64(cfg.Sidecars)
	}

	say("  closed loop")
	entries := func() float64 { return lead.metric(ctx, "sluice_raft_applied_index") }
	load := func(every time.Duration) func() *phase {
		return func() *phase { return newPhase(every, cfg.Asks, true) }
	}
	if err := d.warm(ctx, load(0), cfg.Length/6); err != nil {
		return out, err
	}
	from := entries()
	if out.Closed, err = d.during(ctx, load(0), cfg.Length, c.pids()); err != nil {
		return out, err
	}
	out.OpsPerRenew = int64(len(d.cars[0].totals) + cfg.Asks)
	out.OpsPerEntry = out.Closed.OpsPerSecond * out.Closed.Seconds / max(1, entries()-from)

	say(fmt.Sprintf("  open loop at %.0f/s", cfg.Rate))
	every := time.Duration(float64(cfg.Sidecars) * float64(out.OpsPerRenew) / cfg.Rate * float64(time.Second))
	out.Open, out.GrantLoaded, err = probed(load(every), cfg.Length/6)
	return out, err
}

func (nd *node) resident() int64 {
	if nd.cmd == nil {
		return 0
	}
	return residentBytes(nd.cmd.Process.Pid)
}

// logged is how long a renew is in the log, about: it has the same fields there, and the identity.
func (s *sidecar) logged() int { return proto.Size(s.renew) + len(s.identity) + 8 }
