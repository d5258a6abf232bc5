package replica

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

// leadership is one term of this node as the leader, once it is ready to serve.
type leadership struct {
	term  uint64
	base  int64     // ledger time at since, milliseconds
	since time.Time // by the monotonic clock
}

// now returns the cluster's time, in milliseconds.
func (l *leadership) now() int64 { return l.base + fault.Now().Sub(l.since).Milliseconds() }

// runLeadership follows raft's elections and the state of the own disk until ctx ends, and does a leader's duties
// while this node leads. It returns an error when raft has stopped.
func (n *Node) runLeadership(ctx context.Context) error {
	leaders := make(chan raft.Observation, 16)
	observer := raft.NewObserver(leaders, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)

	look := time.NewTicker(dutyEvery)
	defer look.Stop()
	var duty sync.WaitGroup
	stop := context.CancelFunc(func() {})
	defer func() { stop(); duty.Wait() }()
	leads, stalled := false, false
	// turn ends the duties in force and begins new ones when this node may lead.
	turn := func() {
		stop()
		duty.Wait()
		n.serving.Store(nil)
		if leads && !stalled {
			var dutyCtx context.Context
			dutyCtx, stop = context.WithCancel(ctx)
			duty.Go(func() { n.lead(dutyCtx) })
		}
		n.hub.publish(Signal{Leadership: true})
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case leads = <-n.raft.LeaderCh():
			turn()
		case <-leaders:
			n.hub.publish(Signal{Leadership: true})
		case <-look.C:
			if n.raft.State() == raft.Shutdown {
				return errors.New("replica: raft has stopped")
			}
			if now := n.watch.stalled(); now != stalled {
				stalled = now
				n.log.Warn("writing to the log", zap.Bool("stuck", stalled))
				turn()
				if stalled {
					// Their entries may still be committed, by this node or another, but not soon.
					n.batch.abandon()
				}
			}
		}
	}
}

// lead does the duties of a leader until ctx ends or leadership is lost.
func (n *Node) lead(ctx context.Context) {
	for {
		limited, cancel := context.WithTimeoutCause(ctx, barrierTimeout, errTimeout)
		err := n.awaitCtx(limited, func() error { return n.raft.Barrier(barrierTimeout).Error() })
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil || n.raft.State() != raft.Leader {
			return
		}
		n.log.Warn("new leader waits for its log to be applied", zap.Error(err))
	}
	l := &leadership{term: n.raft.CurrentTerm(), since: fault.Now()}
	now, passed := n.fsm.clock()
	l.base = now + passed.Milliseconds()
	fresh := false
	n.fsm.view(func(m *Machine) { fresh = m.ClusterID() == "" })
	for !n.makeCluster(ctx, l) {
		if ctx.Err() != nil || n.raft.State() != raft.Leader {
			return
		}
	}
	// A new cluster, whose nodes have all just answered, and one without others begin with what they know. Elsewhere
	// nobody waits until all have answered.
	if fresh || voters(n.servers()) == 1 {
		_ = n.raise(ctx, l, "a new cluster") // it is tried again
	}
	var later sync.WaitGroup
	defer later.Wait()
	if n.fsm.level.Load() >= n.knows() {
		n.recordNodes(ctx, l)
	} else {
		later.Go(func() { n.upgrade(ctx, l) })
	}
	n.serving.Store(l)
	n.hub.publish(Signal{Leadership: true})
	n.log.Info("leading", zap.Uint64("term", l.term), zap.Int64("now_ms", l.base))
	n.duties(ctx, l)
}

// makeCluster gives a new cluster its id, and the ledger its time: the only moment a wall clock sets it. It reports
// whether the cluster is made.
func (n *Node) makeCluster(ctx context.Context, l *leadership) bool {
	made := false
	n.fsm.view(func(m *Machine) { made = m.ClusterID() != "" })
	if made {
		return true
	}
	l.base, l.since = fault.Wall().UnixMilli(), fault.Now()
	id := make([]byte, 16)
	rand.Read(id) // never fails
	op := &raftlogv1.Op{Op: &raftlogv1.Op_Bootstrap{Bootstrap: &raftlogv1.Bootstrap{ClusterId: hex.EncodeToString(id)}}}
	return n.proposeDuty(ctx, l, op) == nil
}

// proposeDuty applies operations of the leader's own, past the batcher.
func (n *Node) proposeDuty(ctx context.Context, l *leadership, ops ...*raftlogv1.Op) error {
	data, err := encodeOps(ops)
	if err == nil {
		future := n.apply(l, data)
		limited, cancel := context.WithTimeoutCause(ctx, dutyTimeout, errTimeout)
		defer cancel()
		err = n.awaitCtx(limited, func() error { _, err := n.outcome(future); return err })
	}
	if err != nil && ctx.Err() == nil {
		n.log.Warn("leader's own proposal failed", zap.Error(err))
	}
	return err
}

// duties proposes the passing of time when something is due, and the opening of budget periods when the calendar
// turns. Failures are tried again.
func (n *Node) duties(ctx context.Context, l *leadership) {
	cal := &calendar{}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		n.promote(ctx)
		due := n.due()
		var ops []*raftlogv1.Op
		if due <= l.now() {
			ops = append(ops, &raftlogv1.Op{Op: &raftlogv1.Op_Tick{Tick: &raftlogv1.Tick{}}})
		}
		periods, err := n.turned(cal, fault.Wall())
		if err != nil {
			n.log.Error("budget periods cannot be opened", zap.Error(err))
		}
		if periods = n.confirmed(ctx, cal, periods); len(periods) > 0 {
			ops = append(ops, &raftlogv1.Op{Op: &raftlogv1.Op_OpenPeriods{OpenPeriods: &raftlogv1.OpenPeriods{Periods: periods}}})
		}
		wait := dutyEvery
		if len(ops) > 0 {
			// Its failure is logged; it is due again at once.
			_ = n.proposeDuty(ctx, l, ops...)
			due = n.due()
		}
		if due < math.MaxInt64 {
			wait = min(wait, max(tickGapMin, time.Duration(due-l.now())*time.Millisecond))
		}
		t.Reset(wait)
	}
}

// due returns when time must be told to pass, in ledger time.
func (n *Node) due() (ms int64) {
	n.fsm.view(func(m *Machine) { ms = m.Ledger.NextDue() })
	return ms
}

// turned returns the periods that are to be opened: of the zones whose month is not, or no longer, the open one.
// A zone that cannot be told is an error beside the others' periods.
func (n *Node) turned(cal *calendar, wall time.Time) (periods []*raftlogv1.Period, err error) {
	open := map[string]uint32{}
	n.fsm.view(func(m *Machine) {
		if v := m.ConfigVersion(); v != cal.version {
			cal.version, cal.zones = v, m.Registry.Timezones()
		}
		for _, p := range m.Ledger.Periods() {
			open[p.Timezone] = p.Period
		}
	})
	for _, zone := range cal.zones {
		p, zoneErr := PeriodAt(zone, wall)
		if zoneErr != nil {
			err = errors.Join(err, zoneErr)
			continue
		}
		if p.GetPeriod() > open[ledgerZone(zone)] {
			periods = append(periods, p)
		}
	}
	return periods, err
}

// ledgerZone spells a zone as the ledger does.
func ledgerZone(zone string) string {
	if zone == "UTC" {
		return ""
	}
	return zone
}

// notServing says why this node does not serve.
func (n *Node) notServing() error {
	_, id := n.raft.LeaderWithID()
	if id == "" || string(id) == n.cfg.ID {
		return ErrNoLeader
	}
	p, _ := n.peer(string(id))
	return ErrNotLeader{LeaderID: p.ID, ClientAddress: p.ClientAddress, AdminAddress: p.AdminAddress}
}

func (n *Node) leader() (id, clientAddr, adminAddr string, self bool) {
	_, lid := n.raft.LeaderWithID()
	if lid == "" {
		return "", "", "", false
	}
	p, _ := n.peer(string(lid))
	return p.ID, p.ClientAddress, p.AdminAddress, p.ID == n.cfg.ID && n.serving.Load() != nil
}

func (n *Node) linearizable(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case n.reads <- done:
	default:
		return ErrBusy
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stopped:
		return ErrClosed
	}
}

// runReads answers calls of Linearizable until ctx ends, all that wait with one round of messages. Nothing has to be
// waited for after it: an operation is acknowledged only after it is applied here, and what other leaders acknowledged
// was applied before this one began to serve.
func (n *Node) runReads(ctx context.Context) {
	for {
		var waiting []chan error
		select {
		case <-ctx.Done():
			return
		case done := <-n.reads:
			waiting = append(waiting, done)
		}
		for len(n.reads) > 0 {
			waiting = append(waiting, <-n.reads)
		}
		err := n.verify(ctx)
		for _, done := range waiting {
			done <- err
		}
	}
}

// verify asks a majority whether this node leads.
func (n *Node) verify(ctx context.Context) error {
	l := n.serving.Load()
	if l == nil {
		return n.notServing()
	}
	limited, cancel := context.WithTimeoutCause(ctx, n.cfg.ElectionTimeout, errTimeout)
	defer cancel()
	err := n.awaitCtx(limited, func() error { return n.raft.VerifyLeader().Error() })
	if err == nil && n.serving.Load() == l {
		return nil
	}
	if err != nil && !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, raft.ErrLeadershipLost) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return n.notServing()
}
