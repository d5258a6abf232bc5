package bedrock

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const nova = "us.amazon.nova-pro-v1:0"

// profile names no vendor.
const profile = "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"

// ask is a request whose body has the members given.
func ask(members string) *exchange.Request {
	r := chat(false)
	r.Body = []byte(`{"model":"smart",` + members + `}`)
	return r
}

const hi = `"messages":[{"role":"user","content":"hi"}]`

// built is the body that goes to a model.
func built(t *testing.T, model string, r *exchange.Request) string {
	t.Helper()
	call, f := New().Request(r, &exchange.Deployment{Model: model}, nil)
	if f != nil {
		t.Fatalf("%+v", f)
	}
	if !json.Valid(call.Body) {
		t.Fatalf("body %s", call.Body)
	}
	return string(call.Body)
}

// TestRequest: each member of a chat in Bedrock's words. The part that is looked for must be there as it stands.
func TestRequest(t *testing.T) {
	const turn = `{"messages":[{"role":"user","content":[{"text":"hi"}]}]`
	const tools = `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}},"strict":true}},
		{"type":"function","function":{"name":"g"}}]`
	const specF = `{"toolSpec":{"name":"f","description":"d","inputSchema":{"json":{"type":"object","properties":{"a":{}}}},"strict":true}}`
	const specG = `{"toolSpec":{"name":"g","inputSchema":{"json":{"type":"object","properties":{}}}}}`
	const called = `"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},
		{"id":"c2","type":"function","function":{"name":"f","arguments":""}}]},
		{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":""},{"role":"user","content":"go on"}]`
	for name, c := range map[string]struct{ model, members, want string }{
		"plain":              {nova, hi, turn + `}`},
		"harmless":           {nova, hi + `,"n":1,"store":false,"logprobs":false,"seed":null,"logit_bias":{},"user":"u","metadata":{"a":"b"}`, turn + `}`},
		"sampling":           {nova, hi + `,"temperature":0.5,"top_p":1,"stop":["a","b"]`, turn + `,"inferenceConfig":{"temperature":0.5,"topP":1,"stopSequences":["a","b"]}}`},
		"one stop":           {nova, hi + `,"stop":"\n"`, `"inferenceConfig":{"stopSequences":["\n"]}`},
		"system":             {nova, `"messages":[{"role":"system","content":"a"},{"role":"user","content":"hi"},{"role":"developer","content":[{"type":"text","text":"b"}]}]`, turn + `,"system":[{"text":"a"},{"text":"b"}]}`},
		"turns merge":        {nova, `"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]`, `{"messages":[{"role":"user","content":[{"text":"a"},{"text":"b"}]}]}`},
		"empty texts":        {nova, `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":""}]`, turn + `}`},
		"refusal":            {nova, `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"refusal":"no"}]`, `{"role":"assistant","content":[{"text":"no"}]}`},
		"image":              {nova, `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/jpg;base64,QUJD"}}]}]`, `[{"image":{"format":"jpeg","source":{"bytes":"QUJD"}}}]`},
		"audio":              {nova, `"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"wav","data":"QUJD"}}]}]`, `[{"audio":{"format":"wav","source":{"bytes":"QUJD"}}}]`},
		"document":           {nova, `"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"my_Report  v1.2.pdf","file_data":"data:application/pdf;base64,QUJD"}},{"type":"file","file":{"filename":"my report v1 2 pdf","file_data":"data:text/csv;base64,QUJD"}},{"type":"file","file":{"filename":"my Report v1 2 pdf","file_data":"data:text/csv;base64,QUJD"}},{"type":"file","file":{"file_data":"data:text/plain;charset=utf-8;base64,QUJD"}}]}]`, `[{"document":{"format":"pdf","name":"my Report v1 2 pdf","source":{"bytes":"QUJD"}}},{"document":{"format":"csv","name":"my report v1 2 pdf","source":{"bytes":"QUJD"}}},{"document":{"format":"csv","name":"my Report v1 2 pdf (2)","source":{"bytes":"QUJD"}}},{"document":{"format":"txt","name":"document","source":{"bytes":"QUJD"}}}]`},
		"cache points":       {nova, `"messages":[{"role":"system","content":[{"type":"text","text":"s","prompt_cache_breakpoint":{}}]},{"role":"user","content":[{"type":"text","text":"a","prompt_cache_breakpoint":{"mode":"explicit"}},{"type":"text","text":"b"}]}]`, `{"messages":[{"role":"user","content":[{"text":"a"},{"cachePoint":{"type":"default"}},{"text":"b"}]}],"system":[{"text":"s"},{"cachePoint":{"type":"default"}}]}`},
		"cached result":      {nova, `"messages":[{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r","prompt_cache_breakpoint":{}},{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}]}],` + tools, `[{"toolResult":{"toolUseId":"c","content":[{"text":"r"},{"image":{"format":"png","source":{"bytes":"QUJD"}}}]}},{"cachePoint":{"type":"default"}},{"text":"hi"}]`},
		"tools":              {nova, hi + `,` + tools, `"toolConfig":{"tools":[` + specF + `,` + specG + `]}}`},
		"auto":               {nova, hi + `,"tool_choice":"auto",` + tools, specG + `],"toolChoice":{"auto":{}}}`},
		"required":           {nova, hi + `,"tool_choice":"required",` + tools, specG + `],"toolChoice":{"any":{}}}`},
		"named":              {nova, hi + `,"tool_choice":{"type":"function","function":{"name":"g"}},` + tools, specG + `],"toolChoice":{"tool":{"name":"g"}}}`},
		"none":               {nova, hi + `,"tool_choice":"none",` + tools, turn + `}`},
		"allowed":            {nova, hi + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}},` + tools, `{"tools":[` + specG + `],"toolChoice":{"any":{}}}`},
		"calls":              {nova, called + `,` + tools, `[{"role":"user","content":[{"text":"q"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"c1","name":"f","input":{"a": 1}}},{"toolUse":{"toolUseId":"c2","name":"f","input":{}}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"c1","content":[{"text":"one"}]}},{"toolResult":{"toolUseId":"c2","content":[]}},{"text":"go on"}]}]`},
		"calls alone":        {nova, called, `"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object","properties":{}}}}}]}}`},
		"serial, alone":      {nova, hi + `,"parallel_tool_calls":false`, turn + `}`},
		"schema":             {nova, hi + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{ "type":"object" }}}`, `"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"type\":\"object\"}","name":"n","description":"d"}}}}}`},
		"effort":             {profile, hi + `,"reasoning_effort":"xhigh"`, `"outputConfig":{"effort":"xhigh"}`},
		"least effort":       {"qwen.qwen3-32b-v1:0", hi + `,"reasoning_effort":"minimal","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}`, `"outputConfig":{"effort":"low","textFormat":`},
		"no effort":          {nova, hi + `,"reasoning_effort":"none"`, turn + `}`},
		"nova thinks":        {nova, hi + `,"reasoning_effort":"max"`, `"additionalModelRequestFields":{"reasoningConfig":{"type":"enabled","maxReasoningEffort":"high"}}`},
		"nova, warm":         {nova, hi + `,"reasoning_effort":"low","temperature":0.5`, `"additionalModelRequestFields":{"reasoningConfig":{"type":"enabled","maxReasoningEffort":"low"}}`},
		"gpt-oss thinks":     {"openai.gpt-oss-120b-1:0", hi + `,"reasoning_effort":"low"`, `"additionalModelRequestFields":{"reasoning_effort":"low"}`},
		"tier":               {nova, hi + `,"service_tier":"flex"`, `"serviceTier":{"type":"flex"}}`},
		"any tier":           {nova, hi + `,"service_tier":"auto"`, turn + `}`},
		"thinking":           {profile, `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a","reasoning_details":[{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"one "},{"type":"reasoning.text","index":0,"text":"two"},{"type":"reasoning.text","index":0,"signature":"s=="},{"type":"reasoning.encrypted","index":1,"data":"ZA=="},{"type":"reasoning.text","index":2,"text":"unsigned"},{"type":"reasoning.text","format":"google-gemini-v1","index":3,"text":"x","signature":"y"}]}]`, `"content":[{"reasoningContent":{"reasoningText":{"text":"one two","signature":"s=="}}},{"reasoningContent":{"redactedContent":"ZA=="}},{"text":"a"}]`},
		"another's thoughts": {nova, `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a","reasoning_details":[{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"one "},{"type":"reasoning.text","index":0,"text":"two"},{"type":"reasoning.text","index":0,"signature":"s=="},{"type":"reasoning.encrypted","index":1,"data":"ZA=="},{"type":"reasoning.text","index":2,"text":"unsigned"},{"type":"reasoning.text","format":"google-gemini-v1","index":3,"text":"x","signature":"y"}]}]`, `{"role":"assistant","content":[{"text":"a"}]}`},
		"foreign ids":        {nova, `"messages":[{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"functions.f:0","content":"r"}]`, `{"toolUseId":"functions_f_0_`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := built(t, c.model, ask(c.members)); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestUnsupported: what cannot be honoured is refused by name, or let go where the alias says so. What is malformed is the
// caller's fault everywhere.
func TestUnsupported(t *testing.T) {
	const u, r = exchange.FailUnsupported, exchange.FailRequest
	part := func(p string) string { return `"messages":[{"role":"user","content":[` + p + `]}]` }
	const tool = `"tools":[{"type":"function","function":{"name":"f"}}]`
	for name, c := range map[string]struct {
		members string
		kind    exchange.FailureKind
		param   string
	}{
		"drawn before":    {`"messages":[{"role":"user","content":"draw"},{"role":"assistant","content":"here","images":[{"image_url":{"url":"data:image/png;base64,QUJD"}}]}]`, u, "messages[1].images"},
		"no image":        {`"messages":[{"role":"user","content":"draw"},{"role":"assistant","images":[{"image_url":{"url":"data:image/png"}}]}]`, r, "messages[1].images"},
		"seed":            {hi + `,"seed":1`, u, "seed"},
		"n":               {hi + `,"n":2`, u, "n"},
		"logprobs":        {hi + `,"logprobs":true`, u, "logprobs"},
		"a penalty":       {hi + `,"presence_penalty":0.1`, u, "presence_penalty"},
		"an unknown one":  {hi + `,"colour":"red"`, u, "colour"},
		"hot":             {hi + `,"temperature":1.5`, u, "temperature"},
		"too hot":         {hi + `,"temperature":2.5`, r, "temperature"},
		"top_p":           {hi + `,"top_p":1.5`, r, "top_p"},
		"json_object":     {hi + `,"response_format":{"type":"json_object"}`, u, "response_format"},
		"no schema":       {hi + `,"response_format":{"type":"json_schema"}`, r, "response_format.json_schema.schema"},
		"effort":          {hi + `,"reasoning_effort":"huge"`, r, "reasoning_effort"},
		"deep and warm":   {hi + `,"reasoning_effort":"high","temperature":0.5`, u, "reasoning_effort"},
		"tier":            {hi + `,"service_tier":"scale"`, u, "service_tier"},
		"no tier":         {hi + `,"service_tier":"gold"`, r, "service_tier"},
		"empty stop":      {hi + `,"stop":["a",""]`, u, "stop[1]"},
		"stop":            {hi + `,"stop":1`, r, "stop"},
		"an image's URL":  {part(`{"type":"image_url","image_url":{"url":"https://h/i.png"}}`), u, "messages[0].content[0]"},
		"bmp":             {part(`{"type":"image_url","image_url":{"url":"data:image/bmp;base64,QQ=="}}`), u, "messages[0].content[0]"},
		"no base64":       {part(`{"type":"image_url","image_url":{"url":"data:image/png,x"}}`), r, "messages[0].content[0].image_url.url"},
		"an uploaded one": {part(`{"type":"file","file":{"file_id":"f"}}`), u, "messages[0].content[0]"},
		"a zip":           {part(`{"type":"file","file":{"file_data":"data:application/zip;base64,QQ=="}}`), u, "messages[0].content[0]"},
		"serial":          {hi + `,"parallel_tool_calls":false,` + tool, u, "parallel_tool_calls"},
		"custom tool":     {hi + `,"tools":[{"type":"custom","custom":{"name":"c"}}]`, u, "tools[0]"},
		"no such tool":    {hi + `,"tool_choice":{"type":"function","function":{"name":"g"}},` + tool, r, "tool_choice"},
		"no tool":         {hi + `,"tool_choice":"required"`, r, "tool_choice"},
		"forbidden calls": {`"messages":[{"role":"user","content":"q"},{"role":"tool","tool_call_id":"c","content":"r"}],"tool_choice":"none",` + tool, u, "tool_choice"},
		"bad arguments":   {`"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"[1]"}}]}]`, r, "messages[0].tool_calls[0].function.arguments"},
		"function_call":   {`"messages":[{"role":"assistant","function_call":{}}]`, u, "messages[0].function_call"},
		"no messages":     {`"n":1`, r, "messages"},
		"system alone":    {`"messages":[{"role":"system","content":"s"}]`, r, "messages"},
		"a role":          {`"messages":[{"role":"robot","content":"s"}]`, r, "messages[0].role"},
		"details":         {`"messages":[{"role":"assistant","content":"s","reasoning_details":{}}]`, r, "messages[0].reasoning_details"},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask(c.members)
			_, f := New().Request(q, &exchange.Deployment{Model: nova}, nil)
			if f == nil || f.Kind != c.kind || f.Param != c.param {
				t.Fatalf("got %+v", f)
			}
			member, _, _ := strings.Cut(c.param, "[")
			q.AllowDropped = []string{member}
			_, f = New().Request(q, &exchange.Deployment{Model: nova}, nil)
			if drops := c.kind == u && member != "messages"; drops != (f == nil) {
				t.Errorf("with allow_dropped: %+v", f)
			}
		})
	}
	if _, f := New().Request(&exchange.Request{Operation: exchange.Embeddings}, &exchange.Deployment{}, nil); f == nil || f.Kind != u {
		t.Errorf("embeddings: %+v", f)
	}
}

// TestPaths: colons and slashes of a model's id are escaped.
func TestPaths(t *testing.T) {
	const profile, escaped = profile, "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fx"
	for base, want := range map[string]string{
		"": "converse", nova: "converse", "anthropic.claude-opus-4-6-v1": "invoke", "claude-opus-4-6": "invoke",
	} {
		d := &exchange.Deployment{Model: profile, BaseModel: base}
		call, f := New().Request(ask(hi), d, nil)
		if f != nil || call.Path != escaped+"/"+want {
			t.Errorf("a profile of %q: %s, %+v", base, call.Path, f)
		}
		if speaks := New().Speak(exchange.MessagesDialect, d) != nil; speaks != (want == "invoke") {
			t.Errorf("a profile of %q speaks Claude's own dialect: %v", base, speaks)
		}
	}
	for _, c := range []struct {
		model  string
		stream bool
		want   string
	}{
		{nova, false, "/model/us.amazon.nova-pro-v1%3A0/converse"},
		{nova, true, "/model/us.amazon.nova-pro-v1%3A0/converse-stream"},
		{"arn:aws:bedrock:eu-west-1:123:inference-profile/x", false, "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123%3Ainference-profile%2Fx/converse"},
		{"eu.anthropic.claude-sonnet-4-5-20250929-v1:0", false, "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke"},
		{"anthropic.claude-opus-4-6-v1", true, "/model/anthropic.claude-opus-4-6-v1/invoke-with-response-stream"},
		{"a b/é", false, "/model/a%20b%2F%C3%A9/converse"},
	} {
		r := ask(hi)
		r.Stream = c.stream
		call, f := New().Request(r, &exchange.Deployment{Model: c.model}, []byte("never sent"))
		if f != nil || call.Path != c.want {
			t.Errorf("%s: got %s, %+v", c.model, call.Path, f)
		}
		for _, h := range call.Header {
			if strings.Contains(h.Value, "never") {
				t.Errorf("the secret stands in %s", h.Name)
			}
		}
	}
}

func TestOutputCap(t *testing.T) {
	r := ask(hi)
	r.DefaultOutput = 99
	if got := built(t, nova, r); !strings.Contains(got, `"inferenceConfig":{"maxTokens":99}`) {
		t.Error(got)
	}
	r.MaxOutput = 7
	if got := built(t, nova, r); !strings.Contains(got, `"inferenceConfig":{"maxTokens":7}`) {
		t.Error(got)
	}
}

// TestToolIDs: ids fit the model, calls and results keep together, and different ids stay apart.
func TestToolIDs(t *testing.T) {
	long := strings.Repeat("x", 70)
	seen := map[string]string{}
	for _, id := range []string{"call_1", "call.1", "call:1", "tooluse_ok-1", long, long + "y", "é", "abcdefghi", "abcdefgh", "a_bcdefgh"} {
		for _, model := range []string{nova, "mistral.mistral-large-2407-v1:0"} {
			got := fitCallID(model, id)
			bad := strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
			mistral := model != nova
			if bad != "" || len(got) > 64 || got != fitCallID(model, id) || mistral && (len(got) != 9 || strings.ContainsAny(got, "_-")) {
				t.Errorf("%s at %s: %s", id, model, got)
			}
			if other := seen[model+got]; other != "" {
				t.Errorf("%s and %s are both %s", id, other, got)
			}
			seen[model+got] = id
		}
	}
}

// TestClaude: Claude is asked in its own dialect, without model and stream, with the version in the body.
func TestClaude(t *testing.T) {
	const model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
	r := ask(hi + `,"service_tier":"default","temperature":0.5`)
	r.Stream = true
	before := string(r.Body)
	got := gjson.Parse(built(t, model, r))
	for _, absent := range []string{"model", "stream", "service_tier"} {
		if got.Get(absent).Exists() {
			t.Errorf("%s stands in %s", absent, got.Raw)
		}
	}
	if got.Get("anthropic_version").Str != "bedrock-2023-05-31" || got.Get("messages.0.content.0.text").Str != "hi" ||
		got.Get("temperature").Num != 0.5 || got.Get("max_tokens").Int() == 0 {
		t.Error(got.Raw)
	}
	if string(r.Body) != before {
		t.Error("the caller's body was changed")
	}
	for tier, want := range map[string]exchange.FailureKind{
		"auto": 0, "flex": exchange.FailUnsupported, "priority": exchange.FailUnsupported, "gold": exchange.FailRequest,
	} {
		_, f := New().Request(ask(hi+`,"service_tier":"`+tier+`"`), &exchange.Deployment{Model: model}, nil)
		if (f == nil) != (want == 0) || f != nil && (f.Kind != want || f.Param != "service_tier") {
			t.Errorf("%s: %+v", tier, f)
		}
	}
	r = ask(hi + `,"service_tier":"flex"`)
	r.AllowDropped = []string{"service_tier"}
	if got := built(t, model, r); strings.Contains(got, "tier") {
		t.Error(got)
	}
}
