package responses_test

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestMembers: each member of a request is told to the provider, or asks for nothing that could be missed, or is refused by
// its name; and the response says again what it was asked with.
func TestMembers(t *testing.T) {
	const (
		same    = ""       // the provider is asked for no more than without it
		refused = "refuse" // with the member's name
	)
	const bare = `{"messages":[{"content":"a","role":"user"}],"model":"m"`
	for _, row := range []struct {
		member, value string
		chat          string // what the provider is asked for more
		echo          bool
	}{
		{"background", `false`, same, false},
		{"background", `true`, refused, false},
		{"client_metadata", `{"x":"y"}`, same, false},
		{"context_management", `[{"type":"compaction"}]`, refused, false},
		{"conversation", `"conv_1"`, refused, false},
		{"conversation", `null`, same, false},
		{"include", `["reasoning.encrypted_content","web_search_call.action.sources","message.input_image.image_url"]`, same, false},
		{"include", `["message.output_text.logprobs"]`, `"logprobs":true`, false},
		{"include", `["new"]`, refused, false},
		{"instructions", `"be brief"`, `"messages":[{"content":"be brief","role":"system"},{"content":"a","role":"user"}]`, true},
		{"max_output_tokens", `9`, `"max_completion_tokens":9`, true},
		{"max_tool_calls", `3`, same, true},
		{"metadata", `{"k":"v"}`, `"metadata":{"k":"v"}`, true},
		{"moderation", `{"model":"x"}`, refused, false},
		{"parallel_tool_calls", `true`, same, true}, // says nothing without tools
		{"previous_response_id", `"resp_1"`, refused, false},
		{"previous_response_id", `null`, same, false},
		{"prompt", `{"id":"pmpt_1"}`, refused, false},
		{"prompt_cache_key", `"k"`, `"prompt_cache_key":"k"`, true},
		{"prompt_cache_options", `{"mode":"explicit"}`, `"prompt_cache_options":{"mode":"explicit"}`, false},
		{"prompt_cache_retention", `"24h"`, `"prompt_cache_retention":"24h"`, true},
		{"reasoning", `{"effort":"low","summary":"auto"}`, `"reasoning_effort":"low"`, true},
		{"reasoning", `{"generate_summary":"auto","effort":null}`, same, true},
		{"reasoning.context", `{"context":"all_turns"}`, refused, false},
		{"reasoning.mode", `{"mode":"pro"}`, refused, false},
		{"safety_identifier", `"s"`, `"safety_identifier":"s"`, true},
		{"service_tier", `"flex"`, `"service_tier":"flex"`, false}, // the answer says what was billed
		{"store", `false`, same, false},
		{"store", `true`, refused, false},
		{"stream", `false`, `"stream":false`, false},
		{"stream_options", `{"include_obfuscation":false}`, same, false},
		{"temperature", `0.5`, `"temperature":0.5`, true},
		{"text", `{"format":{"type":"text"}}`, same, true},
		{"text", `{"format":{"type":"json_object"},"verbosity":"low"}`, `"response_format":{"type":"json_object"},"verbosity":"low"`, true},
		{"text", `{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true,"description":"d"}}`,
			`"response_format":{"json_schema":{"description":"d","name":"n","schema":{"type":"object"},"strict":true},"type":"json_schema"}`, true},
		{"text.format.type", `{"format":{"type":"grammar"}}`, refused, false},
		{"text.new", `{"new":1}`, refused, false},
		{"tool_choice", `"required"`, same, true}, // says nothing without tools
		{"tool_choice.type", `{"type":"mcp","server_label":"x"}`, refused, false},
		{"tools", `[]`, same, true},
		{"tools", `[{"type":"function","name":"f","strict":false,"defer_loading":false,"allowed_callers":["direct"]}]`,
			`"tools":[{"function":{"name":"f","strict":false},"type":"function"}]`, true},
		{"tools[0].format", `[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"regex","definition":"a"}}]`, refused, false},
		{"top_logprobs", `5`, same, true}, // without the include OpenAI shows none either
		{"top_p", `0.5`, `"top_p":0.5`, true},
		{"truncation", `"disabled"`, same, true},
		{"truncation", `"auto"`, refused, false},
		{"user", `"u"`, `"user":"u"`, true},
		{"access_programs", `{"cyber":"x"}`, refused, false},
		{"image", `{"x":1}`, refused, false},
		{"new", `1`, refused, false},
	} {
		name, _, _ := strings.Cut(strings.ReplaceAll(row.member, "[", "."), ".")
		body := `{"model":"m","input":"a","` + name + `":` + row.value + `}`
		got, f := responses.Chat([]byte(body), nil)
		if row.chat == refused {
			if f == nil || f.Kind != exchange.FailUnsupported || f.Message == "" || f.Param != row.member && f.Param != row.member+"[0]" {
				t.Errorf("%s: %s %+v", body, got, f)
			}
			if dropped, f := responses.Chat([]byte(body), []string{name}); f != nil || name != "tools" && string(dropped) != bare+"}" {
				t.Errorf("%s, dropped: %s %+v", body, dropped, f)
			}
			continue
		}
		if want := joined(bare, row.chat); f != nil || canonical(t, got) != canonical(t, []byte(want)) {
			t.Errorf("%s: %+v\ngot  %s\nwant %s", body, f, got, want)
		}
		if !row.echo {
			continue
		}
		r := ask(false)
		r.Native = []byte(body)
		out, _, f := responses.Face{Adapter: openai.New()}.Response(r, []byte(`{"choices":[{"index":0,"message":{"content":"b"},"finish_reason":"stop"}]}`), note)
		if said := gjson.GetBytes(out, name).Raw; f != nil || said != row.value {
			t.Errorf("%s: %+v the response says %s", body, f, said)
		}
	}
}

// joined is an object, which is not closed yet, with the members of another in the place of its own.
func joined(object, members string) string {
	if strings.HasPrefix(members, `"messages"`) {
		return `{"model":"m",` + members + "}"
	}
	if members != "" {
		object += ","
	}
	return object + members + "}"
}

func canonical(t *testing.T, doc []byte) string {
	t.Helper()
	if !gjson.ValidBytes(doc) {
		t.Fatalf("no JSON: %s", doc)
	}
	return gjson.GetBytes(doc, `@pretty:{"sortKeys":true}`).Raw
}
