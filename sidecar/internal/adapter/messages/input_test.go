package messages

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestInput: arguments that are no object are never made up. Cut ones are told as they stand, and broken ones are no answer.
func TestInput(t *testing.T) {
	for _, row := range []struct{ arguments, finish, want string }{
		{`"{\"a\":1}"`, "tool_calls", `{"a":1}`},
		{`" {\"a\":1}\n"`, "length", `{"a":1}`},
		{`""`, "tool_calls", `{}`},
		{`" "`, "tool_calls", `{}`},
		{`"{\"a\":\"b"`, "length", `{"INVALID_JSON":"{\"a\":\"b"}`},
		{`"{\"a\":"`, "content_filter", `{"INVALID_JSON":"{\"a\":"}`},
		{`"\ud800"`, "length", `{"INVALID_JSON":"\ud800"}`},
		{`"{\"a\":1,}"`, "tool_calls", ""},
		{`"[1]"`, "tool_calls", ""},
		{`"oops"`, "stop", ""},
	} {
		body := `{"id":"c1","choices":[{"message":{"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":` + row.arguments + `}}]},"finish_reason":"` + row.finish + `"}]}`
		out, _, f := Face{openai.New()}.Response(&exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`)}, []byte(body), note)
		if got := gjson.GetBytes(out, "content.0.input").Raw; got != row.want {
			t.Errorf("%s, %s: got %s, want %s", row.arguments, row.finish, got, row.want)
		}
		if (f != nil) != (row.want == "") || f != nil && (f.Kind != exchange.FailInvalid || adapter.Told(f).Code != "upstream_invalid_response") {
			t.Errorf("%s, %s: %+v", row.arguments, row.finish, f)
		}
	}
}

// TestOldForm: the one call of servers that know no list of calls is a call.
func TestOldForm(t *testing.T) {
	for _, finish := range []string{"function_call", "stop"} {
		for way, content := range both(t, `{"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}}`, `"`+finish+`"`,
			`{"role":"assistant","function_call":{"name":"f","arguments":""}}`, `{"function_call":{"arguments":"{\"a\":"}}`, `{"function_call":{"arguments":"1}"}}`) {
			want := `[{"type":"tool_use","name":"f","input":{"a":1},"id":"` + adapter.CallID("c1", 0, 0) + `"}]`
			if gjson.Get(content, `@pretty:{"sortKeys":true}`).Raw != gjson.Get(want, `@pretty:{"sortKeys":true}`).Raw {
				t.Errorf("%s, %s: got %s, want %s", way, finish, content, want)
			}
		}
		types, _, f := play(t, chunk(`{"function_call":{"name":"f","arguments":{"a":1}}}`, "null"), chunk(`{}`, `"`+finish+`"`), counted, "[DONE]")
		if f != nil || types != "message_start, start tool_use, content_block_stop, message_delta tool_use 3, message_stop" {
			t.Errorf("%s: %s %+v", finish, types, f)
		}
	}
}
