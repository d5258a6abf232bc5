package messages

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestMembers: each member of a request is told to the provider, or asks for nothing that could be missed, or is refused by
// its name.
func TestMembers(t *testing.T) {
	const (
		same    = ""       // the provider is asked for no more than without it
		refused = "refuse" // with the member's name
	)
	const tool = `"tools":[{"function":{"name":"f"},"type":"function"}]`
	for _, row := range []struct{ member, value, chat string }{
		{"cache_control", `{"type":"ephemeral","ttl":"1h"}`, same},
		{"compaction", `{"type":"enabled"}`, refused},
		{"container", `"c_1"`, refused},
		{"container", `null`, same},
		{"context_management", `{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`, same},
		{"context_management.edits[0]", `{"edits":[{"type":"clear_tool_uses_20250919"}]}`, refused},
		{"diagnostics", `{"previous_message_id":null}`, same},
		{"fallbacks", `[]`, same},
		{"fallbacks", `[{"model":"x"}]`, refused},
		{"fallback_credit_token", `"x"`, refused},
		{"inference_geo", `"us"`, refused},
		{"inference_geo", `null`, same},
		{"mcp_servers", `[]`, same},
		{"mcp_servers", `[{"type":"url","url":"https://a.test","name":"a"}]`, refused},
		{"metadata", `{"user_id":"u"}`, `"user":"u"`},
		{"metadata", `{"user_id":null}`, same},
		{"output_config", `{"effort":"high"}`, `"reasoning_effort":"high"`},
		{"output_config", `{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
			`"response_format":{"json_schema":{"name":"output","schema":{"type":"object"},"strict":true},"type":"json_schema"}`},
		{"output_config.task_budget", `{"task_budget":{"type":"tokens","total":9}}`, refused},
		{"output_format", `{"type":"json_schema","schema":{"type":"object"}}`,
			`"response_format":{"json_schema":{"name":"output","schema":{"type":"object"},"strict":true},"type":"json_schema"}`},
		{"service_tier", `"auto"`, `"service_tier":"auto"`},
		{"service_tier", `"standard_only"`, `"service_tier":"default"`},
		{"service_tier", `"priority"`, refused},
		{"speed", `"standard"`, same},
		{"speed", `"fast"`, refused},
		{"stop_sequences", `["a","b"]`, `"stop":["a","b"]`},
		{"stop_sequences", `[]`, same},
		{"stream", `false`, `"stream":false`},
		{"stream", `true`, `"stream":true,"stream_options":{"include_usage":true}`},
		{"system", `"be brief"`, `"messages":[{"content":"be brief","role":"system"},{"content":[{"text":"a","type":"text"}],"role":"user"}]`},
		{"system", `[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}},{"type":"text","text":"or not"}]`,
			`"messages":[{"content":[{"text":"be brief","type":"text"},{"text":"or not","type":"text"}],"role":"system"},{"content":[{"text":"a","type":"text"}],"role":"user"}]`},
		{"temperature", `0.5`, `"temperature":0.5`},
		{"thinking", `{"type":"enabled","budget_tokens":2000,"display":"omitted"}`, `"reasoning_effort":"low"`},
		{"thinking", `{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`, same},
		{"thinking", `{"type":"disabled"}`, same},
		{"thinking.type", `{"type":"between_tools"}`, refused},
		{"thinking.new", `{"type":"adaptive","new":1}`, refused},
		{"tool_choice", `{"type":"auto","disable_parallel_tool_use":true}`, same}, // says nothing without tools
		{"tool_choice", `{"type":"any"}`, `"tool_choice":"required"`},
		{"tool_choice.type", `{"type":"new"}`, refused},
		{"tools", `[]`, same},
		{"tools", `[{"name":"f","cache_control":{"type":"ephemeral"},"eager_input_streaming":true,"defer_loading":false,"allowed_callers":["direct"],"input_examples":[]}]`, tool},
		{"tools[0].input_examples", `[{"name":"f","input_examples":[{"a":1}]}]`, refused},
		{"tools[0].allowed_callers", `[{"name":"f","allowed_callers":["code_execution_20260120"]}]`, refused},
		{"tools[0].defer_loading", `[{"name":"f","defer_loading":true}]`, refused},
		{"top_k", `5`, `"top_k":5`},
		{"top_p", `0.5`, `"top_p":0.5`},
		{"new", `1`, refused},
	} {
		name, _, _ := strings.Cut(strings.ReplaceAll(row.member, "[", "."), ".")
		body := with(`"` + name + `":` + row.value)
		got, f := Chat([]byte(body), nil)
		if row.chat == refused {
			if f == nil || f.Kind != exchange.FailUnsupported || f.Message == "" || f.Param != row.member {
				t.Errorf("%s: %s %+v", body, got, f)
			}
			if dropped, f := Chat([]byte(body), []string{name}); f != nil || strings.Contains(string(dropped), name) && name != "tools" {
				t.Errorf("%s, dropped: %s %+v", body, dropped, f)
			}
			continue
		}
		want := strings.TrimSuffix(asUser(`{"text":"a","type":"text"}`), "}")
		switch {
		case strings.HasPrefix(row.chat, `"messages"`):
			want = `{"max_completion_tokens":9,"model":"m",` + row.chat
		case row.chat != same:
			want += "," + row.chat
		}
		if sorted := gjson.Get(want+"}", `@pretty:{"sortKeys":true}`).Raw; f != nil || gjson.GetBytes(got, `@pretty:{"sortKeys":true}`).Raw != sorted {
			t.Errorf("%s: %+v\ngot  %s\nwant %s}", body, f, got, want)
		}
	}
	for _, kind := range []string{
		"web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20251124", "bash_20250124", "text_editor_20250728",
		"memory_20250818", "mcp_toolset", "tool_search_tool_bm25_20251119", "advisor_20260301",
	} {
		in := with(`"tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"` + kind + `","name":"x"}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`)
		if _, f := Chat([]byte(in), nil); f == nil || f.Param != "tools[1].type" || !strings.Contains(f.Message, `"`+kind+`"`) || f.Kind != exchange.FailUnsupported {
			t.Errorf("%s: %+v", kind, f)
		}
		got, f := Chat([]byte(in), []string{"tools"})
		if f != nil || gjson.GetBytes(got, "tools.#.function.name").Raw != `["f"]` || gjson.GetBytes(got, "parallel_tool_calls").Raw != "false" {
			t.Errorf("%s, dropped: %s %+v", kind, got, f)
		}
		alone := with(`"tools":[{"type":"` + kind + `","name":"x"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}`)
		if got, f = Chat([]byte(alone), []string{"tools"}); f != nil || strings.Contains(string(got), "tool") {
			t.Errorf("%s, alone and dropped: %s %+v", kind, got, f)
		}
	}
}
