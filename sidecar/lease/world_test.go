package lease

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// wire is a session whose other end is the test.
type wire struct {
	mu   sync.Mutex
	sent []sentMessage
	to   func(*quotav1.SessionRequest) // called for every message, in its own goroutine
	dead bool
}

type sentMessage struct {
	at  time.Time
	msg *quotav1.SessionRequest
	raw []byte
}

func (w *wire) Send(msg *quotav1.SessionRequest) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return false
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
	if err != nil {
		panic(err)
	}
	w.sent = append(w.sent, sentMessage{time.Now(), msg, raw})
	if w.to != nil {
		go w.to(msg)
	}
	return true
}

func (w *wire) messages() []sentMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sentMessage(nil), w.sent...)
}

// world is a running client in a bubble, and a ledger behind the wire after a delay.
type world struct {
	c     *Client
	l     *fakeLedger
	mu    sync.Mutex // guards l and mute
	mute  bool       // quotad hears and does not answer
	delay time.Duration
	stop  context.CancelFunc
	ended chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := New(Config{Now: func() int64 { return time.Now().UnixNano() }}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{c: c, l: newFakeLedger(), delay: 2 * time.Millisecond, ended: make(chan error, 1)}
	w.l.fund(1, 0, 60)
	w.l.fund(moneyID, jan, 1_000_000)
	c.Configure([]*quotav1.Resource{bucketOf(1, 600, 60), budgetOf(moneyID, 1_000_000, jan, true)})
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() { w.ended <- c.Run(ctx) }()
	return w
}

func (w *world) close(t *testing.T) {
	t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	if err := w.c.Close(); err != nil {
		t.Error(err)
	}
	elapse(w.delay) // what is on the wire arrives
}

// connect opens a session to the ledger.
func (w *world) connect() *wire {
	s := &wire{to: func(msg *quotav1.SessionRequest) {
		<-time.After(w.delay) // the wire
		w.mu.Lock()
		defer w.mu.Unlock()
		if r := msg.GetRenew(); r != nil && !w.mute {
			rep, err := w.l.renew(r)
			if err != nil {
				panic(err)
			}
			if rep != nil {
				w.c.HandleRenewReply(rep)
			}
		}
	}}
	w.c.Connected(s)
	return s
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close(t)
		f(t, w)
	})
}
