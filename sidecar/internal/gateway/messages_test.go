package gateway

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const greeting = `{"model":"chat", "max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`

// anthropicServer answers as Anthropic does, and keeps the last head and path.
type anthropicServer struct {
	head http.Header
	path string
}

func (c *anthropicServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.head, c.path = r.Header, r.URL.RequestURI()
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/count_tokens") {
		_, _ = io.WriteString(w, `{"input_tokens": 2095}`)
		return
	}
	_, _ = io.WriteString(w, `{"id":"m1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text", "text":"h\u00e9"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"cache_read_input_tokens":100,"output_tokens":5}}`)
}

func (r *rig) messages(body string, header ...string) answer {
	r.t.Helper()
	return r.send("POST", "/v1/messages?beta=true", body, header...)
}

func anthropicAt(c *anthropicServer) *provider {
	return &provider{id: "claude", dialect: "anthropic", model: "claude-x", answer: c.ServeHTTP}
}

// TestMessagesNative: towards Claude nothing changes but the model's name, and what was used is known all the same.
func TestMessagesNative(t *testing.T) {
	c := &anthropicServer{}
	p := anthropicAt(c)
	r := newRig(t, []*provider{p}, nil)
	body := strings.Replace(greeting, "{", `{"mcp_servers":[{"x":1e400}], `, 1)
	a := r.messages(body, "anthropic-version", "2026-10-21", "anthropic-beta", "mcp-1,other-2")
	want := `{"id":"m1","type":"message","role":"assistant","model":"chat","content":[{"type":"text", "text":"h\u00e9"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"cache_read_input_tokens":100,"output_tokens":5},"x_gateway":{"deployment":"claude","attempts":1,"cost":0.00009,"currency":"USD","price_version":"p1","estimated":false}}`
	if a.status != 200 || a.body != want || a.header.Get("request-id") == "" {
		t.Errorf("%d\ngot  %s\nwant %s", a.status, a.body, want)
	}
	if sent := strings.Replace(body, `"model":"chat"`, `"model":"claude-x"`, 1); p.lastBody() != sent {
		t.Errorf("got  %s\nwant %s", p.lastBody(), sent)
	}
	if c.path != "/v1/messages?beta=true" || c.head.Get("anthropic-version") != "2026-10-21" || c.head.Get("anthropic-beta") != "mcp-1,other-2" {
		t.Errorf("%s %v", c.path, c.head)
	}
	r.eventually("the event", func() bool { return len(r.attempts()) == 1 })
	if e := r.attempts()[0]; e.Get("cost_nano").Int() != 90_000 && e.Get("costNano").Int() != 90_000 {
		t.Errorf("%s", e.Raw)
	}
}

// TestNativeOnly: what chat cannot say goes only where the Messages API is spoken.
func TestNativeOnly(t *testing.T) {
	c := &anthropicServer{}
	var head http.Header
	other := &provider{id: "other", answer: func(w http.ResponseWriter, q *http.Request) {
		head = q.Header
		fine(w, q)
	}}
	r := newRig(t, []*provider{other, anthropicAt(c)}, nil)
	if a := r.messages(greeting, "anthropic-version", "2026-10-21", "anthropic-beta", "context-1m-2025-08-07"); a.status != 200 ||
		len(head.Values("anthropic-beta")) > 0 || len(head.Values("anthropic-version")) > 0 || a.header.Get("x-gw-deployment") != "other" || a.get("content.0.text").Str != "hello" {
		t.Errorf("by way of chat: %d %s", a.status, a.body)
	}
	special := strings.Replace(greeting, `"content":"hi"`, `"content":[{"type":"document","source":{"type":"url","url":"https://a.test/b.pdf"}}]`, 1)
	if a := r.messages(special); a.status != 200 || a.header.Get("x-gw-deployment") != "claude" || other.calls.Load() != 1 {
		t.Errorf("natively: %d %s", a.status, a.body)
	}
	alone := newRig(t, []*provider{{id: "other", dialect: "compatible", answer: fine}}, nil)
	a := alone.messages(special)
	if a.status != 400 || a.get("error.type").Str != "invalid_request_error" || a.get("error.details.error_code").Str != "unsupported_parameter" ||
		a.get("error.details.param").Str != "messages[0].content[0].source" {
		t.Errorf("nowhere: %d %s", a.status, a.body)
	}
	for _, c := range [][3]string{
		{"/v1/messages", strings.Replace(greeting, "{", `{"tools":[{"type":"bash_20250124","name":"bash"}],`, 1),
			`no deployment of this model that could be tried speaks the Messages API, which the tool "bash_20250124" needs`},
		{"/v1/responses", `{"model":"chat","input":"hi","store":false,"tools":[{"type":"web_search"}]}`,
			`no deployment of this model that could be tried speaks the Responses API, which the tool "web_search" needs`},
	} {
		head := []string{}
		if c[0] == "/v1/messages" {
			head = []string{"anthropic-version", "2023-06-01"}
		}
		if a = alone.send("POST", c[0], c[1], head...); a.status != 400 || a.get("error.message").Str != c[2] {
			t.Errorf("a tool: %d %s", a.status, a.body)
		}
	}
	if a = alone.messages(strings.Replace(greeting, `"hi"`, `7`, 1)); a.status != 400 || a.get("error.details.param").Str != "messages[0].content" {
		t.Errorf("no content: %d %s", a.status, a.body)
	}
	if a = alone.messages(strings.Replace(greeting, `"max_tokens":50,`, ``, 1)); a.status != 400 || a.get("error.details.param").Str != "max_tokens" {
		t.Errorf("no cap: %d %s", a.status, a.body)
	}
}

// TestMessagesOverloaded: Anthropic's clients know an overload by its type.
func TestMessagesOverloaded(t *testing.T) {
	p := anthropicAt(&anthropicServer{})
	p.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"x\",\"usage\":{}}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"+
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n")
	}
	r := newRig(t, []*provider{p}, nil)
	a := r.messages(strings.Replace(greeting, "{", `{"stream":true,`, 1))
	if a.status != 503 || a.get("error.type").Str != "overloaded_error" || a.get("type").Str != "error" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestCountTokens: by the provider that can, else by the gateway. It is a request, and costs nothing.
func TestCountTokens(t *testing.T) {
	body := strings.Replace(greeting, ` "max_tokens":50,`, `"unheard_of":1, `, 1)
	count := func(r *rig) answer { return r.send("POST", "/v1/messages/count_tokens", body) }
	c := &anthropicServer{}
	p := anthropicAt(c)
	r := newRig(t, []*provider{{id: "other", answer: fine}, p}, limited(2, 100_000, 50_000, 1_000_000_000))
	a := count(r)
	if a.status != 200 || !strings.HasPrefix(a.body, `{"input_tokens": 2095,"x_gateway":{"deployment":"claude","attempts":1,"cost":0,`) ||
		a.get("x_gateway.estimated").Bool() || c.path != "/v1/messages/count_tokens" {
		t.Errorf("%d %s %s", a.status, c.path, a.body)
	}
	if p.lastBody() != strings.Replace(body, `"chat"`, `"claude-x"`, 1) {
		t.Errorf("%s", p.lastBody())
	}
	p.answer = failing(503)
	a = count(r)
	if a.status != 200 || !a.get("x_gateway.estimated").Bool() || a.get("input_tokens").Int() < 1 || a.get("x_gateway.cost").Raw != "0" {
		t.Errorf("estimated: %d %s", a.status, a.body)
	}
	a = count(r)
	if a.status != 429 || a.get("error.details.error_code").Str != "key_requests_per_minute" {
		t.Errorf("the third of two: %d %s", a.status, a.body)
	}
	r.eventually("all is given back", func() bool {
		left, _, _, _ := r.g.Lease.Remaining(teamMoney)
		tokens, _, _, _ := r.g.Lease.Remaining(teamTokens)
		return left == 1_000_000_000 && tokens == 100_000
	})
	for _, e := range r.attempts() {
		if strings.Contains(e.Raw, `"cost`) && (e.Get("cost_nano").Int() != 0 || e.Get("costNano").Int() != 0) {
			t.Errorf("%s", e.Raw)
		}
	}
	p.answer = failing(400)
	r2 := newRig(t, []*provider{p}, nil)
	if a = count(r2); a.status != 400 {
		t.Errorf("a bad request is no estimate: %d %s", a.status, a.body)
	}
	broke := newRig(t, []*provider{p}, limited(9, 100_000, 50_000, 0))
	if a = count(broke); a.status != 429 || a.get("error.details.error_code").Str != "budget_exhausted" {
		t.Errorf("with nothing left: %d %s", a.status, a.body)
	}
}

// TestCountOfACopiedBody: the body of a stream, sent to be counted, is answered with a count, not with a stream.
func TestCountOfACopiedBody(t *testing.T) {
	r := newRig(t, []*provider{anthropicAt(&anthropicServer{})}, nil)
	a := r.send("POST", "/v1/messages/count_tokens", strings.Replace(greeting, `"max_tokens":50,`, `"max_tokens":50,"stream":true,`, 1))
	if a.status != 200 || a.get("input_tokens").Int() != 2095 || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// TestCountTokensRentsNothing: providers count it apart.
func TestCountTokensRentsNothing(t *testing.T) {
	const pool = 300
	p := anthropicAt(&anthropicServer{})
	r := newRig(t, []*provider{p}, func(s *quotav1.Snapshot) {
		s.Resources = append(s.Resources, &quotav1.Resource{
			Id: pool, Scope: exchange.ScopeDeployment, Owner: "claude", Kind: quotav1.Kind_KIND_REQUESTS, Limit: 1, Burst: 1, Each: quotav1.Each_EACH_CLAIMANT,
		})
		s.Deployments[0].Pools = []uint64{pool}
	})
	for range 3 {
		if a := r.send("POST", "/v1/messages/count_tokens", strings.Replace(greeting, ` "max_tokens":50,`, ``, 1)); a.status != 200 || a.get("x_gateway.estimated").Bool() {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if left := r.ledger.left(pool, "standard/red"); left != 1 {
		t.Errorf("%d left", left)
	}
}

func TestPeekMessages(t *testing.T) {
	peeked := func(members string) exchange.Request {
		r := exchange.Request{Operation: exchange.Chat, Dialect: exchange.MessagesDialect, Native: []byte(`{"model":"m","max_tokens":7,` + members + `}`)}
		if bad := peek(&r); bad != nil {
			t.Fatalf("%s: %+v", members, *bad)
		}
		return r
	}
	content := func(blocks string) string { return `"messages":[{"role":"user","content":[` + blocks + `]}]` }
	r := peeked(`"stream":true,"system":[{"type":"text","text":"be brief"}],"tools":[{"name":"f"}],"thinking":{"type":"enabled","budget_tokens":2048},` +
		`"metadata":{"user_id":"u"},"output_config":{"format":{"type":"json_schema"}},` + content(`{"type":"image","source":{}}`))
	if r.Model != "m" || !r.Stream || !r.IncludeUsage || r.MaxOutput != 7 || r.Choices != 1 || r.UserSHA256 != hashUser("u") || !r.Tools ||
		!r.JSONSchema || !r.Vision || r.Thinking != 2048 || r.Messages != 1 || r.InputExtra != imageTokens || r.InputBytes < 60 {
		t.Errorf("%+v", r)
	}
	pdf := base64.StdEncoding.EncodeToString([]byte("%PDF-1.4 << /Type /Page >> << /Type /Page >>"))
	for blocks, want := range map[string]int64{
		fmt.Sprintf(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":%q}}`, pdf):    6_000,
		`{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"QUJDRA=="}}`:                   0,
		`{"type":"document","source":{"type":"url","url":"https://a.test/b.pdf"}}`:                                     estimate.UnseenTokens,
		`{"type":"document","source":{"type":"content","content":[{"type":"image"},{"type":"text","text":"x"}]}}`:      imageTokens,
		`{"type":"document","source":{"type":"text","data":"x"}}`:                                                      0,
		`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image"},{"type":"document","source":{"a":"b"}}]}`: imageTokens + estimate.UnseenTokens,
		`{"type":"tool_result","tool_use_id":"t","content":"x"}`:                                                       0,
	} {
		if r := peeked(content(blocks)); r.InputExtra != want || r.InputBytes > 200 {
			t.Errorf("%.90s: %d tokens and %d bytes, want %d", blocks, r.InputExtra, r.InputBytes, want)
		}
	}
	for name, body := range map[string]string{
		"max_tokens": `{"model":"m",` + content(``) + `}`, "messages": `{"model":"m","max_tokens":1}`, "stream": `{"model":"m","max_tokens":1,"stream":"x",` + content(``) + `}`,
		"Max_Tokens": `{"model":"m","max_tokens":1,"Max_Tokens":9,` + content(``) + `}`,
	} {
		r := exchange.Request{Operation: exchange.Chat, Dialect: exchange.MessagesDialect, Native: []byte(body)}
		if bad := peek(&r); bad == nil || bad.param != name {
			t.Errorf("%s: %+v", body, bad)
		}
	}
	zero := exchange.Request{Operation: exchange.Chat, Dialect: exchange.MessagesDialect, Native: []byte(`{"model":"m","max_tokens":0,` + content(`{}`) + `}`)}
	if bad := peek(&zero); bad != nil {
		t.Errorf("a warm-up: %+v", *bad)
	}
}
