package openai

import (
	"encoding/json"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestResponseBytes: of a healthy answer nothing changes but the model; of another one, what is wrong with it.
func TestResponseBytes(t *testing.T) {
	const (
		usage = `"usage":{"total_tokens":29,"prompt_tokens":20,"completion_tokens":9,"cost":1e-3,"prompt_tokens_details":{"audio_tokens":1}}`
		own   = `,"x_gateway":{"estimated":false}}`
		chat  = `,"object":"chat.completion"`
	)
	for name, c := range map[string]struct{ body, want string }{
		"healthy": {
			`{ "new":[1, 2.50],"object": "chat.completion","choices":[{"message":{"content":"a\u00e9","annotations":[],"role":"assistant"},"logprobs":null,"index":0,"finish_reason":"stop"}] ,"model" : "real",` + usage + `}`,
			`{ "new":[1, 2.50],"object": "chat.completion","choices":[{"message":{"content":"a\u00e9","annotations":[],"role":"assistant"},"logprobs":null,"index":0,"finish_reason":"stop"}] ,"model" : "smart",` + usage + own,
		},
		"another gateway behind": {
			`{"x_gateway":{"a":1},"error":null,"model":"real","choices":[{"message":{}}],` + usage + `,"x_gateway":2}`,
			`{"model":"smart","choices":[{"message":{}}],` + usage + chat + own,
		},
		"an object of null": {
			`{"object":null,"model":"m","choices":[{"message":null}],` + usage + `}`,
			`{"object":"chat.completion","model":"smart","choices":[{"message":null}],` + usage + own,
		},
		"no model": {
			`{"choices":[{"message":null}],` + usage + `}`, `{"choices":[{"message":null}],` + usage + chat + `,"model":"smart"` + own,
		},
		"calls": {
			`{"id":"a","model":"m","choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":{ "x" : [1,"é"] },"new":1}},{"id":"t","type":"custom","custom":{"name":"n","input":"x"}},{"type":"mcp"}]},"finish_reason":"stop"}],` + usage + `}`,
			`{"id":"a","model":"smart","choices":[{"message":{"role":"assistant","tool_calls":[{"id":"` + adapter.CallID("a", 0, 0) + `","type":"function","function":{"name":"f","arguments":"{\"x\":[1,\"é\"]}","new":1}},{"id":"t","type":"custom","custom":{"name":"n","input":"x"}},{"id":"` + adapter.CallID("a", 0, 2) + `","type":"mcp"}]},"finish_reason":"tool_calls"}],` + usage + chat + own,
		},
		"reasoning beside null": {
			`{"model":"m","choices":[{"message":{"reasoning_content":null,"reasoning":"hm","content":"x"},"finish_reason":"eos"}],` + usage + `}`,
			`{"model":"smart","choices":[{"message":{"role":"assistant","reasoning_content":"hm","content":"x"},"finish_reason":"stop","native_finish_reason":"eos"}],` + usage + chat + own,
		},
		"reasoning in details": {
			`{"model":"m","choices":[{"message":{"content":"x","reasoning":null,"reasoning_details":[{"type":"reasoning.text","text":"h"},{"type":"reasoning.summary","summary":"m"},{"type":"reasoning.encrypted","data":"zz"}]}}],` + usage + `}`,
			`{"model":"smart","choices":[{"message":{"role":"assistant","content":"x","reasoning":null,"reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"h"},{"type":"reasoning.summary","summary":"m"},{"type":"reasoning.encrypted","data":"zz"}]}}],` + usage + chat + own,
		},
		"content in parts": {
			`{"model":"m","choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"x"}]}}],` + usage + `}`,
			`{"model":"smart","choices":[{"message":{"role":"assistant","reasoning_content":"hm","content":"x"}}],` + usage + chat + own,
		},
		"usage elsewhere": {
			`{"model":"m","choices":[{"message":{}}],"x_groq":{"id":"g",` + usage + `}}`,
			`{"model":"smart","choices":[{"message":{}}],"x_groq":{"id":"g",` + usage + `}` + chat + `,` + usage + own,
		},
		"usage from another base": {
			`{"model":"m","choices":[{"message":{}}],"usage":{"prompt_tokens":5,"completion_tokens":"2","total_tokens":17,"completion_tokens_details":{"reasoning_tokens":10},"num_sources_used":3}}`,
			`{"model":"smart","choices":[{"message":{}}],"usage":{"prompt_tokens":5,"completion_tokens":12,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":10},"num_sources_used":3}` + chat + own,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, f := New().Response(ask(false), []byte(c.body), note)
			if f != nil || string(out) != c.want {
				t.Errorf("%+v\ngot  %s\nwant %s", f, out, c.want)
			}
		})
	}
}

// FuzzResponse: whatever comes, the caller gets valid JSON with the alias, a usage and x_gateway, or a failure.
func FuzzResponse(f *testing.F) {
	f.Add(`{"choices":[{"message":{"content":["x"],"reasoning_details":[{"text":"a"}]}}]}`, false, "")
	f.Add(`{"error":null,"choices":[{"message":{"tool_calls":[{"function":{"arguments":{"a":1}}},{},null]},"finish_reason":"eos"}],"usage":{"prompt_tokens":"3","completion_tokens":1,"prompt_tokens_details":[]}}`, false, "")
	f.Add(`{"data":[{"embedding":[1,2.5]},{"embedding":"AACAPw=="},1]}`, true, "base64")
	f.Add(`{"data":[{"embedding":"AACAPw=="},{}],"usage":{"total_tokens":1}}`, true, "float")
	f.Add(`{"data":[],"usAgE":0}`, true, "0")
	f.Fuzz(func(t *testing.T, body string, vectors bool, encoding string) {
		r := ask(false)
		if vectors {
			r.Operation, r.Body = exchange.Embeddings, append(append([]byte(`{"encoding_format":`), quote(encoding)...), '}')
		}
		out, u, fail := New().Response(r, []byte(body), note)
		if fail != nil {
			if out != nil || fail.Message == "" {
				t.Fatalf("%+v with %s", fail, out)
			}
			return
		}
		var a, usage map[string]json.RawMessage // not a struct: its fields would also take members in another case
		err := json.Unmarshal(out, &a)
		if err == nil {
			err = json.Unmarshal(a["usage"], &usage)
		}
		if err != nil || !adapter.Valid(out) || string(a["model"]) != string(quote(alias)) || usage == nil || a["x_gateway"] == nil || u.Source == 0 {
			t.Fatalf("%v: %s became %s", err, body, out)
		}
	})
}
