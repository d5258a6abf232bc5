package prompt

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// cacheControl is what callers of OpenRouter and LiteLLM say for prompt_cache_breakpoint. A message's is its last part's.
const cacheControl = "cache_control"

// unknown is the failure of a member of a message or a part that is not read, unless its value asks for nothing. To drop it
// silently could change what the caller asked for.
func (p *reader) unknown(at Place, name string, v gjson.Result) *exchange.Failure {
	switch name {
	case "reasoning_content", "reasoning", "annotations", "extra_content", "provider_specific_fields": // of an answer that comes back
		return nil
	case "id", "index", "metadata": // bookkeeping
		return nil
	}
	if empty(v) {
		return nil
	}
	return adapter.Unsupported(at.String()+"."+name, p.vendor+" cannot honour "+adapter.Printable(name))
}

// empty reports whether a value says no more than that there is none.
func empty(v gjson.Result) bool {
	none := v.Type == gjson.Null || v.Type == gjson.False || v.Type == gjson.String && v.Str == ""
	if v.Type == gjson.JSON {
		none = true
		v.ForEach(func(_, _ gjson.Result) bool {
			none = false
			return false
		})
	}
	return none
}
