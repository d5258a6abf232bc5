// Package link keeps the one stream to quotad's leader: it finds the leader, says hello, and hands every message to
// the room it is for. It holds no state of its own that matters: whatever was in flight is sent again by its owner.
package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"crypto/tls"
)

const (
	// A request waits 2.5 s for quotad, and an election takes most of that: the new leader must be found at once, so the
	// pauses stay short. Later they grow with the time that was searched in vain: thousands of sidecars that come
	// five times a second would keep a cluster down that is short of CPU.
	backoffMin   = 20 * time.Millisecond
	backoffMax   = 200 * time.Millisecond
	backoffLater = 2 * time.Second
	backoffPart  = 20 // of the time searched
	// helloWait bounds the wait for Welcome. A node that knows no leader holds a hello for a while; one that is silent
	// longer than that is asked again.
	helloWait = 4 * time.Second
	// replyWait bounds the wait for the answer to a Renew, or for a word that it is under way: a stopped or cut-off leader
	// shows by its silence.
	replyWait = 1500 * time.Millisecond
	// busyWait bounds the wait for the answer, whatever is said meanwhile.
	busyWait  = 10 * time.Second
	checkWait = 250 * time.Millisecond
	// queueMax bounds the messages waiting to be sent; beyond it Send refuses and the owners try again.
	queueMax = 256
	// messageMax bounds a received message: a snapshot of 100,000 keys is about 20 MiB.
	messageMax = 64 << 20
	// windowBytes is how much quotad may have on its way to us. Left to itself, gRPC measures what would be best, with a
	// ping and its answer for each message.
	windowBytes = 1 << 20
)

// Handler receives what comes down the stream, one message at a time.
type Handler interface {
	// Connected is called after Welcome: the link takes messages from now on.
	Connected(w *quotav1.Welcome)
	// Disconnected is called once after each Connected.
	Disconnected()
	// Handle takes a message.
	Handle(m *quotav1.SessionResponse)
	// Hello makes the first message of a session. It may be called from several goroutines, before Connected.
	Hello() *quotav1.Hello
}

// Config names quotad's nodes.
type Config struct {
	Addresses []string // host:port of each node's sidecar plane, at least one
	// TLS returns the certificates of the moment; nil: plain text, for development on loopback only.
	TLS func() *tls.Config
	// Dial replaces the network in tests; nil is TCP.
	Dial func(ctx context.Context, address string) (grpc.DialOption, error)
}

// Link is the stream. Send and State may be called from any goroutine; Run is called once.
type Link struct {
	cfg     Config
	handler Handler
	log     *zap.Logger

	mu      sync.Mutex
	queue   chan *quotav1.SessionRequest // nil without a session
	end     context.CancelCauseFunc      // ends the session
	state   State
	waiting time.Time // when the oldest unanswered Renew was sent; zero when none is
	busy    time.Time // when quotad last said that it is under way
}

// State is what the link knows of quotad, for /status and /readyz.
type State struct {
	Connected bool      `json:"connected"`
	Address   string    `json:"address"` // of the session, or the last one tried
	Since     time.Time `json:"since"`   // when Connected last changed
	LastError string    `json:"last_error"`
}

// New makes a link; Run connects it.
func New(cfg Config, h Handler, log *zap.Logger) *Link {
	return &Link{cfg: cfg, handler: h, log: log, state: State{Since: time.Now()}}
}

// State returns what the link knows.
func (l *Link) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Send queues a message. It never blocks: false means that there is no session, or that its queue is full.
func (l *Link) Send(m *quotav1.SessionRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return false
	}
	select {
	case l.queue <- m:
	default:
		return false
	}
	if m.GetRenew() != nil && l.waiting.IsZero() {
		l.waiting = time.Now()
	}
	return true
}

// Restart ends the session, if there is one; a new one with a new Hello follows.
func (l *Link) Restart(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		l.end(errors.New(why))
	}
}

// Run keeps a session until ctx ends.
func (l *Link) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s := l.find(ctx)
		if s == nil {
			return nil
		}
		l.setError(s.address, l.serve(s))
	}
	return nil
}

func (l *Link) setError(address string, err error) {
	l.mu.Lock()
	l.state.Address = address
	if err != nil {
		l.state.LastError = err.Error()
	}
	l.mu.Unlock()
}

// session is a stream that was welcomed.
type session struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	conn    *grpc.ClientConn
	stream  grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse]
	address string
	welcome *quotav1.Welcome
}

// close ends the session and lets go of its connection.
func (s *session) close() {
	s.cancel(nil)
	_ = s.conn.Close()
}

// find asks every node at once until one welcomes us; it is nil when ctx ends first. A node that is gone or cut off
// must not cost the time of the others.
func (l *Link) find(ctx context.Context) *session {
	search, end := context.WithCancel(ctx)
	found := make(chan *session)
	var tries sync.WaitGroup
	for _, a := range l.cfg.Addresses {
		tries.Go(func() {
			if s := l.court(ctx, search, a); s != nil {
				select {
				case found <- s:
				case <-search.Done():
					s.close()
				}
			}
		})
	}
	defer tries.Wait()
	defer end()
	select {
	case s := <-found:
		return s
	case <-ctx.Done():
		return nil
	}
}

// court asks the node at an address, and the leader it names, until one welcomes us or the search ends.
func (l *Link) court(ctx, search context.Context, address string) *session {
	began, backoff := time.Now(), backoffMin
	hint := ""
	for {
		at := cmp.Or(hint, address)
		s, err := l.hello(ctx, search, at)
		if err == nil {
			return s
		}
		if search.Err() != nil {
			return nil
		}
		l.setError(at, err)
		if hint = leaderOf(err); hint == at || hint == address {
			hint = ""
		}
		if hint != "" {
			if slices.Contains(l.cfg.Addresses, hint) {
				hint = "" // it is being asked
			} else {
				continue // straight to the leader
			}
		}
		pause := backoff/2 + rand.N(backoff/2+1)
		backoff = min(2*backoff, max(backoffMax, min(time.Since(began)/backoffPart, backoffLater)))
		select {
		case <-search.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// leaderOf reads the leader's address out of a follower's refusal.
func leaderOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if n, ok := d.(*quotav1.NotLeader); ok {
			return n.GetLeaderAddress()
		}
	}
	return ""
}

// hello opens a stream and waits for its Welcome. The session lives until ctx ends; the end of the search ends only
// the wait.
func (l *Link) hello(ctx, search context.Context, address string) (_ *session, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{ctx: ctx, cancel: cancel, address: address}
	if s.conn, err = l.dial(ctx, address); err != nil {
		cancel(nil)
		return nil, err
	}
	defer func() {
		if err != nil {
			err = because(ctx, err)
			s.close()
		}
	}()
	late := time.AfterFunc(helloWait, func() { cancel(errors.New("no welcome in time")) })
	defer late.Stop()
	defer context.AfterFunc(search, func() { cancel(search.Err()) })()

	if s.stream, err = quotav1.NewQuotaServiceClient(s.conn).Session(ctx); err != nil {
		return nil, err
	}
	first := &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{Hello: l.handler.Hello()}}
	if err := s.stream.Send(first); err != nil {
		// The stream's own end says why better than the failed write.
		_, rerr := s.stream.Recv()
		return nil, errors.Join(rerr, err)
	}
	m, err := s.stream.Recv()
	if err != nil {
		return nil, err
	}
	if s.welcome = m.GetWelcome(); s.welcome == nil {
		return nil, fmt.Errorf("%s: first message is not a welcome", address)
	}
	return s, nil
}

func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (l *Link) dial(ctx context.Context, address string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if l.cfg.TLS != nil {
		creds = credentials.NewTLS(l.cfg.TLS())
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
		grpc.WithStaticStreamWindowSize(windowBytes), grpc.WithStaticConnWindowSize(windowBytes),
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
	}
	if l.cfg.Dial != nil {
		o, err := l.cfg.Dial(ctx, address)
		if err != nil {
			return nil, err
		}
		opts = append(opts, o)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial quotad at %s: %w", address, err)
	}
	return conn, nil
}

// serve pumps a session until its stream ends; the sending goroutine is joined.
func (l *Link) serve(s *session) error {
	defer s.close()
	queue := make(chan *quotav1.SessionRequest, queueMax)
	l.mu.Lock()
	l.queue, l.end, l.waiting = queue, s.cancel, time.Time{}
	l.state = State{Connected: true, Address: s.address, Since: time.Now()}
	l.mu.Unlock()
	l.log.Info("connected to quotad", zap.String("address", s.address), zap.String("node", s.welcome.GetNodeId()))

	var sender sync.WaitGroup
	sender.Go(func() { s.cancel(l.pump(s, queue)) })
	l.handler.Connected(s.welcome)
	err := l.receive(s)
	l.mu.Lock()
	l.queue = nil
	l.state.Connected, l.state.Since = false, time.Now()
	l.mu.Unlock()
	l.handler.Disconnected()
	cause := because(s.ctx, err)
	s.cancel(nil)
	sender.Wait()
	l.log.Warn("lost quotad", zap.String("address", s.address), zap.Error(cause))
	return cause
}

func (l *Link) receive(s *session) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetRenewReply() != nil:
			l.mu.Lock()
			l.waiting = time.Time{}
			l.mu.Unlock()
		case m.GetBusy() != nil:
			l.mu.Lock()
			l.busy = time.Now()
			l.mu.Unlock()
			continue
		}
		l.handler.Handle(m)
	}
}

// pump sends what is queued, and ends the session when a Renew stays unanswered.
func (l *Link) pump(s *session, queue <-chan *quotav1.SessionRequest) error {
	check := time.NewTicker(checkWait)
	defer check.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case m := <-queue:
			if err := s.stream.Send(m); err != nil {
				return status.Error(codes.Unavailable, "stream to quotad broke")
			}
		case now := <-check.C:
			l.mu.Lock()
			late := !l.waiting.IsZero() && (now.Sub(l.waiting) > replyWait && now.Sub(l.busy) > replyWait || now.Sub(l.waiting) > busyWait)
			l.mu.Unlock()
			if late {
				return errors.New("quotad does not answer")
			}
		}
	}
}
