package responses

import (
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// A custom tool takes a text. To chat it is a function with this one argument.
const customInput = "input"

// tools takes the tools that the caller runs. Where tools may be dropped, those go that chat cannot say, and what chat
// cannot say of the others: the grammar of a custom tool's text, which no provider holds a function's argument to.
func (t *translation) tools(v gjson.Result) *exchange.Failure {
	if !v.IsArray() {
		return malformed("tools", "tools must be an array")
	}
	drop := slices.Contains(t.dropped, "tools")
	var list []any
	for i, tool := range v.Array() {
		at := fmt.Sprintf("tools[%d]", i)
		f := object{}
		f.set("name", tool.Get("name"))
		f.set("description", tool.Get("description"))
		kind := tool.Get("type").Str
		if no := toolMembers(at, kind, tool); no != nil && !drop {
			return no
		}
		switch kind {
		case "function":
			f.set("parameters", tool.Get("parameters"))
			f.set("strict", tool.Get("strict"))
		case "custom":
			f["parameters"] = object{
				"type": "object", "properties": object{customInput: object{"type": "string"}},
				"required": []string{customInput}, "additionalProperties": false,
			}
		default:
			continue // dropped
		}
		list = append(list, object{"type": "function", "function": f})
	}
	if len(list) > 0 {
		t.out["tools"] = list
	}
	return nil
}

// toolMembers refuses what chat has no word for.
func toolMembers(at, kind string, tool gjson.Result) (f *exchange.Failure) {
	if kind != "function" && kind != "custom" {
		return unsupported(at+".type", "no deployment of this model that could be tried speaks the Responses API, which the tool %q needs", kind)
	}
	tool.ForEach(func(k, v gjson.Result) bool {
		switch name := k.Str; {
		case !given(v), v.Type == gjson.False, v.IsArray() && len(v.Array()) == 0:
		case name == "type", name == "name", name == "description", name == "parameters", name == "strict":
		case name == "format" && v.Get("type").Str == "text":
		case name == "format":
			f = unsupported(at+".format", "a tool's input cannot be held to a format of type %q here", v.Get("type").String())
		case name == "allowed_callers" && v.Get("@ugly").Raw == `["direct"]`:
		default:
			f = unsupported(at+"."+name, "%s is not supported here", name)
		}
		return f == nil
	})
	return f
}

func (t *translation) choice(v gjson.Result) *exchange.Failure {
	switch kind := v.Get("type").Str; {
	case v.Type == gjson.String:
		t.out.set("tool_choice", v)
	case kind == "function", kind == "custom":
		t.out["tool_choice"] = named(v)
	case kind == "allowed_tools":
		var list []any
		for i, tool := range v.Get("tools").Array() {
			if k := tool.Get("type").Str; k != "function" && k != "custom" {
				return unsupported(fmt.Sprintf("tool_choice.tools[%d].type", i), "a tool of type %q is not supported here", k)
			}
			list = append(list, named(tool))
		}
		t.out["tool_choice"] = object{
			"type": "allowed_tools", "allowed_tools": object{"mode": v.Get("mode").String(), "tools": list},
		}
	default:
		return unsupported("tool_choice.type", "a choice of type %q is not supported here", kind)
	}
	return nil
}

func named(v gjson.Result) object {
	return object{"type": "function", "function": object{"name": v.Get("name").Str}}
}

// customTools are the names of the custom tools of a request.
func customTools(body []byte) map[string]bool {
	names := map[string]bool{}
	gjson.GetBytes(body, "tools").ForEach(func(_, tool gjson.Result) bool {
		if tool.Get("type").Str == "custom" {
			names[tool.Get("name").Str] = true
		}
		return true
	})
	return names
}

// customText is the text inside the arguments of a call of a custom tool. Models may write what is none: then all of it.
func customText(arguments string) string {
	if adapter.Valid([]byte(arguments)) {
		if v := gjson.Get(arguments, customInput); v.Type == gjson.String {
			return v.Str
		}
	}
	return arguments
}
