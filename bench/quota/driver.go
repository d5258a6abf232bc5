package quota

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// driver holds thousands of sidecars at one cluster and has them all do one thing at a time.
type driver struct {
	planes []string
	cars   []*sidecar
	phase  atomic.Pointer[phase]

	fault   atomic.Pointer[error] // the first that is no lost connection
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// phase is what the sidecars do until it is over.
type phase struct {
	every time.Duration // between the renews of each; 0: the next goes out when the last is answered
	asks  int           // in each renew
	spend bool          // totals move
	began time.Time
	over  chan struct{}

	latency   histogram // from when a renew was due to its answer
	ops       atomic.Int64
	asked     atomic.Int64
	granted   atomic.Int64
	reconnect atomic.Int64
	logged    atomic.Int64 // bytes of a renew in the log
}

func newPhase(every time.Duration, asks int, spend bool) *phase {
	return &phase{every: every, asks: asks, spend: spend, began: time.Now(), over: make(chan struct{})}
}

// idle is what sidecars do that have no callers.
func idlePhase() *phase { return newPhase(renewEvery, 0, false) }

// startDriver connects n sidecars and lets them idle.
func startDriver(ctx context.Context, planes []string, n int) (*driver, error) {
	ctx, stop := context.WithCancel(ctx)
	d := &driver{planes: planes, stop: stop}
	d.phase.Store(idlePhase())
	for i := range n {
		d.cars = append(d.cars, newSidecar(identity(i/sidecarsInTeam)))
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	g, _ := errgroup.WithContext(limited)
	g.SetLimit(connectAtOnce)
	for _, s := range d.cars {
		// Its session lives as long as the driver, and not as the group.
		g.Go(func() error {
			if limited.Err() != nil {
				return fmt.Errorf("sessions do not stand after %v", startTimeout)
			}
			return s.connect(ctx, planes)
		})
	}
	if err := g.Wait(); err != nil {
		stop()
		return nil, err
	}
	for i, s := range d.cars {
		d.stopped.Go(func() { d.drive(ctx, s, i) })
	}
	d.stopped.Go(func() { d.watch(ctx) })
	return d, nil
}

// watch looks for renews that got no answer.
func (d *driver) watch(ctx context.Context) {
	t := time.NewTicker(resendAfter / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			for _, s := range d.cars {
				s.resend(now)
			}
		}
	}
}

// drive is one sidecar's life.
func (d *driver) drive(ctx context.Context, s *sidecar, i int) {
	defer s.disconnect()
	var p *phase
	var due time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next := d.phase.Load(); next != p {
			p = next
			// Spread evenly over the interval.
			due = p.began.Add(p.every * time.Duration(i) / time.Duration(len(d.cars)))
		}
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-p.over:
				continue
			case <-timer.C:
			}
		}
		s.next(p.asks, p.spend)
		if i == 0 {
			p.logged.Store(int64(s.logged()))
		}
		from := due
		if p.every == 0 {
			from = time.Now()
		}
		granted, err := 0, s.send()
		if err == nil {
			granted, err = s.await()
		}
		for err != nil {
			if ctx.Err() != nil {
				return
			}
			p.reconnect.Add(1)
			s.mu.Lock()
			err = s.connect(ctx, d.planes)
			s.mu.Unlock()
			if err != nil {
				if ctx.Err() == nil {
					d.fault.CompareAndSwap(nil, &err)
				}
				return
			}
			if err = s.send(); err == nil {
				granted, err = s.await()
			}
		}
		p.latency.add(time.Since(from))
		p.ops.Add(s.ops())
		p.asked.Add(int64(p.asks))
		p.granted.Add(int64(granted))
		due = due.Add(p.every)
	}
}

// warm has all sidecars do p for a while that is not measured.
func (d *driver) warm(ctx context.Context, p func() *phase, length time.Duration) error {
	d.swap(p())
	return sleep(ctx, length)
}

// during has all sidecars do p for a while, and returns what happened then. Afterwards they idle.
func (d *driver) during(ctx context.Context, p func() *phase, length time.Duration, pids []int) (Measured, error) {
	now := p()
	d.swap(now)
	m := startMeter(pids)
	if err := sleep(ctx, length); err != nil {
		return Measured{}, err
	}
	took := time.Since(m.began)
	out := Measured{
		CPU: m.stop(), Latency: now.latency.latency(), Seconds: took.Seconds(),
		OpsPerSecond: float64(now.ops.Load()) / took.Seconds(), Reconnects: now.reconnect.Load(),
		Asked: now.asked.Load(), Granted: now.granted.Load(), BytesPerRenew: now.logged.Load(),
	}
	d.swap(idlePhase())
	for _, s := range d.cars {
		s.mu.Lock()
		out.Resent += s.resent
		s.resent = 0
		s.mu.Unlock()
	}
	if f := d.fault.Load(); f != nil {
		return out, *f
	}
	return out, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// swap begins a phase.
func (d *driver) swap(p *phase) { close(d.phase.Swap(p).over) }

func (d *driver) close() {
	d.stop()
	d.stopped.Wait()
}

// Measured is what sidecars got over a span.
type Measured struct {
	Seconds      float64 `json:"seconds"`
	OpsPerSecond float64 `json:"ops_per_second"`
	Latency      Latency `json:"latency"` // of a renew, from when it was due
	CPU          CPU     `json:"cpu"`     // cores
	Asked        int64   `json:"asked"`
	Granted      int64   `json:"granted"`
	// BytesPerRenew is how long one is in the log, about.
	BytesPerRenew int64 `json:"bytes_per_renew"`
	Resent        int64 `json:"resent"`     // renews without an answer for 2 s
	Reconnects    int64 `json:"reconnects"` // sessions lost
}

// PerOp is the CPU time of quotad's processes for one operation.
func (m Measured) PerOp() time.Duration {
	if m.OpsPerSecond == 0 {
		return 0
	}
	return time.Duration(m.CPU.Nodes / m.OpsPerSecond * float64(time.Second))
}
