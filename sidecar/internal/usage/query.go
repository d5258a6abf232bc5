package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// ErrAway means that quotad cannot be asked now.
var ErrAway = errors.New("quotad cannot be reached")

// queriesMax bounds the queries under way; beyond it Query fails with ErrAway.
const queriesMax = 64

// Querier asks quotad for rollups over the session stream. It is safe for concurrent use.
type Querier struct {
	mu      sync.Mutex
	sender  Sender
	next    uint64
	waiting map[uint64]chan *quotav1.UsageResult
}

// NewQuerier makes a querier without a session.
func NewQuerier() *Querier { return &Querier{waiting: map[uint64]chan *quotav1.UsageResult{}} }

// Connected gives it a session.
func (q *Querier) Connected(s Sender) {
	q.mu.Lock()
	q.sender = s
	q.mu.Unlock()
}

// Disconnected takes the session away; queries under way fail with ErrAway.
func (q *Querier) Disconnected() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sender = nil
	for id, ch := range q.waiting {
		close(ch)
		delete(q.waiting, id)
	}
}

// Query asks and waits until ctx ends. The query's id is set here.
func (q *Querier) Query(ctx context.Context, m *quotav1.UsageQuery) ([]*quotav1.UsageRow, error) {
	ch := make(chan *quotav1.UsageResult, 1)
	q.mu.Lock()
	if q.sender == nil || len(q.waiting) >= queriesMax {
		q.mu.Unlock()
		return nil, ErrAway
	}
	q.next++
	m.Id = q.next
	q.waiting[m.Id] = ch
	sent := q.sender.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_UsageQuery{UsageQuery: m}})
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.waiting, m.GetId())
		q.mu.Unlock()
	}()
	if !sent {
		return nil, ErrAway
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrAway, ctx.Err())
	case r, ok := <-ch:
		if !ok {
			return nil, ErrAway
		}
		if r.GetError() != "" {
			return nil, errors.New(r.GetError())
		}
		return r.GetRows(), nil
	}
}

// HandleResult takes an answer.
func (q *Querier) HandleResult(r *quotav1.UsageResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ch := q.waiting[r.GetId()]; ch != nil {
		delete(q.waiting, r.GetId())
		ch <- r
	}
}
