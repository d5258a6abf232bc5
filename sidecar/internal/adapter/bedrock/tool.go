package bedrock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// toolbox is the tools of a request and which of them may be called.
type toolbox struct {
	names   []string
	specs   []string // the provider's definitions, one per name
	mode    string   // auto, any, tool or none; "" when the caller did not say
	named   string   // for mode tool
	allowed []string // nil: all
	serial  bool     // no two calls in one turn
}

// define takes the caller's tools.
func (b *toolbox) define(v gjson.Result) *exchange.Failure {
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
			return unsupported(at, "Bedrock takes only function tools")
		default:
			return invalid(at+".type", "a tool must have a type")
		}
		if f := b.function(at+".function", tool.Get("function")); f != nil {
			return f
		}
	}
	return nil
}

func (b *toolbox) function(at string, fn gjson.Result) *exchange.Failure {
	if !fn.IsObject() {
		return invalid(at, "function must be an object")
	}
	name := fn.Get("name")
	if name.Type != gjson.String || name.Str == "" {
		return invalid(at+".name", "a function must have a name")
	}
	spec := append([]byte(`{"toolSpec":{"name":`), name.Raw...)
	switch text := fn.Get("description"); {
	case text.Type == gjson.Null, text.Type == gjson.String && text.Str == "": // an empty one is refused upstream
	case text.Type == gjson.String:
		spec = append(append(spec, `,"description":`...), text.Raw...)
	default:
		return invalid(at+".description", "a description must be a string")
	}
	spec = append(spec, `,"inputSchema":{"json":`...)
	schema := fn.Get("parameters")
	switch {
	case schema.Type == gjson.Null:
		spec = append(spec, anyInput...)
	case !schema.IsObject():
		return invalid(at+".parameters", "parameters must be a JSON schema object")
	case compact(schema) == "{}":
		spec = append(spec, anyInput...)
	case !schema.Get("type").Exists():
		spec = append(append(spec, `{"type":"object",`...), schema.Raw[1:]...) // the API demands the type
	default:
		spec = append(spec, schema.Raw...)
	}
	spec = append(spec, '}')
	if fn.Get("strict").Type == gjson.True {
		spec = append(spec, `,"strict":true`...)
	}
	b.names, b.specs = append(b.names, name.Str), append(b.specs, string(append(spec, `}}`...)))
	return nil
}

// anyInput is the schema of a function that says nothing of its parameters.
const anyInput = `{"type":"object","properties":{}}`

// choose takes the caller's tool_choice.
func (b *toolbox) choose(v gjson.Result) *exchange.Failure {
	if v.Type == gjson.String {
		return b.setMode("tool_choice", v.Str)
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
		b.mode, b.named = "tool", name.Str
		return nil
	case "allowed_tools":
		return b.allow(v.Get("allowed_tools"))
	case "custom":
		return unsupported("tool_choice", "Bedrock has no custom tools")
	}
	return invalid("tool_choice.type", "the type must be function or allowed_tools")
}

func (b *toolbox) setMode(param, mode string) *exchange.Failure {
	switch mode {
	case "none", "auto":
		b.mode = mode
	case "required":
		b.mode = "any"
	default:
		return invalid(param, "the mode must be none, auto or required")
	}
	return nil
}

func (b *toolbox) allow(v gjson.Result) *exchange.Failure {
	const at = "tool_choice.allowed_tools"
	mode := v.Get("mode").Str
	if mode != "auto" && mode != "required" {
		return invalid(at+".mode", "the mode must be auto or required")
	}
	if f := b.setMode(at+".mode", mode); f != nil {
		return f
	}
	list := v.Get("tools")
	if !list.IsArray() {
		return invalid(at+".tools", "tools must be an array")
	}
	b.allowed = []string{}
	for i, tool := range list.Array() {
		name := tool.Get("function.name")
		if name.Type != gjson.String {
			return invalid(fmt.Sprintf("%s.tools[%d]", at, i), "an allowed tool must name a function")
		}
		b.allowed = append(b.allowed, name.Str)
	}
	return nil
}

// finish checks the choice against the tools, drops what is not allowed and returns toolConfig, nil for none. A history
// with calls in it must have one: where the caller sent no tools, those that were called stand for them.
func (b *toolbox) finish(t *translation) ([]byte, *exchange.Failure) {
	if b.mode == "tool" && !slices.Contains(b.names, b.named) {
		return nil, invalid("tool_choice", "the chosen function is not among the tools")
	}
	for _, name := range b.allowed {
		if !slices.Contains(b.names, name) {
			return nil, invalid("tool_choice", "an allowed function is not among the tools")
		}
	}
	specs := b.specs[:0:0]
	for i, name := range b.names {
		if b.allowed == nil || slices.Contains(b.allowed, name) {
			specs = append(specs, b.specs[i])
		}
	}
	mode := b.mode
	switch {
	case len(specs) == 0 && (mode == "any" || mode == "tool"):
		return nil, invalid("tool_choice", "tool_choice demands a call, but there is no tool")
	case mode == "none" && t.answered && len(specs) > 0:
		// Neither can Converse forbid calls, nor may the tools be left out of such a history.
		if !mayDrop(t.r, "tool_choice") {
			return nil, unsupported("tool_choice", "Bedrock cannot forbid calls where there were calls before")
		}
	case mode == "none":
		specs = nil // a model without tools calls none
	}
	if len(specs) == 0 {
		if !t.answered {
			return nil, nil
		}
		mode = ""
		for _, name := range t.called {
			spec := appendString([]byte(`{"toolSpec":{"name":`), name)
			specs = append(specs, string(append(spec, `,"inputSchema":{"json":`+anyInput+`}}}`...)))
		}
	} else if b.serial && !mayDrop(t.r, "parallel_tool_calls") {
		return nil, unsupported("parallel_tool_calls", "Bedrock cannot keep a model from calling two tools at once")
	}
	if len(specs) == 0 {
		return nil, nil // results of nothing: let the provider say what is wrong
	}
	out := append([]byte(`{"tools":[`), strings.Join(specs, ",")...)
	switch out = append(out, ']'); mode {
	case "auto", "any":
		out = append(out, `,"toolChoice":{"`+mode+`":{}}`...)
	case "tool":
		out = append(appendString(append(out, `,"toolChoice":{"tool":{"name":`...), b.named), `}}`...)
	}
	return append(out, '}'), nil
}

// toolID makes an id of another vendor fit for the model: letters, digits, _ and -, at most 64 of them; nine letters and
// digits for Mistral's. The same id always becomes the same, so that results still find their calls; the hash keeps
// different ids apart.
func (t *translation) toolID(id string) string {
	id = adapter.PlainCallID(id)
	most, marks := 64, "_-"
	exact := strings.Contains(t.model, "mistral.")
	if exact {
		most, marks = 9, ""
	}
	fits := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(marks, c)
	}
	if strings.IndexFunc(id, func(c rune) bool { return !fits(c) }) < 0 && (len(id) == most || len(id) < most && !exact) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	hash := hex.EncodeToString(sum[:8])
	if exact {
		return hash[:most]
	}
	clean := strings.Map(func(c rune) rune {
		if fits(c) {
			return c
		}
		return '_'
	}, id)
	return clean[:min(len(clean), most-1-len(hash))] + "_" + hash
}
