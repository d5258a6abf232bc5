package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Failover is how long one sidecar went without a grant while a leader was replaced, trial by trial. It asks every
// proberEvery.
type Failover struct {
	Killed   []time.Duration `json:"killed"`   // kill -9 of the leader
	Transfer []time.Duration `json:"transfer"` // SIGTERM of the leader
}

// runFailover ends the leader of three nodes again and again.
func runFailover(ctx context.Context, cfg Config, dir string) (out Failover, err error) {
	c, err := startCluster(ctx, cfg.Binary, dir, 3)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.apply(ctx, org(1)); err != nil {
		return out, err
	}
	for trial := range 2 * cfg.Trials {
		kill := trial%2 == 0
		gap, err := failOver(ctx, c, kill)
		if err != nil {
			return out, err
		}
		if kill {
			out.Killed = append(out.Killed, gap)
		} else {
			out.Transfer = append(out.Transfer, gap)
		}
	}
	return out, nil
}

func failOver(ctx context.Context, c *cluster, kill bool) (time.Duration, error) {
	p := newProber(c.planes())
	defer p.close()
	askFor := func(d time.Duration) error {
		limited, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return p.run(limited, proberEvery)
	}
	if err := askFor(time.Second); err != nil {
		return 0, err
	}
	lead, err := c.leader(ctx)
	if err != nil {
		return 0, err
	}
	p.longest = 0
	ended := make(chan error, 1)
	go func() {
		_ = sleep(ctx, 200*time.Millisecond)
		ended <- lead.end(kill)
	}()
	before := p.grants.latency().Count
	if err := askFor(200*time.Millisecond + gapTimeout/10); err != nil {
		return 0, err
	}
	gap := p.longest
	if err := <-ended; err != nil {
		return 0, err
	}
	if now := p.grants.latency().Count; now-before < 100 || time.Since(p.at) > time.Second {
		return 0, fmt.Errorf("no grants after the leader was ended: %d since, the last one %v ago", now-before, time.Since(p.at))
	}
	if err := c.start(lead); err != nil {
		return 0, err
	}
	return gap, sleep(ctx, betweenTrials)
}

func longest(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	return slices.Max(ds)
}
