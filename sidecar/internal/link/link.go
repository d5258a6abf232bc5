// Package link keeps the one stream to quotad's leader: it finds the leader, says hello, and hands every message to
// the room it is for. It holds no state of its own that matters: whatever was in flight is sent again by its owner.
package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// A request waits 2.5 s for quotad, and an election takes most of that: the new leader must be found at once. A
	// refused try costs little, so the pause stays short.
	backoffMin = 20 * time.Millisecond
	backoffMax = 200 * time.Millisecond
	// helloWait bounds the wait for Welcome, so that a node that accepts and never answers is left for the next.
	helloWait = 2 * time.Second
	// replyWait bounds the wait for the answer to a Renew: a stopped or cut-off leader shows by its silence.
	replyWait = 1500 * time.Millisecond
	checkWait = 250 * time.Millisecond
	// queueMax bounds the messages waiting to be sent; beyond it Send refuses and the owners try again.
	queueMax = 256
	// messageMax bounds a received message: a snapshot of 100,000 keys is about 20 MiB.
	messageMax = 64 << 20
)

// Handler receives what comes down the stream, one message at a time.
type Handler interface {
	// Connected is called after Welcome: the link takes messages from now on.
	Connected(w *quotav1.Welcome)
	// Disconnected is called once after each Connected.
	Disconnected()
	// Handle takes a message.
	Handle(m *quotav1.SessionResponse)
	// Hello makes the first message of a session.
	Hello() *quotav1.Hello
}

// Config names quotad's nodes.
type Config struct {
	Addresses []string    // host:port of each node's sidecar plane, at least one
	TLS       *tls.Config // nil: plain text, for development on loopback only
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
	next := 0
	hint := ""
	backoff := backoffMin
	for ctx.Err() == nil {
		address := hint
		if address == "" {
			address = l.cfg.Addresses[next%len(l.cfg.Addresses)]
			next++
		}
		served, err := l.session(ctx, address)
		if ctx.Err() != nil {
			return nil
		}
		hint = leaderOf(err)
		if served {
			backoff = backoffMin
		}
		l.setError(address, err)
		if hint != "" && hint != address {
			continue // straight to the leader
		}
		pause := backoff/2 + rand.N(backoff/2+1)
		if backoff *= 2; backoff > backoffMax {
			backoff = backoffMax
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
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

// leaderOf reads the leader's address out of a follower's refusal.
func leaderOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if n, ok := d.(*quotav1.NotLeader); ok {
			return n.GetLeaderAddress()
		}
	}
	return ""
}

// session runs one stream to its end; served says that it was welcomed.
func (l *Link) session(ctx context.Context, address string) (served bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := l.dial(ctx, address)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()

	hello := time.AfterFunc(helloWait, func() { cancel(errors.New("no welcome in time")) })
	defer hello.Stop()
	stream, err := quotav1.NewQuotaServiceClient(conn).Session(ctx)
	if err != nil {
		return false, because(ctx, err)
	}
	first := &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{Hello: l.handler.Hello()}}
	if err := stream.Send(first); err != nil {
		// The stream's own end says why better than the failed write.
		_, rerr := stream.Recv()
		return false, because(ctx, errors.Join(rerr, err))
	}
	m, err := stream.Recv()
	if err != nil {
		return false, because(ctx, err)
	}
	if m.GetWelcome() == nil {
		return false, fmt.Errorf("%s: first message is not a welcome", address)
	}
	hello.Stop()
	return true, because(ctx, l.serve(ctx, cancel, stream, address, m.GetWelcome()))
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
		creds = credentials.NewTLS(l.cfg.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
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

// serve pumps an accepted session. It returns when the stream ends; the sending goroutine is joined.
func (l *Link) serve(ctx context.Context, cancel context.CancelCauseFunc,
	stream grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse], address string, w *quotav1.Welcome,
) error {
	queue := make(chan *quotav1.SessionRequest, queueMax)
	l.mu.Lock()
	l.queue, l.end, l.waiting = queue, cancel, time.Time{}
	l.state = State{Connected: true, Address: address, Since: time.Now()}
	l.mu.Unlock()
	l.log.Info("connected to quotad", zap.String("address", address), zap.String("node", w.GetNodeId()))

	var sender sync.WaitGroup
	sender.Go(func() { cancel(l.pump(ctx, stream, queue)) })
	l.handler.Connected(w)
	err := l.receive(stream)
	l.mu.Lock()
	l.queue = nil
	l.state.Connected, l.state.Since = false, time.Now()
	l.mu.Unlock()
	l.handler.Disconnected()
	cause := because(ctx, err)
	cancel(nil)
	sender.Wait()
	l.log.Warn("lost quotad", zap.String("address", address), zap.Error(cause))
	return cause
}

func (l *Link) receive(stream grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetRenewReply() != nil {
			l.mu.Lock()
			l.waiting = time.Time{}
			l.mu.Unlock()
		}
		l.handler.Handle(m)
	}
}

// pump sends what is queued, and ends the session when a Renew stays unanswered.
func (l *Link) pump(ctx context.Context, stream grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse],
	queue <-chan *quotav1.SessionRequest,
) error {
	check := time.NewTicker(checkWait)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-queue:
			if err := stream.Send(m); err != nil {
				return status.Error(codes.Unavailable, "stream to quotad broke")
			}
		case now := <-check.C:
			l.mu.Lock()
			late := !l.waiting.IsZero() && now.Sub(l.waiting) > replyWait
			l.mu.Unlock()
			if late {
				return errors.New("quotad does not answer")
			}
		}
	}
}
