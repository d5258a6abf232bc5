package anthropic

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const hi = `"messages":[{"role":"user","content":"hi"}]`
const hiOut = `"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`
const head = `{"model":"claude-fx-5","max_tokens":4096,`
const tideIn = `{"type":"function","function":{"name":"tide","description":"a \"t\"","parameters":{"type":"object"}}}`
const tideOut = `{"name":"tide","description":"a \"t\"","input_schema":{"type":"object"}}`
const windIn = `{"type":"function","function":{"name":"wind","strict":true}}`
const windOut = `{"name":"wind","input_schema":{"type":"object","properties":{}},"strict":true}`

func TestRequestBody(t *testing.T) {
	rows := []struct{ name, body, want string }{
		{"text", `{"model":"smart",` + hi + `}`, head + hiOut + `}`},
		{"escapes stay", `{"messages":[{"role":"user","content":"a\n\u00e9\""}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"text","text":"a\n\u00e9\""}]}]}`},
		{"system texts, also later ones",
			`{"messages":[{"role":"system","content":"A"},{"role":"developer","content":[{"type":"text","text":"B"},{"type":"text","text":"C"}]},{"role":"user","content":"hi"},{"role":"system","content":"D"}]}`,
			head + `"system":[{"type":"text","text":"A"},{"type":"text","text":"B"},{"type":"text","text":"C"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"system","content":[{"type":"text","text":"D"}]}]}`},
		{"same role merges", `{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":[{"type":"text","text":"c"}]},{"role":"user","content":[{"type":"text","text":"d"}]}]}`},
		{"images", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/jpg;base64,AAA=","detail":"low"}},{"type":"image_url","image_url":{"url":"https://a.test/b.png"}}]}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"AAA="}},{"type":"image","source":{"type":"url","url":"https://a.test/b.png"}}]}]}`},
		{"pdf", `{"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"}}]}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"title":"a.pdf"}]}]}`},
		{"text file", `{"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.txt","file_data":"data:text/plain;charset=utf-8;base64,aMOpCg=="},"prompt_cache_breakpoint":{"mode":"explicit"}}]}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"hé\n"},"title":"a.txt","cache_control":{"type":"ephemeral"}}]}]}`},
		{"cache breakpoint", `{"messages":[{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}]}`},
		{"calls and results",
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"tide","arguments":"{\"a\": 1}"}},{"id":"c2","type":"function","function":{"name":"wind","arguments":""}}]},{"role":"tool","tool_call_id":"c1","content":"r1"},{"role":"user","content":"and"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"r2"},{"type":"image_url","image_url":{"url":"https://a.test/b"}}]}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"tide","input":{"a": 1}},{"type":"tool_use","id":"c2","name":"wind","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r1"},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"r2"},{"type":"image","source":{"type":"url","url":"https://a.test/b"}}]},{"type":"text","text":"and"}]}]}`},
		{"results before an earlier text", `{"messages":[{"role":"user","content":"q"},{"role":"tool","tool_call_id":"a","content":""},{"role":"tool","tool_call_id":"b","content":"2"}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"},{"type":"tool_result","tool_use_id":"b","content":"2"},{"type":"text","text":"q"}]}]}`},
		{"empty assistant text goes", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":""},{"role":"user","content":"r"}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"r"}]}]}`},
		{"refusal", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"refusal":"no"},{"role":"assistant","content":[{"type":"refusal","refusal":"never"}]}]}`,
			head + `"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"text","text":"no"},{"type":"text","text":"never"}]}]}`},
		{"tools", `{` + hi + `,"tools":[` + tideIn + `,` + windIn + `]}`, head + hiOut + `,"tools":[` + tideOut + `,` + windOut + `]}`},
		{"schema without type", `{` + hi + `,"tools":[{"type":"function","function":{"name":"x","parameters":{"properties":{}}}}]}`,
			head + hiOut + `,"tools":[{"name":"x","input_schema":{"type":"object","properties":{}}}]}`},
		{"choice auto", `{` + hi + `,"tool_choice":"auto","tools":[` + tideIn + `]}`, head + hiOut + `,"tools":[` + tideOut + `],"tool_choice":{"type":"auto"}}`},
		{"choice none, serial", `{` + hi + `,"tools":[` + tideIn + `],"tool_choice":"none","parallel_tool_calls":false}`, head + hiOut + `,"tools":[` + tideOut + `],"tool_choice":{"type":"none"}}`},
		{"choice required, serial", `{` + hi + `,"tools":[` + tideIn + `],"tool_choice":"required","parallel_tool_calls":false}`, head + hiOut + `,"tools":[` + tideOut + `],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`},
		{"choice by name", `{` + hi + `,"tools":[` + tideIn + `],"tool_choice":{"type":"function","function":{"name":"tide"}}}`, head + hiOut + `,"tools":[` + tideOut + `],"tool_choice":{"type":"tool","name":"tide"}}`},
		{"allowed tools", `{` + hi + `,"tools":[` + tideIn + `,` + windIn + `],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"wind"}}]}}}`,
			head + hiOut + `,"tools":[` + windOut + `],"tool_choice":{"type":"any"}}`},
		{"serial without choice", `{` + hi + `,"tools":[` + tideIn + `],"parallel_tool_calls":false}`, head + hiOut + `,"tools":[` + tideOut + `],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`},
		{"choice without tools", `{` + hi + `,"tool_choice":"auto","parallel_tool_calls":false}`, head + hiOut + `}`},
		{"sampling", `{` + hi + `,"temperature":0.30,"top_p":0.9,"stop":["##","\n#"]}`, head + hiOut + `,"temperature":0.30,"top_p":0.9,"stop_sequences":["##","\n#"]}`},
		{"sampling by default", `{` + hi + `,"temperature":1.0,"top_p":1}`, head + hiOut + `}`},
		{"one stop", `{` + hi + `,"stop":"##"}`, head + hiOut + `,"stop_sequences":["##"]}`},
		{"no stops", `{` + hi + `,"stop":[]}`, head + hiOut + `}`},
		{"schema and effort", `{` + hi + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}},"reasoning_effort":"minimal"}`,
			head + hiOut + `,"thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}}`},
		{"effort alone", `{` + hi + `,"reasoning_effort":"xhigh"}`, head + hiOut + `,"thinking":{"type":"adaptive"},"output_config":{"effort":"xhigh"}}`},
		{"no effort", `{` + hi + `,"reasoning_effort":"none","temperature":0.2}`, head + hiOut + `,"temperature":0.2,"thinking":{"type":"disabled"}}`},
		{"effort null", `{` + hi + `,"reasoning_effort":null}`, head + hiOut + `}`},
		{"schema alone", `{` + hi + `,"response_format":{"type":"json_schema","json_schema":{"schema":{}}}}`, head + hiOut + `,"output_config":{"format":{"type":"json_schema","schema":{}}}}`},
		{"tier", `{` + hi + `,"service_tier":"default"}`, head + hiOut + `,"service_tier":"standard_only"}`},
		{"what asks for nothing is dropped", `{` + hi + `,"n":1,"logprobs":false,"top_logprobs":0,"logit_bias":{ },"frequency_penalty":0,"presence_penalty":0.0,"store":false,"modalities":[ "text" ],"response_format":{"type":"text"},"verbosity":"medium","metadata":{"a":"b"},"prompt_cache_key":"k","user":"me@x.test","safety_identifier":"s","stream_options":{"include_usage":true},"max_tokens":5}`, head + hiOut + `}`},
		{"null is absent", `{` + hi + `,"temperature":null,"audio":null,"tools":null,"stop":null,"functions":null,"unheard_of":null}`, head + hiOut + `}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Chat, Body: []byte(row.body)}
			call, f := New().Request(r, &exchange.Deployment{Model: "claude-fx-5"}, nil)
			if f != nil {
				t.Fatalf("failure %+v", f)
			}
			if string(call.Body) != row.want {
				t.Errorf("got  %s\nwant %s", call.Body, row.want)
			}
			if !json.Valid(call.Body) {
				t.Error("not JSON")
			}
		})
	}
}

func TestRequestFacts(t *testing.T) {
	r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{` + hi + `}`), Stream: true, UserSHA256: "ab12", DefaultOutput: 900}
	d := &exchange.Deployment{Model: `m"x`}
	call, f := New().Request(r, d, []byte("sk"))
	if f != nil {
		t.Fatal(f)
	}
	want := `{"model":"m\"x","max_tokens":900,` + hiOut + `,"metadata":{"user_id":"ab12"},"stream":true}`
	if call.Path != "/messages" || string(call.Body) != want {
		t.Errorf("%s %s", call.Path, call.Body)
	}
	fields := []adapter.Field{
		{Name: "content-type", Value: "application/json"}, {Name: "anthropic-version", Value: "2023-06-01"},
		{Name: "x-api-key", Value: "sk"},
	}
	if !slices.Equal(call.Header, fields) {
		t.Errorf("header %v", call.Header)
	}
	r.MaxOutput = 7
	if call, _ = New().Request(r, d, nil); !strings.Contains(string(call.Body), `"max_tokens":7,`) || len(call.Header) != 2 {
		t.Errorf("%s %v", call.Body, call.Header)
	}
}

func TestRequestRefused(t *testing.T) {
	msg := func(m string) string { return `{"messages":[{"role":"user","content":"a"},` + m + `]}` }
	part := func(p string) string { return msg(`{"role":"user","content":[{"type":"text","text":"b"},` + p + `]}`) }
	with := func(m string) string { return `{` + hi + `,` + m + `}` }
	no, bad := exchange.FailUnsupported, exchange.FailRequest
	rows := []struct {
		body  string
		kind  exchange.FailureKind
		param string
	}{
		{with(`"n":2`), no, "n"},
		{with(`"n":"2"`), bad, "n"},
		{with(`"logprobs":true`), no, "logprobs"},
		{with(`"top_logprobs":3`), no, "top_logprobs"},
		{with(`"logit_bias":{"5":1}`), no, "logit_bias"},
		{with(`"frequency_penalty":0.5`), no, "frequency_penalty"},
		{with(`"presence_penalty":-1`), no, "presence_penalty"},
		{with(`"prediction":{}`), no, "prediction"},
		{with(`"audio":{}`), no, "audio"},
		{with(`"modalities":["text","audio"]`), no, "modalities"},
		{with(`"web_search_options":{}`), no, "web_search_options"},
		{with(`"store":true`), no, "store"},
		{with(`"moderation":{}`), no, "moderation"},
		{with(`"verbosity":"low"`), no, "verbosity"},
		{with(`"functions":[]`), no, "functions"},
		{with(`"function_call":"auto"`), no, "function_call"},
		{with(`"unheard_of":1`), no, "unheard_of"},
		{with(`"response_format":{"type":"json_object"}`), no, "response_format"},
		{with(`"response_format":{"type":"xml"}`), bad, "response_format.type"},
		{with(`"response_format":"text"`), bad, "response_format"},
		{with(`"response_format":{"type":"json_schema"}`), bad, "response_format.json_schema.schema"},
		{with(`"temperature":1.1`), no, "temperature"},
		{with(`"temperature":2`), no, "temperature"},
		{with(`"temperature":2.1`), bad, "temperature"},
		{with(`"temperature":0.9,"reasoning_effort":"low"`), no, "temperature"},
		{with(`"reasoning_effort":"low","top_p":0.9`), no, "top_p"},
		{with(`"reasoning_effort":"low","tool_choice":"required","tools":[` + tideIn + `]`), no, "tool_choice"},
		{with(`"reasoning_effort":5`), bad, "reasoning_effort"},
		{with(`"seed":7`), no, "seed"},
		{with(`"user":7`), bad, "user"},
		{with(`"safety_identifier":{}`), bad, "safety_identifier"},
		{with(`"temperature":-0.1`), bad, "temperature"},
		{with(`"temperature":"1"`), bad, "temperature"},
		{with(`"top_p":2`), bad, "top_p"},
		{with(`"stop":5`), bad, "stop"},
		{with(`"stop":["a",5]`), bad, "stop[1]"},
		{with(`"stop":"\n"`), no, "stop"},
		{with(`"stop":["a"," "]`), no, "stop[1]"},
		{with(`"reasoning_effort":"huge"`), bad, "reasoning_effort"},
		{with(`"service_tier":"flex"`), no, "service_tier"},
		{with(`"service_tier":1`), bad, "service_tier"},
		{with(`"parallel_tool_calls":1`), bad, "parallel_tool_calls"},
		{with(`"tools":{}`), bad, "tools"},
		{with(`"tools":[1]`), bad, "tools[0]"},
		{with(`"tools":[{}]`), bad, "tools[0].type"},
		{with(`"tools":[` + tideIn + `,{"type":"custom","custom":{}}]`), no, "tools[1]"},
		{with(`"tools":[{"type":"function"}]`), bad, "tools[0].function"},
		{with(`"tools":[{"type":"function","function":{"name":""}}]`), bad, "tools[0].function.name"},
		{with(`"tools":[{"type":"function","function":{"name":"a","description":1}}]`), bad, "tools[0].function.description"},
		{with(`"tools":[{"type":"function","function":{"name":"a","parameters":[]}}]`), bad, "tools[0].function.parameters"},
		{with(`"tool_choice":"some"`), bad, "tool_choice"},
		{with(`"tool_choice":1`), bad, "tool_choice"},
		{with(`"tool_choice":"required"`), bad, "tool_choice"},
		{with(`"tool_choice":{"type":"function","function":{"name":"x"}}`), bad, "tool_choice"},
		{with(`"tool_choice":{"type":"function"}`), bad, "tool_choice.function.name"},
		{with(`"tool_choice":{"type":"custom"}`), no, "tool_choice"},
		{with(`"tool_choice":{"type":"allowed_tools"}`), bad, "tool_choice.allowed_tools.mode"},
		{with(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`), bad, "tool_choice.allowed_tools.tools"},
		{with(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{}]}}`), bad, "tool_choice.allowed_tools.tools[0]"},
		{`{}`, bad, "messages"},
		{`{"messages":null}`, bad, "messages"},
		{`{"messages":[]}`, bad, "messages"},
		{`{"messages":[{"role":"system","content":"only"}]}`, bad, "messages"},
		{msg(`5`), bad, "messages[1]"},
		{msg(`{"content":"a"}`), bad, "messages[1].role"},
		{msg(`{"role":"function","name":"f","content":"a"}`), no, "messages[1].role"},
		{msg(`{"role":"user"}`), bad, "messages[1].content"},
		{msg(`{"role":"user","content":5}`), bad, "messages[1].content"},
		{msg(`{"role":"system","content":{}}`), bad, "messages[1].content"},
		{msg(`{"role":"system","content":[{"type":"image_url"}]}`), bad, "messages[1].content[0].type"},
		{part(`5`), bad, "messages[1].content[1]"},
		{part(`{}`), bad, "messages[1].content[1].type"},
		{part(`{"type":"video"}`), bad, "messages[1].content[1].type"},
		{part(`{"type":"text"}`), bad, "messages[1].content[1].text"},
		{part(`{"type":"input_audio","input_audio":{}}`), no, "messages[1].content[1]"},
		{part(`{"type":"file"}`), bad, "messages[1].content[1].file"},
		{part(`{"type":"file","file":{"file_id":"f"}}`), no, "messages[1].content[1]"},
		{part(`{"type":"file","file":{"file_data":"data:text/csv;base64,AA"}}`), no, "messages[1].content[1]"},
		{part(`{"type":"image_url","image_url":"x"}`), bad, "messages[1].content[1].image_url.url"},
		{part(`{"type":"image_url","image_url":{"url":"data:image/png,x"}}`), bad, "messages[1].content[1].image_url.url"},
		{part(`{"type":"image_url","image_url":{"url":"data:image/tiff;base64,x"}}`), no, "messages[1].content[1]"},
		{part(`{"type":"image_url","image_url":{"url":"http://a.test"}}`), no, "messages[1].content[1]"},
		{msg(`{"role":"assistant","content":null,"audio":{"id":"a"}}`), no, "messages[1].audio"},
		{msg(`{"role":"assistant","content":null,"function_call":{}}`), no, "messages[1].function_call"},
		{msg(`{"role":"assistant","content":null,"refusal":5}`), bad, "messages[1].refusal"},
		{msg(`{"role":"assistant","tool_calls":{}}`), bad, "messages[1].tool_calls"},
		{msg(`{"role":"assistant","tool_calls":[5]}`), bad, "messages[1].tool_calls[0]"},
		{msg(`{"role":"assistant","tool_calls":[{"type":"custom"}]}`), no, "messages[1].tool_calls[0]"},
		{msg(`{"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":"{}"}}]}`), bad, "messages[1].tool_calls[0].id"},
		{msg(`{"role":"assistant","tool_calls":[{"id":"c","function":{"arguments":"{}"}}]}`), bad, "messages[1].tool_calls[0].function.name"},
		{msg(`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"a","arguments":"{"}}]}`), bad, "messages[1].tool_calls[0].function.arguments"},
		{msg(`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"a","arguments":"[1]"}}]}`), bad, "messages[1].tool_calls[0].function.arguments"},
		{msg(`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"a","arguments":{}}}]}`), bad, "messages[1].tool_calls[0].function.arguments"},
		{msg(`{"role":"tool","content":"x"}`), bad, "messages[1].tool_call_id"},
		{msg(`{"role":"tool","tool_call_id":"c"}`), bad, "messages[1].content"},
		{msg(`{"role":"tool","tool_call_id":"c","content":[{"type":"file"}]}`), bad, "messages[1].content[0].type"},
	}
	for _, row := range rows {
		t.Run(row.body, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Chat, Body: []byte(row.body)}
			call, f := New().Request(r, &exchange.Deployment{Model: "m"}, nil)
			if f == nil {
				t.Fatalf("accepted as %s", call.Body)
			}
			code := adapter.CodeInvalid
			if row.kind == no {
				code = adapter.CodeUnsupported
			}
			if f.Kind != row.kind || f.Param != row.param || f.Code != code || f.Message == "" ||
				f.Type != "invalid_request_error" {
				t.Errorf("got %+v, want kind %d, param %q", f, row.kind, row.param)
			}
		})
	}
}

func TestEmbeddingsRefused(t *testing.T) {
	r := &exchange.Request{Operation: exchange.Embeddings, Body: []byte(`{"model":"m","input":"a"}`)}
	if _, f := New().Request(r, &exchange.Deployment{}, nil); f == nil || f.Kind != exchange.FailUnsupported || f.Param != "model" {
		t.Errorf("%+v", f)
	}
}

func TestToolID(t *testing.T) {
	if got := adapter.FitCallID("call_A-1"); got != "call_A-1" {
		t.Error(got)
	}
	a, b := adapter.FitCallID("functions.x:0"), adapter.FitCallID("functions_x.0")
	if a == b || a != adapter.FitCallID("functions.x:0") || !strings.HasPrefix(a, "functions_x_0_") {
		t.Errorf("%q and %q", a, b)
	}
}

// FuzzRequest: whatever the caller sends is either refused or becomes valid JSON.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{` + hi + `,"tools":[` + tideIn + `],"stop":["a"]}`))
	f.Add([]byte(`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":".","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":".","content":[]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || body[0] != '{' {
			return
		}
		r := &exchange.Request{Operation: exchange.Chat, Body: body}
		call, fail := New().Request(r, &exchange.Deployment{Model: "m"}, nil)
		if fail == nil && !json.Valid(call.Body) {
			t.Fatalf("%s became %s", body, call.Body)
		}
	})
}

// TestSystemLater: older models take system texts before the conversation only.
func TestSystemLater(t *testing.T) {
	const later = `{"role":"system","content":[{"type":"text","text":"D"}]}`
	r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{"messages":[{"role":"user","content":"hi"},{"role":"system","content":"D"}]}`)}
	for model, want := range map[string]bool{
		"claude-opus-4-1": false, "claude-opus-4-20250514": false, "anthropic.claude-sonnet-4-5-20250929-v1:0": false,
		"claude-3-5-haiku-20241022": false, "claude-opus-4-7": false, "claude-opus-4-8": true, "claude-sonnet-5": true, "claude-fx-5": true,
	} {
		call, f := New().Request(r, &exchange.Deployment{Model: model}, nil)
		if f != nil || strings.Contains(string(call.Body), later) != want || !want && !strings.Contains(string(call.Body), `"system":[`) {
			t.Errorf("%s: %v %s", model, f, call.Body)
		}
	}
}

// TestSystemPlaces: between the turns a system text stands where the API takes it, at or behind the place where it came.
func TestSystemPlaces(t *testing.T) {
	message := map[byte]string{
		'u': `{"role":"user","content":"U"}`, 'a': `{"role":"assistant","content":"A"}`, 's': `{"role":"system","content":"S"}`, 'e': `{"role":"assistant","content":""}`,
		'c': `{"role":"assistant","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]}`, 't': `{"role":"tool","tool_call_id":"t","content":"R"}`,
	}
	for asked, want := range map[string]string{
		"us": "user system", "usa": "user system assistant", "uss": "user system system", "usu": "user user system", "uasu": "user assistant user system",
		"ucst": "user assistant user system", "ucts": "user assistant user system", "usau": "user system assistant user",
		"uas": "hoisted user assistant", "uasa": "hoisted user assistant assistant", "suas": "hoisted hoisted user assistant", "useu": "user user system",
	} {
		var list []string
		for i := range len(asked) {
			list = append(list, message[asked[i]])
		}
		r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{"messages":[` + strings.Join(list, ",") + `]}`)}
		call, f := New().Request(r, &exchange.Deployment{Model: "claude-opus-4-8"}, nil)
		if f != nil {
			t.Fatalf("%s: %+v", asked, f)
		}
		var got []string
		for range gjson.GetBytes(call.Body, "system").Array() {
			got = append(got, "hoisted")
		}
		for _, m := range gjson.GetBytes(call.Body, "messages").Array() {
			for range m.Get("content").Array() {
				got = append(got, m.Get("role").Str)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", asked, s, want)
		}
	}
}

// TestVersions: what the deployment's API version no longer has is refused, not dropped.
func TestVersions(t *testing.T) {
	d := &exchange.Deployment{Model: "m", APIVersion: "2026-10-21"}
	for body, param := range map[string]string{
		`"temperature":0.5`: "temperature", `"top_p":0.5`: "top_p", `"temperature":1`: "", `"stop":"x"`: "",
	} {
		r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{` + hi + `,` + body + `}`)}
		call, f := New().Request(r, d, nil)
		switch {
		case param == "" && (f != nil || call.Header[1] != adapter.Field{Name: "anthropic-version", Value: "2026-10-21"}):
			t.Errorf("%s: %v %v", body, f, call.Header)
		case param != "" && (f == nil || f.Kind != exchange.FailUnsupported || f.Param != param):
			t.Errorf("%s: %+v", body, f)
		}
	}
}
