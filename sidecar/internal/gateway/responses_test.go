package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/tidwall/gjson"
)

const codex = `{"model":"chat","instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},` +
	`{"type":"reasoning","summary":[],"content":null}],"store":false,"unknown":{"kept":true},"include":["reasoning.encrypted_content"]`

func (r *rig) responses(body string, header ...string) answer {
	r.t.Helper()
	return r.send("POST", "/v1/responses", body, header...)
}

// fineResponse answers in the Responses API.
func fineResponse(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path != "/v1/responses" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"resp_9","object":"response","status":"completed","model":"m","error":null,"output":[{"type":"message","id":"msg_9","role":"assistant","content":[{"type":"output_text","text":"hello"}]}],"usage":{"input_tokens":700,"input_tokens_details":{"cached_tokens":600},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":40},"total_tokens":750}}`)
}

// TestResponsesNative: OpenAI gets what the caller sent, and the ledger what OpenAI said.
func TestResponsesNative(t *testing.T) {
	p := &provider{id: "a", model: "gpt", answer: fineResponse}
	r := newRig(t, []*provider{p}, nil)
	a := r.responses(codex + `}`)
	if a.status != 200 || a.get("id").Str != "resp_9" || a.get("model").Str != "chat" || a.get("x_gateway.deployment").Str != "a" ||
		a.get("x_gateway.cost").Raw != "0.00082" { // 100 in, 600 cached, 50 out
		t.Errorf("%d %s", a.status, a.body)
	}
	want := strings.Replace(codex, `"model":"chat"`, `"model":"gpt"`, 1) + `,"max_output_tokens":100}`
	if got := p.lastBody(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if e := r.attempts(); len(e) != 1 || e[0].Get("tokens.cache_read").Int() != 600 || e[0].Get("tokens.output").Int() != 50 || !e[0].Get("billed").Bool() {
		t.Errorf("events %v", e)
	}
}

// TestResponsesByChat: a provider that knows only chat serves the same request.
func TestResponsesByChat(t *testing.T) {
	p := &provider{id: "a", dialect: "compatible", model: "llama", answer: fine}
	r := newRig(t, []*provider{p}, nil)
	body := strings.Replace(codex, `"unknown":{"kept":true},`, "", 1)
	a := r.responses(body + `}`)
	if a.status != 200 || a.get("object").Str != "response" || a.get("status").Str != "completed" || a.get("model").Str != "chat" ||
		a.get("output.0.content.0.text").Str != "hello" || a.get("usage.input_tokens").Int() != 10 || a.get("usage.output_tokens").Int() != 5 ||
		a.get("x_gateway.cost").Raw != "0.00007" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := gjson.Parse(p.lastBody()); got.Get("messages.#").Int() != 2 || got.Get("messages.0.content").Str != "be brief" || got.Get("max_tokens").Int() != 100 {
		t.Errorf("provider got %s", got.Raw)
	}
	for param, member := range map[string]string{
		"previous_response_id": `"previous_response_id":"resp_1"`, "conversation": `"conversation":"c"`, "store": `"store":true`,
		"tools[0].type": `"tools":[{"type":"web_search"}]`, "background": `"background":true`, "unknown": `"unknown":1`,
	} {
		in := strings.Replace(body, `"store":false,`, "", 1) + `,` + member + `}`
		if a := r.responses(in); a.status != 400 || a.get("error.param").Str != param || a.get("error.type").Str != "invalid_request_error" {
			t.Errorf("%s: %d %s", param, a.status, a.body)
		}
	}
	if n := p.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestResponsesOnlyNative: what chat cannot say passes those over that know only chat.
func TestResponsesOnlyNative(t *testing.T) {
	chat := &provider{id: "a", dialect: "compatible", answer: fine}
	native := &provider{id: "b", answer: fineResponse}
	r := newRig(t, []*provider{chat, native}, nil)
	for _, member := range []string{
		`"previous_response_id":"resp_1"`, `"tools":[{"type":"web_search"}]`, `"tools":[{"type":"mcp","server_label":"a"}]`,
		`"tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"lark","definition":"a"}}]`, `"prompt":{"id":"p"}`, `"truncation":"auto"`,
	} {
		a := r.responses(codex + `,` + member + `}`)
		if a.status != 200 || a.header.Get("x-gw-deployment") != "b" || chat.calls.Load() != 0 || a.header.Get("x-gw-attempts") != "1" ||
			!strings.Contains(native.lastBody(), member) {
			t.Errorf("%s: %d %v %s", member, a.status, a.header, a.body)
		}
	}
	if a := r.responses(strings.Replace(codex, `"unknown":{"kept":true},`, "", 1) + `}`); a.header.Get("x-gw-deployment") != "a" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// TestResponsesFailOver: what fails before the first token is never seen.
func TestResponsesFailOver(t *testing.T) {
	const created = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"model\":\"m\"}}\n\n"
	stream := func(events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range events {
				_, _ = io.WriteString(w, e)
			}
		}
	}
	failed := &provider{id: "a", answer: stream(created,
		"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"oh\"}}}\n\n")}
	chat := &provider{id: "b", dialect: "compatible", answer: stream(
		"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n",
		"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}\n\n", "data: [DONE]\n\n")}
	r := newRig(t, []*provider{failed, chat}, nil)
	a := r.responses(`{"model":"chat","input":"hi","stream":true}`)
	if a.status != 200 || a.header.Get("x-gw-deployment") != "b" || !strings.HasPrefix(a.body, "event: response.created\n") || strings.Contains(a.body, "DONE") ||
		strings.Contains(a.body, "failed") || !strings.Contains(a.body, `"delta":"hello"`) || !strings.Contains(a.body, "event: response.completed\n") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	r.eventually("both attempts are recorded", func() bool { return len(r.attempts()) == 2 })
}

func TestPeekResponses(t *testing.T) {
	r := exchange.Request{Operation: exchange.Chat, Dialect: exchange.ResponsesDialect, Native: []byte(`{"model":"m","stream":true,
		"max_output_tokens":20,"reasoning":{"effort":"low"},"tools":[{"type":"web_search"}],"text":{"format":{"type":"json_schema"}},
		"metadata":{"feature":"search","user":"u1"},"instructions":"be brief","input":[{"role":"user","content":[
		{"type":"input_text","text":"what is it"},{"type":"input_image","image_url":"data:"},{"type":"input_file","file_id":"f"}]},
		{"type":"function_call_output","call_id":"c","output":"42"},{"type":"image_generation_call","result":"` + strings.Repeat("A", 9000) + `"},{}]}`)}
	if bad := peek(&r); bad != nil {
		t.Fatalf("%+v", *bad)
	}
	if r.Model != "m" || !r.Stream || !r.IncludeUsage || r.MaxOutput != 20 || r.Thinking == 0 || !r.Tools || !r.JSONSchema || !r.Vision ||
		r.Feature != "search" || r.UserSHA256 != hashUser("u1") || r.Messages != 4 || r.InputExtra != 2*imageTokens+estimate.UnseenTokens || r.InputBytes < 100 || r.InputBytes > 1000 {
		t.Errorf("%+v", r)
	}
	for param, body := range map[string]string{
		"model": `{"input":"a"}`, "input": `{"model":"m","input":5}`, "input[1]": `{"model":"m","input":[{},5]}`,
		"max_output_tokens": `{"model":"m","input":"a","max_output_tokens":0}`, "stream": `{"model":"m","stream":"yes"}`,
		"background": `{"model":"m","background":true}`, "Max_output_tokens": `{"model":"m","Max_output_tokens":5}`,
	} {
		if bad := peek(&exchange.Request{Operation: exchange.Chat, Dialect: exchange.ResponsesDialect, Native: []byte(body)}); bad == nil || bad.param != param {
			t.Errorf("%s: %+v", body, bad)
		}
	}
}
