package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// node is a quotad as far as a link sees it. Its fields are set before it is dialled, or under mu.
type node struct {
	quotav1.UnimplementedQuotaServiceServer
	name     string
	listener *bufconn.Listener
	server   *grpc.Server

	mu     sync.Mutex
	role   role
	leader string // that it names when it does not lead
	hellos int
	mute   bool // takes renews and does not answer
	busy   bool // says of renews that they are under way
	end    chan struct{}
}

type role int

const (
	leads   role = iota
	follows      // refuses, naming the leader
	hangs        // takes the stream and says nothing
	strange      // answers with something else than a welcome
)

func (n *node) Session(stream grpc.BidiStreamingServer[quotav1.SessionRequest, quotav1.SessionResponse]) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.hellos++
	role, leader, mute, busy, end := n.role, n.leader, n.mute, n.busy, n.end
	n.mu.Unlock()
	switch role {
	case hangs:
		<-stream.Context().Done()
		return nil
	case strange:
		return stream.Send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Wake{Wake: &quotav1.Wake{}}})
	case follows:
		st, err := status.New(codes.FailedPrecondition, "this node does not lead").
			WithDetails(&quotav1.NotLeader{LeaderAddress: leader})
		return errors.Join(err, st.Err())
	}
	if m.GetHello().GetIdentity() != "gw" {
		return status.Error(codes.InvalidArgument, "no hello")
	}
	if err := stream.Send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Welcome{
		Welcome: &quotav1.Welcome{NodeId: n.name},
	}}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-end:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer cancel()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			r := m.GetRenew()
			switch {
			case r == nil || mute:
			case busy:
				_ = stream.Send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Busy{Busy: &quotav1.Busy{Seq: r.GetSeq()}}})
			default:
				_ = stream.Send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_RenewReply{
					RenewReply: &quotav1.RenewReply{Seq: r.GetSeq()},
				}})
			}
		}
	}()
	<-ctx.Done()
	return nil
}

// set changes what the node is; its sessions end when it stops leading.
func (n *node) set(r role, leader string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.role, n.leader = r, leader
	close(n.end)
	n.end = make(chan struct{})
}

func (n *node) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hellos
}

// side is the sidecar's end: a link and what it told its handler.
type side struct {
	t     *testing.T
	link  *Link
	nodes map[string]*node

	mu       sync.Mutex
	log      []string
	replies  []uint64
	sessions int
}

func (s *side) Hello() *quotav1.Hello { return &quotav1.Hello{Identity: "gw"} }

func (s *side) Connected(w *quotav1.Welcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "connected to "+w.GetNodeId())
	s.sessions++
}

func (s *side) Disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "disconnected")
	s.sessions--
}

func (s *side) Handle(m *quotav1.SessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := m.GetRenewReply(); r != nil {
		s.replies = append(s.replies, r.GetSeq())
	}
}

// events returns what happened since the last call.
func (s *side) events() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.log
	s.log = nil
	return out
}

func (s *side) expect(want ...string) {
	s.t.Helper()
	got := s.events()
	if len(got) != len(want) {
		s.t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			s.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// bubble runs a test with a link to the named nodes, on a clock of its own. The roles are in the order of the names;
// a node without a role cannot be reached by the configuration, only by a hint.
func bubble(t *testing.T, roles map[string]role, configured []string, test func(s *side)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &side{t: t, nodes: map[string]*node{}}
		for name, r := range roles {
			n := &node{name: name, role: r, leader: "a", listener: bufconn.Listen(1 << 16), end: make(chan struct{})}
			n.server = grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}))
			defer n.server.Stop()
			quotav1.RegisterQuotaServiceServer(n.server, n)
			go func() { _ = n.server.Serve(n.listener) }()
			s.nodes[name] = n
		}
		s.link = New(Config{Addresses: configured, Dial: func(_ context.Context, address string) (grpc.DialOption, error) {
			return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				n := s.nodes[address]
				if n == nil {
					<-ctx.Done() // a black hole
					return nil, ctx.Err()
				}
				return n.listener.DialContext(ctx)
			}), nil
		}}, s, zap.NewNop())
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() {
			if err := s.link.Run(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		})
		defer func() {
			cancel()
			run.Wait()
			if s.sessions != 0 {
				t.Errorf("%d sessions were not ended", s.sessions)
			}
		}()
		test(s)
	})
}

func renew(seq uint64) *quotav1.SessionRequest {
	return &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: &quotav1.Renew{Seq: seq}}}
}

// A node that cannot be reached, one that hangs and one that talks nonsense do not cost the time of the leader.
func TestTheLeaderIsFoundAmongTheBroken(t *testing.T) {
	bubble(t, map[string]role{"b": hangs, "c": strange, "d": leads}, []string{"hole", "b", "c", "d"}, func(s *side) {
		s.expect("connected to d")
		if st := s.link.State(); !st.Connected || st.Address != "d" {
			s.t.Errorf("state %+v", st)
		}
		elapse(time.Minute)
		if got := s.nodes["b"].asked(); got > 1 {
			s.t.Errorf("the hung node was asked %d times: the search must end with the welcome", got)
		}
		s.expect()
	})
}

func TestAHintIsFollowed(t *testing.T) {
	bubble(t, map[string]role{"balancer": follows, "a": leads}, []string{"balancer"}, func(s *side) {
		s.expect("connected to a")
	})
}

func TestAHintOfTheDeadIsNotFollowedForEver(t *testing.T) {
	bubble(t, map[string]role{"b": follows}, []string{"b"}, func(s *side) {
		elapse(time.Second) // "a" is a black hole
		s.nodes["b"].set(leads, "")
		elapse(helloWait + backoffMax)
		s.expect("connected to b")
	})
}

func TestLeadershipMoves(t *testing.T) {
	bubble(t, map[string]role{"a": leads, "b": follows, "c": follows}, []string{"a", "b", "c"}, func(s *side) {
		s.expect("connected to a")
		s.nodes["a"].set(follows, "b")
		s.expect("disconnected")
		if s.link.Send(renew(1)) {
			s.t.Error("a message was taken without a session")
		}
		s.nodes["b"].set(leads, "")
		elapse(backoffMax)
		s.expect("connected to b")
	})
}

// A leader that is stopped, or cut off without a word, shows by its silence.
func TestASilentLeaderIsLeft(t *testing.T) {
	bubble(t, map[string]role{"a": leads, "b": follows}, []string{"a", "b"}, func(s *side) {
		s.expect("connected to a")
		elapse(time.Minute)
		s.expect() // nothing is owed: nothing is missed
		if !s.link.Send(renew(1)) {
			s.t.Fatal("not taken")
		}
		elapse(time.Minute)
		s.expect()
		s.nodes["a"].mute = true
		s.nodes["a"].set(leads, "")
		elapse(backoffMax)
		s.expect("disconnected", "connected to a")
		s.link.Send(renew(2))
		elapse(replyWait)
		s.expect()
		s.nodes["b"].set(leads, "")
		s.nodes["a"].mu.Lock()
		s.nodes["a"].role = hangs
		s.nodes["a"].mu.Unlock()
		elapse(2*checkWait + backoffMax)
		s.expect("disconnected", "connected to b")
		if s.replies[len(s.replies)-1] != 1 {
			s.t.Errorf("replies %v", s.replies)
		}
	})
}

// A leader that is slow says so to a renew that is sent again, and is not left for it, but not for ever.
func TestABusyLeaderIsWaitedFor(t *testing.T) {
	bubble(t, map[string]role{"a": leads}, []string{"a"}, func(s *side) {
		s.nodes["a"].busy = true
		s.nodes["a"].set(leads, "")
		elapse(backoffMax)
		s.events()
		for waited := time.Duration(0); waited < busyWait; waited += replyWait / 2 {
			s.expect()
			s.link.Send(renew(1)) // the same one, as the lease machine does
			elapse(replyWait / 2)
		}
		elapse(2*checkWait + backoffMax)
		s.expect("disconnected", "connected to a")
	})
}

// Sidecars that search in vain for long do not ask five times a second for ever.
func TestASearchInVainSlowsDown(t *testing.T) {
	bubble(t, map[string]role{"a": follows}, []string{"a"}, func(s *side) {
		elapse(2 * time.Second)
		if early := s.nodes["a"].asked(); early < int(2*time.Second/backoffMax) {
			t.Errorf("asked %d times in the time of a failover", early)
		}
		elapse(time.Minute)
		before := s.nodes["a"].asked()
		elapse(time.Minute)
		if late := s.nodes["a"].asked() - before; late > int(time.Minute/(backoffLater/2)) || late < int(time.Minute/backoffLater) {
			t.Errorf("asked %d times in a minute", late)
		}
	})
}

func TestRestartSaysHelloAgain(t *testing.T) {
	bubble(t, map[string]role{"a": leads}, []string{"a"}, func(s *side) {
		s.expect("connected to a")
		s.link.Restart("another incarnation")
		elapse(backoffMax)
		s.expect("disconnected", "connected to a")
		if got := s.nodes["a"].asked(); got != 2 {
			s.t.Errorf("%d hellos, want 2", got)
		}
	})
}

func TestNobodyIsThere(t *testing.T) {
	bubble(t, nil, []string{"hole", "pit"}, func(s *side) {
		elapse(time.Hour)
		s.expect()
		if st := s.link.State(); st.Connected || st.LastError == "" || st.Address == "" {
			s.t.Errorf("state %+v", st)
		}
	})
}

func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
