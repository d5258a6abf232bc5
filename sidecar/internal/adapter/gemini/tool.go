package gemini

import (
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// toolbox is the tools of a request and which of them may be called.
type toolbox struct {
	names   []string
	schemas []string // the provider's declarations, one per name
	mode    string   // AUTO, ANY or NONE; "" when the caller did not say
	named   string   // the one that must be called, "" for any
	allowed []string // nil: all
	strict  bool     // arguments must fit their schema
	serial  bool     // no two calls in one turn
}

// define takes the caller's tools.
func (t *toolbox) define(v gjson.Result) *exchange.Failure {
	if !v.IsArray() {
		return invalid("tools", "tools must be an array")
	}
	for i, tool := range v.Array() {
		at := fmt.Sprintf("tools[%d]", i)
		if !tool.IsObject() {
			return invalid(at, "a tool must be an object")
		}
		switch kind := tool.Get("type"); {
		case kind.Type == gjson.String && kind.Str == "function":
		case kind.Type == gjson.String && kind.Str != "":
			return unsupported(at, "Gemini takes only function tools from this dialect")
		default:
			return invalid(at+".type", "a tool must have a type")
		}
		if f := t.function(at+".function", tool.Get("function")); f != nil {
			return f
		}
	}
	return nil
}

func (t *toolbox) function(at string, fn gjson.Result) *exchange.Failure {
	if !fn.IsObject() {
		return invalid(at, "function must be an object")
	}
	name := fn.Get("name")
	if name.Type != gjson.String || name.Str == "" {
		return invalid(at+".name", "a function must have a name")
	}
	b := append([]byte(`{"name":`), name.Raw...)
	switch text := fn.Get("description"); text.Type {
	case gjson.Null:
	case gjson.String:
		b = append(append(b, `,"description":`...), text.Raw...)
	default:
		return invalid(at+".description", "a description must be a string")
	}
	switch schema := fn.Get("parameters"); {
	case schema.Type == gjson.Null:
	case !schema.IsObject():
		return invalid(at+".parameters", "parameters must be a JSON schema object")
	case compact(schema) != "{}": // which is not a schema to the provider
		b = append(append(b, `,"parametersJsonSchema":`...), schema.Raw...)
	}
	t.strict = t.strict || fn.Get("strict").Type == gjson.True
	t.names = append(t.names, name.Str)
	t.schemas = append(t.schemas, string(append(b, '}')))
	return nil
}

// choose takes the caller's tool_choice.
func (t *toolbox) choose(v gjson.Result) *exchange.Failure {
	if v.Type == gjson.String {
		return t.setMode("tool_choice", v.Str)
	}
	if !v.IsObject() {
		return invalid("tool_choice", "tool_choice must be a string or an object")
	}
	switch v.Get("type").Str {
	case "function":
		name := v.Get("function.name")
		if name.Type != gjson.String || name.Str == "" {
			return invalid("tool_choice.function.name", "the chosen function must have a name")
		}
		t.mode, t.named = "ANY", name.Str
		return nil
	case "allowed_tools":
		return t.allow(v.Get("allowed_tools"))
	case "custom":
		return unsupported("tool_choice", "Gemini has no custom tools")
	}
	return invalid("tool_choice.type", "the type must be function or allowed_tools")
}

func (t *toolbox) setMode(param, mode string) *exchange.Failure {
	switch mode {
	case "none":
		t.mode = "NONE"
	case "auto":
		t.mode = "AUTO"
	case "required":
		t.mode = "ANY"
	default:
		return invalid(param, "the mode must be none, auto or required")
	}
	return nil
}

func (t *toolbox) allow(v gjson.Result) *exchange.Failure {
	const at = "tool_choice.allowed_tools"
	if mode := v.Get("mode").Str; mode != "auto" && mode != "required" {
		return invalid(at+".mode", "the mode must be auto or required")
	}
	if f := t.setMode(at+".mode", v.Get("mode").Str); f != nil {
		return f
	}
	list := v.Get("tools")
	if !list.IsArray() {
		return invalid(at+".tools", "tools must be an array")
	}
	t.allowed = []string{}
	for i, tool := range list.Array() {
		name := tool.Get("function.name")
		if name.Type != gjson.String {
			return invalid(fmt.Sprintf("%s.tools[%d]", at, i), "an allowed tool must name a function")
		}
		t.allowed = append(t.allowed, name.Str)
	}
	return nil
}

// finish checks the choice against the tools, drops what is not allowed and returns the toolConfig member, with its
// leading comma, or "". A list of allowed names goes only with a demand for a call, hence the dropping.
func (t *toolbox) finish(serialDropped bool) (string, *exchange.Failure) {
	if t.named != "" && !slices.Contains(t.names, t.named) {
		return "", invalid("tool_choice", "the chosen function is not among the tools")
	}
	for _, name := range t.allowed {
		if !slices.Contains(t.names, name) {
			return "", invalid("tool_choice", "an allowed function is not among the tools")
		}
	}
	if t.allowed != nil {
		t.filter()
	}
	switch {
	case len(t.names) == 0 && t.mode == "ANY":
		return "", invalid("tool_choice", "tool_choice demands a call, but there is no tool")
	case len(t.names) == 0:
		return "", nil // a choice without tools says nothing
	case t.serial && t.mode != "NONE" && !serialDropped:
		return "", unsupported("parallel_tool_calls", "Gemini models cannot be kept to one call at a time")
	}
	mode := t.mode
	if t.strict && (mode == "" || mode == "AUTO") {
		mode = "VALIDATED" // AUTO, and arguments fit their schema
	}
	if mode == "" {
		return "", nil
	}
	b := []byte(`,"toolConfig":{"functionCallingConfig":{"mode":"` + mode + `"`)
	if t.named != "" {
		b = append(appendString(append(b, `,"allowedFunctionNames":[`...), t.named), ']')
	}
	return string(append(b, "}}"...)), nil
}

func (t *toolbox) filter() {
	var names, schemas []string
	for i, name := range t.names {
		if slices.Contains(t.allowed, name) {
			names, schemas = append(names, name), append(schemas, t.schemas[i])
		}
	}
	t.names, t.schemas = names, schemas
}

func (t *toolbox) size() int {
	n := 0
	for _, s := range t.schemas {
		n += len(s) + 1
	}
	return n
}

// append appends the tools member, if there are tools.
func (t *toolbox) append(dst []byte) []byte {
	if len(t.schemas) == 0 {
		return dst
	}
	dst = append(dst, `,"tools":[{"functionDeclarations":[`...)
	for i, s := range t.schemas {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, s...)
	}
	return append(dst, "]}]"...)
}
