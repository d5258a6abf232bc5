package responses_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

const alias = adaptertest.Alias

func ask(stream bool) *exchange.Request {
	r := adaptertest.Chat(stream)
	r.Dialect, r.Native = exchange.ResponsesDialect, []byte(`{"model":"smart","input":"hi"}`)
	return r
}

func note(dst []byte, u exchange.Usage, delivered adapter.Delivered) ([]byte, exchange.Usage) {
	return adaptertest.Note(dst, u, delivered)
}

func native(t *testing.T) adapter.Adapter {
	t.Helper()
	ad := openai.New().Speak(exchange.ResponsesDialect, &exchange.Deployment{Provider: "openai"})
	if ad == nil {
		t.Fatal("OpenAI does not speak the Responses API")
	}
	return ad
}

// through relays an answer to a caller of the Responses API.
func through(t *testing.T, ad adapter.Adapter, r *exchange.Request, pieces ...[]byte) adaptertest.Relayed {
	t.Helper()
	return adaptertest.Relay(t, ad, &exchange.Deployment{Provider: "openai", Model: "real"}, r, pieces...)
}

// TestFixtures: callers of the Responses API see OpenAI's events as they are, however they arrive.
func TestFixtures(t *testing.T) {
	for name, want := range map[string]struct {
		kind  exchange.FailureKind
		code  string
		usage exchange.Tokens
	}{
		"responses-stream":             {usage: exchange.Tokens{Input: 8, CacheRead: 32, Output: 55, Reasoning: 40}},
		"responses-stream-incomplete":  {usage: exchange.Tokens{Input: 40, Output: 16, Reasoning: 10}},
		"responses-stream-failed":      {kind: exchange.FailOverloaded, code: "server_error"},
		"responses-stream-error-event": {kind: exchange.FailRateLimited, code: "rate_limit_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := adaptertest.Read(t, "testdata/"+name+".http")
			_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
			events := strings.ReplaceAll(string(body), `"model":"fx-large-2"`, `"model":"smart"`)
			last := strings.LastIndex(events, "}}\n\n")
			adaptertest.CutAnywhere(t, raw, func(t *testing.T, pieces ...[]byte) {
				got := through(t, native(t), ask(true), pieces...)
				if want.code != "" {
					if f := got.Failure; f == nil || f.Kind != want.kind || f.Code != want.code || f.Type != want.code || !f.Kind.Failover() || got.Body != nil || got.Outcome != nil {
						t.Fatalf("failure %+v after %q", f, got.Body)
					}
					return
				}
				if got.Failure != nil || got.Usage.Source != exchange.FromProvider || got.Usage.Tokens != want.usage || got.Usage.Raw == "" {
					t.Fatalf("usage %+v, failure %+v", got.Usage, got.Failure)
				}
				if should := events[:last] + `,"x_gateway":{"estimated":false}` + events[last:]; string(got.Body) != should {
					t.Fatalf("got %s\nwant %s", got.Body, should)
				}
			})
		})
	}
}

// TestFailsAfterTokens: what OpenAI reports after it has begun ends the caller's stream, and nothing is made up.
func TestFailsAfterTokens(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" +
		event(`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","model":"m","error":null}}`) +
		event(`{"type":"response.output_text.delta","sequence_number":7,"output_index":0,"delta":"Two"}`)
	const failed = `{"type":"response.failed","sequence_number":8,"response":{"id":"resp_1","model":"m","status":"failed","error":{"code":"server_error","message":"oh"},"usage":{"input_tokens":9,"output_tokens":1}}}`
	for name, row := range map[string]struct{ end, code, message string }{
		"failed":      {event(failed), "server_error", "oh"},
		"error":       {event(`{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}`), "rate_limit_exceeded", "slow down"},
		"error, deep": {event(`{"type":"error","error":{"type":"x","code":"server_error","message":"deep"}}`), "server_error", "deep"},
		"key":         {event(`{"type":"error","code":"invalid_api_key","message":"sk-secret"}`), "upstream_misconfigured", "the provider refused the gateway's configuration"},
		"cut":         {"", "stream_truncated", "the provider's stream ended before it was complete"},
		"no JSON":     {"data: {\n\n", "stream_truncated", "an event of the provider is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got := through(t, native(t), ask(true), []byte(head+row.end))
			names, events := read(t, got.Body)
			last := gjson.Parse(events[len(events)-1])
			if got.Outcome == nil || got.Outcome.Status != relay.StatusPartial || strings.Join(names, " ") != "response.created response.output_text.delta response.failed" ||
				last.Get("response.error.code").Str != row.code || last.Get("response.error.message").Str != row.message ||
				last.Get("response.status").Str != "failed" || last.Get("sequence_number").Int() != 8 ||
				last.Get("response.id").Str != "resp_1" || last.Get("response.model").Str != alias {
				t.Errorf("outcome %+v: %s", got.Outcome, got.Body)
			}
			if name == "failed" && (got.Usage.Input != 9 || last.Raw != strings.Replace(failed, `"m"`, `"smart"`, 1)) {
				t.Errorf("usage %+v: %s", got.Usage, last.Raw)
			}
		})
	}
}

// TestBreaksBeforeAnyEvent: the failed response has an id all the same, natively and by way of chat, one for each request.
func TestBreaksBeforeAnyEvent(t *testing.T) {
	for name, ad := range map[string]adapter.Adapter{"natively": native(t), "by way of chat": responses.Face{Adapter: openai.New()}} {
		seen := map[string]bool{}
		for _, id := range []string{"req_1", "req_2"} {
			r := ask(true)
			r.ID = id
			_, events := read(t, ad.Stream(r, note).Abort(nil, &exchange.Failure{Kind: exchange.FailTimeout, Message: "late"}))
			got := gjson.Get(events[0], "response.id").Str
			if len(events) != 1 || !strings.HasPrefix(got, "resp_") || len(got) < 20 || seen[got] {
				t.Errorf("%s: %s", name, events)
			}
			seen[got] = true
		}
	}
}

func event(data string) string {
	return "event: " + gjson.Get(data, "type").Str + "\ndata: " + data + "\n\n"
}

// read takes a stream apart. The name of each event must be its type.
func read(t *testing.T, out []byte) (names, events []string) {
	t.Helper()
	for _, ev := range adaptertest.Events(t, out) {
		if ev.Name != gjson.Get(ev.Data, "type").Str {
			t.Fatalf("event %q: %s", ev.Name, ev.Data)
		}
		names, events = append(names, ev.Name), append(events, ev.Data)
	}
	return names, events
}

// TestHugeStart: what OpenAI repeats of a long request must not look like an answer without end.
func TestHugeStart(t *testing.T) {
	start := `{"type":"response.created","response":{"id":"resp_1","instructions":"` + strings.Repeat("x", 300<<10) + `"}}`
	got := through(t, native(t), ask(true), []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"+
		event(start)+event(strings.Replace(start, "created", "in_progress", 1))+
		event(`{"type":"response.output_text.delta","delta":"a"}`)+event(`{"type":"response.completed","response":{"output":[]}}`)))
	if got.Failure != nil || got.Usage.Source != exchange.FromEstimate || got.Usage.Output != 1 {
		t.Errorf("%+v %+v", got.Usage, got.Failure)
	}
}

func TestWhole(t *testing.T) {
	body := `{"id":"resp_1", "object":"response","model":"m","status":"completed","error":null,"service_tier":"flex",` +
		`"output":[{"type":"web_search_call","action":{"type":"search"}},{"type":"message","content":[{"type":"output_text","text":"hi"}]}],` +
		`"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":5,"cache_write_tokens":3,"audio_tokens":2},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":4}},"new":{"kept":[1,2]}}`
	answer := func(body string) []byte {
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	got := through(t, native(t), ask(false), answer(body))
	want := strings.Replace(body[:len(body)-1], `"model":"m"`, `"model":"smart"`, 1) + `,"x_gateway":{"estimated":false}}`
	tokens := exchange.Tokens{Input: 10, CacheRead: 5, CacheWrite5m: 3, InputAudio: 2, Output: 7, Reasoning: 4, WebSearches: 1}
	if got.Failure != nil || string(got.Body) != want || got.Usage.Tokens != tokens || got.Usage.ServiceTier != "flex" {
		t.Errorf("%+v %+v\ngot  %s\nwant %s", got.Failure, got.Usage, got.Body, want)
	}
	names, _ := read(t, through(t, native(t), ask(true), answer(body)).Body)
	if n := len(names); n < 3 || names[0] != "response.created" || names[n-1] != "response.completed" || !strings.Contains(strings.Join(names, " "), "output_text.delta") {
		t.Errorf("a stream that came whole: %s", names)
	}
	failed := `{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"no"},"output":[]}`
	for _, stream := range []bool{true, false} {
		if got := through(t, native(t), ask(stream), answer(failed)); got.Failure == nil || got.Failure.Kind != exchange.FailRateLimited {
			t.Errorf("%+v", got.Failure)
		}
	}
}

func TestNativeRequest(t *testing.T) {
	sealed := `{"type":"reasoning","id":"rs_1","encrypted_content":"` + adapter.ForeignMark + `e30"}`
	for name, row := range map[string]struct {
		d        exchange.Deployment
		in, path string
		want     string
		secret   bool
	}{
		"as it is": {
			exchange.Deployment{Provider: "openai", Model: "gpt"},
			`{ "model":"smart", "input":[{"role":"user","content":null},{"type":"reasoning","summary":[],"content":null}],"new":1}`, "/responses",
			`{ "model":"gpt", "input":[{"role":"user","content":null},{"type":"reasoning","summary":[],"content":null}],"new":1,"max_output_tokens":50}`, true,
		},
		"a cap": {
			exchange.Deployment{Provider: "openai", Model: "gpt"}, `{"max_output_tokens":9,"model":"smart"}`, "/responses",
			`{"max_output_tokens":9,"model":"gpt"}`, true,
		},
		"another model's thoughts": {
			exchange.Deployment{Provider: "azure", Model: "gpt", APIVersion: "preview 1"},
			`{"model":"smart","max_output_tokens":null,"input":[` + sealed + `,{"role":"user","content":"a"},` + sealed + `]}`, "/openai/v1/responses?api-version=preview+1",
			`{"model":"gpt","max_output_tokens":50,"input":[{"role":"user","content":"a"}]}`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(false)
			r.Native, r.DefaultOutput, r.MaxOutput = []byte(row.in), 50, gjson.Get(row.in, "max_output_tokens").Int()
			ad := openai.New().Speak(exchange.ResponsesDialect, &row.d)
			call, f := ad.Request(r, &row.d, []byte("k"))
			if f != nil || call.Path != row.path || string(call.Body) != row.want || (len(call.Header) == 2) != row.secret {
				t.Errorf("%+v %s %v\ngot  %s\nwant %s", f, call.Path, call.Header, call.Body, row.want)
			}
		})
	}
	const azure = "https://x.openai.azure.com"
	for base, row := range map[string][2]string{
		azure:                {"2025-04-01-preview", "/openai/responses?api-version=2025-04-01-preview"},
		azure + "/openai":    {"2025-04-01-preview", "/responses?api-version=2025-04-01-preview"},
		azure + "/openai/v1": {"", "/responses"},
	} {
		d := exchange.Deployment{Provider: "azure", BaseURL: base, APIVersion: row[0]}
		if call, f := openai.New().Speak(exchange.ResponsesDialect, &d).Request(ask(false), &d, nil); f != nil || call.Path != row[1] {
			t.Errorf("%s %s: %s %+v", base, row[0], call.Path, f)
		}
	}
	for _, d := range []exchange.Deployment{
		{Provider: "compatible"}, {Provider: "azure", BaseURL: azure + "/openai/deployments/y"},
		{Provider: "azure", BaseURL: azure, APIVersion: "2024-10-21"},
	} {
		if openai.New().Speak(exchange.ResponsesDialect, &d) != nil {
			t.Errorf("%+v", d)
		}
	}
	if openai.New().Speak(exchange.MessagesDialect, &exchange.Deployment{Provider: "openai"}) != nil {
		t.Error("OpenAI speaks Anthropic's dialect")
	}
}
