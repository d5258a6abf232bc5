// Package messages is the face towards callers of Anthropic's Messages API (POST /v1/messages). It stands before the
// adapters, which speak OpenAI's dialect to callers: a request is turned into a chat request on its way in, and answers
// and streams into Anthropic's on their way out. Deployments that speak the API themselves need no face.
package messages

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// unsupported is the failure of what chat cannot say: a deployment that speaks the Messages API may.
func unsupported(param, format string, args ...any) *exchange.Failure {
	return adapter.Unsupported(param, fmt.Sprintf(format, args...))
}

// object is a JSON object in the making; nil values are left out by set.
type object map[string]any

func (o object) set(name string, v gjson.Result) {
	if v.Exists() && v.Type != gjson.Null {
		o[name] = json.RawMessage(v.Raw)
	}
}

// escaped is a text as it stands in JSON, without its quotes: read and written anew, halves of surrogate pairs would be lost.
type escaped string

func said(v gjson.Result) escaped { return escaped(adapter.Inside(v)) }

// MarshalJSON implements json.Marshaler.
func (e escaped) MarshalJSON() ([]byte, error) { return []byte(`"` + e + `"`), nil }

// chat is a chat request in the making.
type chat struct {
	marks     bool // caches are told what is worth keeping
	out       object
	list      []any // of messages
	droppable []string
}

// Chat turns the body of a Messages request, a valid JSON object with no member twice, into that of a chat request. It
// fails with FailUnsupported where chat cannot say it, hints for caches and for how a stream is cut aside, and with
// FailRequest where the body is none of a Messages request. Of the members that chat cannot say, the droppable ones go.
func Chat(body []byte, droppable []string) ([]byte, *exchange.Failure) {
	return inChat(body, droppable, false)
}

// inChat does what Chat does, and says what is worth keeping in a cache if marks are wanted.
func inChat(body []byte, droppable []string, marks bool) ([]byte, *exchange.Failure) {
	in := gjson.ParseBytes(body)
	c := chat{out: object{}, droppable: droppable, marks: marks}
	if f := adapter.EachMember(body, droppable, c.member); f != nil {
		return nil, f
	}
	if in.Get("stream").Type == gjson.True {
		c.out["stream_options"] = object{"include_usage": true}
	}
	if f := c.system("system", in.Get("system")); f != nil {
		return nil, f
	}
	if !in.Get("messages").IsArray() {
		return nil, adapter.Invalid("messages", "messages must be an array")
	}
	all := in.Get("messages").Array()
	for i, m := range all {
		if f := c.message(fmt.Sprintf("messages[%d]", i), m); f != nil {
			return nil, f
		}
	}
	if n := len(all); n > 0 && all[n-1].Get("role").Str == "assistant" {
		return nil, unsupported(fmt.Sprintf("messages[%d]", n-1), "the beginning of an answer cannot be given to this model")
	}
	c.markLast(in)
	c.out["messages"] = c.list
	if c.out["tools"] == nil {
		delete(c.out, "parallel_tool_calls") // OpenAI's dialect refuses it without tools
		if len(in.Get("tools").Array()) > 0 || c.out["tool_choice"] == "auto" || c.out["tool_choice"] == "none" {
			delete(c.out, "tool_choice") // the tools were dropped, or it says nothing
		}
	}
	b, err := json.Marshal(c.out)
	if err != nil {
		return nil, adapter.Invalid("", "the body cannot be translated: "+err.Error())
	}
	return b, nil
}

// member takes one top-level member that is not null.
func (c *chat) member(name string, v gjson.Result) *exchange.Failure {
	switch name {
	case "model", "temperature", "top_p", "top_k", "stream":
		c.out.set(name, v)
	case "max_tokens":
		if v.Num == 0 {
			return unsupported(name, "a prompt cannot be put into this model's cache without an answer")
		}
		c.out.set("max_completion_tokens", v)
	case "stop_sequences":
		if len(v.Array()) > 0 {
			c.out.set("stop", v)
		}
	case "metadata":
		c.out.set("user", v.Get("user_id"))
	case "tools":
		return c.tools(v)
	case "tool_choice":
		return c.choose(v)
	case "thinking":
		return c.think(v)
	case "output_config":
		return c.output(v)
	case "output_format":
		return c.format(name, v)
	case "service_tier":
		return c.tier(v)
	case "context_management":
		return c.manage(v)
	case "speed":
		if v.Str != "standard" {
			return unsupported(name, "this model has only the standard speed")
		}
	case "mcp_servers", "fallbacks":
		if !v.IsArray() || len(v.Array()) > 0 {
			return unsupported(name, "%s is not supported here", name)
		}
	case "system", "messages": // see Chat
	case "cache_control", "diagnostics": // hints, see Face.marked
	default:
		return unsupported(name, "%s is not supported here", name)
	}
	return nil
}

func (c *chat) tier(v gjson.Result) *exchange.Failure {
	tier := map[string]string{"auto": "auto", "standard_only": "default"}[v.Str]
	if tier == "" {
		return unsupported("service_tier", "%q is not auto or standard_only", v.Str)
	}
	c.out["service_tier"] = tier
	return nil
}

// output takes the effort and the format of the answer.
func (c *chat) output(v gjson.Result) (f *exchange.Failure) {
	if !v.IsObject() {
		return adapter.Invalid("output_config", "output_config must be an object")
	}
	v.ForEach(func(k, v gjson.Result) bool {
		switch at := "output_config." + k.Str; {
		case v.Type == gjson.Null:
		case k.Str == "effort":
			if adapter.ThinkingTokens(v.Str) == 0 {
				f = unsupported(at, "%q is no effort that is known here", v.Str)
			}
			c.out["reasoning_effort"] = v.Str
		case k.Str == "format":
			f = c.format(at, v)
		default:
			f = unsupported(at, "%s is not supported here", at)
		}
		return f == nil
	})
	return f
}

func (c *chat) format(at string, v gjson.Result) *exchange.Failure {
	if kind := v.Get("type").Str; kind != "json_schema" {
		return unsupported(at+".type", "%q is not json_schema", kind)
	}
	schema := v.Get("schema")
	if !schema.IsObject() {
		return adapter.Invalid(at+".schema", "the schema must be an object")
	}
	c.out["response_format"] = object{"type": "json_schema", "json_schema": object{
		"name": "output", "schema": json.RawMessage(schema.Raw), "strict": true,
	}}
	return nil
}

// manage lets pass what only concerns thinking of earlier turns, which is not sent on here.
func (c *chat) manage(v gjson.Result) *exchange.Failure {
	for i, e := range v.Get("edits").Array() {
		if kind := e.Get("type").Str; !strings.HasPrefix(kind, "clear_thinking_") {
			return unsupported(fmt.Sprintf("context_management.edits[%d]", i), "%s is not supported here", kind)
		}
	}
	return nil
}

// think turns a budget into an effort. An effort that is stated counts more. Without either the model thinks as much as
// it does by itself: not all can be told not to.
func (c *chat) think(v gjson.Result) *exchange.Failure {
	switch kind := v.Get("type").Str; kind {
	case "disabled", "adaptive":
	case "enabled":
		if c.out["reasoning_effort"] == nil {
			c.out["reasoning_effort"] = adapter.ThinkingEffort(v.Get("budget_tokens").Int())
		}
	default:
		return unsupported("thinking.type", "%q is not enabled, adaptive or disabled", kind)
	}
	return thinkMembers(v)
}

// thinkMembers refuses what nobody knows. How thinking is shown, and what becomes of blocks that Claude does not
// recognise, has no meaning here: blocks are shown as they are, and none is judged.
func thinkMembers(v gjson.Result) (f *exchange.Failure) {
	v.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "type", "budget_tokens", "display", "block_binding":
		default:
			if v.Type != gjson.Null {
				f = unsupported("thinking."+k.Str, "thinking.%s is not supported here", k.Str)
			}
		}
		return f == nil
	})
	return f
}
