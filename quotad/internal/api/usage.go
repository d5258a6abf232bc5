package api

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
)

// QueryUsage implements the admin service.
func (s *Service) QueryUsage(ctx context.Context, req *connect.Request[adminv1.QueryUsageRequest]) (*connect.Response[adminv1.QueryUsageResponse], error) {
	now := time.Now().UTC()
	from, err := instant("from", req.Msg.GetFrom(), time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		return nil, err
	}
	to, err := instant("to", req.Msg.GetTo(), now.Add(time.Hour))
	if err != nil {
		return nil, err
	}
	switch {
	case from.Before(to):
	case req.Msg.GetTo() == "":
		return nil, badInput("from: %s is in the future: without to, the time ends now", from.UTC().Format(time.RFC3339))
	default:
		return nil, badInput("from: %s is not before %s", from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	q := rollup.Query{Team: req.Msg.GetTeam(), FromMS: from.UnixMilli(), ToMS: to.UnixMilli()}
	if g := req.Msg.GetGroupBy(); g != "" {
		q.GroupBy = strings.Split(g, ",")
	}
	var rows []rollup.Row
	var known bool
	var qerr error
	if err := s.read(ctx, func(m *replica.Machine) {
		_, known = m.Registry.Team(q.Team)
		known = known || q.Team == "" || m.Rollup.Knows(q.Team) // of a team that is no more, usage stays
		if known {
			rows, qerr = m.Rollup.Query(q)
		}
	}); err != nil {
		return nil, err
	}
	switch {
	case !known:
		return nil, missing("no team %q", q.Team)
	case qerr != nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, qerr)
	}
	out := &adminv1.QueryUsageResponse{}
	for _, r := range rows {
		sum := &adminv1.UsageSum{
			Group: map[string]string{}, Attempts: r.Attempts, Requests: r.Requests, Errors: r.Errors, CostNano: r.CostNano,
			Estimated: r.Estimated,
			Tokens: &usagev1.Tokens{
				Input: r.Input, CacheRead: r.CacheRead, CacheWrite_5M: r.CacheWrite5m, CacheWrite_1H: r.CacheWrite1h,
				Output: r.Output, Reasoning: r.Reasoning, InputAudio: r.InputAudio, OutputAudio: r.OutputAudio,
				InputImage: r.InputImage, OutputImage: r.OutputImage, WebSearches: r.WebSearches,
			},
		}
		for _, name := range q.GroupBy {
			sum.Group[name] = r.Value(name)
		}
		out.Rows = append(out.Rows, sum)
	}
	return connect.NewResponse(out), nil
}

func instant(name, s string, otherwise time.Time) (time.Time, error) {
	if s == "" {
		return otherwise, nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, badInput("%s: %q is neither yyyy-mm-dd nor an RFC 3339 time", name, s)
	}
	return t, nil
}
