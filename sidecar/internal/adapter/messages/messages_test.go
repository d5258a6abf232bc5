package messages

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestChat(t *testing.T) {
	for name, row := range map[string]struct{ in, want string }{
		"text": {
			`{"model":"m","max_tokens":9,"system":"be brief","stop_sequences":["x"],"temperature":0.5,"metadata":{"user_id":"u"},"messages":[{"role":"user","content":"hi"}]}`,
			`{"max_completion_tokens":9,"messages":[{"content":"be brief","role":"system"},{"content":[{"text":"hi","type":"text"}],"role":"user"}],"model":"m","stop":["x"],"temperature":0.5,"user":"u"}`,
		},
		"stream": {
			`{"model":"m","max_tokens":9,"stream":true,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],"messages":[]}`,
			`{"max_completion_tokens":9,"messages":[{"content":[{"text":"a","type":"text"}],"role":"system"}],"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
		},
		"tools": {
			`{"model":"m","max_tokens":9,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"messages":[` +
				`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"calling"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},` +
				`{"role":"user","content":[{"type":"text","text":"and?"},{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"42"}]}]}]}`,
			`{"max_completion_tokens":9,"messages":[` +
				`{"content":"calling","reasoning_details":[{"format":"anthropic-claude-v1","index":0,"signature":"s","text":"hm","type":"reasoning.text"}],"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"t1","type":"function"}]},` +
				`{"content":[{"text":"42","type":"text"}],"role":"tool","tool_call_id":"t1"},{"content":[{"text":"and?","type":"text"}],"role":"user"}],` +
				`"model":"m","parallel_tool_calls":false,"tool_choice":"required","tools":[{"function":{"description":"d","name":"f","parameters":{"type":"object"}},"type":"function"}]}`,
		},
		"image and thinking": {
			`{"model":"m","max_tokens":9,"thinking":{"type":"enabled","budget_tokens":4096},"tool_choice":{"type":"tool","name":"f"},"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]}`,
			`{"max_completion_tokens":9,"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"user"}],"model":"m","reasoning_effort":"medium","tool_choice":{"function":{"name":"f"},"type":"function"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, bad := Chat([]byte(row.in), nil)
			if bad != nil || string(got) != row.want {
				t.Errorf("got %s, %+v\nwant %s", got, bad, row.want)
			}
		})
	}
}

func TestChatRefuses(t *testing.T) {
	with := func(member string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],` + member + `}`
	}
	for param, in := range map[string]string{
		"":                            `[`,
		"max_tokens":                  `{"model":"m","messages":[]}`,
		"messages":                    `{"model":"m","max_tokens":1}`,
		"messages[0].role":            `{"model":"m","max_tokens":1,"messages":[{"role":"robot","content":"a"}]}`,
		"messages[0].content":         `{"model":"m","max_tokens":1,"messages":[{"role":"user"}]}`,
		"messages[0].content[0].type": `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document"}]}]}`,
		"system":                      with(`"system":7`),
		"tools[0].type":               with(`"tools":[{"type":"web_search_20250305","name":"web_search"}]`),
		"tool_choice.type":            with(`"tool_choice":{"type":"some"}`),
		"thinking.type":               with(`"thinking":{"type":"deep"}`),
		"mcp_servers":                 with(`"mcp_servers":[]`),
		"model":                       with(`"model":"again"`),
	} {
		if got, bad := Chat([]byte(in), nil); bad == nil || bad.Param != param || bad.Message == "" {
			t.Errorf("%s: got %s, %+v, want a fault of %q", in, got, bad, param)
		}
	}
}

func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	return append(dst, `{"cost":1}`...), u
}

func TestResponse(t *testing.T) {
	body := `{"id":"c1","object":"chat.completion","created":1,"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"oops"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":4}}}`
	r := &exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`)}
	got, u, f := Face{openai.New()}.Response(r, []byte(body), note)
	want := `{"content":[{"signature":"","thinking":"hm","type":"thinking"},{"text":"hi","type":"text"},{"id":"t1","input":{"a":1},"name":"f","type":"tool_use"},{"id":"t2","input":{},"name":"g","type":"tool_use"}],` +
		`"id":"c1","model":"m","role":"assistant","stop_reason":"tool_use","stop_sequence":null,"type":"message",` +
		`"usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"input_tokens":6,"output_tokens":3},"x_gateway":{"cost":1}}`
	if f != nil || string(got) != want || u.Output != 3 {
		t.Errorf("got %s, %+v, %+v\nwant %s", got, u, f, want)
	}
}

// play sends chunks through the face and returns the types of the events, a block's pieces put together.
func play(t *testing.T, chunks ...string) (types, text string, f *exchange.Failure) {
	t.Helper()
	s := Face{openai.New()}.Stream(&exchange.Request{Operation: exchange.Chat, Model: "m", Stream: true, IncludeUsage: true, Choices: 1}, note)
	var out []byte
	for _, c := range chunks {
		var p adapter.Progress
		if out, p = s.Event(out, nil, []byte(c)); p.Failure != nil {
			return "", "", p.Failure
		}
	}
	if out, f = s.End(out); f != nil {
		return "", "", f
	}
	var kinds []string
	for e := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
		doc := gjson.Parse(data)
		if !ok || doc.Get("type").Str != name {
			t.Fatalf("event %q", e)
		}
		switch name {
		case "content_block_start":
			name = "start " + doc.Get("content_block.type").Str
		case "content_block_delta":
			d := doc.Get("delta")
			text += d.Get("text").Str + d.Get("partial_json").Str + d.Get("thinking").Str
			continue
		case "message_delta":
			name += " " + doc.Get("delta.stop_reason").Str + " " + doc.Get("usage.output_tokens").Raw
		}
		kinds = append(kinds, name)
	}
	return strings.Join(kinds, ", "), text, nil
}

func chunk(delta, finish string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

const counted = `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}`

func TestStream(t *testing.T) {
	types, text, f := play(t,
		chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{"reasoning_content":"hm "}`, "null"), chunk(`{"content":"so "}`, "null"),
		chunk(`{"content":"it is"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"g","arguments":"[]"}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`), counted, "[DONE]")
	want := "message_start, start thinking, content_block_stop, start text, content_block_stop, start tool_use, content_block_stop, " +
		"start tool_use, content_block_stop, message_delta tool_use 3, message_stop"
	if f != nil || types != want || text != "hm so it is{}[]" {
		t.Errorf("got %s\n%q %+v", types, text, f)
	}
	if _, _, f := play(t, chunk(`{"content":"a"}`, "null")); f == nil || f.Kind != exchange.FailCut {
		t.Errorf("a cut stream: %+v", f)
	}
	if types, _, f := play(t, chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{}`, `"length"`), counted, "[DONE]"); f != nil ||
		types != "message_start, message_delta max_tokens 3, message_stop" {
		t.Errorf("nothing said: %s %+v", types, f)
	}
}

func TestAbort(t *testing.T) {
	s := Face{openai.New()}.Stream(&exchange.Request{Operation: exchange.Chat, Model: "m", Stream: true, Choices: 1}, note)
	got := string(s.Abort(nil, &exchange.Failure{Kind: exchange.FailTimeout, Message: "too slow"}))
	if !strings.HasPrefix(got, "event: error\ndata: ") || gjson.Get(got[len("event: error\ndata: "):], "error.type").Str != "timeout_error" ||
		!strings.Contains(got, "too slow") {
		t.Errorf("got %s", got)
	}
}

func FuzzChat(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !adapter.Valid(body) || !gjson.ParseBytes(body).IsObject() {
			return // the gateway looks first
		}
		if got, bad := Chat(body, nil); bad == nil && !adapter.Valid(got) {
			t.Errorf("%q became %q", body, got)
		}
	})
}
