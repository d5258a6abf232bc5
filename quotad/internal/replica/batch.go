package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// proposal is one call of Propose or Renew.
type proposal struct {
	ops   int
	data  []byte       // they, as an entry without a stamp
	taken atomic.Bool  // by the batcher, to be sent, or by a caller that stopped waiting
	done  chan outcome // holds one
}

type outcome struct {
	results []Result
	err     error
}

// finish answers the caller; a second answer is dropped.
func (p *proposal) finish(o outcome) {
	select {
	case p.done <- o:
	default:
	}
}

// batcher makes entries out of proposals. Its loop is one goroutine.
type batcher struct {
	queue chan *proposal
	slots chan struct{} // one token for each entry in flight
	// landed holds a token after an entry's outcome became known: the loop may have waited for it.
	landed chan struct{}

	mu     sync.Mutex
	flying map[*flight]struct{}
}

// flight is an entry on its way.
type flight struct{ proposals []*proposal }

func (f *flight) fail(err error) {
	for _, p := range f.proposals {
		p.finish(outcome{err: err})
	}
}

func newBatcher() *batcher {
	return &batcher{
		queue:  make(chan *proposal, proposalsQueuedMax),
		slots:  make(chan struct{}, entriesInFlightMax),
		landed: make(chan struct{}, 1),
		flying: map[*flight]struct{}{},
	}
}

func (n *Node) propose(ctx context.Context, ops []*raftlogv1.Op) ([]Result, error) {
	if len(ops) == 0 || len(ops) > entryOpsMax {
		panic(fmt.Sprintf("BUG: replica: %d operations proposed at once", len(ops)))
	}
	for _, op := range ops {
		if op.GetOp() == nil {
			panic("BUG: replica: operation without content proposed")
		}
	}
	if n.serving.Load() == nil {
		return nil, n.notServing()
	}
	if err := n.allow(ctx, ops); err != nil {
		return nil, err
	}
	data, err := encodeOps(ops)
	if err != nil {
		return nil, err
	}
	return n.submit(ctx, &proposal{ops: len(ops), data: data, done: make(chan outcome, 1)})
}

func (n *Node) renew(ctx context.Context, r *ledger.Renew) (ledger.RenewReply, error) {
	if n.serving.Load() == nil {
		return ledger.RenewReply{}, n.notServing()
	}
	data, err := encodeRenew(r)
	if err != nil {
		return ledger.RenewReply{}, err
	}
	results, err := n.submit(ctx, &proposal{ops: 1, data: data, done: make(chan outcome, 1)})
	if err != nil {
		return ledger.RenewReply{}, err
	}
	return results[0].Renew, nil
}

// submit queues a proposal and waits for its outcome.
func (n *Node) submit(ctx context.Context, p *proposal) ([]Result, error) {
	select {
	case n.batch.queue <- p:
	default:
		return nil, ErrBusy
	}
	var why error
	select {
	case o := <-p.done:
		return o.results, o.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-n.stopped:
		why = ErrClosed
	}
	if p.taken.CompareAndSwap(false, true) {
		return nil, why
	}
	select {
	case o := <-p.done:
		return o.results, o.err
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, why)
	}
}

// runBatcher sends proposals until ctx ends. At once when nothing is in flight: then there is nobody to wait for.
// Otherwise it gathers for a moment, since an entry costs the disk the same whatever is in it.
func (n *Node) runBatcher(ctx context.Context) {
	b := n.batch
	var carry *proposal
	for {
		first := carry
		if first == nil {
			select {
			case <-ctx.Done():
				return
			case first = <-b.queue:
			}
		}
		var batch []*proposal
		if batch, carry = b.gather(ctx, first); batch == nil {
			return
		}
		n.send(batch)
	}
}

// gather fills a batch and takes a slot for it. What does not fit is carried to the next. A nil batch means that ctx
// ended.
func (b *batcher) gather(ctx context.Context, first *proposal) (batch []*proposal, carry *proposal) {
	batch = append(batch, first)
	ops, bytes := first.ops, len(first.data)
	// add reports whether there is room for more.
	add := func(p *proposal) bool {
		if ops+p.ops > entryOpsMax || bytes+len(p.data) > entryBytesMax {
			carry = p
			return false
		}
		batch = append(batch, p)
		ops, bytes = ops+p.ops, bytes+len(p.data)
		return ops < entryOpsMax
	}
	room := ops < entryOpsMax && bytes < entryBytesMax
	for room && len(b.queue) > 0 {
		room = add(<-b.queue)
	}
	var late <-chan time.Time
	if room && len(b.slots) > 0 {
		t := time.NewTimer(entryWaitMax)
		defer t.Stop()
		late = t.C
	}
	for late != nil && room && len(b.slots) > 0 {
		select {
		case p := <-b.queue:
			room = add(p)
		case <-late:
			late = nil
		case <-b.landed:
		case <-ctx.Done():
			return nil, nil
		}
	}
	for {
		queue := b.queue
		if !room {
			queue = nil
		}
		select {
		case b.slots <- struct{}{}:
			return batch, carry
		case p := <-queue:
			room = add(p)
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// send makes one entry of the batch and gives it to raft. The caller has taken a slot.
func (n *Node) send(batch []*proposal) {
	b := n.batch
	f := &flight{proposals: batch[:0]}
	var ops [][]byte
	for _, p := range batch {
		if p.taken.CompareAndSwap(false, true) {
			f.proposals = append(f.proposals, p)
			ops = append(ops, p.data)
		}
	}
	lead := n.serving.Load()
	if len(f.proposals) == 0 || lead == nil {
		if lead == nil {
			f.fail(n.notServing())
		}
		<-b.slots
		return
	}
	b.mu.Lock()
	b.flying[f] = struct{}{}
	b.mu.Unlock()
	future := n.apply(lead, ops...)
	n.futures.Go(func() {
		results, err := n.outcome(future)
		b.land(f, results, err)
	})
}

// land answers the callers of an entry and frees its slot.
func (b *batcher) land(f *flight, results []Result, err error) {
	b.mu.Lock()
	delete(b.flying, f)
	b.mu.Unlock()
	<-b.slots
	select {
	case b.landed <- struct{}{}:
	default:
	}
	if err != nil {
		f.fail(err)
		return
	}
	for _, p := range f.proposals {
		p.finish(outcome{results: results[:p.ops:p.ops]})
		results = results[p.ops:]
	}
}

// abandon answers everybody whose entry is in flight. The entries go on.
func (b *batcher) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.flying {
		f.fail(ErrUnknown)
	}
}

// apply makes an entry of operations, as encodeOps has them, and gives it to raft. Messages of which one is appended to
// another are one message.
func (n *Node) apply(lead *leadership, ops ...[]byte) raft.ApplyFuture {
	stamp := appendStamp(make([]byte, 0, 2*binary.MaxVarintLen64), lead.now())
	return n.raft.Apply(slices.Concat(append([][]byte{stamp}, ops...)...), enqueueTimeout)
}

// outcome waits for an entry and translates what became of it.
func (n *Node) outcome(future raft.ApplyFuture) ([]Result, error) {
	err := future.Error()
	switch {
	case err == nil:
		if results, ok := future.Response().([]Result); ok && results != nil {
			return results, nil
		}
		return nil, fmt.Errorf("%w: the node has halted", ErrUnknown)
	case errors.Is(err, raft.ErrNotLeader):
		return nil, n.notServing()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return nil, ErrNoLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return nil, ErrBusy
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}
