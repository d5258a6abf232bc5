// Package api is quotad's admin plane: it validates, proposes, and turns refusals into codes. It keeps no state.
package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/fault"
	"github.com/sluice-gateway/sluice/quotad/internal/keyring"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

const (
	// readMax bounds a request: an org.yaml of 30,000 keys is about 6 MiB.
	readMax = 32 << 20
	// conflictTries is how often a change of single objects is computed again when another one came first.
	conflictTries = 5
	callWait      = 10 * time.Second
)

// Node is the part of the replica the API needs.
type Node interface {
	Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]replica.Result, error)
	View(read func(*replica.Machine))
	Linearizable(ctx context.Context) error
	Leader() (id, clientAddr, adminAddr string, self bool)
	Status() replica.Status
	StateHash() (applied uint64, sum [sha256.Size]byte)
	AddMember(ctx context.Context, p replica.Peer) error
	RemoveMember(ctx context.Context, id string, force bool) error
	Backup(ctx context.Context, w io.Writer, build string) error
	Restore(ctx context.Context, r io.Reader, keepID bool, actor, note string) (replica.RestoreOutcome, error)
	Dir() string
}

// Sidecars lists the connected sidecars.
type Sidecars interface {
	Sidecars() []*adminv1.SidecarStatus
}

// Service implements the admin service. It is safe for concurrent use.
type Service struct {
	node     Node
	ring     *keyring.Keyring
	sidecars Sidecars
	cfg      Config
	log      *zap.Logger
}

var _ adminv1connect.AdminServiceHandler = (*Service)(nil)

// Config is what the service is told of its program.
type Config struct {
	Build string
	// Operators are the SPIFFE ids, or patterns as of path.Match, of certificates that may call. None: all but those of
	// sidecars that the configuration names.
	Operators []string
	// Certificate says what is wrong with the node's certificate, and when it ends; the zero time without one.
	Certificate func() (problem string, ends time.Time)
}

// New makes the service.
func New(node Node, ring *keyring.Keyring, sidecars Sidecars, cfg Config, log *zap.Logger) *Service {
	return &Service{node: node, ring: ring, sidecars: sidecars, cfg: cfg, log: log}
}

// Handler serves connect, gRPC, gRPC-Web and REST. The caller enables unencrypted HTTP/2 where gRPC clients are
// expected without TLS.
func (s *Service) Handler() (http.Handler, error) {
	path, h := adminv1connect.NewAdminServiceHandler(s, connect.WithReadMaxBytes(readMax), connect.WithInterceptors(bound{s}))
	strict := vanguard.WithCodec(func(r vanguard.TypeResolver) vanguard.Codec { return newStrictJSON(r) })
	// Everything is decoded by the codec above: nothing is passed on as it came.
	service := vanguard.NewService(path, h, vanguard.WithTargetCodecs(vanguard.CodecProto),
		vanguard.WithMaxMessageBufferBytes(readMax))
	t, err := vanguard.NewTranscoder([]*vanguard.Service{service}, strict)
	if err != nil {
		return nil, fmt.Errorf("transcode REST: %w", err)
	}
	return wholeAlias(withCaller(newREST(t))), nil
}

// wholeAlias keeps an alias in a path together. The transcoder looks at the decoded path, where a slash would begin
// another part and a colon a verb; what it finds in a part it decodes once more.
func wholeAlias(next http.Handler) http.Handler {
	const before = "/admin/v1/aliases/"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if alias, ok := strings.CutPrefix(r.URL.Path, before); ok {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = before+strings.ReplaceAll(url.PathEscape(alias), ":", "%3A"), ""
		}
		next.ServeHTTP(w, r)
	})
}

// strictJSON refuses what it does not know: a misspelt dry_run must not be ignored.
type strictJSON struct{ *vanguard.JSONCodec }

func newStrictJSON(r vanguard.TypeResolver) strictJSON {
	c := vanguard.NewJSONCodec(r)
	c.UnmarshalOptions.DiscardUnknown = false
	c.MarshalOptions.EmitUnpopulated = false
	return strictJSON{c}
}

// Unmarshal implements vanguard.Codec.
func (c strictJSON) Unmarshal(b []byte, m proto.Message) error {
	if err := c.JSONCodec.Unmarshal(b, m); err != nil {
		return badBody(err)
	}
	return nil
}

// badBody says what is wrong with JSON, without the name of who found out. The space after it varies on purpose.
func badBody(err error) error {
	text := strings.TrimPrefix(err.Error(), "proto:")
	return badInput("body: %s", strings.TrimLeft(text, " \u00a0"))
}

// UnmarshalField implements vanguard.RESTCodec.
func (c strictJSON) UnmarshalField(b []byte, m proto.Message, field protoreflect.FieldDescriptor) error {
	if err := c.JSONCodec.UnmarshalField(b, m, field); err != nil {
		return badBody(err)
	}
	return nil
}

// bound gives every call a deadline, turns away who may not call, and logs what failed through no fault of the caller.
// Streams have no deadline: how long they take is the caller's affair.
type bound struct{ s *Service }

// WrapUnary implements connect.Interceptor.
func (b bound) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callWait)
		defer cancel()
		if err := b.s.operator(ctx); err != nil {
			return nil, err
		}
		resp, err := next(ctx, req)
		b.note(req.Spec(), err)
		return resp, err
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (b bound) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := b.s.operator(ctx); err != nil {
			return err
		}
		err := next(ctx, conn)
		b.note(conn.Spec(), err)
		return err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (bound) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (b bound) note(spec connect.Spec, err error) {
	if err != nil && connect.CodeOf(err) == connect.CodeInternal {
		b.s.log.Error("admin call failed", zap.String("procedure", spec.Procedure), zap.Error(err))
	}
}

// read gives a view of the state that is not older than the call.
func (s *Service) read(ctx context.Context, look func(*replica.Machine)) error {
	if err := s.node.Linearizable(ctx); err != nil {
		return s.failed(err)
	}
	s.node.View(look)
	return nil
}

// propose applies one operation.
func (s *Service) propose(ctx context.Context, op *raftlogv1.Op) (replica.Result, error) {
	res, err := s.node.Propose(ctx, op)
	if err != nil {
		return replica.Result{}, s.failed(err)
	}
	return res[0], nil
}

// change proposes a change of the configuration, with the periods of the time zones it brings in.
func (s *Service) change(ctx context.Context, c registry.Change, actor, note string) (uint64, *registry.Refusal, error) {
	now := fault.Wall()
	var zones []string
	var refusal *registry.Refusal
	s.node.View(func(m *replica.Machine) {
		if next, refused := m.Registry.Preview(c); refused == nil {
			zones, refusal = slices.DeleteFunc(next.Timezones(), m.HasPeriod), unrated(next, now) // an open month turns when two nodes' clocks say so
		}
	})
	if refusal != nil {
		return 0, refusal, nil
	}
	out := &raftlogv1.Change{
		BaseVersion: c.BaseVersion, First: c.First, Actor: actorOf(ctx, actor), AtMs: now.UnixMilli(), Note: note,
	}
	for _, o := range c.Objects {
		out.Objects = append(out.Objects, &raftlogv1.Object{Kind: o.Kind, Id: o.ID, SpecJson: o.Spec})
	}
	for _, zone := range zones {
		p, err := replica.PeriodAt(zone, now)
		if err != nil {
			return 0, nil, connect.NewError(connect.CodeInternal, err)
		}
		out.Periods = append(out.Periods, p)
	}
	res, err := s.propose(ctx, &raftlogv1.Op{Op: &raftlogv1.Op_Change{Change: out}})
	if err != nil {
		return 0, nil, err
	}
	return res.Change.Version, res.Change.Refusal, nil
}

// edit changes single objects: it computes the change from the present state and tries again when another change came
// in between.
func (s *Service) edit(ctx context.Context, actor, note string,
	compute func(*registry.Registry) (registry.Change, error),
) (uint64, error) {
	for range conflictTries {
		var c registry.Change
		var cerr error
		if err := s.read(ctx, func(m *replica.Machine) {
			c, cerr = compute(m.Registry)
			c.BaseVersion, c.First = m.Registry.Version(), m.Registry.Version() == 0
		}); err != nil {
			return 0, err
		}
		if cerr != nil {
			return 0, cerr
		}
		version, refusal, err := s.change(ctx, c, actor, note)
		if err != nil {
			return 0, err
		}
		if refusal == nil {
			return version, nil
		}
		if refusal.Reason != registry.ReasonConflict {
			return 0, refused(refusal)
		}
	}
	return 0, connect.NewError(connect.CodeAborted, fmt.Errorf("the configuration kept changing meanwhile: try again"))
}
