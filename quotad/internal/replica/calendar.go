package replica

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
	_ "time/tzdata" // zones must mean the same on every node, whatever its image has

	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

// PeriodAt returns the budget period of a time zone at a wall clock time: the calendar month there. The zone is an
// IANA name, empty for UTC; an unknown one is an error.
func PeriodAt(timezone string, at time.Time) (*raftlogv1.Period, error) {
	zone, err := time.LoadLocation(timezone)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", timezone, err)
	}
	t := at.In(zone)
	end := time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, zone)
	return &raftlogv1.Period{
		Timezone: timezone,
		Period:   uint32(t.Year()*100 + int(t.Month())),
		EndsMs:   end.UnixMilli(),
	}, nil
}

// calendar is what a leader remembers of the months: the zones that follow from the configuration, and how it stands
// with a turn that it sees coming.
type calendar struct {
	version uint64
	zones   []string
	wanted  time.Time // since when a period wants to be opened; zero while none does
	asked   time.Time // when the other nodes' clocks were looked at last
}

// confirmed returns those periods that the wall clock of another node has reached as well.
//
// Periods never go back, so a clock that is wrong on one node must not turn everybody's month. But where no node answers,
// because nodes may not reach each other's admin ports, the leader's clock alone has to do, after a while.
func (n *Node) confirmed(ctx context.Context, cal *calendar, periods []*raftlogv1.Period) (agreed []*raftlogv1.Period) {
	if len(periods) == 0 {
		cal.wanted = time.Time{}
		return nil
	}
	others := slices.DeleteFunc(n.status().Members, func(m MemberStatus) bool { return m.Self })
	if n.cfg.WallOf == nil || len(others) == 0 {
		return periods
	}
	now := fault.Now()
	if cal.wanted.IsZero() {
		cal.wanted = now
	}
	if now.Sub(cal.asked) < wallsAskedEvery {
		return nil
	}
	cal.asked = now
	walls := n.walls(ctx, others)
	if len(walls) == 0 {
		if now.Sub(cal.wanted) < wallsSilentMax {
			return nil
		}
		n.log.Warn("no other node tells its wall clock: the month turns by this node's alone")
		return periods
	}
	for _, p := range periods {
		if slices.ContainsFunc(walls, func(wall time.Time) bool {
			there, err := PeriodAt(p.GetTimezone(), wall)
			return err == nil && there.GetPeriod() >= p.GetPeriod()
		}) {
			agreed = append(agreed, p)
		}
	}
	if len(agreed) == 0 && now.Sub(cal.wanted) >= wallsDifferMax {
		n.log.Error("the month has turned by this node's wall clock and by no other's: one of them is wrong",
			zap.Time("here", fault.Wall()), zap.Times("there", walls))
	}
	return agreed
}

// walls asks other nodes for their wall clocks.
func (n *Node) walls(ctx context.Context, others []MemberStatus) (walls []time.Time) {
	ctx, cancel := context.WithTimeout(ctx, wallWait)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range others {
		asked.Go(func() {
			wall, err := n.cfg.WallOf(ctx, m.Peer)
			if err != nil {
				return // it is down, or cut off
			}
			mu.Lock()
			walls = append(walls, wall)
			mu.Unlock()
		})
	}
	asked.Wait()
	return walls
}
