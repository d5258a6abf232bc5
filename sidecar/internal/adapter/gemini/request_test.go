package gemini_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const hi = `"messages":[{"role":"user","content":"hi"}]`

// contents is the body of a request with such contents and nothing else.
func contents(turns string) string { return `{"contents":[` + turns + `]}` }

const hiTurn = `{"role":"user","parts":[{"text":"hi"}]}`

const tool = `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"$ref":"#/x"}}}}}`

const declared = `,"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"a":{"$ref":"#/x"}}}}]}]`

func TestRequest(t *testing.T) {
	for name, c := range map[string]struct {
		model, body string // body without the braces
		want        string
	}{
		"text": {"gemini-3", hi, contents(hiTurn)},
		"system texts": {
			"gemini-3", `"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"developer","content":[{"type":"text","text":"b\n"}]}]`,
			`{"contents":[` + hiTurn + `],"systemInstruction":{"parts":[{"text":"a"},{"text":"b\n"}]}}`,
		},
		"turns of one role": {
			"gemini-3", `"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c","refusal":"no"},{"role":"user","content":"d"}]`,
			contents(`{"role":"user","parts":[{"text":"a"},{"text":"b"}]},{"role":"model","parts":[{"text":"c"},{"text":"no"}]},{"role":"user","parts":[{"text":"d"}]}`),
		},
		"sampling": {
			"gemini-3", hi + `,"temperature":0.5,"top_p":0.9,"top_k":5,"seed":-7,"presence_penalty":0.1,"frequency_penalty":-1,"stop":["a","b"],"n":1,"logprobs":true,"top_logprobs":3,"user":"u","store":false,"stream_options":null`,
			`{"contents":[` + hiTurn + `],"generationConfig":{"temperature":0.5,"topP":0.9,"topK":5,"seed":-7,"presencePenalty":0.1,"frequencyPenalty":-1,"stopSequences":["a","b"],"responseLogprobs":true,"logprobs":3}}`,
		},
		"JSON": {
			"gemini-3", hi + `,"response_format":{"type":"json_object"}`,
			`{"contents":[` + hiTurn + `],"generationConfig":{"responseMimeType":"application/json"}}`,
		},
		"JSON schema": {
			"gemini-3", hi + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","$defs":{}}}}`,
			`{"contents":[` + hiTurn + `],"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":{"type":"object","$defs":{}}}}`,
		},
		"drawn before": {"gemini-3-pro-image", `"messages":[{"role":"user","content":"draw"},{"role":"assistant","content":"here","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}],"reasoning_details":[{"type":"reasoning.encrypted","format":"google-gemini-v1","index":0,"data":"sig"}]}]`,
			contents(`{"role":"user","parts":[{"text":"draw"}]},{"role":"model","parts":[{"text":"here"},{"inlineData":{"mimeType":"image/png","data":"QUJD"},"thoughtSignature":"sig"}]}`)},
		"an image":      {"gemini-2.5-flash-image", hi + `,"modalities":["text","image"]`, `{"contents":[` + hiTurn + `],"generationConfig":{"responseModalities":["TEXT","IMAGE"]}}`},
		"no image":      {"gemini-3-pro-image", hi + `,"modalities":["text"]`, `{"contents":[` + hiTurn + `],"generationConfig":{"responseModalities":["TEXT"]}}`},
		"only text":     {"gemini-2.5-pro", hi + `,"modalities":["text"]`, contents(hiTurn)},
		"a new model":   {"gemini-9", hi + `,"modalities":["image"]`, `{"contents":[` + hiTurn + `],"generationConfig":{"responseModalities":["IMAGE"]}}`},
		"tools":         {"gemini-3", hi + `,"tools":[` + tool + `]`, `{"contents":[` + hiTurn + `]` + declared + `}`},
		"tool of none":  {"gemini-3", hi + `,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]`, `{"contents":[` + hiTurn + `],"tools":[{"functionDeclarations":[{"name":"f"}]}]}`},
		"strict":        {"gemini-3", hi + `,"tools":[{"type":"function","function":{"name":"f","strict":true}}]`, `{"contents":[` + hiTurn + `],"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"}}}`},
		"auto":          choice(`"auto"`, `{"mode":"AUTO"}`),
		"none":          choice(`"none"`, `{"mode":"NONE"}`),
		"required":      choice(`"required"`, `{"mode":"ANY"}`),
		"named":         choice(`{"type":"function","function":{"name":"f"}}`, `{"mode":"ANY","allowedFunctionNames":["f"]}`),
		"allowed":       choice(`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}`, `{"mode":"ANY"}`),
		"effort, level": effort("gemini-3-pro", "high", `{"thinkingLevel":"HIGH","includeThoughts":true}`),
		"least, pro":    effort("gemini-3-pro", "minimal", `{"thinkingLevel":"LOW","includeThoughts":true}`),
		"least, flash":  effort("gemini-flash-latest", "minimal", `{"thinkingLevel":"MINIMAL","includeThoughts":true}`),
		"effort, 2.5":   effort("gemini-2.5-pro", "low", `{"thinkingBudget":2048,"includeThoughts":true}`),
		"most, 2.5":     effort("gemini-2.5-flash", "max", `{"thinkingBudget":24576,"includeThoughts":true}`),
		"no thinking":   effort("gemini-2.5-flash", "none", `{"thinkingBudget":0}`),
		"none to stop":  {"gemini-2.0-flash", hi + `,"reasoning_effort":"none"`, contents(hiTurn)},
		"tier":          {"gemini-3", hi + `,"service_tier":"flex"`, `{"contents":[` + hiTurn + `],"serviceTier":"flex"}`},
		"media": {
			"gemini-3", `"messages":[{"role":"user","content":[` +
				`{"type":"image_url","image_url":{"url":"data:image/jpg;base64,QUJD","detail":"high"}},` +
				`{"type":"image_url","image_url":{"url":"https://h/a.PNG?x=1"}},{"type":"image_url","image_url":{"url":"https://h/a"}},` +
				`{"type":"file","file":{"filename":"a","file_data":"data:application/pdf;base64,QUJD"}},` +
				`{"type":"file","file":{"file_id":"gs://b/o","format":"text/csv"}},` +
				`{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}]}]`,
			contents(`{"role":"user","parts":[{"inlineData":{"mimeType":"image/jpeg","data":"QUJD"}},` +
				`{"fileData":{"fileUri":"https://h/a.PNG?x=1","mimeType":"image/png"}},{"fileData":{"fileUri":"https://h/a"}},` +
				`{"inlineData":{"mimeType":"application/pdf","data":"QUJD"}},{"fileData":{"fileUri":"gs://b/o","mimeType":"text/csv"}},` +
				`{"inlineData":{"mimeType":"audio/wav","data":"QUJD"}}]}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			call, f := gemini.New().Request(chat("{"+c.body+"}", false), &exchange.Deployment{Model: c.model}, []byte("key"))
			if f != nil {
				t.Fatalf("%+v", f)
			}
			if got := string(call.Body); got != c.want || !json.Valid(call.Body) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if call.Path != "/models/"+c.model+":generateContent" || len(call.Header) != 1 {
				t.Errorf("%s %v", call.Path, call.Header)
			}
		})
	}
}

func choice(asked, want string) (c struct{ model, body, want string }) {
	c.model, c.body = "gemini-3", hi+`,"tools":[`+tool+`],"parallel_tool_calls":true,"tool_choice":`+asked
	c.want = `{"contents":[` + hiTurn + `]` + declared + `,"toolConfig":{"functionCallingConfig":` + want + `}}`
	return c
}

func effort(model, word, want string) (c struct{ model, body, want string }) {
	c.model, c.body = model, hi+`,"reasoning_effort":"`+word+`"`
	c.want = `{"contents":[` + hiTurn + `],"generationConfig":{"thinkingConfig":` + want + `}}`
	return c
}

// TestRefusedRequests: what cannot be honoured is refused by the name of the member, and so is what is malformed.
func TestRefusedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		param string
		kind  exchange.FailureKind
	}{
		"unknown member":     {hi + `,"wish":1`, "wish", exchange.FailUnsupported},
		"logit bias":         {hi + `,"logit_bias":{"1":2}`, "logit_bias", exchange.FailUnsupported},
		"no model to draw":   {hi + `,"modalities":["text","image"]`, "modalities", exchange.FailUnsupported},
		"no modality":        {hi + `,"modalities":["smell"]`, "modalities[0]", exchange.FailRequest},
		"no modalities":      {hi + `,"modalities":"text"`, "modalities", exchange.FailRequest},
		"audio out":          {hi + `,"modalities":["text","audio"]`, "modalities", exchange.FailUnsupported},
		"prediction":         {hi + `,"prediction":{}`, "prediction", exchange.FailUnsupported},
		"stored":             {hi + `,"store":true`, "store", exchange.FailUnsupported},
		"verbosity":          {hi + `,"verbosity":"low"`, "verbosity", exchange.FailUnsupported},
		"search":             {hi + `,"web_search_options":{}`, "web_search_options", exchange.FailUnsupported},
		"functions":          {hi + `,"functions":[]`, "functions", exchange.FailUnsupported},
		"one call at a time": {hi + `,"tools":[` + tool + `],"parallel_tool_calls":false`, "parallel_tool_calls", exchange.FailUnsupported},
		"custom tool":        {hi + `,"tools":[{"type":"custom","custom":{"name":"c"}}]`, "tools[0]", exchange.FailUnsupported},
		"scale tier":         {hi + `,"service_tier":"scale"`, "service_tier", exchange.FailUnsupported},
		"wide seed":          {hi + `,"seed":3000000000`, "seed", exchange.FailUnsupported},
		"no thinking":        {hi + `,"reasoning_effort":"none"`, "reasoning_effort", exchange.FailUnsupported},
		"function message":   {`"messages":[{"role":"function","name":"f","content":"x"}]`, "messages[0].role", exchange.FailUnsupported},
		"file of another":    {`"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]`, "messages[0].content[0]", exchange.FailUnsupported},
		"odd scheme":         {`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://h/a.png"}}]}]`, "messages[0].content[0]", exchange.FailUnsupported},
		"effort":             {hi + `,"reasoning_effort":"huge"`, "reasoning_effort", exchange.FailRequest},
		"hot":                {hi + `,"temperature":3`, "temperature", exchange.FailRequest},
		"no messages":        {`"messages":[]`, "messages", exchange.FailRequest},
		"system alone":       {`"messages":[{"role":"system","content":"x"}]`, "messages", exchange.FailRequest},
		"unknown call":       {`"messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"x"}]`, "messages[1].tool_call_id", exchange.FailRequest},
		"broken arguments":   {`"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}]`, "messages[0].tool_calls[0].function.arguments", exchange.FailRequest},
		"unknown function":   {hi + `,"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"g"}}`, "tool_choice", exchange.FailRequest},
		"demand of nothing":  {hi + `,"tool_choice":"required"`, "tool_choice", exchange.FailRequest},
		"part":               {`"messages":[{"role":"system","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}]}]`, "messages[0].content[0].type", exchange.FailRequest},
	} {
		t.Run(name, func(t *testing.T) {
			call, f := gemini.New().Request(chat("{"+c.body+"}", false), &exchange.Deployment{Model: "gemini-3-pro"}, nil)
			if f == nil || f.Param != c.param || f.Kind != c.kind || f.Message == "" {
				t.Fatalf("%+v, %s", f, call.Body)
			}
			top, _, _ := strings.Cut(f.Param, "[")
			if f.Kind != exchange.FailUnsupported || top == "messages" {
				return
			}
			r := chat("{"+c.body+"}", false)
			r.AllowDropped = []string{top}
			if _, f := gemini.New().Request(r, &exchange.Deployment{Model: "gemini-3-pro"}, nil); f != nil {
				t.Errorf("may be dropped, but %+v", f)
			}
		})
	}
}

func TestOutputCap(t *testing.T) {
	for _, c := range []struct {
		max, usual int64
		want       string
	}{{0, 0, ""}, {0, 70, `"maxOutputTokens":70`}, {9, 70, `"maxOutputTokens":9`}} {
		r := chat("{"+hi+"}", false)
		r.MaxOutput, r.DefaultOutput, r.Choices = c.max, c.usual, 3
		r.Body = []byte(`{"n":3,` + hi + `}`)
		call, f := gemini.New().Request(r, &exchange.Deployment{Model: "gemini-3"}, nil)
		if f != nil || !strings.Contains(string(call.Body), `"candidateCount":3`) ||
			strings.Contains(string(call.Body), "maxOutputTokens") != (c.want != "") || !strings.Contains(string(call.Body), c.want) {
			t.Errorf("%+v %s", f, call.Body)
		}
	}
}

func TestPaths(t *testing.T) {
	at := func(model string) *exchange.Deployment {
		return &exchange.Deployment{Model: model, Project: "p", Region: "eu"}
	}
	for _, c := range []struct {
		ad     *gemini.Adapter
		model  string
		stream bool
		want   string
	}{
		{gemini.New(), "gemini-3", true, "/models/gemini-3:streamGenerateContent?alt=sse"},
		{gemini.New(), "tunedModels/a b", false, "/tunedModels/a%20b:generateContent"},
		{gemini.NewVertex(), "gemini-3", false, "/projects/p/locations/eu/publishers/google/models/gemini-3:generateContent"},
		{gemini.NewVertex(), "endpoints/12", true, "/projects/p/locations/eu/endpoints/12:streamGenerateContent?alt=sse"},
		{gemini.NewVertex(), "claude-mid@1", true, "/projects/p/locations/eu/publishers/anthropic/models/claude-mid@1:streamRawPredict"},
		{gemini.NewVertex(), "publishers/anthropic/models/claude-x", false, "/projects/p/locations/eu/publishers/anthropic/models/claude-x:rawPredict"},
	} {
		call, f := c.ad.For(at(c.model)).Request(chat("{"+hi+"}", c.stream), at(c.model), nil)
		if f != nil || call.Path != c.want {
			t.Errorf("%+v, got %s, want %s", f, call.Path, c.want)
		}
	}
}

// TestVertexDiffers: the tier is asked for in the head, a file must be of a known kind, and calls have no ids.
func TestVertexDiffers(t *testing.T) {
	d := &exchange.Deployment{Model: "gemini-3", Project: "p", Region: "eu"}
	call, f := gemini.NewVertex().Request(chat(`{"service_tier":"flex",`+hi+`}`, false), d, nil)
	want := adapter.Field{Name: "x-vertex-ai-llm-shared-request-type", Value: "flex"}
	if f != nil || len(call.Header) != 2 || call.Header[1] != want || string(call.Body) != contents(hiTurn) {
		t.Errorf("%+v, %+v", f, call)
	}
	_, f = gemini.NewVertex().Request(chat(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://h/a"}}]}]}`, false), d, nil)
	if f == nil || f.Kind != exchange.FailUnsupported || f.Param != "messages[0].content[0]" {
		t.Errorf("%+v", f)
	}
	call, f = gemini.NewVertex().Request(chat(`{"messages":[{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"c1","content":"x"}]}`, false), d, nil)
	if f != nil || strings.Contains(string(call.Body), "c1") {
		t.Errorf("%+v, %s", f, call.Body)
	}
}
