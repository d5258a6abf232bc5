package bedrock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// translation is a Converse request in the making. The parts come in any order and are put together at the end.
type translation struct {
	r           *exchange.Request
	model       string
	limit       int64  // maxTokens, 0 to leave it to the model
	system      []byte // blocks, comma separated
	turns       adapter.Turns
	names       map[string]bool // of documents, those that are taken
	called      []string        // functions that the history calls, each once
	answered    bool            // the history has calls or results
	tools       toolbox
	inference   []byte // members of inferenceConfig but maxTokens, each with a leading comma
	output      []byte // members of outputConfig, comma separated
	extra       string // additionalModelRequestFields, "" for none
	tier        string // serviceTier, "" to leave it to the provider
	messageSeen bool
}

// translate turns the caller's body, which is a valid JSON object, into the provider's.
func translate(r *exchange.Request, model string) ([]byte, *exchange.Failure) {
	t := translation{r: r, model: model, limit: r.MaxOutput, names: map[string]bool{}}
	if t.limit == 0 {
		t.limit = r.DefaultOutput
	}
	t.turns = adapter.NewTurns(len(r.Body))
	var f *exchange.Failure
	gjson.ParseBytes(r.Body).ForEach(func(k, v gjson.Result) bool {
		if v.Type == gjson.Null && k.Str != "messages" {
			return true // every optional member may be null, which means absent
		}
		if f = t.member(k.Str, v); f != nil && f.Kind == exchange.FailUnsupported && mayDrop(r, k.Str) {
			f = nil
		}
		return f == nil
	})
	if f != nil {
		return nil, f
	}
	switch {
	case !t.messageSeen:
		return nil, invalid("messages", "messages is required")
	case !t.turns.Any():
		return nil, invalid("messages", "messages must hold some content besides system texts")
	}
	tools, f := t.tools.finish(&t)
	if f != nil {
		return nil, f
	}
	return t.assemble(tools), nil
}

// mayDrop reports whether the alias lets a member go that cannot be honoured. Without its messages a request is none.
func mayDrop(r *exchange.Request, name string) bool {
	return name != "messages" && slices.Contains(r.AllowDropped, name)
}

func (t *translation) assemble(tools []byte) []byte {
	turns := t.turns.Close()
	b := make([]byte, 0, len(turns)+len(t.system)+len(tools)+len(t.output)+512)
	b = append(append(append(b, `{"messages":[`...), turns...), ']')
	if len(t.system) > 0 {
		b = append(append(append(b, `,"system":[`...), t.system...), ']')
	}
	if t.limit > 0 {
		t.inference = strconv.AppendInt(append(t.inference, `,"maxTokens":`...), t.limit, 10)
	}
	if len(t.inference) > 0 {
		b = append(append(append(b, `,"inferenceConfig":{`...), t.inference[1:]...), '}')
	}
	if len(tools) > 0 {
		b = append(append(b, `,"toolConfig":`...), tools...)
	}
	if len(t.output) > 0 {
		b = append(append(append(b, `,"outputConfig":{`...), t.output...), '}')
	}
	if t.extra != "" {
		b = append(append(b, `,"additionalModelRequestFields":`...), t.extra...)
	}
	if t.tier != "" {
		b = append(b, `,"serviceTier":{"type":"`+t.tier+`"}`...)
	}
	return append(b, '}')
}

// member takes one top-level member that is not null.
func (t *translation) member(name string, v gjson.Result) *exchange.Failure {
	switch name {
	case "messages":
		t.messageSeen = true
		return t.messages(v)
	case "model", "max_tokens", "max_completion_tokens", "stream", "stream_options":
		return nil // known from exchange.Request and the deployment
	case "user", "safety_identifier":
		if v.Type != gjson.String {
			return invalid(name, name+" must be a string")
		}
		return nil // there is no place for it
	case "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention":
		return nil // hints and bookkeeping: the answer is the same without them
	case "temperature":
		return t.sampling(name, "temperature", v, 2)
	case "top_p":
		return t.sampling(name, "topP", v, 1)
	case "stop":
		return t.stop(v)
	case "tools":
		return t.tools.define(v)
	case "tool_choice":
		return t.tools.choose(v)
	case "parallel_tool_calls":
		if !v.IsBool() {
			return invalid(name, "parallel_tool_calls must be true or false")
		}
		t.tools.serial = !v.Bool()
		return nil
	case "response_format":
		return t.responseFormat(v)
	case "reasoning_effort":
		return t.reasoningEffort(v)
	case "service_tier":
		return t.serviceTier(v)
	}
	return unlessHarmless(name, v)
}

// unlessHarmless refuses what Bedrock has no counterpart for, except for values that ask for nothing. Members nobody
// knows are refused too: to drop one silently would change what the caller asked for.
func unlessHarmless(name string, v gjson.Result) *exchange.Failure {
	if adapter.Harmless(name, v) {
		return nil
	}
	return unsupported(name, fmt.Sprintf("Bedrock cannot honour %s", printable(name)))
}

// printable keeps a member's name, which is the caller's text, short.
func printable(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}

// sampling takes temperature or top_p, which Bedrock takes up to 1.
func (t *translation) sampling(name, theirs string, v gjson.Result, most float64) *exchange.Failure {
	switch {
	case v.Type != gjson.Number || !(v.Num >= 0 && v.Num <= most):
		return invalid(name, fmt.Sprintf("%s must be a number from 0 to %g", name, most))
	case v.Num > 1:
		return unsupported(name, fmt.Sprintf("Bedrock's %s goes from 0 to 1", name))
	}
	t.inference = append(t.inference, `,"`+theirs+`":`+v.Raw...)
	return nil
}

func (t *translation) stop(v gjson.Result) *exchange.Failure {
	var list []gjson.Result
	switch {
	case v.Type == gjson.String:
		list = []gjson.Result{v}
	case v.IsArray():
		list = v.Array()
	default:
		return invalid("stop", "stop must be a string or an array of strings")
	}
	var out []byte
	for i, s := range list {
		param := "stop"
		if v.IsArray() {
			param = fmt.Sprintf("stop[%d]", i)
		}
		switch {
		case s.Type != gjson.String:
			return invalid(param, "a stop sequence must be a string")
		case s.Str == "":
			return unsupported(param, "Bedrock takes no empty stop sequence")
		}
		out = append(comma(out, 0), s.Raw...)
	}
	if len(out) > 0 {
		t.inference = append(append(append(t.inference, `,"stopSequences":[`...), out...), ']')
	}
	return nil
}

// responseFormat takes a schema. Bedrock wants it as text, not as JSON.
func (t *translation) responseFormat(v gjson.Result) *exchange.Failure {
	if !v.IsObject() {
		return invalid("response_format", "response_format must be an object")
	}
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		return unsupported("response_format", "Bedrock has no json_object format: use json_schema")
	case "json_schema":
	default:
		return invalid("response_format.type", "the type must be text, json_object or json_schema")
	}
	schema := v.Get("json_schema.schema")
	if !schema.IsObject() {
		return invalid("response_format.json_schema.schema", "the schema must be an object")
	}
	b := append(comma(t.output, 0), `"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":`...)
	b = appendString(b, compact(schema))
	for _, name := range [...]string{"name", "description"} {
		switch text := v.Get("json_schema." + name); text.Type {
		case gjson.Null:
		case gjson.String:
			b = append(append(b, `,"`+name+`":`...), text.Raw...)
		default:
			return invalid("response_format.json_schema."+name, name+" must be a string")
		}
	}
	t.output = append(b, `}}}`...)
	return nil
}

// reasoningEffort says how much to think in the words that the model's family has for it (AWS docs: OpenAI models; Amazon
// Nova user guides: Extended thinking). Bedrock's own word serves all whose family is not known. That Nova wants no cap
// at its highest effort is said in one place there and left out in another: the cap is sent, for it is what is reserved.
func (t *translation) reasoningEffort(v gjson.Result) *exchange.Failure {
	const name = "reasoning_effort"
	effort := v.Str
	switch {
	case effort == "none":
		return nil // none is what they do unasked
	case adapter.ThinkingTokens(effort) == 0:
		return invalid(name, "reasoning_effort must be none, minimal, low, medium, high, xhigh or max")
	case effort == "minimal":
		effort = "low" // the least there is
	}
	ofThree := effort
	if ofThree != "low" && ofThree != "medium" {
		ofThree = "high"
	}
	switch {
	case strings.Contains(t.model, "openai.gpt-oss"):
		t.extra = `{"reasoning_effort":"` + ofThree + `"}`
	case strings.Contains(t.model, "amazon.nova"):
		for _, member := range [...]string{"temperature", "top_p"} {
			if ofThree == "high" && gjson.GetBytes(t.r.Body, member).Type != gjson.Null {
				return unsupported(name, "this model takes no "+member+" when it thinks as much as it can")
			}
		}
		t.extra = `{"reasoningConfig":{"type":"enabled","maxReasoningEffort":"` + ofThree + `"}}`
	default:
		t.output = append(comma(t.output, 0), `"effort":"`+effort+`"`...)
	}
	return nil
}

func (t *translation) serviceTier(v gjson.Result) *exchange.Failure {
	switch v.Str {
	case "auto":
	case "default", "flex", "priority":
		t.tier = v.Str
	case "scale":
		return unsupported("service_tier", "Bedrock has the service tiers auto, default, flex and priority")
	default:
		return invalid("service_tier", "service_tier must be auto, default, flex, scale or priority")
	}
	return nil
}
