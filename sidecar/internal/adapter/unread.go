package adapter

import "github.com/tidwall/gjson"

// Unread reports whether a member of a message or a part that an adapter does not read asks for something. To drop it
// silently could change the answer.
func Unread(name string, v gjson.Result) bool {
	switch name {
	case "reasoning_content", "reasoning", "reasoning_details", "annotations", "extra_content", "provider_specific_fields": // of an answer that comes back
		return false
	case "id", "index", "metadata": // bookkeeping
		return false
	case "cache_control", "prompt_cache_breakpoint": // hints
		return false
	}
	switch v.Type {
	case gjson.String:
		return v.Str != ""
	case gjson.JSON:
		holds := false
		v.ForEach(func(_, _ gjson.Result) bool {
			holds = true
			return false
		})
		return holds
	}
	return v.Type == gjson.True || v.Type == gjson.Number
}
