package prompt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Tool is a function that the model may call.
type Tool struct {
	Name        Text
	Description Text   // none when it was not sent; it may be empty
	Parameters  string // a JSON schema, an object that is not empty; "" for none
	Strict      bool   // arguments must fit the schema
	typed       bool   // the schema says its type
}

// anyInput is the schema of a function that says nothing of its parameters.
const anyInput = `{"type":"object","properties":{}}`

// AppendSchema appends the tool's schema for providers that demand one, with its type.
func (t *Tool) AppendSchema(dst []byte) []byte {
	switch {
	case t.Parameters == "":
		return append(dst, anyInput...)
	case !t.typed:
		return append(append(dst, `{"type":"object",`...), t.Parameters[1:]...)
	}
	return append(dst, t.Parameters...)
}

// Mode says whether the model may, must or must not call a tool.
type Mode uint8

// The modes.
const (
	Unsaid Mode = iota // it may
	Auto               // it may
	Required
	Named // it must call the one
	None
)

// Choice is what the caller says of calls.
type Choice struct {
	Mode Mode
	Name string // for Named: of one of the tools
}

// Forced reports whether the model has to call a tool.
func (c Choice) Forced() bool { return c.Mode == Required || c.Mode == Named }

// tools reads the caller's tools. Where tools may be dropped, those go that are no functions.
func (p *reader) tools(v gjson.Result) *exchange.Failure {
	if !v.IsArray() {
		return adapter.Invalid("tools", "tools must be an array")
	}
	p.Tools = make([]Tool, 0, 8)
	var f *exchange.Failure
	i := 0
	v.ForEach(func(_, tool gjson.Result) bool {
		f = p.tool(i, tool)
		i++
		return f == nil
	})
	return f
}

func (p *reader) tool(i int, v gjson.Result) *exchange.Failure {
	at := func(member string) string { return fmt.Sprintf("tools[%d]%s", i, member) }
	if !v.IsObject() {
		return adapter.Invalid(at(""), "a tool must be an object")
	}
	switch kind := v.Get("type"); {
	case kind.Type != gjson.String || kind.Str == "":
		return adapter.Invalid(at(".type"), "a tool must have a type")
	case kind.Str != "function":
		return p.Cannot(at(""), p.vendor+" takes only function tools from this dialect")
	}
	function := v.Get("function")
	if !function.IsObject() {
		return adapter.Invalid(at(".function"), "function must be an object")
	}
	var name, description, schema, strict gjson.Result
	function.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "name":
			first(&name, v)
		case "description":
			first(&description, v)
		case "parameters":
			first(&schema, v)
		case "strict":
			first(&strict, v)
		}
		return true
	})
	switch {
	case name.Type != gjson.String || name.Str == "":
		return adapter.Invalid(at(".function.name"), "a function must have a name")
	case description.Type != gjson.Null && description.Type != gjson.String:
		return adapter.Invalid(at(".function.description"), "a description must be a string")
	case schema.Type != gjson.Null && !schema.IsObject():
		return adapter.Invalid(at(".function.parameters"), "parameters must be a JSON schema object")
	}
	t := Tool{Name: text(name), Strict: strict.Type == gjson.True}
	if description.Type == gjson.String {
		t.Description = text(description)
	}
	if schema.Type != gjson.Null && !isEmpty(schema.Raw) {
		t.Parameters, t.typed = schema.Raw, schema.Get("type").Exists()
	}
	p.Tools = append(p.Tools, t)
	return nil
}

// isEmpty reports whether an object has no members.
func isEmpty(object string) bool {
	return strings.HasPrefix(strings.TrimLeft(object[1:], " \t\r\n"), "}")
}

// choice reads tool_choice.
func (p *reader) choice(v gjson.Result) *exchange.Failure {
	const at = "tool_choice"
	if v.Type == gjson.String {
		switch v.Str {
		case "none":
			p.Choice.Mode = None
		case "auto":
			p.Choice.Mode = Auto
		case "required":
			p.Choice.Mode = Required
		default:
			return adapter.Invalid(at, "the mode must be none, auto or required")
		}
		return nil
	}
	if !v.IsObject() {
		return adapter.Invalid(at, "tool_choice must be a string or an object")
	}
	switch v.Get("type").Str {
	case "function":
		name := v.Get("function.name")
		if name.Type != gjson.String || name.Str == "" {
			return adapter.Invalid(at+".function.name", "the chosen function must have a name")
		}
		p.Choice = Choice{Named, name.Str}
		return nil
	case "allowed_tools":
		return p.allowed(v.Get("allowed_tools"))
	case "custom":
		return p.Cannot(at, p.vendor+" has no custom tools")
	}
	return adapter.Invalid(at+".type", "the type must be function or allowed_tools")
}

func (p *reader) allowed(v gjson.Result) *exchange.Failure {
	const at = "tool_choice.allowed_tools"
	switch v.Get("mode").Str {
	case "auto":
		p.Choice.Mode = Auto
	case "required":
		p.Choice.Mode = Required
	default:
		return adapter.Invalid(at+".mode", "the mode must be auto or required")
	}
	list := v.Get("tools")
	if !list.IsArray() {
		return adapter.Invalid(at+".tools", "tools must be an array")
	}
	p.allow = []string{}
	for i, tool := range list.Array() {
		name := tool.Get("function.name")
		if name.Type != gjson.String {
			return adapter.Invalid(fmt.Sprintf("%s.tools[%d]", at, i), "an allowed tool must name a function")
		}
		p.allow = append(p.allow, name.Str)
	}
	return nil
}

// choose checks the choice against the tools, and drops the tools that it does not allow.
func (p *reader) choose() *exchange.Failure {
	const at = "tool_choice"
	if p.allow != nil || p.Choice.Mode == Named {
		names := make(map[string]bool, len(p.Tools)) // and whether it is allowed
		for i := range p.Tools {
			names[p.Tools[i].Name.Str] = false
		}
		if _, known := names[p.Choice.Name]; p.Choice.Mode == Named && !known {
			return adapter.Invalid(at, "the chosen function is not among the tools")
		}
		for _, name := range p.allow {
			if _, known := names[name]; !known {
				return adapter.Invalid(at, "an allowed function is not among the tools")
			}
			names[name] = true
		}
		if p.allow != nil {
			p.Tools = slices.DeleteFunc(p.Tools, func(t Tool) bool { return !names[t.Name.Str] })
		}
	}
	if len(p.Tools) > 0 {
		return nil
	}
	if p.Choice.Forced() {
		return adapter.Invalid(at, "tool_choice demands a call, but there is no tool")
	}
	p.Choice, p.Serial = Choice{}, false // a choice without tools is an error upstream, and says nothing
	return nil
}

// ToolsSize is about how many bytes the tools take when they are written.
func (c *Chat) ToolsSize() int {
	n := 0
	for i := range c.Tools {
		t := &c.Tools[i]
		n += len(t.Name.Raw) + len(t.Description.Raw) + len(t.Parameters) + 128
	}
	return n
}
