// Package responses is the Responses API towards callers, before adapters that know OpenAI's chat dialect: Chat turns
// their requests into chat requests, and a Face turns the answers back. The gateway keeps no answers, so whatever refers
// to an earlier one is refused; callers send the items of a conversation with every request.
package responses

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// unsupported is a request that chat cannot say. A provider that speaks the Responses API itself may still serve it.
func unsupported(param, format string, a ...any) *exchange.Failure {
	return adapter.Unsupported(param, fmt.Sprintf(format, a...))
}

// malformed is a request that chat cannot say because it is none. Its judge is a provider that speaks the Responses API
// itself, if there is one: it may know more than this version does.
func malformed(param, format string, a ...any) *exchange.Failure {
	f := unsupported(param, format, a...)
	f.Code = adapter.CodeInvalid
	return f
}

// Chat turns the body of a Responses request, a valid JSON object, into that of a chat request. What chat cannot say
// fails with FailUnsupported, unless it is one of the members that the alias lets go.
func Chat(body []byte, dropped []string) ([]byte, *exchange.Failure) {
	in := gjson.ParseBytes(body)
	t := translation{dropped: dropped, out: object{}}
	if f := adapter.EachMember(body, dropped, t.member); f != nil {
		return nil, f
	}
	if !given(in.Get("input")) {
		return nil, unsupported("input", "input is required here")
	}
	if len(t.talk.list) == 0 {
		return nil, malformed("input", "input must not be empty")
	}
	if v := in.Get("instructions"); given(v) {
		t.talk.list = slices.Insert(t.talk.list, 0, any(object{"role": "system", "content": v.Str}))
	}
	t.out["messages"] = t.talk.list
	if t.logprobs {
		t.out["logprobs"] = true
		t.out.set("top_logprobs", in.Get("top_logprobs")) // which says nothing to those who want none
	}
	if in.Get("stream").Bool() {
		t.out["stream_options"] = object{"include_usage": true}
	}
	if t.out["tools"] == nil {
		delete(t.out, "parallel_tool_calls") // without tools OpenAI's dialect refuses both
		delete(t.out, "tool_choice")
	}
	return t.out.raw(), nil
}

// chatName is a member's name in a chat request.
func chatName(name string) string {
	switch name {
	case "max_output_tokens":
		return "max_completion_tokens"
	case "reasoning":
		return "reasoning_effort"
	case "text":
		return "response_format"
	}
	return name
}

// Param is the name that callers know a member of a chat request by.
func Param(chat string) string {
	switch name, _, _ := strings.Cut(strings.ReplaceAll(chat, "[", "."), "."); name {
	case "max_tokens", "max_completion_tokens":
		return "max_output_tokens"
	case "reasoning_effort":
		return "reasoning.effort"
	case "response_format":
		return "text.format"
	case "verbosity":
		return "text.verbosity"
	case "logprobs":
		return "include"
	case "messages":
		return "input"
	case "tools":
		return strings.Replace(chat, ".function.", ".", 1)
	}
	return chat
}

type translation struct {
	dropped  []string
	out      object
	talk     conversation
	logprobs bool
}

// member takes one member that is not null. Of one that fails, nothing is left.
func (t *translation) member(name string, v gjson.Result) *exchange.Failure {
	f := t.translate(name, v)
	if f != nil {
		delete(t.out, chatName(name))
	}
	return f
}

func (t *translation) translate(name string, v gjson.Result) *exchange.Failure {
	switch name {
	case "model", "stream", "temperature", "top_p", "parallel_tool_calls", "metadata", "user", "safety_identifier",
		"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier":
		t.out.set(name, v)
	case "max_output_tokens":
		t.out.set("max_completion_tokens", v)
	case "instructions":
		if v.Type != gjson.String {
			return malformed(name, "instructions must be a string")
		}
	case "input":
		return t.talk.read(v)
	case "text":
		return t.format(v)
	case "reasoning":
		return t.reasoning(v)
	case "tools":
		return t.tools(v)
	case "tool_choice":
		return t.choice(v)
	case "include":
		return t.include(v)
	case "store":
		if v.Type != gjson.False {
			return unsupported(name, "answers are not stored here: store must be false")
		}
	case "background":
		if v.Type != gjson.False {
			return unsupported(name, "answers are not stored here: background must be false")
		}
	case "previous_response_id", "conversation":
		return unsupported(name, "answers are not stored here: send the items of the conversation in input instead of %s", name)
	case "prompt":
		return unsupported(name, "prompts are not stored here: send instructions and input instead of a prompt's id")
	case "truncation":
		if v.Str != "disabled" {
			return unsupported(name, "truncation is not supported here: the conversation must fit the model's window")
		}
	case "top_logprobs": // see Chat
	case "stream_options", "client_metadata", "max_tool_calls":
		// Padding against onlookers, bookkeeping, and a bound on tools that providers run: the answer is the same.
	default:
		return unsupported(name, "%s is not supported here", name)
	}
	return nil
}

const includeLogprobs = "message.output_text.logprobs"

// included are what an answer has anyway, or what only tools add to it that providers run: those are refused.
var included = map[string]bool{
	"reasoning.encrypted_content": true, "message.input_image.image_url": true, "file_search_call.results": true,
	"web_search_call.results": true, "web_search_call.action.sources": true, "code_interpreter_call.outputs": true,
	"computer_call_output.output.image_url": true,
}

func (t *translation) include(v gjson.Result) (f *exchange.Failure) {
	i := 0
	v.ForEach(func(_, e gjson.Result) bool {
		if e.Str != includeLogprobs && !included[e.Str] {
			f = unsupported(fmt.Sprintf("include[%d]", i), "%q is not supported here", e.String())
		}
		i++
		return f == nil
	})
	t.logprobs = f == nil && wantsLogprobs(v)
	return f
}

// wantsLogprobs reads a request's include.
func wantsLogprobs(include gjson.Result) (wants bool) {
	include.ForEach(func(_, e gjson.Result) bool {
		wants = e.Str == includeLogprobs
		return !wants
	})
	return wants
}

func (t *translation) format(v gjson.Result) (f *exchange.Failure) {
	v.ForEach(func(k, m gjson.Result) bool {
		switch {
		case !given(m):
		case k.Str == "verbosity":
			t.out.set("verbosity", m)
		case k.Str != "format":
			f = unsupported("text."+k.Str, "text.%s is not supported here", k.Str)
		case m.Get("type").Str == "text":
		case m.Get("type").Str == "json_object":
			t.out["response_format"] = object{"type": "json_object"}
		case m.Get("type").Str == "json_schema":
			schema := object{}
			for _, name := range [...]string{"name", "description", "schema", "strict"} {
				schema.set(name, m.Get(name))
			}
			t.out["response_format"] = object{"type": "json_schema", "json_schema": schema}
		default:
			f = unsupported("text.format.type", "a format of type %q is not supported here", m.Get("type").String())
		}
		return f == nil
	})
	return f
}

// reasoning takes the effort. How a model's thoughts are summed up is not told to it: callers see what there is.
func (t *translation) reasoning(v gjson.Result) (f *exchange.Failure) {
	v.ForEach(func(k, m gjson.Result) bool {
		switch k.Str {
		case "effort":
			t.out.set("reasoning_effort", m)
		case "summary", "generate_summary":
		default:
			if given(m) {
				f = unsupported("reasoning."+k.Str, "reasoning.%s is not supported here", k.Str)
			}
		}
		return f == nil
	})
	return f
}
