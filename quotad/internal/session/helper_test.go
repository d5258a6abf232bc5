package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/keyring"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/replica/replicatest"
)

// patience is how long a test waits for what must happen. It is long, so that only a fault reaches it.
const patience = 60 * time.Second

func secretHash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// org has two teams that share nothing, and a sidecar for one of them.
func org() string {
	return `version: 1
prices:
  - { id: p1, valid_from: 2026-01-01, per_million_usd: { mid: { input: 2, output: 10 } } }
credentials:
  red-main: { provider: openai }
  blue-main: { provider: openai }
deployments:
  - { id: red-d, provider: openai, base_url: "https://r/v1", model: m, credential: red-main, price: mid }
  - { id: blue-d, provider: openai, base_url: "https://b/v1", model: m, credential: blue-main, price: mid }
aliases:
  red-chat: { targets: [{ deployment: red-d }] }
  blue-chat: { targets: [{ deployment: blue-d }] }
teams:
  red: { budget: { monthly: 100 }, limits: { rpm: 600 } }
  blue: { budget: { monthly: 50 }, limits: { rpm: 60 }, failed_attempts: team }
keys:
  - { id: red-app, team: red, aliases: [red-chat], secret_sha256: ` + secretHash("r") + ` }
  - { id: blue-app, team: blue, aliases: [blue-chat], secret_sha256: ` + secretHash("b") + ` }
  - { id: unused, team: red, aliases: [red-chat] }
sidecars:
  - { identity: red-gw, teams: [red] }
  - { identity: gw, teams: ["*"] }
`
}

// plane is the sidecar plane of one running node.
type plane struct {
	t      *testing.T
	node   Node
	ring   *keyring.Keyring
	server *Server
	gone   <-chan struct{} // one for each session that ended; at most 16 are not read
	strays *atomic.Int64   // lines of the log that say that a sidecar named what it may not
	dial   func(context.Context, string) (net.Conn, error)
}

// newPlane starts a node and serves its sidecar plane, both until the end of the test.
func newPlane(t *testing.T) *plane {
	t.Helper()
	node := replicatest.Single(t, zap.NewNop())
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	return serve(t, node, ring)
}

// serve serves sessions over a connection in memory, until the end of the test.
func serve(t *testing.T, node Node, ring *keyring.Keyring) *plane {
	t.Helper()
	gone, strays := make(chan struct{}, 16), new(atomic.Int64)
	core, _ := observer.New(zap.InfoLevel)
	s := New(node, ring, "a", false, zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "sidecar gone" {
			gone <- struct{}{}
		}
		if strings.Contains(e.Message, "may not see") {
			strays.Add(1)
		}
		return nil
	})))
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	quotav1.RegisterQuotaServiceServer(g, s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- s.Run(ctx) }()
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() {
		cancel()
		g.Stop()
		must(t, <-ended)
		must(t, <-ended)
	})
	return &plane{t: t, node: node, ring: ring, server: s, gone: gone, strays: strays, dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}}
}

func ctxFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *plane) propose(op *raftlogv1.Op) replica.Result {
	p.t.Helper()
	res, err := p.node.Propose(ctxFor(p.t), op)
	must(p.t, err)
	return res[0]
}

// apply makes a file the configuration, with its budgets open.
func (p *plane) apply(text string) uint64 {
	p.t.Helper()
	objects, _, err := registry.ParseOrg("org.yaml", []byte(text))
	must(p.t, err)
	period, err := replica.PeriodAt("", time.Now())
	must(p.t, err)
	c := &raftlogv1.Change{Periods: []*raftlogv1.Period{period}}
	for _, o := range objects {
		c.Objects = append(c.Objects, &raftlogv1.Object{Kind: o.Kind, Id: o.ID, SpecJson: o.Spec})
	}
	res := p.propose(&raftlogv1.Op{Op: &raftlogv1.Op_Change{Change: c}})
	if res.Change.Refusal != nil {
		p.t.Fatal(res.Change.Refusal)
	}
	return res.Change.Version
}

func (p *plane) setCredential(name, secret string) {
	p.t.Helper()
	sealed, id, err := p.ring.Seal(name, []byte(secret))
	must(p.t, err)
	p.propose(&raftlogv1.Op{Op: &raftlogv1.Op_Seal{Seal: &raftlogv1.Seal{Name: name, Sealed: sealed, KeyId: id}}})
}

// stream is a sidecar's end of a session.
type stream struct {
	t *testing.T
	grpc.BidiStreamingClient[quotav1.SessionRequest, quotav1.SessionResponse]
	stop context.CancelFunc
}

func (p *plane) open() *stream {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:quotad", grpc.WithContextDialer(p.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(ctxFor(p.t))
	s, err := quotav1.NewQuotaServiceClient(conn).Session(ctx)
	must(p.t, err)
	return &stream{t: p.t, BidiStreamingClient: s, stop: cancel}
}

// connect opens a session and reads what comes first.
func (p *plane) connect(identity string, incarnation uint64) (*stream, *quotav1.Snapshot, *quotav1.Credentials) {
	p.t.Helper()
	s := p.open()
	must(p.t, s.Send(hello(&quotav1.Hello{Identity: identity, Incarnation: incarnation, Build: "b1"})))
	w := s.next().GetWelcome()
	if w.GetNodeId() != "a" || w.GetClusterId() == "" {
		p.t.Fatalf("first: %v, want a welcome", w)
	}
	snap := s.next().GetSnapshot()
	if snap == nil || snap.GetClusterId() != w.GetClusterId() {
		p.t.Fatalf("second: %v, want a snapshot", snap)
	}
	creds := s.next().GetCredentials()
	if creds == nil {
		p.t.Fatal("third: want credentials")
	}
	return s, snap, creds
}

func hello(h *quotav1.Hello) *quotav1.SessionRequest {
	return &quotav1.SessionRequest{Message: &quotav1.SessionRequest_Hello{Hello: h}}
}

func (s *stream) next() *quotav1.SessionResponse {
	s.t.Helper()
	m, err := s.Recv()
	must(s.t, err)
	return m
}

// until reads until pick has found what it looks for, past what is pushed in between.
func until[V any](s *stream, pick func(*quotav1.SessionResponse) *V) *V {
	s.t.Helper()
	for {
		if v := pick(s.next()); v != nil {
			return v
		}
	}
}

func (s *stream) renew(r *quotav1.Renew) *quotav1.RenewReply {
	s.t.Helper()
	must(s.t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_Renew{Renew: r}}))
	return until(s, (*quotav1.SessionResponse).GetRenewReply)
}

func (s *stream) batch(b *quotav1.UsageBatch) *quotav1.UsageAck {
	s.t.Helper()
	must(s.t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_UsageBatch{UsageBatch: b}}))
	return until(s, (*quotav1.SessionResponse).GetUsageAck)
}

func (s *stream) query(q *quotav1.UsageQuery) *quotav1.UsageResult {
	s.t.Helper()
	must(s.t, s.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_UsageQuery{UsageQuery: q}}))
	return until(s, (*quotav1.SessionResponse).GetUsageResult)
}
