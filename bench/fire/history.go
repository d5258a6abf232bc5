package fire

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// Ask is one whole need of a budget.
type Ask struct{ Amount int64 }

// Verdict answers an Ask.
type Verdict struct {
	Granted  bool
	Shortage quotav1.Shortage
	Left     int64 // of a refusal: what was free
}

// Settle ends one hold: what was used, and what comes back.
type Settle struct{ Spent, Back int64 }

// Credit raises the cap by an amount, or lowers it.
type Credit struct{ Amount int64 }

// Show looks at the books.
type Show struct{}

// Books is what quotad says of a budget, and the state of the model.
type Books struct {
	Cap     int64 // and credits
	Settled int64
	Out     int64 // outstanding, or in suspense
	Free    int64
}

// unknown is the output of what was never answered: it may have happened at any time after its call, or not at all.
type unknown struct{}

// History records what clients did with one budget. Its times are numbers of an atomic counter, so that what truly
// followed each other stays in order, however coarse the clock.
type History struct {
	clock atomic.Int64

	mu  sync.Mutex // guards ops
	ops []porcupine.Operation
}

// Do records one operation of a client. The output of do counts when its error is nil.
func (h *History) Do(client int, input any, do func() (output any, err error)) error {
	op := porcupine.Operation{ClientId: client, Input: input, Call: h.clock.Add(1)}
	out, err := do()
	op.Output, op.Return = out, h.clock.Add(1)
	if err != nil {
		op.Output, op.Return = unknown{}, math.MaxInt64
	}
	h.mu.Lock()
	h.ops = append(h.ops, op)
	h.mu.Unlock()
	return err
}

// Look records an operation that changes nothing: without an answer it leaves no trace.
func (h *History) Look(client int, input any, do func() (output any, err error)) error {
	call := h.clock.Add(1)
	out, err := do()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: input, Call: call, Output: out, Return: h.clock.Add(1)})
	return nil
}

// Len is how many operations there are, and how many of them were never answered.
func (h *History) Len() (all, open int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		if op.Output == (unknown{}) {
			open++
		}
	}
	return len(h.ops), open
}

// step is what one operation does to the books, and whether it can have had that output. The ledger is deterministic,
// so what the output would have been is known even where nobody heard it.
func step(state, input, output any) (bool, any) {
	b := state.(Books)
	switch in := input.(type) {
	case Ask:
		fits := in.Amount <= b.Free
		v, told := output.(Verdict)
		if told && v.Granted != fits {
			return false, b
		}
		if fits {
			b.Free, b.Out = b.Free-in.Amount, b.Out+in.Amount
			return true, b
		}
		if !told {
			return true, b
		}
		switch v.Shortage {
		case quotav1.Shortage_SHORTAGE_TOO_LARGE:
			return v.Left == b.Free && in.Amount > b.Cap, b
		case quotav1.Shortage_SHORTAGE_RESERVED: // it fits once others hand back
			return v.Left == b.Free && in.Amount <= b.Free+b.Out, b
		case quotav1.Shortage_SHORTAGE_EXHAUSTED: // what is in suspense counts as spent
			return v.Left == b.Free, b
		}
		return false, b
	case Settle:
		b.Out, b.Free, b.Settled = b.Out-in.Spent-in.Back, b.Free+in.Back, b.Settled+in.Spent
		return b.Out >= 0, b
	case Credit:
		b.Cap, b.Free = b.Cap+in.Amount, b.Free+in.Amount
		return true, b
	case Show:
		return output == (unknown{}) || output == any(b), b
	}
	panic(fmt.Sprintf("BUG: fire: operation %T", input))
}

func model(first Books) porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return first },
		Step:              step,
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%T%+v → %+v", in, in, out) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

// Check says whether the history can have come from one budget that began as first and did one thing after another. On
// a failure the picture of it is kept in dir.
func (h *History) Check(first Books, dir string, limit time.Duration) error {
	h.mu.Lock()
	ops := slices.Clone(h.ops)
	h.mu.Unlock()
	result, info := porcupine.CheckOperationsVerbose(model(first), ops, limit)
	if result == porcupine.Ok {
		return nil
	}
	picture := filepath.Join(dir, fmt.Sprintf("history-%d.html", time.Now().UnixNano()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := porcupine.VisualizePath(model(first), info, picture); err != nil {
		return fmt.Errorf("%d operations: %s; no picture: %w", len(ops), result, err)
	}
	if result == porcupine.Unknown {
		return fmt.Errorf("%d operations could not be checked in %s; see %s", len(ops), limit, picture)
	}
	return fmt.Errorf("%d operations have no order that one budget could have; see %s", len(ops), picture)
}
