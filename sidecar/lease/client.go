package lease

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// Client is the lease state of this process, driven in real time. All methods may be called from any goroutine.
//
// mu guards the machine and everything below it. Nothing blocks under mu: messages are sent after it is released.
type Client struct {
	cfg    Config
	log    *zap.Logger
	lost   []LostHold
	closer func() error
	poke   chan struct{} // wakes Run; holds one

	mu         sync.Mutex
	m          *Machine
	sender     Sender // nil: no session
	noJournal  string // why there is no journal
	broken     bool   // the journal's failure has been logged
	leaveWaits []leaveWait
	finalAt    int64 // when finals are sent again
	closed     bool
}

// leaveWait is a Leave that waits for the reply to a renew.
type leaveWait struct {
	seq  uint64
	done chan struct{}
}

// New takes over the directory: it locks it, reads what a dead predecessor left and begins a new incarnation. When no
// journal can be made the client goes on without one, and Stats says why. ErrLocked: another process lives there.
func New(cfg Config, log *zap.Logger) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	incarnation, err := randomID()
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, log: log, poke: make(chan struct{}, 1), closer: func() error { return nil },
		m: NewMachine(cfg, incarnation, cfg.Now()),
	}
	if cfg.Dir == "" {
		c.noJournal = "no directory configured"
		return c, nil
	}
	j, before, closer, err := openJournal(cfg.Dir, cfg.MarkDir, cfg.SegmentBytes)
	if errors.Is(err, ErrLocked) {
		return nil, err
	}
	c.closer = closer
	if err != nil {
		c.noJournal = err.Error()
		log.Warn("no lease journal: money outstanding at a crash stays in suspense",
			zap.String("identity", cfg.Identity), zap.Error(err))
	}
	c.m.journal = j
	if before != nil {
		c.takeOver(before)
	}
	if j.ok() {
		c.m.checkpoint()
	}
	return c, nil
}

// takeOver files what a predecessor left, and goes on with its shares.
func (c *Client) takeOver(p *past) {
	c.lost = p.lost()
	if p.proven {
		c.m.Inherit(c.cfg.Now(), p.shares, p.until)
	}
	finals := p.finals
	if f := p.final(); f != nil {
		finals = append(finals, f)
	}
	dropped := c.m.addFinals(finals)
	c.log.Info("took over a lease journal", zap.Uint64("predecessor", p.incarnation), zap.Bool("proven", p.proven),
		zap.Int("lost_holds", len(c.lost)), zap.Int("finals", len(c.m.finals)), zap.Int("finals_dropped", dropped))
}

func randomID() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("random id: %w", err)
	}
	return max(1, binary.LittleEndian.Uint64(b[:])), nil
}

// Incarnation is the id for Hello. It changes when quotad fences this process: the owner of the session compares it
// after HandleRenewReply, and when it changed ends the session and opens another.
func (c *Client) Incarnation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.incarnation
}

// Predecessor is what the dead process before this one had reserved and not settled. quotad is told that it was spent
// in full; a usage record is the caller's to write. It is known to this process only, and not kept for the next.
func (c *Client) Predecessor() []LostHold { return c.lost }

// Configure takes the resources of a new snapshot.
func (c *Client) Configure(resources []*quotav1.Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.m.Configure(c.cfg.Now(), resources)
	}
}

// Connected says that a session to a leader stands and s sends on it.
func (c *Client) Connected(s Sender) {
	c.mu.Lock()
	c.sender, c.finalAt = s, 0
	c.m.Connected(c.cfg.Now())
	c.mu.Unlock()
	c.wakeRun()
}

// Disconnected says that the session has ended.
func (c *Client) Disconnected() {
	c.mu.Lock()
	c.sender = nil
	c.m.Disconnected(c.cfg.Now())
	c.mu.Unlock()
}

// Wake takes quotad's hint to renew now.
func (c *Client) Wake() {
	c.mu.Lock()
	c.m.Wake()
	c.mu.Unlock()
	c.wakeRun()
}

// HandleRenewReply takes the answer to a renew. It does not keep r. A reply names no incarnation, so none that an ended
// session brought may be passed once Connected was called for the next.
func (c *Client) HandleRenewReply(r *quotav1.RenewReply) {
	next := uint64(0)
	if r.GetFenced() {
		var err error
		if next, err = randomID(); err != nil {
			c.log.Error("fenced, and no new incarnation", zap.Error(err))
			return // the renew stays unanswered: sent again, fenced again
		}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	now := c.cfg.Now()
	fenced := c.m.Apply(now, r, next)
	if fenced {
		c.sender = nil // a session speaks for one incarnation
		c.m.Disconnected(now)
	}
	keep := c.leaveWaits[:0]
	for _, w := range c.leaveWaits {
		if fenced || w.seq <= r.GetSeq() && c.m.inflight == nil {
			close(w.done)
		} else {
			keep = append(keep, w)
		}
	}
	c.leaveWaits = keep
	c.signal()
	c.mu.Unlock()
	if fenced {
		c.log.Warn("fenced by quotad: went on under a new incarnation", zap.String("identity", c.cfg.Identity))
	}
	c.wakeRun()
}

// HandleFileFinalReply takes the answer to a FileFinal.
func (c *Client) HandleFileFinalReply(r *quotav1.FileFinalReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.GetDone() && !c.closed {
		c.m.Filed(r.GetIncarnation())
	}
}

// signal tells the requests that were decided. mu is held.
func (c *Client) signal() {
	for _, w := range c.m.Finished() {
		close(w.ready)
	}
}

func (c *Client) wakeRun() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// Acquire reserves every need or none. It returns at once when the balances suffice or a refusal is certain; else it
// asks quotad and waits until done is closed, or until its request has waited for quotad for Config.AskWait in all. waited
// is how long it has before, in other Acquires; one that has no time left is decided from what is here. What quotad still
// grants goes back.
//
// It panics on more than MaxNeeds needs, a negative amount, a name above MaxNameBytes or a note above MaxNoteBytes.
// needs and note are not kept. A granted Hold must be settled exactly once.
func (c *Client) Acquire(done <-chan struct{}, waited time.Duration, outage Outage, needs []Need, note []byte) (Hold, Verdict) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return Hold{}, Verdict{Reason: Unavailable, RetryAfter: c.cfg.RenewEvery}
	}
	was := c.m.early
	h, v, ask := c.m.Reserve(c.cfg.Now(), outage, needs, note)
	early := c.m.early && !was
	if !ask {
		c.mu.Unlock()
		if early {
			c.wakeRun()
		}
		return h, v
	}
	w, v := c.m.Ask(c.cfg.Now(), outage, needs, note)
	if w == nil {
		c.mu.Unlock()
		return Hold{}, v
	}
	w.ready = make(chan struct{})
	most := c.cfg.AskWait - waited
	if most <= 0 {
		c.m.Withdraw(c.cfg.Now(), w, false)
	}
	c.mu.Unlock()
	c.wakeRun()
	if most <= 0 {
		return w.Hold, w.Verdict
	}
	return c.wait(done, most, w)
}

func (c *Client) wait(done <-chan struct{}, most time.Duration, w *Waiting) (Hold, Verdict) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	gone := false
	select {
	case <-w.ready:
		return w.Hold, w.Verdict
	case <-done:
		gone = true
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case w.done && !gone: // decided in the last moment
		return w.Hold, w.Verdict
	case c.closed:
		return Hold{}, Verdict{Reason: Unavailable, RetryAfter: c.cfg.RenewEvery}
	case w.done:
		if w.Verdict.OK { // granted while the caller left
			c.m.Settle(w.Hold, nil)
		}
		return Hold{}, Verdict{Reason: CallerGone, Waited: w.Verdict.Waited}
	}
	c.m.Withdraw(c.cfg.Now(), w, gone)
	return w.Hold, w.Verdict
}

// Settle ends h with what was truly used, by resource. Missing resources used nothing; more than was reserved is
// debt. A second Settle of the same Hold changes nothing and is counted in Stats.
func (c *Client) Settle(h Hold, used []Need) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.m.Settle(h, used)
	}
}

// Remaining is what is left of a resource to all: quotad's last word and the balance here. resetIn is the time until a
// bucket is full or a budget's period ends. ok is false while nothing is known, and for what is one for each name.
func (c *Client) Remaining(resource uint64) (left, limit int64, resetIn time.Duration, ok bool) {
	return c.RemainingOf(resource, "")
}

// RemainingOf is Remaining of the one of a name. For a claimant of a pool it is what the pool has left for it.
func (c *Client) RemainingOf(resource uint64, name string) (left, limit int64, resetIn time.Duration, ok bool) {
	c.mu.Lock()
	left, limit, full, endsMS, ok := c.m.Remaining(resource, name)
	c.mu.Unlock()
	if endsMS != 0 {
		full = max(0, time.Until(time.UnixMilli(endsMS)))
	}
	return left, limit, full, ok
}

// ProviderLeft takes the provider's word on what is left of a pool to all who use it, in the pool's unit. The next renew
// brings it to quotad. resource is the pool's id in the snapshot; for anything else it does nothing.
func (c *Client) ProviderLeft(resource uint64, left int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.ProviderLeft(c.cfg.Now(), resource, left)
}

// Run renews until ctx is cancelled. It must run exactly once.
func (c *Client) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := c.step()
		if next < math.MaxInt64 {
			timer.Reset(time.Duration(max(0, next-c.cfg.Now())))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-c.poke:
		}
	}
}

// step sends what is due and returns when something is due next.
func (c *Client) step() int64 {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return math.MaxInt64
	}
	now := c.cfg.Now()
	if j := c.m.journal; j != nil && !j.ok() && !c.broken {
		c.broken = true
		c.log.Error("lease journal lost: money outstanding at a crash stays in suspense", zap.String("why", j.why))
	}
	sender := c.sender
	var out []*quotav1.SessionRequest
	if sender != nil && now >= c.finalAt {
		for _, f := range c.m.finals {
			out = append(out, &quotav1.SessionRequest{Message: &quotav1.SessionRequest_FileFinal{FileFinal: f.msg}})
		}
		c.finalAt = now + finalEvery
	}
	if sender != nil {
		if r := c.m.Poll(now); r != nil {
			out = append(out, &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: r}})
		}
	}
	c.signal()
	next := c.m.NextPoll()
	if sender != nil && len(c.m.finals) > 0 {
		next = min(next, c.finalAt)
	}
	c.mu.Unlock()
	for _, msg := range out {
		if !sender.Send(msg) {
			c.lose(sender)
			return math.MaxInt64
		}
	}
	return next
}

// lose ends a session that takes no messages, unless another stands already.
func (c *Client) lose(s Sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sender == s {
		c.sender = nil
		c.m.Disconnected(c.cfg.Now())
	}
}

// Leave stops admission for good, returns the idle balances and the standing shares, and waits until quotad has
// applied it. Called again after the drain it reports the final totals. Run must be running. It fails when ctx ends
// first; what was not returned then lapses.
func (c *Client) Leave(ctx context.Context) error {
	w := leaveWait{done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errors.New("lease client is closed")
	}
	c.m.Leave()
	w.seq = c.m.seq + 1
	c.leaveWaits = append(c.leaveWaits, w)
	c.signal()
	c.mu.Unlock()
	c.wakeRun()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("return leases: %w", ctx.Err())
	}
}

// Close releases the directory. Run must have returned. Later calls change nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.m.journal.ok() && c.m.untouched() {
		c.m.journal.mark.forget() // there is nothing that an old state could hide
	}
	if err := c.closer(); err != nil {
		return fmt.Errorf("close lease journal: %w", err)
	}
	return nil
}

// Stats is a picture of the moment.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.m.Stats(c.cfg.Now())
	s.Connected = c.sender != nil
	if c.noJournal != "" {
		s.Journal = JournalStats{Why: c.noJournal}
	}
	return s
}
