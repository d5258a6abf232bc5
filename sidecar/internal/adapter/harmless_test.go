package adapter

import (
	"testing"

	"github.com/tidwall/gjson"
)

func TestHarmless(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"n", "1", true}, {"n", "2", false}, {"n", `"1"`, false}, {"n", "null", true},
		{"temperature", "1.0", true}, {"temperature", "0", false}, {"top_p", "0.9", false},
		{"logprobs", "false", true}, {"logprobs", "true", false}, {"store", "false", true}, {"top_logprobs", "0", true},
		{"parallel_tool_calls", "true", true}, {"parallel_tool_calls", "false", false},
		{"presence_penalty", "0", true}, {"presence_penalty", "0.1", false},
		{"logit_bias", "{ }", true}, {"logit_bias", `{"1":2}`, false}, {"logit_bias", "[]", false},
		{"functions", "[]", false}, {"function_call", `"auto"`, false},
		{"modalities", `[ "text" ]`, true}, {"modalities", `["text","audio"]`, false},
		{"verbosity", `"medium"`, true}, {"verbosity", `"low"`, false},
		{"tool_choice", `"auto"`, true}, {"tool_choice", `"none"`, false},
		{"service_tier", `"default"`, true}, {"service_tier", `"flex"`, false},
		{"response_format", `{"type":"text"}`, true}, {"response_format", `{"type":"json_object"}`, false},
		{"anything", "false", false}, {"anything", "null", true},
	} {
		if got := Harmless(c.name, gjson.Parse(c.value)); got != c.want {
			t.Errorf("%s: %s is harmless: %v", c.name, c.value, got)
		}
	}
}
