package responses_test

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestChat(t *testing.T) {
	for name, row := range map[string]struct{ in, want string }{
		"a string": {
			`{"model":"m","input":"hi","instructions":"be brief","max_output_tokens":9,"temperature":0.5,"store":false,"metadata":{"a":"b"},"reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"},"verbosity":"low"},"truncation":"disabled","include":["reasoning.encrypted_content"],"previous_response_id":null,"background":false,"stream":true,"stream_options":{"include_obfuscation":false},"parallel_tool_calls":true,"tool_choice":"auto"}`,
			`{"max_completion_tokens":9,"messages":[{"content":"be brief","role":"system"},{"content":"hi","role":"user"}],"metadata":{"a":"b"},"model":"m","reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"verbosity":"low"}`,
		},
		"items without type, id or content": {
			`{"model":"m","input":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"},{"type":"input_file","filename":"f.pdf","file_data":"data:x"}]},` +
				`{"type":"reasoning","summary":[],"content":null},{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"another's"},{"role":"assistant","content":null},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]}]}`,
			`{"messages":[{"content":"d","role":"system"},{"content":[{"text":"a","type":"text"},{"image_url":{"detail":"low","url":"data:image/png;base64,AA=="},"type":"image_url"},{"file":{"file_data":"data:x","filename":"f.pdf"},"type":"file"}],"role":"user"},` +
				`{"content":"b","reasoning_content":"hm","role":"assistant"}],"model":"m"}`,
		},
		"calls": {
			`{"model":"m","parallel_tool_calls":false,"tool_choice":{"type":"function","name":"f"},"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"custom","name":"c","format":{"type":"text"}}],` +
				`"input":[{"role":"user","content":"go"},{"role":"assistant","content":"calling"},{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"a\":1}"},{"type":"custom_tool_call","call_id":"call_2","name":"c","input":"x\"y"},` +
				`{"type":"function_call_output","call_id":"call_1","output":"42"},{"type":"custom_tool_call_output","call_id":"call_2","output":[{"type":"input_text","text":"ok"}]},{"type":"function_call_output","call_id":"call_3","output":{"n":1}}]}`,
			`{"messages":[{"content":"go","role":"user"},{"content":"calling","role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"call_1","type":"function"},{"function":{"arguments":"{\"input\":\"x\\\"y\"}","name":"c"},"id":"call_2","type":"function"}]},` +
				`{"content":"42","role":"tool","tool_call_id":"call_1"},{"content":"ok","role":"tool","tool_call_id":"call_2"},{"content":"{\"n\":1}","role":"tool","tool_call_id":"call_3"}],` +
				`"model":"m","parallel_tool_calls":false,"tool_choice":{"function":{"name":"f"},"type":"function"},"tools":[{"function":{"description":"d","name":"f","parameters":{"type":"object"},"strict":true},"type":"function"},` +
				`{"function":{"name":"c","parameters":{"additionalProperties":false,"properties":{"input":{"type":"string"}},"required":["input"],"type":"object"}},"type":"function"}]}`,
		},
		"a schema, and tools to choose from": {
			`{"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}},"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}}`,
			`{"messages":[{"content":"a","role":"user"}],"model":"m","response_format":{"json_schema":{"name":"n","schema":{"type":"object"},"strict":true},"type":"json_schema"},"tool_choice":{"allowed_tools":{"mode":"required","tools":[{"function":{"name":"f"},"type":"function"}]},"type":"allowed_tools"},"tools":[{"function":{"name":"f"},"type":"function"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, f := responses.Chat([]byte(row.in), nil)
			if f != nil || string(got) != row.want {
				t.Errorf("%+v\ngot  %s\nwant %s", f, got, row.want)
			}
		})
	}
}

// TestChatRefuses: what chat cannot say is named, and left to providers that speak the API themselves.
func TestChatRefuses(t *testing.T) {
	with := func(member string) string { return `{"model":"m","input":"a",` + member + `}` }
	items := func(item string) string { return `{"model":"m","input":[{"role":"user","content":"a"},` + item + `]}` }
	for param, in := range map[string]string{
		"input":                         `{"model":"m","prompt":null}`,
		"input ":                        `{"model":"m","input":[]}`,
		"input[1].role":                 items(`{"role":"robot","content":"a"}`),
		"input[1].type":                 items(`{"type":"web_search_call","id":"ws_1","status":"completed"}`),
		"input[1].id":                   items(`{"type":"item_reference","id":"x"}`),
		"input[1].content[0].type":      items(`{"role":"user","content":[{"type":"input_video"}]}`),
		"input[1].content[0].image_url": items(`{"role":"user","content":[{"type":"input_image","image_url":null}]}`),
		"input[1].content[0].file_id":   items(`{"role":"user","content":[{"type":"input_image","file_id":"f"}]}`),
		"input[1].content[0].file_id ":  items(`{"role":"user","content":[{"type":"input_file","file_id":"f"}]}`),
		"input[1].content[0].file_url":  items(`{"role":"user","content":[{"type":"input_file","file_url":"https://a.test/b.pdf"}]}`),
		"input[1].content[0].file_data": items(`{"role":"user","content":[{"type":"input_file","filename":"f.pdf"}]}`),
		"input[1].content":              items(`{"role":"user","content":5}`),
		"tools":                         with(`"tools":{}`),
		"tools[0].defer_loading":        with(`"tools":[{"type":"function","name":"f","defer_loading":true}]`),
		"tools[0].allowed_callers":      with(`"tools":[{"type":"custom","name":"f","allowed_callers":["programmatic"]}]`),
		"tools[0].format":               with(`"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark"}}]`),
		"tool_choice.type":              with(`"tool_choice":{"type":"web_search"}`),
		"text.format.type":              with(`"text":{"format":{"type":"xml"}}`),
		"text.new":                      with(`"text":{"new":1}`),
		"reasoning.context":             with(`"reasoning":{"context":"all"}`),
		"instructions":                  with(`"instructions":[]`),
	} {
		got, f := responses.Chat([]byte(in), nil)
		if f == nil || f.Param != strings.TrimSpace(param) || f.Kind != exchange.FailUnsupported || f.Code == "" || f.Message == "" {
			t.Errorf("%s: got %s, %+v, want a fault of %q", in, got, f, param)
		}
	}
	for _, kind := range []string{
		"web_search", "web_search_preview", "file_search", "code_interpreter", "mcp", "computer", "computer_use_preview", "image_generation",
		"local_shell", "shell", "apply_patch", "namespace", "tool_search", "programmatic_tool_calling",
	} {
		_, f := responses.Chat([]byte(with(`"tools":[{"type":"function","name":"f"},{"type":"`+kind+`"}]`)), nil)
		if f == nil || f.Param != "tools[1].type" || !strings.Contains(f.Message, `"`+kind+`"`) || f.Kind != exchange.FailUnsupported {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	if got, f := responses.Chat([]byte(with(`"truncation":"auto","reasoning":{"effort":"low","context":"all"}`)), []string{"truncation", "reasoning"}); f != nil ||
		string(got) != `{"messages":[{"content":"a","role":"user"}],"model":"m"}` {
		t.Errorf("what may be dropped: %s %+v", got, f)
	}
}

// TestToolsDropped: Codex has tools that no other provider knows, beside those that all can call.
func TestToolsDropped(t *testing.T) {
	in := `{"model":"m","input":"a","tools":[{"type":"web_search"},{"type":"function","name":"shell","output_schema":{"type":"object"}},{"type":"custom","name":"patch","format":{"type":"grammar"}}]}`
	got, f := responses.Chat([]byte(in), []string{"tools"})
	if names := gjson.GetBytes(got, "tools.#.function.name").Raw; f != nil || names != `["shell","patch"]` {
		t.Errorf("%+v %s", f, got)
	}
}

func TestParam(t *testing.T) {
	for chat, want := range map[string]string{
		"max_tokens": "max_output_tokens", "reasoning_effort": "reasoning.effort", "response_format.json_schema": "text.format",
		"messages[3].content": "input", "tools[2].function.name": "tools[2].name", "temperature": "temperature", "": "",
		"text.format": "text.format", "logprobs": "include", "top_logprobs": "top_logprobs", "input[1].type": "input[1].type",
	} {
		if got := responses.Param(chat); got != want {
			t.Errorf("%s: got %s, want %s", chat, got, want)
		}
	}
}

func FuzzChat(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":[{"type":"reasoning","encrypted_content":"sluice1.e30"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text"}]}]}`))
	f.Add([]byte(`{"model":"m","input":"a","tools":[{"type":"custom"}],"tool_choice":{"type":"allowed_tools","tools":[1]},"text":{"format":null},"reasoning":5,"include":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !adapter.Valid(body) || !gjson.ParseBytes(body).IsObject() {
			return // the gateway has looked
		}
		got, bad := responses.Chat(body, nil)
		if (bad == nil) != adapter.Valid(got) || bad != nil && (bad.Kind != exchange.FailUnsupported || strings.TrimSpace(bad.Message) == "") {
			t.Errorf("%q became %q, %+v", body, got, bad)
		}
	})
}
