package relay

import (
	"fmt"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// deadlines says when an attempt has waited long enough.
type deadlines struct {
	t     exchange.Timeouts
	start time.Time
	// token is set until the first real token of a stream has arrived. It spans head and events.
	token bool
	// idle is set once the time between bytes counts.
	idle bool
}

type deadline uint8

const (
	byTotal deadline = iota
	byConnect
	byToken
	byIdle
)

// next returns the earliest deadline for a wait that began at began, and which one it is.
func (d *deadlines) next(began time.Time) (time.Time, deadline) {
	end, why := d.start.Add(d.t.Total), byTotal
	if d.token {
		if at := d.start.Add(d.t.FirstToken); at.Before(end) {
			end, why = at, byToken
		}
	}
	if d.idle {
		if at := began.Add(d.t.Idle); at.Before(end) {
			end, why = at, byIdle
		}
	}
	return end, why
}

// connect returns the deadline for having a connection.
func (d *deadlines) connect() (time.Time, deadline) {
	end, why := d.next(d.start)
	if at := d.start.Add(d.t.Connect); at.Before(end) {
		return at, byConnect
	}
	return end, why
}

// until leaves one deadline only.
func (d *deadlines) until(at time.Time) {
	*d = deadlines{start: at}
}

// slack is by how much a wait may wake early.
func (d *deadlines) slack() time.Duration { return d.t.Idle / 8 }

func (d *deadlines) failure(why deadline) *exchange.Failure {
	var text string
	switch why {
	case byConnect:
		text = fmt.Sprintf("connect deadline: no connection to the provider within %v", d.t.Connect)
	case byToken:
		text = fmt.Sprintf("first-token deadline: no token from the provider within %v", d.t.FirstToken)
	case byIdle:
		text = fmt.Sprintf("idle deadline: nothing from the provider for %v", d.t.Idle)
	default:
		text = fmt.Sprintf("total deadline: the provider had not finished after %v", d.t.Total)
	}
	return fail(exchange.FailTimeout, text)
}
