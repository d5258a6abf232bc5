package replica

import (
	"context"
	"errors"
	"testing"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

func TestGatherKeepsWithinItsBounds(t *testing.T) {
	of := func(ops, bytes int) *proposal {
		return &proposal{ops: ops, data: make([]byte, bytes), done: make(chan outcome, 1)}
	}
	for _, tt := range []struct {
		name   string
		first  *proposal
		queued []*proposal
		busy   bool // another entry is in flight
		batch  int  // proposals in the batch
		carry  bool
		left   int // in the queue
	}{
		{name: "alone", first: of(1, 1), batch: 1},
		{name: "all that wait", first: of(1, 1), queued: []*proposal{of(2, 1), of(3, 1)}, batch: 3},
		{name: "full by number", first: of(entryOpsMax, 1), queued: []*proposal{of(1, 1)}, batch: 1, left: 1},
		{name: "exactly full", first: of(1, 1), queued: []*proposal{of(entryOpsMax-1, 1), of(1, 1)}, batch: 2, left: 1},
		{name: "would be too many", first: of(2, 1), queued: []*proposal{of(entryOpsMax-1, 1), of(1, 1)}, batch: 1, carry: true, left: 1},
		{name: "would be too large", first: of(1, 100), queued: []*proposal{of(1, entryBytesMax), of(1, 1)}, batch: 1, carry: true, left: 1},
		{name: "large alone", first: of(1, entryBytesMax+1), queued: []*proposal{of(1, 1)}, batch: 1, left: 1},
		{name: "waits for company, then goes", first: of(1, 1), busy: true, batch: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBatcher()
			if tt.busy {
				b.slots <- struct{}{}
			}
			for _, p := range tt.queued {
				b.queue <- p
			}
			batch, carry := b.gather(t.Context(), tt.first)
			if len(batch) != tt.batch || (carry != nil) != tt.carry || len(b.queue) != tt.left {
				t.Fatalf("got %d in the batch, carry %v, %d left; want %d, %v, %d",
					len(batch), carry != nil, len(b.queue), tt.batch, tt.carry, tt.left)
			}
		})
	}
}

func TestGatherWaitsForASlot(t *testing.T) {
	b := newBatcher()
	for range entriesInFlightMax {
		b.slots <- struct{}{}
	}
	got := make(chan int, 1)
	p := func() *proposal { return &proposal{ops: 1, done: make(chan outcome, 1)} }
	go func() { batch, _ := b.gather(context.Background(), p()); got <- len(batch) }()
	for range 3 {
		b.queue <- p() // gathered meanwhile
	}
	for len(b.queue) > 0 {
		select {
		case n := <-got:
			t.Fatalf("a batch of %d went with all slots taken", n)
		default:
		}
	}
	<-b.slots
	if n := <-got; n != 4 {
		t.Fatalf("batch of %d, want 4", n)
	}
}

func TestQueueIsBounded(t *testing.T) {
	n := &Node{fsm: &fsm{}, batch: newBatcher(), stopped: make(chan struct{})}
	n.serving.Store(&leadership{})
	for range proposalsQueuedMax {
		n.batch.queue <- &proposal{}
	}
	if _, err := n.propose(t.Context(), []*raftlogv1.Op{sealOp("k")}); !errors.Is(err, ErrBusy) {
		t.Fatalf("Propose with a full queue: got %v, want ErrBusy", err)
	}
}

func TestProposalThatWasNotTakenIsWithdrawn(t *testing.T) {
	n := &Node{fsm: &fsm{}, batch: newBatcher(), stopped: make(chan struct{})}
	n.serving.Store(&leadership{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := n.propose(ctx, []*raftlogv1.Op{sealOp("k")}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
		t.Fatalf("Propose: got %v, want only the error of its context", err)
	}
	if p := <-n.batch.queue; !p.taken.Load() {
		t.Fatal("it would still be sent")
	}
}
