package messages

import (
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// tools takes the tools that the caller runs. Where tools may be dropped, those go that chat cannot say, and what it
// cannot say of the others.
func (c *chat) tools(v gjson.Result) *exchange.Failure {
	if !v.IsArray() {
		return adapter.Invalid("tools", "tools must be an array")
	}
	drop := slices.Contains(c.droppable, "tools")
	var list []any
	for i, t := range v.Array() {
		at, kind := fmt.Sprintf("tools[%d]", i), t.Get("type").Str
		own := kind != "" && kind != "custom"
		f := toolMembers(at, t)
		if own {
			f = unsupported(at+".type", "no deployment of this model that could be tried speaks the Messages API, which the tool %q needs", kind)
		}
		switch {
		case f != nil && !drop:
			return f
		case own:
			continue
		}
		fn := object{"name": t.Get("name").Str}
		fn.set("description", t.Get("description"))
		fn.set("parameters", t.Get("input_schema"))
		fn.set("strict", t.Get("strict"))
		list = append(list, object{"type": "function", "function": fn})
	}
	if len(list) > 0 {
		c.out["tools"] = list
	}
	return nil
}

// toolMembers refuses what chat has no word for.
func toolMembers(at string, t gjson.Result) (f *exchange.Failure) {
	t.ForEach(func(k, v gjson.Result) bool {
		switch name := k.Str; {
		case v.Type == gjson.Null:
		case name == "type", name == "name", name == "description", name == "input_schema", name == "strict":
		case name == "cache_control", name == "eager_input_streaming": // hints
		case v.Type == gjson.False, v.IsArray() && len(v.Array()) == 0:
		case name == "allowed_callers" && v.Get("@ugly").Raw == `["direct"]`:
		default:
			f = unsupported(at+"."+name, "%s is not supported here", name)
		}
		return f == nil
	})
	return f
}

func (c *chat) choose(v gjson.Result) *exchange.Failure {
	switch kind := v.Get("type").Str; kind {
	case "auto", "none":
		c.out["tool_choice"] = kind
	case "any":
		c.out["tool_choice"] = "required"
	case "tool":
		c.out["tool_choice"] = object{"type": "function", "function": object{"name": v.Get("name").Str}}
	default:
		return unsupported("tool_choice.type", "%q is not auto, any, tool or none", kind)
	}
	if v.Get("disable_parallel_tool_use").Type == gjson.True {
		c.out["parallel_tool_calls"] = false
	}
	return nil
}
