package messages

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
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
		"documents": {
			user(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"title":"a.pdf","context":"of May","cache_control":{"type":"ephemeral"}},` +
				`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain"},"title":"T","citations":{"enabled":false}},` +
				`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"inner"},{"type":"image","source":{"type":"url","url":"https://a.test/b.png"}}]}},` +
				`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBF"}},` +
				`{"type":"search_result","source":"https://a.test","title":"found","content":[{"type":"text","text":"it"}]}`),
			asUser(`{"text":"of May","type":"text"},{"file":{"file_data":"data:application/pdf;base64,JVBE","filename":"a.pdf"},"type":"file"},` +
				`{"text":"T","type":"text"},{"text":"plain","type":"text"},` +
				`{"text":"inner","type":"text"},{"image_url":{"url":"https://a.test/b.png"},"type":"image_url"},` +
				`{"file":{"file_data":"data:application/pdf;base64,JVBF","filename":"document.pdf"},"type":"file"},` +
				`{"text":"found\nhttps://a.test","type":"text"},{"text":"it","type":"text"}`),
		},
		"results with pictures, and failed ones": {
			user(`{"type":"text","text":"look"},{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"seen"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},` +
				`{"type":"tool_result","tool_use_id":"t2","content":"no","is_error":true},{"type":"tool_result","tool_use_id":"t3"},{"type":"tool_result","tool_use_id":"t4","content":"yes","is_error":false}`),
			`{"max_completion_tokens":9,"messages":[{"content":[{"text":"seen","type":"text"}],"role":"tool","tool_call_id":"t1"},` +
				`{"content":[{"text":"The call failed:","type":"text"},{"text":"no","type":"text"}],"role":"tool","tool_call_id":"t2"},` +
				`{"content":"","role":"tool","tool_call_id":"t3"},{"content":"yes","role":"tool","tool_call_id":"t4"},` +
				`{"content":[{"text":"From the result of call t1:","type":"text"},{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"},{"text":"look","type":"text"}],"role":"user"}],"model":"m"}`,
		},
		"system between the turns": {
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`,
			`{"max_completion_tokens":9,"messages":[{"content":[{"text":"a","type":"text"}],"role":"user"},{"content":[{"text":"b","type":"text"}],"role":"system"},{"content":[{"text":"c","type":"text"}],"role":"user"}],"model":"m"}`,
		},
		"effort, schema, tier, hints": {
			with(`"thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"},"output_config":{"effort":"xhigh","format":{"type":"json_schema","schema":{"type":"object"}}},"service_tier":"standard_only",` +
				`"cache_control":{"type":"ephemeral"},"speed":"standard","container":null,"stop_sequences":[],"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},` +
				`"tools":[{"name":"f","cache_control":{"type":"ephemeral"},"eager_input_streaming":true,"defer_loading":false,"strict":true}]`),
			`{"max_completion_tokens":9,"messages":[{"content":[{"text":"a","type":"text"}],"role":"user"}],"model":"m","reasoning_effort":"xhigh",` +
				`"response_format":{"json_schema":{"name":"output","schema":{"type":"object"},"strict":true},"type":"json_schema"},"service_tier":"default",` +
				`"tools":[{"function":{"name":"f","strict":true},"type":"function"}]}`,
		},
		"images that were drawn": {
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"draw"},{"role":"assistant","content":[{"type":"text","text":"so"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},` +
				`{"role":"user","content":"again"},{"role":"assistant","content":[{"type":"image","source":{"type":"url","url":"https://a.test/b.png"}},{"type":"tool_use","id":"t1","name":"f","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"1"}]}]}`,
			`{"max_completion_tokens":9,"messages":[{"content":[{"text":"draw","type":"text"}],"role":"user"},` +
				`{"content":"so","images":[{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"assistant"},` +
				`{"content":[{"text":"again","type":"text"}],"role":"user"},{"images":[{"image_url":{"url":"https://a.test/b.png"},"type":"image_url"}],"role":"assistant",` +
				`"tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"t1","type":"function"}]},{"content":"1","role":"tool","tool_call_id":"t1"}],"model":"m"}`,
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

func with(member string) string {
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],` + member + `}`
}

func user(blocks string) string {
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[` + blocks + `]}]}`
}

func asUser(parts string) string {
	return `{"max_completion_tokens":9,"messages":[{"content":[` + parts + `],"role":"user"}],"model":"m"}`
}

// TestChatRefuses: what chat cannot say may go to Claude; what nobody can read goes nowhere.
func TestChatRefuses(t *testing.T) {
	const no, bad = exchange.FailUnsupported, exchange.FailRequest
	turn := func(m string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},` + m + `,{"role":"user","content":"b"}]}`
	}
	for _, row := range []struct {
		in    string
		kind  exchange.FailureKind
		param string
	}{
		{`{"model":"m","max_tokens":1}`, bad, "messages"},
		{turn(`{"role":"user"}`), bad, "messages[1].content"},
		{with(`"system":7`), bad, "system"},
		{with(`"tools":7`), bad, "tools"},
		{with(`"output_config":7`), bad, "output_config"},
		{with(`"output_config":{"format":{"type":"json_schema"}}`), bad, "output_config.format.schema"},
		{`{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"a"}]}`, no, "max_tokens"},
		{`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, no, "messages[1]"},
		{turn(`{"role":"robot","content":"a"}`), no, "messages[1].role"},
		{turn(`{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]}`), no, "messages[1].content[0].type"},
		{user(`{"type":"document","source":{"type":"url","url":"https://a.test/b.pdf"}}`), no, "messages[0].content[0].source"},
		{user(`{"type":"document","source":{"type":"file","file_id":"f"}}`), no, "messages[0].content[0].source"},
		{user(`{"type":"document","source":{"type":"text","data":"a"},"citations":{"enabled":true}}`), no, "messages[0].content[0].citations"},
		{user(`{"type":"document","source":{"type":"content","content":[{"type":"video"}]}}`), no, "messages[0].content[0].source.content[0].type"},
		{user(`{"type":"image","source":{"type":"file","file_id":"f"}}`), no, "messages[0].content[0].source"},
		{user(`{"type":"container_upload","file_id":"f"}`), no, "messages[0].content[0].type"},
		{user(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"tool_reference"}]}`), no, "messages[0].content[0].content[0].type"},
		{with(`"system":[{"type":"image"}]`), no, "system[0]"},
		{with(`"tools":[{"type":"web_search_20250305","name":"web_search"}]`), no, "tools[0].type"},
		{with(`"tools":[{"name":"f","defer_loading":true}]`), no, "tools[0].defer_loading"},
		{with(`"tools":[{"name":"f","input_examples":[{}]}]`), no, "tools[0].input_examples"},
		{with(`"tool_choice":{"type":"some"}`), no, "tool_choice.type"},
		{with(`"thinking":{"type":"deep"}`), no, "thinking.type"},
		{with(`"output_config":{"effort":"wild"}`), no, "output_config.effort"},
		{with(`"output_config":{"task_budget":{}}`), no, "output_config.task_budget"},
		{with(`"output_format":{"type":"grammar"}`), no, "output_format.type"},
		{with(`"service_tier":"flex"`), no, "service_tier"},
		{with(`"speed":"fast"`), no, "speed"},
		{with(`"mcp_servers":[{"type":"url"}]`), no, "mcp_servers"},
		{with(`"container":{}`), no, "container"},
		{with(`"context_management":{"edits":[{"type":"compact_20260112"}]}`), no, "context_management.edits[0]"},
	} {
		if got, f := Chat([]byte(row.in), nil); f == nil || f.Kind != row.kind || f.Param != row.param || f.Message == "" || f.Code == "" {
			t.Errorf("%s: got %s, %+v, want a fault of %q", row.in, got, f, row.param)
		}
	}
	if got, f := Chat([]byte(with(`"mcp_servers":[{"type":"url"}]`)), []string{"mcp_servers"}); f != nil || strings.Contains(string(got), "mcp") {
		t.Errorf("what may be dropped: %s %+v", got, f)
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
