package adapter

import "github.com/tidwall/gjson"

// Harmless reports whether a member of a chat request asks for nothing by its value: for what happens without it.
// Where a member cannot be honoured, such a value may go.
func Harmless(name string, v gjson.Result) bool {
	if v.Type == gjson.Null {
		return true
	}
	switch name {
	case "n", "temperature", "top_p":
		return v.Type == gjson.Number && v.Num == 1
	case "logprobs", "store":
		return v.Type == gjson.False
	case "parallel_tool_calls":
		return v.Type == gjson.True
	case "frequency_penalty", "presence_penalty", "top_logprobs":
		return v.Type == gjson.Number && v.Num == 0
	case "logit_bias":
		return v.IsObject() && v.Get("@ugly").Raw == "{}"
	case "modalities":
		return v.Get("@ugly").Raw == `["text"]`
	case "verbosity":
		return v.Str == "medium"
	case "tool_choice":
		return v.Str == "auto"
	case "service_tier":
		return v.Str == "auto" || v.Str == "default"
	case "response_format":
		return v.Get("type").Str == "text"
	}
	return false
}
