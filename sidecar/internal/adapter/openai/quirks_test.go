package openai

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// The heads of answers.
const (
	asStream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	asJSON   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
)

// chunkOf is a chunk with a delta's members and the choice's others.
func chunkOf(delta, rest string) string {
	return `data: {"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{` + delta + `}` + rest + "}]}\n\n"
}

// TestQuirks: what servers are known to send and no fixture holds, through the relay. want has the shape of
// expected.json.
func TestQuirks(t *testing.T) {
	const (
		end  = `,"finish_reason":"stop"`
		used = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}` + "\n\n"
		stop = "data: [DONE]\n\n"
		bill = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`
	)
	text := chunkOf(`"role":"assistant","content":"Hé"`, "")
	for name, c := range map[string]struct{ raw, want string }{
		"text cut inside a rune": {
			asStream + text + chunkOf("", end) + used + stop,
			`{"status":200,"content":"Hé","finish_reason":"stop",` + bill + `}`,
		},
		"CRLF, no space, comments, fields of no use": {
			asStream + strings.NewReplacer("\n", "\r\n", "data: ", "data:").Replace(": ping\n\nid: 1\nretry: 5\n\n"+text+": x\n\n"+chunkOf("", end)+used+stop),
			`{"status":200,"content":"Hé","finish_reason":"stop",` + bill + `}`,
		},
		"the end without [DONE]": {asStream + text + chunkOf("", end), `{"status":200,"content":"Hé","finish_reason":"stop"}`},
		"[DONE] without a line end": {
			asStream + text + chunkOf("", end) + "data: [DONE]", `{"status":200,"content":"Hé","finish_reason":"stop"}`,
		},
		"the end without a finish": {
			asStream + text, `{"status":200,"error":{"code":"stream_truncated"},"partial_content":"Hé"}`,
		},
		"[DONE] without a finish": {
			asStream + text + stop, `{"status":200,"error":{"code":"stream_truncated"},"partial_content":"Hé"}`,
		},
		"an error in mid-stream": {
			asStream + text + `data: {"error":{"message":"lost","type":"server_error","code":"x"}}` + "\n\n",
			`{"status":200,"error":{"type":"server_error","code":"x"},"partial_content":"Hé"}`,
		},
		"an error first": {
			asStream + `data: {"error":{"message":"busy","type":"server_error","code":null}}` + "\n\n",
			`{"status":503,"error":{"type":"server_error"},"retryable":true}`,
		},
		"a bare error line, Ollama": {
			asStream + text + "{\"error\":\"runner died\"}\n",
			`{"status":200,"error":{"type":"server_error","code":"upstream_overloaded"},"partial_content":"Hé"}`,
		},
		"an error of OpenRouter with 200": {
			asJSON + `{"error":{"code":502,"message":"upstream"}}`,
			`{"status":502,"error":{"type":"upstream_error","code":"502"},"retryable":true}`,
		},
		"roles again, and empty finishes": {
			asStream + chunkOf(`"role":"assistant","content":"a"`, `,"finish_reason":""`) + chunkOf(`"role":"","content":"b"`, `,"finish_reason":""`) +
				chunkOf(`"role":"assistant"`, end) + stop,
			`{"status":200,"content":"ab","finish_reason":"stop"}`,
		},
		"usage of Groq's own": {
			asStream + text + `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}}` + "\n\n" + stop,
			`{"status":200,"content":"Hé","finish_reason":"stop",` + bill + `}`,
		},
		"keep-alives before the usage, DeepSeek": {
			asStream + ": keep-alive\n\n" + text + `data: {"id":"c","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_cache_hit_tokens":3,"prompt_cache_miss_tokens":2}}` + "\n\n" + stop,
			`{"status":200,"content":"Hé","finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"cached_tokens":3}}`,
		},
		"reasoning of SGLang, matched_stop": {
			asStream + chunkOf(`"role":"assistant","content":null,"reasoning_content":"hm"`, `,"matched_stop":null`) + chunkOf(`"content":"Hé","reasoning_content":null`, "") +
				chunkOf(`"content":""`, `,"matched_stop":7,"finish_reason":"stop"`) +
				`data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"reasoning_tokens":1}}` + "\n\n" + stop,
			`{"status":200,"content":"Hé","finish_reason":"stop","reasoning":"hm","usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"reasoning_tokens":1}}`,
		},
		"reasoning of vLLM": {
			asStream + chunkOf(`"role":"assistant","reasoning":"hm"`, "") + chunkOf(`"content":"Hé"`, end) + stop,
			`{"status":200,"content":"Hé","finish_reason":"stop","reasoning":"hm"}`,
		},
		"reasoning under two names": {
			asStream + chunkOf(`"role":"assistant","reasoning":"hm","reasoning_content":"hm"`, "") + chunkOf(`"content":"Hé"`, end) + stop,
			`{"status":200,"content":"Hé","finish_reason":"stop","reasoning":"hm"}`,
		},
		"thinking parts, Mistral": {
			asStream + chunkOf(`"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]`, "") +
				chunkOf(`"content":[{"type":"text","text":"Hé"}]`, "") + chunkOf(`"content":""`, `,"finish_reason":"model_length"`) + stop,
			`{"status":200,"content":"Hé","finish_reason":"length","reasoning":"hm"}`,
		},
		"arguments as an object, Mistral": {
			asJSON + `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"","tool_calls":[{"id":"abcDEF123","function":{"name":"f","arguments":{"a": 1}}}]},"finish_reason":"tool_calls"}],` + bill + `}`,
			`{"status":200,"content":"","finish_reason":"tool_calls","tool_calls":[{"id":"abcDEF123","name":"f","arguments":"{\"a\":1}"}],` + bill + `}`,
		},
		"usage in texts, and an end of its own": {
			asJSON + `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"content":"Hé","tool_calls":null},"finish_reason":"eos"}],"usage":{"prompt_tokens":"5","completion_tokens":2.0,"total_tokens":null}}`,
			`{"status":200,"content":"Hé","finish_reason":"stop",` + bill + `}`,
		},
		"a reason with more behind it, Gemini": {
			asJSON + `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"content":""},"finish_reason":"content_filter: PROHIBITED_CONTENT"}],` + bill + `}`,
			`{"status":200,"content":"","finish_reason":"content_filter",` + bill + `}`,
		},
		"an abort, vLLM and SGLang": {
			asStream + text + chunkOf("", `,"finish_reason":"abort"`) + stop,
			`{"status":200,"error":{"type":"upstream_error","code":"abort"},"partial_content":"Hé"}`,
		},
		"interleaved calls": {
			asStream + chunkOf(`"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}]`, "") +
				chunkOf(`"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"{}"}}]`, "") + chunkOf("", `,"finish_reason":"tool_calls"`) + stop,
			`{"status":200,"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":"{}"},{"id":"b","name":"g","arguments":"{}"}]}`,
		},
		"thinking in tags passes": {
			asStream + chunkOf(`"role":"assistant","content":"<thi"`, "") + chunkOf(`"content":"nk>a</think>b"`, end) + stop,
			`{"status":200,"content":"<think>a</think>b","finish_reason":"stop"}`,
		},
		"a tool that the model could not use, Groq": {
			"HTTP/1.1 400 Bad Request\r\n\r\n" + `{"error":{"message":"failed","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"x"}}`,
			`{"status":400,"error":{"type":"invalid_request_error","code":"tool_use_failed"},"retryable":true}`,
		},
		"a filter, Azure": {
			"HTTP/1.1 400 Bad Request\r\n\r\n" + `{"error":{"message":"filtered","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`,
			`{"status":400,"error":{"type":"invalid_request_error","code":"content_filter","param":"prompt"}}`,
		},
		"a page of a proxy": {
			"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\n\r\n<html><title>502</title></html>",
			`{"status":502,"error":{"type":"server_error"},"retryable":true}`,
		},
		"a redirect": {
			"HTTP/1.1 308 Permanent Redirect\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
			`{"status":308,"error":{"type":"invalid_request_error","code":"model_not_found","param":"model"}}`,
		},
		"epoch milliseconds, OpenRouter": {
			"HTTP/1.1 429 Too Many\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nX-RateLimit-Reset: 1796032830000\r\n\r\n" + `{"error":{"message":"slow down","code":429}}`,
			`{"status":429,"error":{"type":"rate_limit_error","code":"rate_limit_exceeded"},"retryable":true,"retry_after_ms":30000}`,
		},
	} {
		t.Run(name, func(t *testing.T) { playQuirk(t, c.raw, c.want) })
	}
}

// playQuirk plays an answer through the relay, cut in every way. Without a status in expected it is 200.
func playQuirk(t *testing.T, raw, expected string) {
	t.Helper()
	f := &adaptertest.Fixture{Stream: strings.HasPrefix(raw, asStream) || strings.HasPrefix(raw, asLines)}
	if err := json.Unmarshal([]byte(expected), &f.Want); err != nil {
		t.Fatal(err)
	}
	f.Want.Status = cmp.Or(f.Want.Status, 200)
	if e := f.Want.Error; e != nil && e.Type == "" {
		e.Type = "server_error"
	}
	f.Play(t, New(), compatible, []byte(raw))
}

// TestFinishReason: clients read finish_reason as one of five words. A server's own word stays beside it, whole and streamed.
func TestFinishReason(t *testing.T) {
	for name, c := range map[string]struct{ said, want, native string }{
		"OpenAI's own":                  {`"finish_reason":"length"`, "length", ""},
		"the older calls":               {`"finish_reason":"function_call"`, "function_call", ""},
		"a known one":                   {`"finish_reason":"eos"`, "stop", "eos"},
		"nobody knows it":               {`"finish_reason":"repetition"`, "stop", "repetition"},
		"more behind it":                {`"finish_reason":"content_filter: SPII"`, "content_filter", "content_filter: SPII"},
		"a gateway behind has it first": {`"finish_reason":"novel","native_finish_reason":"NOVEL"`, "stop", "NOVEL"},
		"a gateway behind says the same": {
			`"native_finish_reason":"end_turn","finish_reason":"stop"`, "stop", "end_turn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole, _, f := New().Response(ask(false), []byte(`{"id":"c","choices":[{"message":{"content":"a"},`+c.said+`}]}`), note)
			if f != nil {
				t.Fatal(f)
			}
			got := translate(t, false, delta(`"content":"a"`), `{"id":"c","choices":[{"index":0,"delta":{},`+c.said+`}]}`, done)
			var last gjson.Result
			for line := range strings.Lines(string(got.out)) {
				if x := gjson.Get(strings.TrimPrefix(line, "data: "), "choices.0"); x.Get("finish_reason").Str != "" {
					last = x
				}
			}
			for form, choice := range map[string]gjson.Result{"whole": gjson.GetBytes(whole, "choices.0"), "streamed": last} {
				if choice.Get("finish_reason").Str != c.want || choice.Get("native_finish_reason").Str != c.native || strings.Count(choice.Raw, "native") > 1 {
					t.Errorf("%s: got %s", form, choice.Raw)
				}
			}
		})
	}
	whole, _, _ := New().Response(ask(false), []byte(`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"f"}}]},"finish_reason":"stop"}]}`), note)
	if c := gjson.GetBytes(whole, "choices.0"); c.Get("finish_reason").Str != "tool_calls" || c.Get("native_finish_reason").Exists() {
		t.Errorf("calls: %s", c.Raw)
	}
}

// TestServiceTier: the tier is the provider's word, and what it said of its usage is kept as it stood.
func TestServiceTier(t *testing.T) {
	const raw = `{ "prompt_tokens":5,"completion_tokens":2,"total_tokens":7 }`
	r := ask(false)
	_, u, f := New().Response(r, []byte(`{"service_tier":"flex","choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":`+raw+`}`), note)
	if f != nil || u.ServiceTier != "flex" || u.Raw != raw {
		t.Errorf("%+v, %+v", u, f)
	}
	events := []string{
		delta(`"content":"a"`), `{"id":"c1","service_tier":"auto","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"id":"c1","service_tier":"flex","choices":[],"usage":` + raw + `}`, done,
	}
	for _, asked := range []bool{true, false} {
		if u := translate(t, asked, events...).Usage(); u.ServiceTier != "flex" || u.Raw != raw {
			t.Errorf("%+v", u)
		}
	}
	long := `{"prompt_tokens":5,"completion_tokens":2,"x":"` + strings.Repeat("x", rawMax) + `"}`
	_, u, _ = New().Response(r, []byte(`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":`+long+`}`), note)
	if u.Source != exchange.FromProvider || u.Raw != "" {
		t.Errorf("a long one is kept: %+v", u)
	}
}
