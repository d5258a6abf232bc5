// Package session serves the sidecars' streams: it turns their messages into proposals and pushes configuration,
// credentials and wake-ups down to them. Only the leader has sessions.
package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/keyring"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// outMax bounds the messages waiting for a slow sidecar. Beyond it the session ends; the sidecar comes back and
	// is sent the present state.
	outMax = 64
	// workMax bounds the messages of one sidecar that are under way. A sidecar has one renew, one usage batch and
	// one final in flight; the rest are queries.
	workMax = 16
	// proposeWait bounds one proposal. The sidecar sends again sooner.
	proposeWait = 5 * time.Second
	// leaderWait bounds how long a hello is held while there is no leader.
	leaderWait  = 2 * time.Second
	identityMax = 256
	// compiledMax bounds the snapshots that are kept for the next process of an identity. Beyond it they are made anew.
	compiledMax = 4096
)

// Node is the part of the replica the sessions need.
type Node interface {
	Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]replica.Result, error)
	Renew(ctx context.Context, r *ledger.Renew) (ledger.RenewReply, error)
	View(read func(*replica.Machine))
	Linearizable(ctx context.Context) error
	Leader() (id, clientAddr, adminAddr string, self bool)
	Watch(ctx context.Context) <-chan replica.Signal
}

// Server serves quota.v1.QuotaService. Run must be running while it serves.
type Server struct {
	quotav1.UnimplementedQuotaServiceServer
	node   Node
	ring   *keyring.Keyring
	nodeID string
	secure bool // identities come from certificates
	log    *zap.Logger

	foreign  atomic.Int64
	renewals sync.Pool // of *renewal
	answers  sync.Pool // of *answer
	reach    atomic.Pointer[reach]

	mu       sync.Mutex
	sessions map[*session]struct{}
	compiled compiled
}

// compiled are the snapshots of identities, as long as they are good: the processes of one identity come together.
type compiled struct {
	version uint64
	periods []ledger.Period
	of      map[string]*quotav1.Snapshot // sent to several, and never changed
}

// snapshot compiles, or returns what was compiled of the same state. The caller holds s.mu.
func (s *Server) snapshot(m *replica.Machine, identity string) *quotav1.Snapshot {
	c, periods := &s.compiled, m.Ledger.Periods()
	if c.of == nil || c.version != m.ConfigVersion() || !slices.Equal(c.periods, periods) {
		*c = compiled{version: m.ConfigVersion(), periods: periods, of: map[string]*quotav1.Snapshot{}}
	}
	snap := c.of[identity]
	if snap == nil {
		if len(c.of) >= compiledMax {
			clear(c.of)
		}
		snap = compile(m, s.reachOf(m.Registry), identity)
		c.of[identity] = snap
	}
	return snap
}

// New makes a server. With secure set a sidecar's name must be the SPIFFE id of its certificate.
func New(node Node, ring *keyring.Keyring, nodeID string, secure bool, log *zap.Logger) *Server {
	return &Server{
		node: node, ring: ring, nodeID: nodeID, secure: secure, log: log, sessions: map[*session]struct{}{},
		renewals: sync.Pool{New: func() any { return &renewal{} }},
		answers:  sync.Pool{New: func() any { return newAnswer() }},
	}
}

// session is one sidecar's stream.
type session struct {
	hello  *quotav1.Hello
	stream grpc.ServerStreamingServer[quotav1.SessionResponse]
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	out       []outgoing
	writing   bool      // a goroutine writes; one that failed is never followed by another
	acked     uint64    // configuration in force there
	lastRenew time.Time // zero before the first
	renewing  uint64    // seq of the renew that is under way; 0: none
	strayed   bool      // it named what it may not, and the log says so
}

// outgoing is a message that waits to be sent.
type outgoing struct {
	message *quotav1.SessionResponse
	sent    func() // may be nil; not called when it is dropped
}

var (
	errSlow    = errors.New("the sidecar does not read its stream")
	errRemoved = errors.New("this node does not lead any more")
)

// Session implements quotav1.QuotaServiceServer.
func (s *Server) Session(stream grpc.BidiStreamingServer[quotav1.SessionRequest, quotav1.SessionResponse]) error {
	s.awaitLeader(stream.Context())
	if err := s.leads(); err != nil {
		return err
	}
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := m.GetHello()
	if err := s.check(stream.Context(), hello); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	c := &session{
		hello: hello, stream: stream, cancel: cancel, acked: hello.GetConfigVersion(),
	}
	s.welcome(c)
	defer s.forget(c)
	// Leadership may have gone before Run could see this session, and then nobody else would end it.
	if err := s.leads(); err != nil {
		return err
	}

	received := make(chan *quotav1.SessionRequest)
	go func() { // ends with the stream, which ends when this handler returns
		defer close(received)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case received <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s.read(ctx, c, received)
}

// read handles messages until the stream or the session ends.
func (s *Server) read(ctx context.Context, c *session, received <-chan *quotav1.SessionRequest) error {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, workMax)
	for {
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if err := ending(cause); err != nil {
				return err
			}
			switch {
			case errors.Is(cause, errRemoved):
				return s.notLeader()
			case errors.Is(cause, errSlow):
				return status.Error(codes.ResourceExhausted, cause.Error())
			}
			return nil
		case m, ok := <-received:
			if !ok {
				return nil
			}
			if ack := m.GetConfigAck(); ack != nil { // in order: the last one is what is in force
				c.mu.Lock()
				c.acked = ack.GetVersion()
				c.mu.Unlock()
				continue
			}
			if r := m.GetRenew(); r != nil && !c.begin(r) {
				c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Busy{Busy: &quotav1.Busy{Seq: r.GetSeq()}}})
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				continue
			}
			work.Go(func() {
				defer func() { <-slots }()
				s.handle(ctx, c, m)
			})
		}
	}
}

// awaitLeader waits, but not long, while no node is known to lead: whoever is refused then can only ask again, and this
// node may be the next.
func (s *Server) awaitLeader(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	changes := s.node.Watch(ctx)
	for {
		id, _, _, self := s.node.Leader()
		if self || id != "" && id != s.nodeID {
			return
		}
		if _, more := <-changes; !more {
			return
		}
	}
}

func (s *Server) leads() error {
	if _, _, _, self := s.node.Leader(); !self {
		return s.notLeader()
	}
	return nil
}

func (s *Server) notLeader() error {
	id, addr, _, self := s.node.Leader()
	if self {
		return status.Error(codes.Unavailable, "the leader is changing")
	}
	st, err := status.New(codes.FailedPrecondition, "this node does not lead").
		WithDetails(&quotav1.NotLeader{LeaderId: id, LeaderAddress: addr})
	if err != nil {
		return status.Error(codes.FailedPrecondition, "this node does not lead")
	}
	return st.Err()
}

// check refuses a hello that is not to be served.
func (s *Server) check(ctx context.Context, h *quotav1.Hello) error {
	switch {
	case h == nil:
		return status.Error(codes.InvalidArgument, "the first message must be hello")
	case h.GetIdentity() == "" || len(h.GetIdentity()) > identityMax:
		return status.Errorf(codes.InvalidArgument, "hello.identity: 1 to %d bytes", identityMax)
	case h.GetIncarnation() == 0:
		return status.Error(codes.InvalidArgument, "hello.incarnation: must not be 0")
	}
	if s.secure {
		if err := certified(ctx, h.GetIdentity()); err != nil {
			return err
		}
	}
	var cluster, group string
	s.node.View(func(m *replica.Machine) { cluster, group = m.ClusterID(), m.GroupID() })
	// A cluster that took over another's state is also known by the id it had before.
	if h.GetClusterId() != "" && h.GetClusterId() != cluster && h.GetClusterId() != group {
		return status.Errorf(codes.PermissionDenied, "hello.cluster_id: the sidecar belongs to cluster %s, this is %s",
			h.GetClusterId(), cluster)
	}
	return nil
}

// certified checks that an identity is the SPIFFE id of the caller's certificate.
func certified(ctx context.Context, identity string) error {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return status.Error(codes.Unauthenticated, "no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return status.Error(codes.Unauthenticated, "no client certificate")
	}
	for _, u := range info.State.PeerCertificates[0].URIs {
		if u.String() == identity {
			return nil
		}
	}
	return status.Errorf(codes.PermissionDenied, "hello.identity: %q is not a URI name of the client certificate", identity)
}

// welcome registers a session and queues what it must know first, so that nothing pushed later can overtake it.
func (s *Server) welcome(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &quotav1.Welcome{NodeId: s.nodeID}
	s.node.View(func(m *replica.Machine) { w.ClusterId, w.Epoch = m.ClusterID(), m.Epoch() })
	c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Welcome{Welcome: w}})
	s.push(c, true, true)
	s.sessions[c] = struct{}{}
	s.log.Info("sidecar connected", zap.String("identity", c.hello.GetIdentity()),
		zap.Uint64("incarnation", c.hello.GetIncarnation()))
}

func (s *Server) forget(c *session) {
	s.mu.Lock()
	delete(s.sessions, c)
	s.mu.Unlock()
	s.log.Info("sidecar gone", zap.String("identity", c.hello.GetIdentity()),
		zap.Uint64("incarnation", c.hello.GetIncarnation()))
}

// send queues a message; a sidecar that does not read loses its session.
func (c *session) send(m *quotav1.SessionResponse) { c.sendThen(m, nil) }

// sendThen is send, and calls sent when the message is not needed any more.
func (c *session) sendThen(m *quotav1.SessionResponse, sent func()) {
	c.mu.Lock()
	full, idle := len(c.out) >= outMax, !c.writing
	if !full {
		c.out, c.writing = append(c.out, outgoing{m, sent}), true
	}
	c.mu.Unlock()
	switch {
	case full:
		c.cancel(errSlow)
	case idle:
		// Thousands of sidecars have nothing to be sent most of the time. Nobody waits for the writer: it may be stuck
		// in Send, at a sidecar that does not read, until the stream ends, and the stream ends when its handler returns.
		go c.write()
	}
}

// write sends what waits.
func (c *session) write() {
	for {
		c.mu.Lock()
		if len(c.out) == 0 {
			c.writing = false
			c.mu.Unlock()
			return
		}
		next := c.out[0]
		c.out = slices.Delete(c.out, 0, 1)
		c.mu.Unlock()
		if err := c.stream.Send(next.message); err != nil {
			c.cancel(err)
			return
		}
		if next.sent != nil {
			next.sent()
		}
	}
}

// push sends the present configuration and credentials. The caller holds s.mu, which keeps their order.
func (s *Server) push(c *session, config, secrets bool) {
	var snap *quotav1.Snapshot
	var sealed []*raftlogv1.SealedState
	identity := c.hello.GetIdentity()
	s.node.View(func(m *replica.Machine) {
		snap = s.snapshot(m, identity)
		seen := map[string]bool{}
		for _, d := range snap.GetDeployments() {
			if name := d.GetCredential(); name != "" && !seen[name] {
				seen[name] = true
				if rec, ok := m.Sealed(name); ok {
					sealed = append(sealed, rec)
				}
			}
		}
	})
	if config {
		c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Snapshot{Snapshot: snap}})
	}
	if !secrets && !config {
		return
	}
	set := &quotav1.Credentials{}
	for _, rec := range sealed {
		secret, err := s.ring.Unseal(rec.GetName(), rec.GetKeyId(), rec.GetSealed())
		if err != nil {
			s.log.Error("credential cannot be opened", zap.String("credential", rec.GetName()), zap.Error(err))
			continue
		}
		set.Items = append(set.Items, &quotav1.Credential{Name: rec.GetName(), Version: rec.GetVersion(), Secret: secret})
	}
	c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Credentials{Credentials: set}})
}

// Run pushes changes until ctx ends, then ends every session.
func (s *Server) Run(ctx context.Context) error {
	for sig := range s.node.Watch(ctx) {
		_, _, _, self := s.node.Leader()
		s.mu.Lock()
		for c := range s.sessions {
			switch {
			case !self:
				c.cancel(errRemoved)
				continue
			case sig.ConfigVersion > 0 || sig.Credentials:
				s.push(c, sig.ConfigVersion > 0, sig.Credentials)
			}
			if slices.Contains(sig.Wake, c.hello.GetIncarnation()) {
				c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_Wake{Wake: &quotav1.Wake{}}})
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sessions {
		c.cancel(errRemoved)
	}
	return nil
}

// Sidecars lists the connected sidecars, for status.
func (s *Server) Sidecars() []*adminv1.SidecarStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*adminv1.SidecarStatus, 0, len(s.sessions))
	for c := range s.sessions {
		c.mu.Lock()
		p := &adminv1.SidecarStatus{
			Identity: c.hello.GetIdentity(), Incarnation: c.hello.GetIncarnation(), State: "connected",
			ConfigVersion: c.acked, Build: c.hello.GetBuild(), LastRenewMs: -1,
		}
		if !c.lastRenew.IsZero() {
			p.LastRenewMs = time.Since(c.lastRenew).Milliseconds()
		}
		c.mu.Unlock()
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *adminv1.SidecarStatus) int {
		return cmp.Or(strings.Compare(a.GetIdentity(), b.GetIdentity()), cmp.Compare(a.GetIncarnation(), b.GetIncarnation()))
	})
	return out
}
