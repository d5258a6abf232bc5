package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

const (
	historyDefault = 50
	historyMax     = 1000
)

// kinds are the kinds of objects there are.
var kinds = [...]string{
	registry.KindTeam, registry.KindKey, registry.KindAlias, registry.KindDeployment, registry.KindPrice,
	registry.KindCredential, registry.KindOrg, registry.KindBusinessUnit, registry.KindFX, registry.KindSidecar,
	registry.KindCurrency,
}

func differencesTo(ds []registry.Difference) []*adminv1.Difference {
	out := make([]*adminv1.Difference, len(ds))
	for i, d := range ds {
		out[i] = &adminv1.Difference{Action: d.Action, Kind: d.Kind, Id: d.ID, Lines: d.Lines}
	}
	return out
}

// Apply implements the admin service.
func (s *Service) Apply(ctx context.Context, req *connect.Request[adminv1.ApplyRequest]) (*connect.Response[adminv1.ApplyResponse], error) {
	m := req.Msg
	file := m.GetFile()
	if file == "" {
		file = "org.yaml"
	}
	objects, places, err := registry.ParseOrg(file, []byte(m.GetYaml()))
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	var c registry.Change
	var ds []registry.Difference
	var derr error
	var version uint64
	var refusal *registry.Refusal
	now := time.Now()
	if err := s.read(ctx, func(mc *replica.Machine) {
		if c, ds, derr = mc.Registry.Diff(objects, m.GetPrune(), now.UnixMilli()); derr != nil {
			return
		}
		var next *registry.Registry
		if next, refusal = mc.Registry.Preview(c); refusal == nil {
			refusal = unrated(next, now)
		}
		version = mc.Registry.Version()
	}); err != nil {
		return nil, err
	}
	switch {
	case errors.As(derr, &refusal), refusal != nil:
		return nil, refusedIn(places, refusal)
	case derr != nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, derr)
	}
	if m.GetForce() {
		c.BaseVersion, c.First = 0, false
	}
	if !m.GetDryRun() && len(c.Objects) > 0 {
		if version, refusal, err = s.change(ctx, c, m.GetActor(), "apply "+file); err != nil {
			return nil, err
		}
		if refusal != nil {
			return nil, refusedIn(places, refusal)
		}
	}
	return connect.NewResponse(&adminv1.ApplyResponse{Differences: differencesTo(ds), Version: version}), nil
}

// unrated refuses amounts that cannot be converted today. The registry knows no date: it has seen that there is a rate.
func unrated(next *registry.Registry, now time.Time) *registry.Refusal {
	year, month, _ := now.UTC().Date()
	problems := next.Unrated(uint32(year*100 + int(month)))
	if len(problems) == 0 {
		return nil
	}
	return &registry.Refusal{Reason: registry.ReasonBroken, Problems: problems}
}

// Get implements the admin service.
func (s *Service) Get(ctx context.Context, req *connect.Request[adminv1.GetRequest]) (*connect.Response[adminv1.GetResponse], error) {
	if k := req.Msg.GetKind(); k != "" && !slices.Contains(kinds[:], k) {
		return nil, badInput("kind: %q is none of %s", k, strings.Join(kinds[:], ", "))
	}
	out := &adminv1.GetResponse{}
	err := s.read(ctx, func(m *replica.Machine) {
		out.Version = m.Registry.Version()
		for _, o := range m.Registry.Objects(req.Msg.GetKind(), req.Msg.GetId()) {
			out.Objects = append(out.Objects, &adminv1.ConfigObject{Kind: o.Kind, Id: o.ID, SpecJson: string(o.Spec), Version: o.Version})
		}
		if req.Msg.GetKind() == "" {
			out.Yaml = m.Registry.YAML()
		}
	})
	if err != nil {
		return nil, err
	}
	if len(out.GetObjects()) == 0 && req.Msg.GetId() != "" {
		return nil, missing("no %s %q", req.Msg.GetKind(), req.Msg.GetId())
	}
	return connect.NewResponse(out), nil
}

// History implements the admin service.
func (s *Service) History(ctx context.Context, req *connect.Request[adminv1.HistoryRequest]) (*connect.Response[adminv1.HistoryResponse], error) {
	limit := int(req.Msg.GetLimit())
	if limit == 0 {
		limit = historyDefault
	}
	if limit < 0 || limit > historyMax {
		return nil, badInput("limit: must be 1 to %d", historyMax)
	}
	out := &adminv1.HistoryResponse{}
	err := s.read(ctx, func(m *replica.Machine) {
		for _, h := range m.Registry.History(limit) {
			out.Entries = append(out.Entries, &adminv1.HistoryEntry{
				Version: h.Version, Actor: h.Actor, AtMs: h.AtMS, Note: h.Note, Differences: differencesTo(h.Differences()),
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// Rollback implements the admin service.
func (s *Service) Rollback(ctx context.Context, req *connect.Request[adminv1.RollbackRequest]) (*connect.Response[adminv1.RollbackResponse], error) {
	var c registry.Change
	var ds []registry.Difference
	var rerr error
	now := time.Now().UnixMilli()
	if err := s.read(ctx, func(m *replica.Machine) { c, ds, rerr = m.Registry.Rollback(req.Msg.GetVersion(), now) }); err != nil {
		return nil, err
	}
	if errors.Is(rerr, registry.ErrUnknownVersion) {
		return nil, missing("version %d is not in the history", req.Msg.GetVersion())
	}
	if rerr != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, rerr)
	}
	out := &adminv1.RollbackResponse{Differences: differencesTo(ds), Version: c.BaseVersion}
	if !req.Msg.GetDryRun() && len(c.Objects) > 0 {
		version, refusal, err := s.change(ctx, c, req.Msg.GetActor(), fmt.Sprintf("roll back to %d", req.Msg.GetVersion()))
		if err != nil {
			return nil, err
		}
		if refusal != nil {
			return nil, refused(refusal)
		}
		out.Version = version
	}
	return connect.NewResponse(out), nil
}

// floatDigits is how many significant digits of a decimal a float64 always keeps.
const floatDigits = 15

// specOf turns a REST body into the JSON the parser reads. The body's numbers were floats on the way: one with more
// digits than a float keeps may not be what the caller wrote, and is refused, as money must be exact.
func specOf(spec *structpb.Struct) ([]byte, error) {
	if spec == nil {
		return nil, badInput("spec: required")
	}
	if n, ok := inexact(structpb.NewStructValue(spec)); ok {
		return nil, badInput("spec: %s: more than %d digits may not arrive as they were sent: use apply", n, floatDigits)
	}
	b, err := protojson.Marshal(spec)
	if err != nil {
		return nil, badInput("spec: %v", err)
	}
	return b, nil
}

// inexact finds a number with too many digits.
func inexact(v *structpb.Value) (string, bool) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		digits, _, _ := strings.Cut(strconv.FormatFloat(k.NumberValue, 'e', -1, 64), "e")
		if len(strings.NewReplacer("-", "", ".", "").Replace(digits)) > floatDigits {
			return strconv.FormatFloat(k.NumberValue, 'f', -1, 64), true
		}
	case *structpb.Value_StructValue:
		for _, f := range k.StructValue.GetFields() {
			if n, ok := inexact(f); ok {
				return n, true
			}
		}
	case *structpb.Value_ListValue:
		for _, e := range k.ListValue.GetValues() {
			if n, ok := inexact(e); ok {
				return n, true
			}
		}
	}
	return "", false
}

// put sets one object.
func (s *Service) put(ctx context.Context, actor, kind, id string, spec *structpb.Struct) (uint64, error) {
	b, err := specOf(spec)
	if err != nil {
		return 0, err
	}
	return s.putText(ctx, actor, kind, id, b)
}

// putText sets one object whose spec is JSON text.
func (s *Service) putText(ctx context.Context, actor, kind, id string, spec []byte) (uint64, error) {
	o, err := registry.ParseObject(kind, id, spec)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return s.edit(ctx, actor, "put "+kind+" "+id, func(*registry.Registry) (registry.Change, error) {
		return registry.Change{Objects: []registry.Object{o}}, nil
	})
}

// PutAlias implements the admin service.
func (s *Service) PutAlias(ctx context.Context, req *connect.Request[adminv1.PutAliasRequest]) (*connect.Response[adminv1.PutAliasResponse], error) {
	v, err := s.put(ctx, req.Msg.GetActor(), registry.KindAlias, req.Msg.GetAlias(), req.Msg.GetSpec())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&adminv1.PutAliasResponse{Version: v}), nil
}

// PutPrice implements the admin service.
func (s *Service) PutPrice(ctx context.Context, req *connect.Request[adminv1.PutPriceRequest]) (*connect.Response[adminv1.PutPriceResponse], error) {
	var v uint64
	var err error
	switch m := req.Msg; {
	case m.GetSpecJson() == "":
		v, err = s.put(ctx, m.GetActor(), registry.KindPrice, m.GetVersion(), m.GetSpec())
	case m.GetSpec() != nil:
		err = badInput("spec_json: give it or spec, not both")
	default:
		v, err = s.putText(ctx, m.GetActor(), registry.KindPrice, m.GetVersion(), []byte(m.GetSpecJson()))
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&adminv1.PutPriceResponse{Version: v}), nil
}

// PutBudget implements the admin service.
func (s *Service) PutBudget(ctx context.Context, req *connect.Request[adminv1.PutBudgetRequest]) (*connect.Response[adminv1.PutBudgetResponse], error) {
	b, err := specOf(req.Msg.GetSpec())
	if err != nil {
		return nil, err
	}
	team := req.Msg.GetTeam()
	v, err := s.edit(ctx, req.Msg.GetActor(), "put budget "+team, func(r *registry.Registry) (registry.Change, error) {
		if _, ok := r.Team(team); !ok {
			return registry.Change{}, missing("no team %q", team)
		}
		o, err := r.WithBudget(team, b)
		if err != nil {
			return registry.Change{}, connect.NewError(connect.CodeInvalidArgument, err)
		}
		return registry.Change{Objects: []registry.Object{o}}, nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&adminv1.PutBudgetResponse{Version: v}), nil
}
