package quota

import (
	"context"
	"errors"
	"time"
)

// prober is one sidecar that always asks for one more request, and knows when it was last granted one. When it loses
// its session it says hello to every node at once, as a sidecar does, and the first that answers has it.
type prober struct {
	planes []string
	car    *sidecar
	grants histogram // from ask to grant

	longest time.Duration // between two grants, since the last reset
	at      time.Time     // of the newest grant; zero: none
}

func newProber(planes []string) *prober { return &prober{planes: planes, car: newSidecar(identity(0))} }

// run asks until ctx ends.
func (p *prober) run(ctx context.Context, every time.Duration) error {
	for ctx.Err() == nil {
		if err := p.ask(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if err := sleep(ctx, every); err != nil {
			break
		}
	}
	return nil
}

// ask asks once. A lost session is found again, however long that takes.
func (p *prober) ask(ctx context.Context) error {
	if p.car.stream == nil {
		if err := p.reconnect(ctx); err != nil {
			return err
		}
	}
	p.car.next(1, false)
	began := time.Now()
	for {
		err := p.car.send()
		if err == nil {
			var granted int
			if granted, err = p.car.await(); err == nil && granted == 0 {
				return errors.New("a prober's ask was refused: the limits are short")
			}
		}
		if err == nil {
			break
		}
		if err := p.reconnect(ctx); err != nil {
			return err
		}
	}
	now := time.Now()
	p.grants.add(now.Sub(began))
	if !p.at.IsZero() {
		p.longest = max(p.longest, now.Sub(p.at))
	}
	p.at = now
	return nil
}

// reconnect says hello everywhere until one node answers.
func (p *prober) reconnect(ctx context.Context) error {
	p.car.disconnect()
	for ctx.Err() == nil {
		type tried struct {
			car *sidecar
			err error
		}
		results := make(chan tried, len(p.planes))
		for _, at := range p.planes {
			// A hopeful has the same name and books, and a connection of its own.
			hopeful := &sidecar{
				identity: p.car.identity, incarnation: p.car.incarnation, totals: p.car.totals, draws: p.car.draws,
				renew: p.car.renew, asked: p.car.asked,
			}
			go func() { results <- tried{hopeful, hopeful.connectTo(ctx, at)} }()
		}
		for left := len(p.planes); left > 0; left-- {
			t := <-results
			if t.err != nil {
				t.car.disconnect()
				continue
			}
			p.car = t.car
			go func() { // the others may take their time
				for range left - 1 {
					(<-results).car.disconnect()
				}
			}()
			return nil
		}
		_ = sleep(ctx, 10*time.Millisecond)
	}
	return ctx.Err()
}

func (p *prober) close() { p.car.disconnect() }
