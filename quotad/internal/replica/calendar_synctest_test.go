package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestAMonthTurnsForTwo: the wall clock of the leader alone does not turn a month, unless no other node answers.
func TestAMonthTurnsForTwo(t *testing.T) {
	for name, c := range map[string]struct {
		off     time.Duration // of the other nodes' clocks
		err     error         // instead of an answer
		turns   bool
		earlier time.Duration // at the earliest, after the start
	}{
		"clocks agree":         {turns: true},
		"the others are later": {off: 40 * 24 * time.Hour, turns: true},
		"the others differ":    {off: -time.Hour},
		"nobody answers":       {err: errors.New("refused"), turns: true, earlier: wallsSilentMax},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { // it begins with a month
				cfgs, _ := three(t)
				var healed atomic.Bool
				for i := range cfgs {
					cfgs[i].WallOf = func(context.Context, Peer) (time.Time, error) {
						if healed.Load() {
							return time.Now(), nil
						}
						return time.Now().Add(c.off), c.err
					}
				}
				leader, _ := leaderOf(t, startAll(t, cfgs)...)
				op := changeOp(teamObject(t, "t", "", 1e9, 60))
				op.GetChange().Periods = nil
				began := time.Now()
				if res, err := leader.Propose(ctxFor(t), op); err != nil || res[0].Change.Refusal != nil {
					t.Fatalf("change: %+v, %v", res, err)
				}
				open := func() (is bool) {
					leader.View(func(m *Machine) { is = m.HasPeriod("UTC") })
					return is
				}
				// Nothing else makes entries, so the next one opens the period.
				turned := func(wait time.Duration) bool {
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					defer cancel()
					return leader.WaitApplied(ctx, leader.Status().Applied+1) == nil && open()
				}
				if got := turned(2 * wallsSilentMax); got != c.turns {
					t.Fatalf("turned: %v after %v", got, time.Since(began))
				}
				if took := time.Since(began); c.turns && (took < c.earlier || took > c.earlier+2*time.Second) {
					t.Errorf("turned after %v, want %v", took, c.earlier)
				}
				healed.Store(true)
				if !c.turns && !turned(2*time.Second) {
					t.Error("does not turn once another clock agrees")
				}
			})
		})
	}
}
