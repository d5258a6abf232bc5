package replica

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/sluice-gateway/sluice/quotad/internal/fault"
)

var (
	// errStalled is what followers' appends fail with while the own disk hangs.
	errStalled = errors.New("replica: a write to the log is stuck")
	// errUnwritable is what this node's own requests for votes fail with while its log cannot be written.
	errUnwritable = errors.New("replica: the last write to the log failed")
)

// stallWatch sees how long the current write to the log has taken, whether the last one failed, and how far the log is.
// Raft writes its log from one goroutine at a time.
type stallWatch struct {
	start  time.Time    // anchor of the monotonic clock
	since  atomic.Int64 // nanoseconds after start plus one, when a write began; 0 while there is none
	failed atomic.Int64 // the same, when a write failed; 0 once one has succeeded
	// entries and bytes were written since the log was last cut.
	entries, bytes atomic.Int64
	last           atomic.Uint64 // index of the newest entry this process wrote; 0 before the first
	blank          atomic.Bool   // the node has no state at all
}

func newStallWatch() *stallWatch { return &stallWatch{start: time.Now()} }

func (w *stallWatch) during(write func() error) error {
	w.since.Store(int64(time.Since(w.start)) + 1)
	defer w.since.Store(0)
	err := write()
	if err == nil {
		w.failed.Store(0)
	} else {
		w.failed.Store(int64(time.Since(w.start)) + 1)
	}
	return err
}

// unwritable reports whether the last write failed a short while ago. After that the disk deserves another try.
func (w *stallWatch) unwritable() bool {
	failed := w.failed.Load()
	return failed != 0 && time.Since(w.start)-time.Duration(failed) < standAsideFor
}

// stalled reports whether a write has been stuck for longer than stallAfter.
func (w *stallWatch) stalled() bool {
	since := w.since.Load()
	return since != 0 && time.Since(w.start)-time.Duration(since) > stallAfter
}

// watchedLog is a raft log whose writes are watched.
type watchedLog struct {
	raft.LogStore
	watch *stallWatch
}

func (l watchedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l watchedLog) StoreLogs(es []*raft.Log) error {
	err := l.watch.during(func() error {
		fault.Pass("log")
		defer fault.Pass("logged")
		return l.LogStore.StoreLogs(es)
	})
	if err == nil && len(es) > 0 {
		l.watch.blank.Store(false)
		bytes := 0
		for _, e := range es {
			bytes += len(e.Data) + entryOverhead
		}
		l.watch.entries.Add(int64(len(es)))
		l.watch.bytes.Add(int64(bytes))
		l.watch.last.Store(es[len(es)-1].Index)
	}
	return err
}

func (l watchedLog) DeleteRange(lo, hi uint64) error {
	return l.watch.during(func() error { return l.LogStore.DeleteRange(lo, hi) })
}

// gate is a transport that stops speaking as a leader while the own disk hangs, so that followers elect another, and
// does not stand for election while its log cannot be written. Both appends must fail: the pipelined ones keep followers
// quiet as well as the plain ones, which carry the heartbeats. It also sees how far the followers are, and gives no votes
// for a node without any state: such a node may have lost its disk, and with it what it acknowledged and how it voted.
type gate struct {
	raft.Transport
	watch *stallWatch
	id    string
	calls chan raft.RPC // from peers, but for votes that are not given
	done  chan struct{}
	close func() // closes done, once

	mu    sync.Mutex
	peers map[raft.ServerID]peerSeen
}

// peerSeen is what a follower said last, in answer to a heartbeat.
type peerSeen struct {
	at  time.Time
	lag uint64 // entries it was behind then
}

func newGate(t raft.Transport, w *stallWatch, id string) *gate {
	g := &gate{
		Transport: t, watch: w, id: id, calls: make(chan raft.RPC), done: make(chan struct{}), peers: map[raft.ServerID]peerSeen{},
	}
	g.close = sync.OnceFunc(func() { close(g.done) })
	go g.pass() // ends with Close
	return g
}

// Consumer returns the calls of peers.
func (g *gate) Consumer() <-chan raft.RPC { return g.calls }

// pass hands calls on.
func (g *gate) pass() {
	for {
		select {
		case <-g.done:
			return
		case call := <-g.Transport.Consumer():
			if g.watch.blank.Load() && g.denies(call) {
				continue
			}
			select {
			case g.calls <- call:
			case <-g.done:
				return
			}
		}
	}
}

// denies answers a request for a vote with no.
func (g *gate) denies(call raft.RPC) bool {
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(g.id), Addr: []byte(g.id)}
	switch c := call.Command.(type) {
	case *raft.RequestVoteRequest:
		call.Respond(&raft.RequestVoteResponse{RPCHeader: header, Term: c.Term}, nil)
	case *raft.RequestPreVoteRequest:
		call.Respond(&raft.RequestPreVoteResponse{RPCHeader: header, Term: c.Term}, nil)
	default:
		return false
	}
	return true
}

func (g *gate) note(id raft.ServerID, resp *raft.AppendEntriesResponse) {
	last := g.watch.last.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peers[id] = peerSeen{at: time.Now(), lag: last - min(last, resp.LastLog)}
}

func (g *gate) seen(id string) peerSeen {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peers[raft.ServerID(id)]
}

// AppendEntries sends entries or a heartbeat.
func (g *gate) AppendEntries(id raft.ServerID, addr raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if g.watch.stalled() {
		return errStalled
	}
	if err := g.Transport.AppendEntries(id, addr, args, resp); err != nil {
		return err
	}
	g.note(id, resp)
	return nil
}

// AppendEntriesPipeline opens a pipeline that is gated the same way.
func (g *gate) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := g.Transport.AppendEntriesPipeline(id, addr)
	if err != nil {
		return nil, err
	}
	return gatedPipeline{AppendPipeline: p, gate: g, id: id}, nil
}

type gatedPipeline struct {
	raft.AppendPipeline
	gate *gate
	id   raft.ServerID
}

func (p gatedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.gate.watch.stalled() {
		return nil, errStalled
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// RequestVote asks a peer for its vote, unless this node could not lead: a leader whose disk is full steps down at its
// first write, but its votes are still written, and it would be elected again and again.
func (g *gate) RequestVote(id raft.ServerID, addr raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if g.watch.unwritable() {
		return errUnwritable
	}
	return g.Transport.RequestVote(id, addr, args, resp)
}

// RequestPreVote asks whether a peer would vote: without this method raft would think the transport cannot do it.
func (g *gate) RequestPreVote(id raft.ServerID, addr raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if g.watch.unwritable() {
		return errUnwritable
	}
	p, ok := g.Transport.(raft.WithPreVote)
	if !ok {
		return errors.New("replica: transport without pre-vote")
	}
	return p.RequestPreVote(id, addr, args, resp)
}

// Close closes the transport; raft calls it when it shuts down.
func (g *gate) Close() error {
	g.close()
	if c, ok := g.Transport.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
