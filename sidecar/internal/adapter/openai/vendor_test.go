package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestVendors: what a server has otherwise is put right in the request; what it cannot honour is said.
func TestVendors(t *testing.T) {
	azure := func(version string) exchange.Deployment {
		return exchange.Deployment{Provider: "azure", APIVersion: version}
	}
	vendor := func(name string) exchange.Deployment {
		return exchange.Deployment{Provider: "compatible", Vendor: name}
	}
	named := func(d exchange.Deployment, model string) exchange.Deployment {
		d.Model = model
		return d
	}
	own := exchange.Deployment{Provider: "openai"}
	for name, c := range map[string]struct {
		d      exchange.Deployment
		body   string // without the model
		stream bool
		want   string // "" when refused is
		param  string // that is refused
	}{
		"nobody in particular judges itself": {
			vendor(""), `{"seed":1,"logit_bias":{"1":2},"functions":[{}],"unknown":1}`, false,
			`{"seed":1,"logit_bias":{"1":2},"functions":[{}],"unknown":1,"max_tokens":9}`, "",
		},
		"a vendor of a newer version is nobody in particular": {vendor("new"), `{"seed":1}`, false, `{"seed":1,"max_tokens":9}`, ""},
		"mistral": {
			vendor("mistral"),
			`{"user":"u","seed":1,"stop":"x","metadata":{"a":1},"store":false,"logit_bias":{},"logprobs":null,"n":2,"prompt_cache_key":"k"}`, true,
			`{"random_seed":1,"stop":"x","n":2,"max_tokens":9}`, "",
		},
		"mistral, stream_options":     {vendor("mistral"), `{"stream_options":{"include_usage":true}}`, true, `{"max_tokens":9}`, ""},
		"mistral, logprobs":           {vendor("mistral"), `{"logprobs":true}`, false, "", "logprobs"},
		"mistral, what is to be kept": {vendor("mistral"), `{"store":true}`, false, "", "store"},
		"mistral, both seeds":         {vendor("mistral"), `{"seed":1,"random_seed":2}`, false, "", "seed"},
		"mistral, one of two":         {vendor("mistral"), `{"random_seed":2}`, false, `{"random_seed":2,"max_tokens":9}`, ""},
		"groq, one choice":            {vendor("groq"), `{"n":1,"top_logprobs":0}`, false, `{"max_completion_tokens":9}`, ""},
		"groq, more":                  {vendor("groq"), `{"n":2}`, false, "", "n"},
		"deepseek":                    {vendor("deepseek"), `{"logprobs":true,"parallel_tool_calls":true}`, false, `{"logprobs":true,"max_tokens":9}`, ""},
		"deepseek, schema": {
			vendor("deepseek"), `{"response_format":{"type":"json_schema","json_schema":{}}}`, false, "", "response_format",
		},
		"deepseek, json": {
			vendor("deepseek"), `{"response_format":{"type":"json_object"}}`, false, `{"response_format":{"type":"json_object"},"max_tokens":9}`, "",
		},
		"ollama":                  {vendor("ollama"), `{"tool_choice":"auto","n":1}`, false, `{"max_tokens":9}`, ""},
		"ollama, a tool forced":   {vendor("ollama"), `{"tool_choice":"required"}`, false, "", "tool_choice"},
		"ollama, one at a time":   {vendor("ollama"), `{"parallel_tool_calls":false}`, false, "", "parallel_tool_calls"},
		"llama.cpp, a stop":       {vendor("llamacpp"), `{"stop":"x"}`, false, `{"stop":["x"],"max_tokens":9}`, ""},
		"llama.cpp, stops":        {vendor("llamacpp"), `{"stop":["x"]}`, false, `{"stop":["x"],"max_tokens":9}`, ""},
		"vllm":                    {vendor("vllm"), `{"n":2,"service_tier":"auto","top_k":3}`, true, `{"n":2,"top_k":3,"stream_options":{"include_usage":true},"max_tokens":9}`, ""},
		"vllm, a service tier":    {vendor("vllm"), `{"service_tier":"flex"}`, false, "", "service_tier"},
		"sglang, a search":        {vendor("sglang"), `{"web_search_options":{}}`, false, "", "web_search_options"},
		"xai, reasons":            {named(vendor("xai"), "grok-4"), `{"stop":"x"}`, false, "", "stop"},
		"xai, does not reason":    {named(vendor("xai"), "grok-4-fast-non-reasoning"), `{"stop":"x"}`, false, `{"stop":"x","max_completion_tokens":9}`, ""},
		"xai, penalty of nothing": {named(vendor("xai"), "grok-4"), `{"presence_penalty":0}`, false, `{"max_completion_tokens":9}`, ""},
		"a developer":             {vendor("vllm"), `{"messages":[{"content":"developer","role":"developer"},{"role":"user","content":"x"}]}`, false, `{"messages":[{"content":"developer","role":"system"},{"role":"user","content":"x"}],"max_tokens":9}`, ""},
		"a developer, elsewhere":  {vendor(""), `{"messages":[{"role":"developer","content":"d"}]}`, false, `{"messages":[{"role":"developer","content":"d"}],"max_tokens":9}`, ""},
		"groq, functions":         {vendor("groq"), `{"tools":[{"type":"function","function":{"name":"f"}}]}`, false, `{"tools":[{"type":"function","function":{"name":"f"}}],"max_completion_tokens":9}`, ""},
		"openai, a custom tool":   {own, `{"tools":[{"type":"custom","custom":{"name":"c"}}]}`, false, `{"tools":[{"type":"custom","custom":{"name":"c"}}],"max_completion_tokens":9}`, ""},
		"openai, top_k":           {own, `{"top_k":5}`, false, "", "top_k"},
		"openrouter":              {vendor("openrouter"), `{"logit_bias":{"1":2},"reasoning":{"effort":"low"}}`, false, `{"logit_bias":{"1":2},"reasoning":{"effort":"low"},"max_tokens":9}`, ""},
		"gemini":                  {vendor("gemini-openai"), `{"user":"u","n":2}`, false, `{"n":2,"max_tokens":9}`, ""},
		"gemini, all else":        {vendor("gemini-openai"), `{"logit_bias":{"1":2},"store":true}`, false, `{"logit_bias":{"1":2},"store":true,"max_tokens":9}`, ""},
		"xai, a newer one":        {named(vendor("xai"), "grok-4.5"), `{"stop":"x","reasoning_effort":"low"}`, false, `{"stop":"x","reasoning_effort":"low","max_completion_tokens":9}`, ""},
		"xai, told to reason":     {named(vendor("xai"), "grok-4-1-fast-reasoning"), `{"reasoning_effort":"low"}`, false, "", "reasoning_effort"},
		"xai, a small one":        {named(vendor("xai"), "grok-3-mini"), `{"reasoning_effort":"low"}`, false, `{"reasoning_effort":"low","max_completion_tokens":9}`, ""},
		"xai, many agents":        {named(vendor("xai"), "grok-4.20-multi-agent"), `{"reasoning_effort":"low"}`, false, `{"reasoning_effort":"low","max_completion_tokens":9}`, ""},
		"xai, of that generation": {named(vendor("xai"), "grok-4.20-0309-non-reasoning"), `{"stop":"x"}`, false, `{"stop":"x","max_completion_tokens":9}`, ""},
		"groq, several speak":     {vendor("groq"), `{"messages":[{"name":"a\u0022b","role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"y"}],"name":"c"},{"role":"user","content":"","name":"d"},{"role":"tool","name":"t","content":"z"}]}`, false, `{"messages":[{"role":"user","content":"a\"b: x"},{"role":"user","content":[{"type":"text","text":"c: "},{"type":"text","text":"y"}]},{"role":"user","content":""},{"role":"tool","content":"z"}],"max_completion_tokens":9}`, ""},
		"groq, who speaks":        {vendor("groq"), `{"messages":[{"name":"n","role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}],"name":"n"}]}`, false, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}]}],"max_completion_tokens":9}`, ""},

		"a model that reasons":            {named(own, "o3-mini"), `{"temperature":0.5}`, false, "", "temperature"},
		"at the default":                  {named(own, "o3"), `{"temperature":1.0,"top_p":1,"stop":null}`, false, `{"max_completion_tokens":9}`, ""},
		"stop is for others":              {named(own, "o4-mini"), `{"stop":"x"}`, false, "", "stop"},
		"stop is for o1":                  {named(own, "o1"), `{"stop":"x"}`, false, `{"stop":"x","max_completion_tokens":9}`, ""},
		"gpt-5":                           {named(own, "gpt-5-mini"), `{"reasoning_effort":"minimal","top_p":0.5}`, false, "", "top_p"},
		"gpt-5, the chat model":           {named(own, "gpt-5-chat-latest"), `{"top_p":0.5}`, false, `{"top_p":0.5,"max_completion_tokens":9}`, ""},
		"gpt-5.1 that does not reason":    {named(own, "gpt-5.1"), `{"top_p":0.5,"reasoning_effort":"none"}`, false, `{"top_p":0.5,"reasoning_effort":"none","max_completion_tokens":9}`, ""},
		"gpt-5.1 at its default":          {named(own, "gpt-5.1"), `{"top_p":0.5}`, false, `{"top_p":0.5,"max_completion_tokens":9}`, ""},
		"gpt-5.1 that reasons":            {named(own, "gpt-5.1"), `{"top_p":0.5,"reasoning_effort":"low"}`, false, "", "top_p"},
		"gpt-6":                           {named(own, "gpt-6"), `{"logprobs":true,"reasoning_effort":"none"}`, false, "", "logprobs"},
		"a name that says nothing":        {named(own, "ft:gpt-4o:x"), `{"temperature":0.5}`, false, `{"temperature":0.5,"max_completion_tokens":9}`, ""},
		"azure":                           {azure("v1"), `{"max_tokens":3}`, true, `{"max_completion_tokens":9,"stream_options":{"include_usage":true}}`, ""},
		"azure, dated":                    {azure("2024-10-21"), `{}`, false, `{"max_completion_tokens":9}`, ""},
		"azure, before the new cap":       {azure("2024-06-01"), `{"stream_options":{"include_usage":true}}`, true, `{"max_tokens":9}`, ""},
		"azure, a search":                 {azure(""), `{"web_search_options":{}}`, false, "", "web_search_options"},
		"azure, by the deployment's name": {named(azure(""), "o1-eu"), `{"top_p":0.1}`, false, "", "top_p"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Chat, Stream: c.stream, MaxOutput: 9, Body: []byte(c.body)}
			if c.d.Model == "" {
				c.d.Model = "m"
			}
			body, f := withoutModel(r, &c.d)
			switch {
			case c.param != "" && (f == nil || f.Param != c.param || f.Message == ""):
				t.Fatalf("got %s, %+v, want a refusal of %s", body, f, c.param)
			case c.param == "" && (f != nil || body != c.want):
				t.Fatalf("got %s, %+v, want %s", body, f, c.want)
			case f == nil || f.Kind == exchange.FailRequest:
				return
			}
			if f.Kind != exchange.FailUnsupported {
				t.Errorf("kind %v", f.Kind)
			}
			r.AllowDropped = []string{c.param}
			if body, f := withoutModel(r, &c.d); f != nil || len(body) >= len(c.body)+len(`,"max_completion_tokens":9`) {
				t.Errorf("allowed to be dropped: %s, %+v", body, f)
			}
		})
	}
}

// TestOnlyFunctions: a custom tool goes to no server that knows only functions.
func TestOnlyFunctions(t *testing.T) {
	const f, c = `{"type":"function","function":{"name":"f"}}`, `{"type":"custom","custom":{"name":"c"}}`
	for tools, want := range map[string]string{
		f: f, c + "," + f: f, f + "," + c: f, f + ", " + c + ", " + f: f + ", " + f, c + "," + f + "," + c: f, c: "", c + "," + c: "",
	} {
		r := &exchange.Request{Operation: exchange.Chat, MaxOutput: 9, Body: []byte(`{"tools":[` + tools + `],"seed":1}`)}
		d := &exchange.Deployment{Provider: "compatible", Vendor: "vllm", Model: "m"}
		at := strings.Count(strings.Split(tools, `"custom"`)[0], "function\":")
		if body, no := withoutModel(r, d); tools != f && (no == nil || no.Kind != exchange.FailUnsupported || no.Param != fmt.Sprintf("tools[%d].type", at)) {
			t.Errorf("%s: %s %+v", tools, body, no)
		}
		r.AllowDropped = []string{"tools"}
		if want != "" {
			want = `"tools":[` + want + `],`
		}
		if body, no := withoutModel(r, d); no != nil || body != `{`+want+`"seed":1,"max_tokens":9}` {
			t.Errorf("%s, dropped: %s %+v", tools, body, no)
		}
	}
}

// withoutModel is the request's body without its first member, which says the model.
func withoutModel(r *exchange.Request, d *exchange.Deployment) (string, *exchange.Failure) {
	asked := r.Body
	defer func() { r.Body = asked }()
	r.Body = append([]byte(`{"model":"a",`), asked[1:]...)
	if len(asked) == 2 {
		r.Body = []byte(`{"model":"a"}`)
	}
	call, f := New().Request(r, d, nil)
	if f != nil {
		return "", f
	}
	head := `{"model":` + string(quote(d.Model)) + `,`
	if string(call.Body[:len(head)]) != head {
		return string(call.Body), nil
	}
	return "{" + string(call.Body[len(head):]), nil
}

func TestVendorOfEmbeddings(t *testing.T) {
	r := &exchange.Request{Operation: exchange.Embeddings, Body: []byte(`{"model":"a","user":"u","dimensions":8,"n":2}`)}
	call, f := New().Request(r, &exchange.Deployment{Provider: "compatible", Vendor: "mistral", Model: "m"}, nil)
	if want := `{"model":"m","output_dimension":8,"n":2}`; f != nil || string(call.Body) != want {
		t.Errorf("got %s, %+v, want %s", call.Body, f, want)
	}
}

// TestHistory: of a conversation that began elsewhere, strict servers get what they know, and Mistral ids of its kind:
// the same for a call and its result, and its own as they are.
func TestHistory(t *testing.T) {
	const history = `{"model":"a","messages":[{"role":"user","content":"\"reasoning_content\""},` +
		`{"reasoning_content":"hm","role":"assistant","content":null,"reasoning_details":[{"text":"hm"}],` +
		`"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{}}},` +
		`{"extra_content":{},"id":"abcDEF123","type":"function"}],"reasoning":"hm"},` +
		`{"role":"tool","tool_call_id":"call_1","content":"1"},{"role":"tool","content":"2","tool_call_id":"abcDEF123"}],"max_tokens":5}`
	const bare = `{"model":"m","messages":[{"role":"user","content":"\"reasoning_content\""},{"role":"assistant","content":null,` +
		`"tool_calls":[{"id":"ID","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"abcDEF123","type":"function"}]},` +
		`{"role":"tool","tool_call_id":"ID","content":"1"},{"role":"tool","content":"2","tool_call_id":"abcDEF123"}],"CAP":5}`
	short := shortID("call_1")
	if !isShort(short) || short == shortID("call_2") || isShort("call_1abc") || isShort("abcDEF12") {
		t.Fatalf("short id %q", short)
	}
	for name, c := range map[string]struct {
		d    exchange.Deployment
		want string
	}{
		"openai":     {exchange.Deployment{Provider: "openai"}, replace(bare, "ID", "call_1", "CAP", newCap, "abcDEF123", "abcDEF123")},
		"azure":      {exchange.Deployment{Provider: "azure"}, replace(bare, "ID", "call_1", "CAP", newCap)},
		"mistral":    {exchange.Deployment{Provider: "compatible", Vendor: "mistral"}, replace(bare, "ID", short, "CAP", oldCap)},
		"gemini":     {exchange.Deployment{Provider: "compatible", Vendor: "gemini-openai"}, replace(history, `"model":"a"`, `"model":"m"`)},
		"compatible": {exchange.Deployment{Provider: "compatible"}, replace(history, `"model":"a"`, `"model":"m"`)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Chat, MaxOutput: 5, Body: []byte(history)}
			c.d.Model = "m"
			call, f := New().Request(r, &c.d, nil)
			if f != nil || string(call.Body) != c.want {
				t.Errorf("got  %s, %+v\nwant %s", call.Body, f, c.want)
			}
		})
	}
}

func TestAzurePath(t *testing.T) {
	for name, c := range map[string]struct{ base, version, want string }{
		"v1":                   {"https://x/openai/v1", "", "/chat/completions"},
		"v1, with its version": {"https://x/openai/v1", "preview", "/chat/completions?api-version=preview"},
		"v1, of a resource":    {"https://x", "", "/openai/v1/chat/completions"},
		"v1, half of it":       {"https://x/openai", "v1", "/v1/chat/completions?api-version=v1"},
		"dated":                {"https://x", "2024-10-21", "/openai/deployments/gpt%204/chat/completions?api-version=2024-10-21"},
		"dated, half of it":    {"https://x/openai", "2024-10-21", "/deployments/gpt%204/chat/completions?api-version=2024-10-21"},
		"dated, without name":  {"https://x/openai/deployments", "2024-10-21", "/gpt%204/chat/completions?api-version=2024-10-21"},
		"dated, with its name": {"https://x/openai/deployments/d", "2024-10-21", "/chat/completions?api-version=2024-10-21"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{}`)}
			d := &exchange.Deployment{Provider: "azure", BaseURL: c.base, APIVersion: c.version, Model: "gpt 4"}
			call, f := New().Request(r, d, []byte("hush"))
			if f != nil || call.Path != c.want {
				t.Errorf("got %q, %+v, want %q", call.Path, f, c.want)
			}
			if len(call.Header) != 1 || call.Header[0].Name != "Content-Type" {
				t.Errorf("header %+v: the credentials come later", call.Header)
			}
		})
	}
}

func replace(s string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(s) }

// FuzzVendors: whatever a vendor's ways do to a request, it stays JSON, has no member twice, and a refusal names what is
// refused. Whatever Ollama answers stays JSON too.
func FuzzVendors(f *testing.F) {
	f.Add(`{"model":"a","seed":1,"stop":"x","user":"u","messages":[{"role":"tool","tool_call_id":"c1","reasoning":1}]}`, uint8(0), true)
	f.Add(`{"messages":[{"reasoning_content":"a"},{"tool_calls":[{"extra_content":{}},{"id":"x","extra_content":1}]}],"n":1}`, uint8(3), false)
	f.Add(`{"message":{"content":"a","tool_calls":[{}]},"done":true,"eval_count":1,"prompt_eval_count":2}`, uint8(5), false)
	f.Add(`{"":0}`, uint8(158), false)
	names := slices.Sorted(maps.Keys(vendors))
	f.Fuzz(func(t *testing.T, body string, vendor uint8, stream bool) {
		var before, after map[string]json.RawMessage
		if !adapter.Valid([]byte(body)) || json.Unmarshal([]byte(body), &before) != nil || before == nil {
			return
		}
		members := 0
		for c := enter([]byte(body), whole([]byte(body))); c.next(); {
			members++
		}
		if members != len(before) {
			return // the gateway refuses a member that is there twice
		}
		d := &exchange.Deployment{Provider: "compatible", Vendor: names[int(vendor)%len(names)], Model: "real"}
		if vendor > 127 {
			d = &exchange.Deployment{Provider: "compatible", Vendor: "ollama", BaseURL: "http://h/api", Model: "real"}
		}
		r := &exchange.Request{Operation: exchange.Chat, Stream: stream, Body: []byte(body), MaxOutput: 7}
		switch call, no := New().Request(r, d, nil); {
		case no != nil && (no.Param == "" || no.Message == ""):
			t.Fatalf("%s: %+v", body, no)
		case no == nil && json.Unmarshal(call.Body, &after) != nil:
			t.Fatalf("%s became %s", body, call.Body)
		case no == nil:
			n := 0
			for c := enter(call.Body, whole(call.Body)); c.next(); {
				n++
			}
			if n != len(after) || string(after["model"]) != `"real"` {
				t.Fatalf("%s became %s", body, call.Body)
			}
		}
		if out := fromOllama([]byte(body), r, stream); !json.Valid(out) {
			t.Fatalf("%s became %s", body, out)
		}
	})
}
