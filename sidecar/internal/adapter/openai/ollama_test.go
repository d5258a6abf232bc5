package openai

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestOllamaRequest: under /api Ollama is spoken to in its own dialect.
func TestOllamaRequest(t *testing.T) {
	d := &exchange.Deployment{Provider: "compatible", Vendor: "ollama", BaseURL: "http://h/api", Model: "fx:8b"}
	for name, c := range map[string]struct {
		op         exchange.Operation
		body, path string
		want       string // "" when refused is
		param      string // that is refused
	}{
		"chat": {
			exchange.Chat,
			`{"model":"a","messages":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"x"},` +
				`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},` +
				`{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"c2","function":{"name":"g","arguments":""}}]},` +
				`{"role":"tool","tool_call_id":"c2","content":"2"}],"max_tokens":3,"seed":1,"top_k":5,"stop":["s"],"user":"u","n":1,"tool_choice":"auto",` +
				`"tools":[{"type":"function"}],"reasoning_effort":"low","response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}},"stream_options":{}}`,
			"/chat",
			`{"model":"fx:8b","messages":[{"role":"system","content":"d"},{"role":"user","content":"x","images":["AAAA"]},` +
				`{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}},{"function":{"name":"g","arguments":{}}}]},` +
				`{"role":"tool","content":"2","tool_name":"g"}],"tools":[{"type":"function"}],"think":"low","format":{"type":"object"},"stream":true,` +
				`"options":{"num_predict":9,"seed":1,"top_k":5,"stop":["s"]}}`, "",
		},
		"embeddings": {exchange.Embeddings, `{"model":"a","input":["x"],"dimensions":8,"encoding_format":"base64"}`, "/embed", `{"model":"fx:8b","input":["x"],"dimensions":8}`, ""},
		"several speak": {
			exchange.Chat, `{"messages":[{"role":"user","name":"a","content":"x","annotations":[1],"prefix":false},{"role":"user","name":"b","content":""},{"role":"assistant","name":"c","content":"y"}]}`, "/chat",
			`{"model":"fx:8b","messages":[{"role":"user","content":"a: x"},{"role":"user","content":""},{"role":"assistant","content":"y"}],"stream":true,"options":{"num_predict":9}}`, "",
		},
		"an unknown member": {exchange.Chat, `{"messages":[{"role":"assistant","content":"x","prefix":true}]}`, "", "", "messages[0].prefix"},
		"a choice":          {exchange.Chat, `{"messages":[],"tool_choice":"required"}`, "", "", "tool_choice"},
		"unknown":           {exchange.Chat, `{"messages":[],"new":1}`, "", "", "new"},
		"a text":            {exchange.Chat, `{"messages":[],"tools":[{"type":"function"},{"type":"custom","custom":{"name":"c"}}]}`, "", "", "tools[1].type"},
		"a picture":         {exchange.Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`, "", "", "messages[0].content[0]"},
		"half a call":       {exchange.Chat, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a"}}]}]}`, "", "", "messages[0].tool_calls[0].function.arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{Operation: c.op, Stream: true, MaxOutput: 9, Body: []byte(c.body)}
			call, f := New().Request(r, d, nil)
			if c.want == "" {
				if f == nil || f.Kind != exchange.FailUnsupported || f.Param != c.param {
					t.Errorf("got %s, %+v, want a refusal of %s", call.Body, f, c.param)
				}
				return
			}
			if f != nil || string(call.Body) != c.want || call.Path != c.path {
				t.Errorf("got  %s %s, %+v\nwant %s %s", call.Path, call.Body, f, c.path, c.want)
			}
		})
	}
}

func TestOllamaAnswers(t *testing.T) {
	for name, c := range map[string]struct{ raw, want string }{
		"whole": {
			asJSON + `{"model":"fx","message":{"role":"assistant","content":"Hi","thinking":"hm"},"done":true,"done_reason":"length","prompt_eval_count":5,"eval_count":2}`,
			`{"content":"Hi","reasoning":"hm","finish_reason":"length","usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`,
		},
		"the prompt is not counted when it was cached": {
			asJSON + `{"message":{"content":"Hi"},"done":true,"done_reason":"stop","eval_count":2}`, `{"content":"Hi","finish_reason":"stop"}`,
		},
		"a stream": {
			asLines + `{"message":{"role":"assistant","content":"","thinking":"hm"},"done":false}` + "\n" +
				`{"message":{"role":"assistant","content":"say \"done\""},"done":false}` + "\n" +
				`{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":5,"eval_count":2}` + "\n",
			`{"content":"say \"done\"","reasoning":"hm","finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`,
		},
		"two calls of one tool": {
			asLines + `{"message":{"content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}` + "\n" +
				`{"message":{"content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},"done":true,"done_reason":"stop"}` + "\n",
			`{"content":"","finish_reason":"tool_calls","tool_calls":[{"id":"*generated*","name":"f","arguments":"{\"a\":1}"},` +
				`{"id":"*generated*","name":"f","arguments":"{\"a\":1}"},{"id":"*generated*","name":"f","arguments":"{}"}]}`,
		},
		"an error in it": {
			asLines + `{"message":{"content":"Hi"},"done":false}` + "\n" + `{"error":"runner died"}` + "\n",
			`{"error":{"type":"server_error","code":"upstream_overloaded"},"partial_content":"Hi"}`,
		},
		"no end": {
			asLines + `{"message":{"content":"Hi"},"done":false}` + "\n",
			`{"error":{"type":"server_error","code":"stream_truncated"},"partial_content":"Hi"}`,
		},
	} {
		t.Run(name, func(t *testing.T) { playQuirk(t, c.raw, c.want) })
	}
	t.Run("one answer instead of a stream", func(t *testing.T) {
		const raw = asJSON + `{"message":{"content":"Hi"},"done":true,"done_reason":"stop","prompt_eval_count":5,"eval_count":2}`
		got := adaptertest.Relay(t, New(), compatible, ask(true), []byte(raw))
		if got.Failure != nil || got.Usage.Total() != 7 {
			t.Fatalf("%+v", got)
		}
		s := adaptertest.ReadStream(t, got.Body, true)
		if c := s.First(); len(s.Choices) != 1 || c.Content != "Hi" || c.Finish != "stop" || c.Reasoning+c.Refusal != "" || len(c.Calls) > 0 {
			t.Errorf("%+v", c)
		}
	})
	r := &exchange.Request{Operation: exchange.Embeddings, Model: alias, Body: []byte(`{"encoding_format":"base64"}`)}
	out, u, f := New().Response(r, []byte(`{"model":"fx","embeddings":[[1,-2.5]],"prompt_eval_count":3}`), note)
	const want = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAIMA="}],"usage":{"prompt_tokens":3,"total_tokens":3},"model":"smart","x_gateway":{"estimated":false}}`
	if f != nil || u.Input != 3 || string(out) != want {
		t.Errorf("%s %+v %+v", out, u, f)
	}
}

// asLines is the head of a stream of JSON objects.
const asLines = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
