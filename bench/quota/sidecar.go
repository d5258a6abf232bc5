package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// sidecar is one process as quotad sees it: a connection, a stream, and a renew in flight at most. It keeps the books of
// its counters and nothing else: it spends what it was granted, so that every renew moves totals.
//
// One goroutine drives it. Sending is guarded, because the one that looks for renews without an answer sends too.
type sidecar struct {
	identity    string
	incarnation uint64

	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse]
	at     string // address of the session
	end    context.CancelFunc

	totals []total
	draws  [][]int // of each key: places in totals
	asked  int64   // id of the newest ask
	renew  *quotav1.Renew

	mu     sync.Mutex // guards sending and what follows
	sent   time.Time  // when the renew in flight was sent last; zero: none
	resent int64
}

// total is one counter and what a request draws on it.
type total struct {
	counter *quotav1.Counter
	need    int64
	granted int64
	owed    int64 // granted asks, to be spent with the next renew
}

func newSidecar(identity string) *sidecar {
	return &sidecar{identity: identity, incarnation: rand.Uint64() | 1}
}

// connect makes a session with whichever of the nodes leads.
func (s *sidecar) connect(ctx context.Context, planes []string) error {
	for try := 0; ; try++ {
		at := s.at
		if at == "" {
			at = planes[try%len(planes)]
		}
		err := s.connectTo(ctx, at)
		if err == nil {
			return nil
		}
		s.at = ""
		if st := status.Convert(err); len(st.Details()) > 0 {
			if nl, ok := st.Details()[0].(*quotav1.NotLeader); ok {
				s.at = nl.GetLeaderAddress()
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no session: %w", errors.Join(err, ctx.Err()))
		case <-time.After(time.Duration(20+rand.IntN(80)) * time.Millisecond):
		}
	}
}

func (s *sidecar) connectTo(ctx context.Context, at string) (err error) {
	s.disconnect()
	if s.conn, err = grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(windowBytes), grpc.WithStaticConnWindowSize(windowBytes), // as the sidecar's link
		grpc.WithNoProxy()); err != nil {
		return err
	}
	ctx, s.end = context.WithCancel(ctx)
	if s.stream, err = quotav1.NewQuotaServiceClient(s.conn).Session(ctx); err != nil {
		return err
	}
	hello := &quotav1.Hello{Identity: s.identity, Incarnation: s.incarnation, Build: "bench"}
	// A stream that has ended says why to the one who reads.
	_ = s.stream.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{Hello: hello}})
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if snap := m.GetSnapshot(); snap != nil {
			s.at = at
			return s.configure(snap)
		}
	}
}

func (s *sidecar) disconnect() {
	if s.end != nil {
		s.end()
	}
	if s.conn != nil {
		_ = s.conn.Close() // what it was about is over
	}
	s.conn, s.stream, s.end = nil, nil, nil
}

// configure makes the counters at the first snapshot.
func (s *sidecar) configure(snap *quotav1.Snapshot) error {
	if s.totals != nil {
		return nil
	}
	s.renew = &quotav1.Renew{Incarnation: s.incarnation}
	for _, r := range snap.GetResources() {
		t := total{counter: &quotav1.Counter{Resource: r.GetId(), Period: r.GetPeriod()}}
		switch r.GetKind() {
		case quotav1.Kind_KIND_REQUESTS:
			t.need = askRequests
		case quotav1.Kind_KIND_MONEY:
			t.need = askNano
		default:
			t.need = askTokens
		}
		t.counter.Demand = 2 * t.need
		s.totals = append(s.totals, t)
	}
	slices.SortFunc(s.totals, func(a, b total) int { return cmp.Compare(a.counter.Resource, b.counter.Resource) })
	for i := range s.totals {
		s.renew.Counters = append(s.renew.Counters, s.totals[i].counter)
	}
	for _, k := range snap.GetKeys() {
		var places []int
		for _, id := range k.GetDraws() {
			places = append(places, slices.IndexFunc(s.totals, func(t total) bool { return t.counter.Resource == id }))
		}
		s.draws = append(s.draws, places)
	}
	if len(s.draws) == 0 || slices.Contains(s.draws[0], -1) {
		return fmt.Errorf("%s has no key that draws on its resources", s.identity)
	}
	return nil
}

// next makes the next renew: what was asked for is spent, and one request more out of each balance, then it asks for so
// many.
func (s *sidecar) next(asks int, spend bool) {
	s.renew.Seq++
	for i := range s.totals {
		t := &s.totals[i]
		c := t.counter
		c.Spent += t.owed
		t.owed = 0
		if spend && t.granted-c.Spent-c.Returned >= t.need {
			c.Spent += t.need
		}
		c.Granted = t.granted
	}
	for len(s.renew.Asks) < asks { // requests with each key in turn
		a := &quotav1.Ask{}
		for _, i := range s.draws[len(s.renew.Asks)%len(s.draws)] {
			c := s.totals[i].counter
			a.Needs = append(a.Needs, &quotav1.Need{Resource: c.Resource, Period: c.Period, Amount: s.totals[i].need})
		}
		s.renew.Asks = append(s.renew.Asks, a)
	}
	s.renew.Asks = s.renew.Asks[:asks]
	for _, a := range s.renew.Asks {
		s.asked++
		a.Id = uint64(s.asked)
	}
}

// ops is how many lease operations the present renew is: one for each counter, which is settled and topped up, and one
// for each ask.
func (s *sidecar) ops() int64 { return int64(len(s.renew.Counters) + len(s.renew.Asks)) }

// send sends the present renew, again if need be.
func (s *sidecar) send() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked()
}

func (s *sidecar) sendLocked() error {
	s.sent = time.Now()
	return s.stream.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: s.renew}})
}

// resend sends a renew again that has had no answer for long.
func (s *sidecar) resend(now time.Time) {
	if !s.mu.TryLock() {
		return // it is sending, or has no session
	}
	defer s.mu.Unlock()
	if !s.sent.IsZero() && now.Sub(s.sent) > resendAfter && s.stream != nil {
		s.resent++
		_ = s.sendLocked() // the reader hears of a stream that has ended
	}
}

// await reads until the present renew is answered, and books the answer. Granted is how many asks were granted.
func (s *sidecar) await() (granted int, err error) {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return 0, err
		}
		reply := m.GetRenewReply()
		if reply == nil || reply.GetSeq() != s.renew.Seq {
			continue
		}
		s.mu.Lock()
		s.sent = time.Time{}
		s.mu.Unlock()
		if reply.GetFenced() {
			return 0, fmt.Errorf("%s was fenced: its books are wrong", s.identity)
		}
		s.renew.ShareVersion = reply.GetShareVersion()
		for _, g := range reply.GetGrants() {
			for i := range s.totals {
				if t := &s.totals[i]; t.counter.Resource == g.GetResource() && t.counter.Period == g.GetPeriod() {
					t.granted = g.GetGranted()
				}
			}
		}
		for i, a := range reply.GetAsks() { // in the order they were asked
			if !a.GetGranted() {
				continue
			}
			granted++
			for _, place := range s.draws[i%len(s.draws)] {
				s.totals[place].owed += s.totals[place].need
			}
		}
		return granted, nil
	}
}
