package prompt_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func read(body string, dropped ...string) (*prompt.Chat, *exchange.Failure) {
	return prompt.Read(&exchange.Request{Body: []byte(body), AllowDropped: dropped, DefaultOutput: 7}, "Nobody")
}

const hi = `"messages":[{"role":"user","content":"hi"}]`

// with is a request of a greeting and some members.
func with(members string) string { return `{` + hi + `,` + members + `}` }

func text(raw, str string) prompt.Text { return prompt.Text{Raw: raw, Str: str} }

// TestMembers: each member is read for what it is.
func TestMembers(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"f","description":"d\n","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"g","parameters":{ }}}]`
	f := prompt.Tool{Name: text(`"f"`, "f"), Description: text(`"d\n"`, "d\n"), Parameters: `{"type":"object"}`, Strict: true}
	g := prompt.Tool{Name: text(`"g"`, "g")}
	names := func(c *prompt.Chat) (list []string) {
		for i := range c.Tools {
			list = append(list, c.Tools[i].Name.Str)
		}
		return list
	}
	for members, check := range map[string]func(c *prompt.Chat) (got, want any){
		`"temperature":0.50`: func(c *prompt.Chat) (any, any) { return c.Temperature, prompt.Number{Raw: "0.50", Value: 0.5} },
		`"top_p":1`:          func(c *prompt.Chat) (any, any) { return c.TopP, prompt.Number{Raw: "1", Value: 1} },
		`"top_p":null`:       func(c *prompt.Chat) (any, any) { return c.TopP, prompt.Number{} },
		`"stop":"\n"`:        func(c *prompt.Chat) (any, any) { return c.Stop, []prompt.Text{text(`"\n"`, "\n")} },
		`"stop":["a",""]`: func(c *prompt.Chat) (any, any) {
			return []any{c.Stop, c.StopAt(1)}, []any{[]prompt.Text{text(`"a"`, "a"), text(`""`, "")}, "stop[1]"}
		},
		`"reasoning_effort":"max"`: func(c *prompt.Chat) (any, any) { return c.Effort, "max" },
		`"service_tier":"flex"`:    func(c *prompt.Chat) (any, any) { return c.Tier, "flex" },
		`"max_tokens":9`:           func(c *prompt.Chat) (any, any) { return c.Limit, int64(7) }, // the gateway reads the caller's
		`"response_format":{"type":"json_object"}`: func(c *prompt.Chat) (any, any) {
			return c.Format, prompt.Format{JSON: true}
		},
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"a": 1}}}`: func(c *prompt.Chat) (any, any) {
			return c.Format, prompt.Format{Schema: `{"a": 1}`, Name: text(`"n"`, "n"), Description: text(`"d"`, "d")}
		},
		`"n":2,"wish":[1],"user":"u","seed":null`: func(c *prompt.Chat) (any, any) {
			return []string{c.Rest[0].Name, c.Rest[1].Value.Raw}, []string{"n", "[1]"}
		},
		tools: func(c *prompt.Chat) (any, any) {
			var sent []string
			for i := range c.Tools {
				sent = append(sent, string(c.Tools[i].AppendSchema(nil)))
			}
			plain := []prompt.Tool{c.Tools[0], c.Tools[1]}
			return []any{strip(plain), sent}, []any{[]prompt.Tool{f, g}, []string{`{"type":"object"}`, `{"type":"object","properties":{}}`}}
		},
		`"tool_choice":"required","parallel_tool_calls":false,` + tools: func(c *prompt.Chat) (any, any) {
			return []any{c.Choice, c.Serial}, []any{prompt.Choice{Mode: prompt.Required}, true}
		},
		`"tool_choice":{"type":"function","function":{"name":"g"}},` + tools: func(c *prompt.Chat) (any, any) {
			return c.Choice, prompt.Choice{Mode: prompt.Named, Name: "g"}
		},
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}},` + tools: func(c *prompt.Chat) (any, any) {
			return []any{c.Choice.Mode, names(c)}, []any{prompt.Auto, []string{"g"}}
		},
		`"tool_choice":"none","parallel_tool_calls":false,"tools":[]`: func(c *prompt.Chat) (any, any) {
			return []any{c.Choice, c.Serial}, []any{prompt.Choice{}, false}
		},
	} {
		c, fault := read(with(members))
		if fault != nil {
			t.Errorf("%s: %+v", members, fault)
			continue
		}
		if got, want := check(c); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", members, got, want)
		}
	}
}

// strip leaves of tools what they say.
func strip(tools []prompt.Tool) (list []prompt.Tool) {
	for _, t := range tools {
		list = append(list, prompt.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict})
	}
	return list
}

// TestMessages: who says what, where it stands, and what is left out because it says nothing.
func TestMessages(t *testing.T) {
	c, fault := read(`{"messages":[
		{"role":"developer","content":[{"type":"text","text":"s","prompt_cache_breakpoint":{"mode":"explicit"}}]},
		{"role":"user","content":[{"type":"text","text":""},{"type":"image_url","image_url":{"url":"data:image/JPG;x=y;base64,Q\/JD"}},
			{"type":"file","file":{"filename":"a","file_data":"data:text/plain;base64,aGk="}},{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}]},
		{"role":"assistant","content":"a","refusal":"no","tool_calls":[{"id":"c","function":{"name":"f","arguments":" "},"extra_content":{"google":{"thought_signature":"s"}}}]},
		{"role":"tool","tool_call_id":"c","content":"r"}]}`)
	if fault != nil {
		t.Fatalf("%+v", fault)
	}
	system, user, assistant, result := c.Messages[0], c.Messages[1], c.Messages[2], c.Messages[3]
	if system.Role != prompt.System || !system.Parts[0].Cached || system.Parts[0].Text.Str != "s" {
		t.Errorf("system %+v", system)
	}
	image, file, audio := user.Parts[0], user.Parts[1], user.Parts[2]
	if len(user.Parts) != 3 || image.Kind != prompt.ImagePart || image.Place.String() != "messages[1].content[1]" ||
		image.Data != (prompt.Data{Media: "image/jpeg", Base64: "Q/JD"}) || !image.In("DATA:") {
		t.Errorf("image %+v", image)
	}
	if said, err := file.Data.Bytes(); err != nil || string(said) != "hi" || file.File.Name.Str != "a" || !file.File.Sent {
		t.Errorf("file %+v %s", file, said)
	}
	if data, format, fault := audio.Audio(); fault != nil || data != "QUJD" || format != "wav" {
		t.Errorf("audio %s %s %+v", data, format, fault)
	}
	call := assistant.Calls[0]
	if len(assistant.Parts) != 2 || assistant.Parts[1].Text.Str != "no" || call.Arguments != "{}" || call.Signature != "s" {
		t.Errorf("assistant %+v", assistant)
	}
	if said, whole := result.Whole(); !whole || said.Raw != `"r"` || result.CallID != "c" {
		t.Errorf("result %+v", result)
	}
	if _, whole := system.Whole(); whole {
		t.Error("a list of parts is taken for a string")
	}
}

// TestFirstCounts: of a member of a message or a part that stands there twice, the first one counts, as in the estimate.
func TestFirstCounts(t *testing.T) {
	c, fault := read(`{"messages":[{"role":"user","role":"tool","content":[{"type":"text","text":"short","text":"a long one"}],"content":"x"}]}`)
	if fault != nil || c.Messages[0].Role != prompt.User || c.Messages[0].Parts[0].Text.Str != "short" {
		t.Errorf("%+v %+v", c, fault)
	}
}

// TestMalformed: what nobody can honour is found, and named, whatever may be dropped.
func TestMalformed(t *testing.T) {
	all := []string{"messages", "stop", "tools", "tool_choice", "response_format", "temperature", "seed", "n", "user"}
	said := func(m string) string { return `{"messages":[{"role":"user","content":"a"},` + m + `]}` }
	part := func(p string) string { return said(`{"role":"user","content":[{"type":"text","text":"b"},` + p + `]}`) }
	call := func(c string) string { return said(`{"role":"assistant","tool_calls":[` + c + `]}`) }
	tool := func(f string) string { return with(`"tools":[{"type":"function","function":` + f + `}]`) }
	for body, param := range map[string]string{
		`{}`:                "messages",
		`{"messages":null}`: "messages",
		`{"messages":{}}`:   "messages",
		`{"messages":[]}`:   "messages",
		`{"messages":[{"role":"system","content":"s"}]}`: "messages",
		`{"messages":[{"role":"user","content":""}]}`:    "messages",
		said(`5`):                                                       "messages[1]",
		said(`{"role":"robot","content":""}`):                           "messages[1].role",
		said(`{"role":"user"}`):                                         "messages[1].content",
		said(`{"role":"user","content":{}}`):                            "messages[1].content",
		said(`{"role":"tool","content":"r"}`):                           "messages[1].tool_call_id",
		said(`{"role":"assistant","content":null,"refusal":1}`):         "messages[1].refusal",
		said(`{"role":"assistant","content":"","reasoning_details":1}`): "messages[1].reasoning_details",
		said(`{"role":"assistant","content":"","thinking_blocks":{}}`):  "messages[1].thinking_blocks",
		said(`{"role":"assistant","tool_calls":{}}`):                    "messages[1].tool_calls",
		said(`{"role":"system","content":[{"type":"image_url"}]}`):      "messages[1].content[0].type",
		part(`5`):                        "messages[1].content[1]",
		part(`{"text":"a"}`):             "messages[1].content[1].type",
		part(`{"type":"text","text":1}`): "messages[1].content[1].text",
		part(`{"type":"image_url","image_url":{"url":""}}`):        "messages[1].content[1].image_url.url",
		part(`{"type":"image_url","image_url":{"url":"data:,x"}}`): "messages[1].content[1].image_url.url",
		part(`{"type":"file"}`):                                    "messages[1].content[1].file",
		part(`{"type":"file","file":{"filename":1}}`):              "messages[1].content[1].file.filename",
		call(`1`):                         "messages[1].tool_calls[0]",
		call(`{"function":{"name":"f"}}`): "messages[1].tool_calls[0].id",
		call(`{"id":"c"}`):                "messages[1].tool_calls[0].function.name",
		call(`{"id":"c","function":{"name":"f","arguments":{}}}`):   "messages[1].tool_calls[0].function.arguments",
		call(`{"id":"c","function":{"name":"f","arguments":"[]"}}`): "messages[1].tool_calls[0].function.arguments",
		with(`"user":1`):                                 "user",
		with(`"n":"1"`):                                  "n",
		with(`"seed":1.5`):                               "seed",
		with(`"logprobs":1`):                             "logprobs",
		with(`"top_logprobs":21`):                        "top_logprobs",
		with(`"presence_penalty":3`):                     "presence_penalty",
		with(`"temperature":2.5`):                        "temperature",
		with(`"top_p":"1"`):                              "top_p",
		with(`"stop":1`):                                 "stop",
		with(`"stop":["a",1]`):                           "stop[1]",
		with(`"parallel_tool_calls":"no"`):               "parallel_tool_calls",
		with(`"reasoning_effort":"huge"`):                "reasoning_effort",
		with(`"service_tier":"gold"`):                    "service_tier",
		with(`"response_format":1`):                      "response_format",
		with(`"response_format":{"type":"x"}`):           "response_format.type",
		with(`"response_format":{"type":"json_schema"}`): "response_format.json_schema.schema",
		with(`"response_format":{"type":"json_schema","json_schema":{"schema":{},"name":1}}`): "response_format.json_schema.name",
		with(`"tools":{}`):                        "tools",
		with(`"tools":[1]`):                       "tools[0]",
		with(`"tools":[{}]`):                      "tools[0].type",
		with(`"tools":[{"type":"function"}]`):     "tools[0].function",
		tool(`{}`):                                "tools[0].function.name",
		tool(`{"name":"f","description":1}`):      "tools[0].function.description",
		tool(`{"name":"f","parameters":[]}`):      "tools[0].function.parameters",
		with(`"tool_choice":1`):                   "tool_choice",
		with(`"tool_choice":"some"`):              "tool_choice",
		with(`"tool_choice":"required"`):          "tool_choice",
		with(`"tool_choice":{}`):                  "tool_choice.type",
		with(`"tool_choice":{"type":"function"}`): "tool_choice.function.name",
		with(`"tool_choice":{"type":"function","function":{"name":"g"}}`):                                                  "tool_choice",
		with(`"tool_choice":{"type":"allowed_tools"}`):                                                                     "tool_choice.allowed_tools.mode",
		with(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`):                                     "tool_choice.allowed_tools.tools",
		with(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{}]}}`):                        "tool_choice.allowed_tools.tools[0]",
		with(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":"g"}}]}}`): "tool_choice",
	} {
		for _, dropped := range [][]string{nil, all} {
			_, f := read(body, dropped...)
			if f == nil || f.Kind != exchange.FailRequest || f.Param != param || f.Code != adapter.CodeInvalid || f.Message == "" {
				t.Errorf("%s: %+v, want %s", body, f, param)
			}
		}
	}
}

// TestBeyond: what only OpenAI's dialect has is refused by the vendor's name, and goes where its member may; a tool goes
// alone, and a message never.
func TestBeyond(t *testing.T) {
	said := func(m string) string { return `{"messages":[` + m + `]}` }
	const custom = `"tools":[{"type":"custom","custom":{"name":"c"}},{"type":"function","function":{"name":"f"}}]`
	for body, param := range map[string]string{
		with(custom): "tools[0]",
		with(`"tool_choice":{"type":"custom","custom":{"name":"c"}}`):                      "tool_choice",
		said(`{"role":"function","name":"f","content":"r"}`):                               "messages[0].role",
		said(`{"role":"assistant","content":null,"audio":{"id":"a"}}`):                     "messages[0].audio",
		said(`{"role":"assistant","content":null,"function_call":{}}`):                     "messages[0].function_call",
		said(`{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{}}]}`): "messages[0].tool_calls[0]",
	} {
		_, f := read(body)
		if f == nil || f.Kind != exchange.FailUnsupported || f.Param != param || f.Code != adapter.CodeUnsupported {
			t.Errorf("%s: %+v, want %s", body, f, param)
		}
		c, f := read(body, "tools", "tool_choice", "messages")
		if inMessages := strings.HasPrefix(param, "messages"); inMessages != (f != nil) {
			t.Errorf("%s, dropped: %+v", body, f)
		} else if param == "tools[0]" && (len(c.Tools) != 1 || c.Tools[0].Name.Str != "f") {
			t.Errorf("tools left: %+v", c.Tools)
		}
	}
}

// TestSpeakers: who speaks is said where several speak in one role, and not where a name tells nobody apart.
func TestSpeakers(t *testing.T) {
	image := `{"type":"image_url","image_url":{"url":"https://a.test/b.png"}}`
	for members, want := range map[string]string{
		`{"role":"user","name":"bob","content":"a"},{"role":"user","name":"ann \"x\"","content":[` + image + `]},{"role":"user","content":"c"}`:                          `bob: |a|ann "x": |https://a.test/b.png|c`,
		`{"role":"user","name":"bob","content":"a"},{"role":"assistant","name":"bot","content":"b"},{"role":"user","name":"bob","content":"c"}`:                          `a|b|c`,
		`{"role":"user","name":"user","content":"a"},{"role":"user","name":"","content":"b"},{"role":"user","name":null,"content":"c"}`:                                  `a|b|c`,
		`{"role":"assistant","name":"one","content":"a"},{"role":"assistant","name":"two","content":"b"},{"role":"user","name":"bob","content":"c"}`:                     `one: |a|two: |b|c`,
		`{"role":"system","content":"a"},{"role":"system","name":"example_user","content":"b"},{"role":"user","content":"c"}`:                                            `a|example_user: |b|c`,
		`{"role":"user","name":"bob","content":""},{"role":"user","name":"ann","content":"a"}`:                                                                           `ann: |a`,
		`{"role":"user","content":"a"},{"role":"tool","tool_call_id":"c","name":"f","content":"b"},{"role":"tool","tool_call_id":"d","name":"g","content":"c"}`:          `a|b|c`,
		`{"role":"user","content":"a"},{"role":"developer","name":"x","content":"b"},{"role":"system","name":"x","content":"c"},{"role":"user","name":"","content":"d"}`: `a|b|c|d`,
	} {
		c, f := read(`{"messages":[` + members + `]}`)
		if f != nil {
			t.Fatalf("%s: %+v", members, f)
		}
		var got []string
		for _, m := range c.Messages {
			for _, part := range m.Parts {
				if quoted, _ := strconv.Unquote(part.Text.Raw); quoted != part.Text.Str {
					t.Errorf("%s says %s", part.Text.Raw, part.Text.Str)
				}
				got = append(got, part.Text.Str)
			}
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: got %s, want %s", members, strings.Join(got, "|"), want)
		}
	}
}

// TestUnknownMembers: what is not known of a message or a part is refused by its name, as at the top; what asks for nothing,
// or comes back from an answer, is not.
func TestUnknownMembers(t *testing.T) {
	message := func(member string) string { return `{"messages":[{"role":"user","content":"a",` + member + `}]}` }
	part := func(member string) string {
		return `{"messages":[{"role":"user","content":[{"type":"text","text":"a",` + member + `}]}]}`
	}
	for body, param := range map[string]string{
		message(`"prefix":true`): "messages[0].prefix", message(`"wish":"x"`): "messages[0].wish", message(`"wish":{"a":1}`): "messages[0].wish",
		message(`"wish":0`): "messages[0].wish", part(`"wish":[1]`): "messages[0].content[0].wish", part(`"":1`): "messages[0].content[0].",
		message(`"prefix":false`): "", message(`"wish":null`): "", message(`"wish":""`): "", message(`"wish":{ }`): "", part(`"wish":[ ]`): "",
		message(`"reasoning_content":"x","id":"m","extra_content":{"a":1},"provider_specific_fields":{"a":1}`): "", part(`"annotations":[1],"index":3`): "",
	} {
		_, f := read(body, "messages", "prefix", "wish")
		if (f == nil) != (param == "") || f != nil && (f.Param != param || f.Kind != exchange.FailUnsupported) {
			t.Errorf("%s: %+v, want %q", body, f, param)
		}
	}
	if _, f := read(message(`"name":7`)); f == nil || f.Kind != exchange.FailRequest || f.Param != "messages[0].name" {
		t.Errorf("%+v", f)
	}
}

// TestCacheControl: it is prompt_cache_breakpoint to those who know it by that name.
func TestCacheControl(t *testing.T) {
	c, f := read(`{"messages":[{"role":"system","content":"s","cache_control":{"type":"ephemeral"}},{"role":"user","content":[
		{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"text","text":"b","cache_control":null}]}]}`)
	if f != nil {
		t.Fatalf("%+v", f)
	}
	if !c.Messages[0].Parts[0].Cached || !c.Messages[1].Parts[0].Cached || c.Messages[1].Parts[1].Cached {
		t.Errorf("%+v", c.Messages)
	}
}

// TestCannot: a provider's refusal goes by the member it lies in; what asks for nothing is not refused.
func TestCannot(t *testing.T) {
	c, _ := read(with(`"seed":1,"store":false`), "stop", "messages", "wish")
	for param, goes := range map[string]bool{"stop[1]": true, "stop": true, "tools[0].function": false, "messages[0].content[1]": false} {
		if f := c.Cannot(param, "no"); goes != (f == nil) || f != nil && (f.Param != param || f.Kind != exchange.FailUnsupported) {
			t.Errorf("%s: %+v", param, f)
		}
	}
	seed, store := c.Rest[0], c.Rest[1]
	if f := c.Refuse(seed); f == nil || f.Param != "seed" || f.Message != "Nobody cannot honour seed" {
		t.Errorf("%+v", f)
	}
	if f := c.Refuse(store); f != nil {
		t.Errorf("%+v", f)
	}
	if f := c.Refuse(prompt.Member{Name: "wish", Value: seed.Value}); f != nil {
		t.Errorf("%+v", f)
	}
}

// TestThoughts: pieces of one block are put together; what nobody signed, or another vendor's model thought, is left out.
func TestThoughts(t *testing.T) {
	claude := []string{"anthropic"}
	for name, c := range map[string]struct {
		members string
		want    []prompt.Thought
		formats []string
	}{
		"another's, in pieces": {
			`"reasoning_details":[{"type":"reasoning.text","format":"one-v1","index":0,"text":"a"},{"type":"reasoning.text","index":0,"text":"b","signature":"s"},` +
				`{"type":"reasoning.encrypted","index":0,"data":"d"},{"type":"reasoning.text","format":"two-v1","index":0,"text":"c","signature":"t"},{"type":"reasoning.text","index":1,"signature":"u"}]`,
			[]prompt.Thought{{Text: "ab", Signature: "s"}, {Redacted: true, Text: "d"}, {Text: "c", Signature: "t"}}, []string{"one", "two-v1"},
		},
		"pieces": {
			`"reasoning_details":[{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"one\n"},{"type":"reasoning.text","index":0,"text":"two"},` +
				`{"type":"reasoning.text","index":0,"signature":"s"},{"type":"reasoning.encrypted","index":1,"data":"d"},{"type":"reasoning.text","index":2,"text":"unsigned"},` +
				`{"type":"reasoning.text","format":"google-gemini-v1","index":3,"text":"x","signature":"y"}]`,
			[]prompt.Thought{{Text: `one\ntwo`, Signature: "s"}, {Redacted: true, Text: "d"}}, claude,
		},
		"without indices": {
			`"reasoning_details":[{"type":"reasoning.text","text":"a","signature":"s"},{"type":"reasoning.text","text":"b","signature":"t"}]`,
			[]prompt.Thought{{Text: "a", Signature: "s"}, {Text: "b", Signature: "t"}}, claude,
		},
		"blocks": {
			`"reasoning_details":[],"thinking_blocks":[{"type":"thinking","thinking":"a","signature":"s"},{"type":"redacted_thinking","data":"d"}]`,
			[]prompt.Thought{{Text: "a", Signature: "s"}, {Redacted: true, Text: "d"}}, claude,
		},
		"details before blocks": {
			`"thinking_blocks":[{"type":"thinking","thinking":"b","signature":"t"}],"reasoning_details":[{"type":"reasoning.text","text":"a","signature":"s"}]`,
			[]prompt.Thought{{Text: "a", Signature: "s"}}, claude,
		},
		"none": {`"name":"n"`, nil, claude},
	} {
		t.Run(name, func(t *testing.T) {
			chat, f := read(`{"messages":[{"role":"assistant","content":"x",` + c.members + `}]}`)
			if f != nil {
				t.Fatalf("%+v", f)
			}
			var got []prompt.Thought
			for _, th := range chat.Messages[0].Thoughts(c.formats...) {
				got = append(got, prompt.Thought{Redacted: th.Redacted, Text: th.Text, Signature: th.Signature})
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
