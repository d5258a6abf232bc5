package anthropic

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// agent is what a coding agent sends: nothing of it may change but the model's name.
const agent = ` {"model" : "smart", "max_tokens":64,  "stream":true,
	"system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}],
	"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"citations":{"enabled":true}}]},
	{"role":"assistant","content":[{"type":"thinking","thinking":"h\u003cm","signature":"Ab+/9="},{"type":"server_tool_use","id":"s","name":"web_search","input":{"n":1e400,"m":12345678901234567890}}]}],
	"tools":[{"type":"web_search_20250305","name":"web_search"}],"context_management":{"edits":[]},"model_context":"smart"} `

func native(body string) *exchange.Request {
	return &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Dialect: exchange.MessagesDialect, Model: "smart", Native: []byte(body),
		Stream: gjson.Get(body, "stream").Bool(),
	}
}

func TestNativeRequest(t *testing.T) {
	r := native(agent)
	d := &exchange.Deployment{Model: `claude-"x`}
	ad := New().Speak(exchange.MessagesDialect, d)
	call, f := ad.Request(r, d, []byte("sk"))
	want := strings.Replace(agent, `"smart"`, `"claude-\"x"`, 1)
	if f != nil || call.Path != "/messages" || string(call.Body) != want {
		t.Errorf("%v %s\ngot  %s\nwant %s", f, call.Path, call.Body, want)
	}
	head := []adapter.Field{
		{Name: "content-type", Value: "application/json"}, {Name: "anthropic-version", Value: "2023-06-01"}, {Name: "x-api-key", Value: "sk"},
	}
	if !slices.Equal(call.Header, head) {
		t.Errorf("header %v", call.Header)
	}
	d.APIVersion = "2026-10-21"
	if call, _ = ad.Request(r, d, nil); call.Header[1].Value != "2026-10-21" {
		t.Errorf("of the deployment: %v", call.Header)
	}
	r.APIVersion, r.Betas, r.Query = "2023-06-01", "a-1,b-2", "beta=true"
	call, _ = ad.Request(r, d, nil)
	head = []adapter.Field{
		{Name: "content-type", Value: "application/json"}, {Name: "anthropic-version", Value: "2023-06-01"}, {Name: "anthropic-beta", Value: "a-1,b-2"},
	}
	if !slices.Equal(call.Header, head) || call.Path != "/messages?beta=true" {
		t.Errorf("of the caller: %s %v", call.Path, call.Header)
	}
	r.Operation = exchange.CountTokens
	if call, _ = ad.Request(r, d, nil); call.Path != "/messages/count_tokens?beta=true" {
		t.Errorf("counting: %s", call.Path)
	}
	for _, other := range []exchange.Dialect{exchange.ChatDialect, exchange.ResponsesDialect} {
		if New().Speak(other, d) != nil {
			t.Errorf("speaks %v", other)
		}
	}
}

// TestHosts: other places that serve Claude have the same messages in a body of their own.
func TestHosts(t *testing.T) {
	h := Host{
		Path: func(r *exchange.Request, d *exchange.Deployment) string {
			if r.Operation == exchange.CountTokens {
				return ""
			}
			return "/model/" + d.Model
		},
		Version: "v-1", StreamByPath: true, BetasInBody: true, TakesBeta: func(b string) bool { return b != "no-2" },
		Failure: func(status int, _ adapter.Header, _ []byte) *exchange.Failure {
			return &exchange.Failure{Kind: exchange.FailOverloaded, Status: status}
		},
		Event: func(_, data []byte) ([]byte, *exchange.Failure) {
			b, err := base64.StdEncoding.DecodeString(gjson.GetBytes(data, "bytes").Str)
			if err != nil {
				return nil, adapter.InvalidAnswer("no base64")
			}
			return b, nil
		},
	}
	d := &exchange.Deployment{Model: "m"}
	r := native(agent)
	r.Betas, r.APIVersion, r.Query = "a-1, no-2,b-3", "2023-06-01", "beta=true"
	ad := NewAt(h).Speak(exchange.MessagesDialect, d)
	call, f := ad.Request(r, d, []byte("sk"))
	if f != nil || call.Path != "/model/m" || len(call.Header) != 1 || !json.Valid([]byte(strings.Replace(string(call.Body), "1e400", "1", 1))) {
		t.Fatalf("%v %s %v %s", f, call.Path, call.Header, call.Body)
	}
	got, sent := gjson.ParseBytes(call.Body), gjson.Parse(agent)
	if got.Get("model").Exists() || got.Get("stream").Exists() || got.Get("anthropic_version").Str != "v-1" ||
		got.Get("anthropic_beta").Raw != `["a-1","b-3"]` || got.Get("messages").Raw != sent.Get("messages").Raw ||
		got.Get("system").Raw != sent.Get("system").Raw {
		t.Errorf("body %s", call.Body)
	}
	chat := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{` + hi + `}`), Stream: true}
	call, f = NewAt(h).Request(chat, d, []byte("sk"))
	if want := `{"anthropic_version":"v-1","max_tokens":4096,` + hiOut + `}`; f != nil || string(call.Body) != want || len(call.Header) != 1 {
		t.Errorf("%v %v %s", f, call.Header, call.Body)
	}
	r.Operation = exchange.CountTokens
	if _, f := ad.Request(r, d, nil); f == nil || f.Kind != exchange.FailUnsupported {
		t.Errorf("counting: %+v", f)
	}
	if f := ad.Failure(418, http.Header{}.Get, nil); f.Kind != exchange.FailOverloaded {
		t.Errorf("%+v", f)
	}
	wrap := func(ev string) []byte {
		return []byte(`{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(ev)) + `"}`)
	}
	for name, s := range map[string]adapter.Stream{"native": ad.Stream(r, note), "chat": NewAt(h).Stream(chat, note)} {
		out, p := s.Event(nil, []byte("chunk"), wrap(evHello))
		if !p.Real || !strings.Contains(string(out), "Hel") {
			t.Errorf("%s: %q %+v", name, out, p)
		}
		if _, p := s.Event(nil, nil, []byte(`{"bytes":"?"}`)); p.Failure == nil {
			t.Errorf("%s: no failure", name)
		}
	}
}

// TestForeignThinking: what the gateway made of other models' thoughts is nothing that Claude would take, nor are their
// signatures in the ids of calls.
func TestForeignThinking(t *testing.T) {
	const (
		ours   = `{"type":"thinking","thinking":"hm","signature":"sluice1.e30"}`
		hidden = `{"type":"redacted_thinking","data":"sluice1."}`
		theirs = `{"type":"thinking","thinking":"sluice1.","signature":"Ab+/"}`
	)
	body := func(messages string) string {
		return `{"model":"m","messages":[` + messages + `],"max_tokens":5}`
	}
	for in, want := range map[string]string{
		`{"role":"user","content":"a"},{"role":"assistant", "content" : [` + ours + `,` + hidden + `,` + theirs + `,{"type":"text","text":"b"}], "x":1}`:                                                                                                      `{"role":"user","content":"a"},{"role":"assistant", "content" : [` + theirs + `,{"type":"text","text":"b"}], "x":1}`,
		`{"role":"user","content":"a"},{"role":"assistant","content":[` + ours + `]},{"role":"user","content":"c"}`:                                                                                                                                           `{"role":"user","content":"a"},{"role":"user","content":"c"}`,
		`{"role":"assistant","content":[{"type":"tool_use", "id" : "c1_gsig_AA-b","name":"f","input":{"id":"x_gsig_y"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1_gsig_AA-b","content":"_gsig_"},{"type":"text","text":"_gsig_"}]}`: `{"role":"assistant","content":[{"type":"tool_use", "id" : "c1","name":"f","input":{"id":"x_gsig_y"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"_gsig_"},{"type":"text","text":"_gsig_"}]}`,
		`{"role":"user","content":[{"type":"text","text":"sluice1."}]}`:                                                                                                                                                                                       `{"role":"user","content":[{"type":"text","text":"sluice1."}]}`,
	} {
		call, f := New().Speak(exchange.MessagesDialect, nil).Request(native(body(in)), &exchange.Deployment{Model: "m"}, nil)
		if f != nil || string(call.Body) != body(want) {
			t.Errorf("%v\ngot  %s\nwant %s", f, call.Body, body(want))
		}
	}
}

func TestNativeResponse(t *testing.T) {
	ad := New().Speak(exchange.MessagesDialect, nil)
	r := native(agent)
	for name, row := range map[string]struct {
		body, want string
		u          exchange.Usage
	}{
		"all": {
			` {"id":"m", "model":"claude","content":[{"type":"text","text":"\u003c", "citations":[{"model":"x"}]}],"usage":{"input_tokens":1,"output_tokens":2,"server_tool_use":{"web_search_requests":3},"service_tier":"priority"} } `,
			`{"id":"m", "model":"smart","content":[{"type":"text","text":"\u003c", "citations":[{"model":"x"}]}],"usage":{"input_tokens":1,"output_tokens":2,"server_tool_use":{"web_search_requests":3},"service_tier":"priority"},"x_gateway":{"estimated":false}}`,
			exchange.Usage{
				Tokens: exchange.Tokens{Input: 1, Output: 2, WebSearches: 3}, Source: exchange.FromProvider, ServiceTier: "priority",
				Raw: `{"input_tokens":1,"output_tokens":2,"server_tool_use":{"web_search_requests":3},"service_tier":"priority"}`,
			},
		},
		"no usage": {`{"content":[]}`, `{"content":[],"x_gateway":{"estimated":true}}`, guess},
	} {
		t.Run(name, func(t *testing.T) {
			out, u, f := ad.Response(r, []byte(row.body), note)
			if f != nil || string(out) != row.want || u != row.u {
				t.Errorf("%v %+v\ngot  %s\nwant %s", f, u, out, row.want)
			}
		})
	}
	for body, kind := range map[string]exchange.FailureKind{
		`<html>`: exchange.FailInvalid, `[]`: exchange.FailInvalid, `{}`: exchange.FailInvalid, ``: exchange.FailInvalid,
		`{"type":"error","error":{"type":"rate_limit_error"}}`: exchange.FailRateLimited,
	} {
		if out, _, f := ad.Response(r, []byte(body), note); f == nil || f.Kind != kind || out != nil {
			t.Errorf("%s: %s %+v", body, out, f)
		}
	}
	r.Operation = exchange.CountTokens
	out, u, f := ad.Response(r, []byte(`{"input_tokens": 2095}`), note)
	if f != nil || string(out) != `{"input_tokens": 2095,"x_gateway":{"estimated":false}}` || u.Total() != 0 {
		t.Errorf("%v %+v %s", f, u, out)
	}
	if _, _, f := ad.Response(r, []byte(`{"content":[]}`), note); f == nil {
		t.Error("no count, and no failure")
	}
}

// TestNativeFailure: the member at fault has the caller's own name.
func TestNativeFailure(t *testing.T) {
	ad := New().Speak(exchange.MessagesDialect, nil)
	for message, want := range map[string]string{
		"stop_sequences: too many":             "stop_sequences",
		"messages.0.content.1.thinking: bad":   "messages.0.content.1.thinking",
		"prompt is too long: 9 > 8":            "messages",
		"output_config.effort: not for this":   "output_config.effort",
		"something is wrong: but nobody knows": "",
	} {
		f := ad.Failure(400, http.Header{}.Get, []byte(`{"type":"error","error":{"type":"invalid_request_error","message":"`+message+`"}}`))
		if f.Param != want || f.Message != message {
			t.Errorf("%s: %+v", message, f)
		}
	}
}

// TestNativeStream: what nobody knows passes too, and the last message_delta alone is annotated.
func TestNativeStream(t *testing.T) {
	s := New().Speak(exchange.MessagesDialect, nil).Stream(native(agent), note)
	const (
		start  = `{"type":"message_start","message":{"id":"m","model":"claude","usage":{"input_tokens":100,"output_tokens":1}}}`
		search = `{"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","content":[]}}`
		cited  = `{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"page_location"}}}`
		signed = `{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"x"}}`
		delta1 = `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":20}}`
		delta2 = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":null,"output_tokens":55}}`
	)
	var out []byte
	for _, row := range []struct {
		name, data string
		real       bool
	}{
		{"message_start", start, false},
		{"ping", `{"type": "ping"}`, false},
		{"content_block_start", search, true},
		{"", signed, false},
		{"", cited, false},
		{"newfangled", `{"type":"newfangled"}`, false},
		{"message_delta", delta1, false},
		{"message_delta", delta2, false},
	} {
		var p adapter.Progress
		if out, p = s.Event(out, []byte(row.name), []byte(row.data)); p.Failure != nil || p.Real != row.real || p.Done {
			t.Errorf("%s: %+v", row.data, p)
		}
	}
	out, p := s.Event(out, nil, []byte(evDone))
	if !p.Done {
		t.Errorf("%+v", p)
	}
	out, f := s.End(out)
	event := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	want := event("message_start", strings.Replace(start, "claude", "smart", 1)) + event("ping", `{"type": "ping"}`) +
		event("content_block_start", search) + event("content_block_delta", signed) + event("content_block_delta", cited) +
		event("newfangled", `{"type":"newfangled"}`) + event("message_delta", delta1) +
		event("message_delta", delta2[:len(delta2)-1]+`,"x_gateway":{"estimated":false}}`) + event("message_stop", evDone)
	if f != nil || string(out) != want {
		t.Errorf("%v\ngot  %s\nwant %s", f, out, want)
	}
	if u := s.Usage(); u.Input != 100 || u.Output != 55 || u.Raw != `{"input_tokens":100,"output_tokens":55}` {
		t.Errorf("%+v", u)
	}
}

func TestNativeStreamBreaks(t *testing.T) {
	stream := func() adapter.Stream { return New().Speak(exchange.MessagesDialect, nil).Stream(native(agent), note) }
	for name, data := range map[string]string{
		"error":   `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`,
		"":        `{"error":{"type":"overloaded_error","message":"m"}}`,
		"message": `{"type":`,
	} {
		s := stream()
		out, p := s.Event(nil, []byte(name), []byte(data))
		if p.Failure == nil || len(out) > 0 {
			t.Errorf("%s: %+v %s", data, p, out)
		}
		if _, f := s.End(nil); f == nil || f.Kind != exchange.FailCut {
			t.Errorf("an end after %s", data)
		}
	}
	s := stream()
	if _, p := s.Event(nil, nil, []byte(evHello)); !p.Real {
		t.Error("text is not real")
	}
	out := string(s.Abort(nil, &exchange.Failure{Kind: exchange.FailOverloaded, Type: "overloaded_error", Message: "busy"}))
	doc := gjson.Parse(strings.TrimPrefix(out, "event: error\ndata: "))
	if !strings.HasPrefix(out, "event: error\ndata: {") || doc.Get("error.type").Str != "overloaded_error" || doc.Get("error.message").Str != "busy" ||
		doc.Get("error.details.delivered_bytes").Int() != s.Delivered().Bytes || !doc.Get("error.details.retryable").Bool() {
		t.Errorf("%s", out)
	}
	out = string(s.Abort(nil, &exchange.Failure{Kind: exchange.FailCredential, Message: "key sk-secret"}))
	if strings.Contains(out, "sk-secret") {
		t.Errorf("%s", out)
	}
}

// TestReplay: a message that came whole although a stream was asked for.
func TestReplay(t *testing.T) {
	ad := New().Speak(exchange.MessagesDialect, nil)
	r := native(agent)
	whole := `{"id":"m","type":"message","role":"assistant","model":"x","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a\nb","citations":[{"n":1}]},{"type":"tool_use","id":"t","name":"f","input":{"a":1}},{"type":"tool_use","id":"u","name":"g","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":4}}`
	body, u, f := ad.Response(r, []byte(whole), note)
	if f != nil {
		t.Fatal(f)
	}
	s := ad.(adapter.Replayer).Replay(r, body, u)
	out, f := s.End(nil)
	if f != nil || s.Usage() != u || s.Delivered().Bytes == 0 {
		t.Fatalf("%v %+v", f, s.Usage())
	}
	// Played back through the tap it is a good stream, of the same usage.
	again := ad.Stream(r, note)
	for _, ev := range adaptertest.Events(t, out) {
		if gjson.Get(ev.Data, "type").Str != ev.Name {
			t.Errorf("event %q is %s", ev.Name, ev.Data)
		}
		if _, p := again.Event(nil, []byte(ev.Name), []byte(ev.Data)); p.Failure != nil {
			t.Error(p.Failure)
		}
	}
	if _, f := again.End(nil); f != nil || again.Usage().Tokens != u.Tokens {
		t.Errorf("%v %+v", f, again.Usage())
	}
	for _, want := range []string{
		`"partial_json":"{\"a\":1}"`, `"signature_delta","signature":"s"`, `"text_delta","text":"a\nb"`, `"citations_delta","citation":{"n":1}`,
		`"stop_reason":"tool_use"`, `"x_gateway":{"estimated":false}`, `"model":"smart"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}

// FuzzNative: whatever a provider sends is passed on as events, or refused.
func FuzzNative(f *testing.F) {
	for _, seed := range []string{evStart, evHello, evStop, evDone, `{"type":"message_delta","delta":{"stop_reason":"x"},"usage":{}}`, "\n", "{}", "[1]"} {
		f.Add([]byte("x"), []byte(seed))
	}
	f.Add([]byte("0"), []byte("0\nA"))
	f.Fuzz(func(t *testing.T, name, data []byte) {
		s := New().Speak(exchange.MessagesDialect, nil).Stream(native(agent), note)
		for range 2 {
			out, p := s.Event(nil, name, data)
			glued := bytes.IndexByte(data, '\n') >= 0 // what stands before a line that breaks is passed on
			if p.Failure != nil && len(out) > 0 && !glued || len(out) > 0 && !strings.HasSuffix(string(out), "\n\n") {
				t.Errorf("%q %+v", out, p)
			}
		}
		out, end := s.End(nil)
		if end != nil && len(out) > 0 || s.Usage().Total() < 0 {
			t.Errorf("%q %v", out, end)
		}
		ad := New().Speak(exchange.MessagesDialect, nil)
		if out, _, bad := ad.Response(native(agent), data, note); bad == nil && !json.Valid(out) {
			t.Errorf("%q", out)
		}
		if adapter.Valid(data) && gjson.ParseBytes(data).IsObject() {
			if call, bad := ad.Request(native(string(data)), &exchange.Deployment{Model: "m"}, nil); bad == nil && !adapter.Valid(call.Body) {
				t.Errorf("%q", call.Body)
			}
		}
	})
}
