package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/usage"
	"github.com/tidwall/gjson"
	"github.com/valyala/fasthttp"
)

// usageWait bounds the wait for quotad's answer to GET /v1/usage.
const usageWait = 3 * time.Second

func appendString(b []byte, s string) []byte { return gjson.AppendJSONString(b, s) }

// lookup runs a route that reaches no provider: it needs a key and nothing else.
func (g *Gateway) lookup(c *fasthttp.RequestCtx, answer func(*flow) *refusal) {
	f := &flow{c: c, speaks: dialectOf(&c.Request.Header), began: time.Now(), rules: g.Policy.Rules()}
	f.req.ID = requestID(c)
	defer g.access(f)
	no := g.authenticate(f)
	if no == nil {
		g.commonHeaders(f)
		no = answer(f)
	}
	if no != nil {
		g.refuse(f, no)
	}
}

// model is an alias as OpenAI tells of a model.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// claudeModel is an alias as Anthropic tells of a model. CreatedAt is that of a model whose day is not known.
type claudeModel struct {
	Type        string    `json:"type"`
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
}

func modelOf(a *exchange.Alias, d dialect) any {
	if d == anthropicDialect {
		return claudeModel{"model", a.Name, a.Name, time.Unix(0, 0).UTC()}
	}
	return model{ID: a.Name, Object: "model", OwnedBy: "sluice"}
}

// models lists the aliases the key may use, all on one page.
func (g *Gateway) models(f *flow) *refusal {
	aliases := f.rules.AliasesOf(f.who)
	data := make([]any, len(aliases))
	for i, a := range aliases {
		data[i] = modelOf(a, f.speaks)
	}
	if f.speaks != anthropicDialect {
		return writeJSON(f, map[string]any{"object": "list", "data": data})
	}
	page := map[string]any{"data": data, "has_more": false, "first_id": nil, "last_id": nil}
	if n := len(aliases); n > 0 {
		page["first_id"], page["last_id"] = aliases[0].Name, aliases[n-1].Name
	}
	return writeJSON(f, page)
}

// model shows one alias. Names may hold slashes and colons, which clients escape.
func (g *Gateway) model(f *flow, escaped string) *refusal {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return badRequest("model", "the model name in the path is not well escaped")
	}
	a := f.rules.Alias(name)
	if a == nil || (f.who.Aliases != nil && !f.who.Aliases[name]) {
		return unknownAlias(name)
	}
	return writeJSON(f, modelOf(a, f.speaks))
}

func writeJSON(f *flow, v any) *refusal {
	b, err := json.Marshal(v)
	if err != nil {
		return internalFault()
	}
	f.c.SetContentType("application/json")
	f.c.SetBody(b)
	return nil
}

// usageRow is a row of GET /v1/usage.
type usageRow struct {
	Group     map[string]string `json:"group"`
	Requests  int64             `json:"requests"`
	Attempts  int64             `json:"attempts"`
	Errors    int64             `json:"errors"`
	Estimated int64             `json:"estimated"`
	Tokens    usageTokens       `json:"tokens"`
	Cost      json.RawMessage   `json:"cost"` // dollars, every digit
	CostNano  int64             `json:"cost_nano"`
}

type usageTokens struct {
	Input        int64 `json:"input"`
	CacheRead    int64 `json:"cache_read"`
	CacheWrite5m int64 `json:"cache_write_5m"`
	CacheWrite1h int64 `json:"cache_write_1h"`
	Output       int64 `json:"output"`
	Reasoning    int64 `json:"reasoning"`
	InputAudio   int64 `json:"input_audio"`
	OutputAudio  int64 `json:"output_audio"`
	InputImage   int64 `json:"input_image"`
	OutputImage  int64 `json:"output_image"`
	WebSearches  int64 `json:"web_searches"`
}

var usageGroups = []string{"alias", "feature", "key", "deployment", "day", "hour", "price_version"}

// usage answers GET /v1/usage with the rollups of the key's own team, from quotad.
func (g *Gateway) usage(f *flow) *refusal {
	q := &quotav1.UsageQuery{Team: f.who.Team}
	args := f.c.QueryArgs()
	month := time.Date(f.began.UTC().Year(), f.began.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	from, ok1 := instant(string(args.Peek("from")), month)
	to, ok2 := instant(string(args.Peek("to")), f.began.Add(time.Hour))
	switch {
	case !ok1:
		return badRequest("from", "from must be yyyy-mm-dd or an RFC 3339 time")
	case !ok2:
		return badRequest("to", "to must be yyyy-mm-dd or an RFC 3339 time")
	case !from.Before(to):
		return badRequest("to", "to must be after from")
	}
	q.FromMs, q.ToMs = from.UnixMilli(), to.UnixMilli()
	if s := string(args.Peek("group_by")); s != "" {
		q.GroupBy = strings.Split(s, ",")
	}
	for _, name := range q.GetGroupBy() {
		if !slices.Contains(usageGroups, name) {
			return badRequest("group_by", "group_by must list names of "+strings.Join(usageGroups, ", "))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), usageWait)
	defer cancel()
	rows, err := g.Rollups.Query(ctx, q)
	if errors.Is(err, usage.ErrAway) {
		return unavailable("usage is kept by quotad, which cannot be reached")
	}
	if err != nil {
		return badRequest("group_by", err.Error())
	}
	out := struct {
		Object   string     `json:"object"`
		Team     string     `json:"team"`
		From     string     `json:"from"`
		To       string     `json:"to"`
		Currency string     `json:"currency"`
		Data     []usageRow `json:"data"`
	}{"list", f.who.Team, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), "USD", []usageRow{}}
	for _, r := range rows {
		out.Data = append(out.Data, rowOf(r, q.GetGroupBy()))
	}
	return writeJSON(f, out)
}

func rowOf(r *quotav1.UsageRow, groupBy []string) usageRow {
	t := r.GetTokens()
	row := usageRow{
		Group: map[string]string{}, Requests: r.GetRequests(), Attempts: r.GetAttempts(), Errors: r.GetErrors(),
		Estimated: r.GetEstimated(), CostNano: r.GetCostNano(),
		Cost: appendUSD(nil, exchange.NanoUSD(r.GetCostNano())),
		Tokens: usageTokens{
			t.GetInput(), t.GetCacheRead(), t.GetCacheWrite_5M(), t.GetCacheWrite_1H(), t.GetOutput(), t.GetReasoning(),
			t.GetInputAudio(), t.GetOutputAudio(), t.GetInputImage(), t.GetOutputImage(),
			t.GetWebSearches(),
		},
	}
	at := time.UnixMilli(r.GetHourMs()).UTC()
	for _, name := range groupBy {
		row.Group[name] = map[string]string{
			"alias": r.GetAlias(), "feature": r.GetFeature(), "key": r.GetKey(), "deployment": r.GetDeployment(),
			"price_version": r.GetPriceVersion(), "day": at.Format(time.DateOnly), "hour": at.Format(time.RFC3339),
		}[name]
	}
	return row
}

func instant(s string, otherwise time.Time) (time.Time, bool) {
	if s == "" {
		return otherwise, true
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, true
	}
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil
}
